"""Sessions: state across cells, runs in a queue, found again, saved and loaded."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.errors import AgentBusyError, InputError, SavedStateError
from agent_widgets.loops import LoopThread
from agent_widgets.magics import AgentMagics
from agent_widgets.messages import JsonObject, PermissionRule, UserMsg
from agent_widgets.models.scripted import ScriptedModel, Turn, call, fail, say, wait
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, session_of, sessions
from agent_widgets.state import AgentState
from agent_widgets.tools import tool
from tests.validator import assert_valid


@tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    return f"deleted from {table}"


def agent_of(*script: Turn, **options: Any) -> Agent:
    return Agent(ScriptedModel(list(script)), tools=[delete_rows], **options)


@pytest.fixture(autouse=True)
def no_sessions() -> Iterator[None]:
    yield
    for session in sessions():
        session.close()
    assert sessions() == ()


@pytest.fixture(autouse=True)
def nothing_failed_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a callback of the loop raises is only logged: here it fails the test."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@pytest.fixture
async def here() -> asyncio.AbstractEventLoop:
    """The loop of the test, which carries its runs."""
    return asyncio.get_running_loop()


async def until(run: Run, *wanted: str) -> None:
    reached = asyncio.Event()
    forget = run.listen(lambda run, _: reached.set() if run.status in wanted else None)
    if run.status not in wanted:
        await asyncio.wait_for(reached.wait(), 5)
    forget()


# -- the queue ------------------------------------------------------------------------------------------------------


async def test_runs_of_one_session_share_its_state_and_follow_each_other(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of("one", "two", "three")
    session = Session(agent, loop=here)
    order: list[str] = []

    def listen(run: Run) -> None:
        run.listen(lambda run, event: None if event else order.append(f"{run.prompt} {run.status}"))

    runs = [session.run(prompt, before_start=listen) for prompt in "abc"]
    assert [(await run).text for run in runs] == ["one", "two", "three"]
    assert [entry for entry in order if "queued" not in entry] == [f"{p} {s}" for p in "abc" for s in ("running", "completed")]
    assert session.runs == tuple(runs)
    assert session.state is not None
    assert [message.text for message in session.state.context] == ["a", "one", "b", "two", "c", "three"]


async def test_a_session_keeps_the_newest_of_its_ended_runs_and_all_that_wait(
    here: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("agent_widgets.sessions"), "KEPT_RUNS", 2)  # by name it is the function
    gate = asyncio.Event()
    session = Session(agent_of("1", "2", "3", [wait(gate), say("4")], "5", "6", "7"), loop=here)
    ended = [session.run(prompt) for prompt in "abc"]
    assert [(await run).text for run in ended] == ["1", "2", "3"]
    waiting = [session.run(prompt) for prompt in "defg"]
    assert session.runs == (*ended[1:], *waiting)
    assert "7 runs" in repr(session)
    gate.set()
    assert [(await run).text for run in waiting] == ["4", "5", "6", "7"]
    assert ended[0].text == "1"  # whoever holds one keeps it


async def test_a_run_that_waits_says_how_many_are_before_it(here: asyncio.AbstractEventLoop) -> None:
    gate = asyncio.Event()
    session = Session(agent_of([wait(gate), say("1")], "2", "3"), loop=here)
    first, second, third = session.run("a"), session.run("b"), session.run("c")
    await until(first, "running")
    assert [(run.status, run.ahead) for run in (second, third)] == [("queued", 1), ("queued", 2)]
    told: list[int] = []
    third.listen(lambda run, event: told.append(run.ahead) if event is None and run.status == "queued" else None)
    gate.set()
    await third
    assert told[-1] == 1
    assert "ahead" not in third.status_facts()


async def test_a_queued_run_that_is_stopped_is_taken_out_and_the_others_move_up(here: asyncio.AbstractEventLoop) -> None:
    gate = asyncio.Event()
    agent = agent_of([wait(gate), say("1")], "3")
    session = Session(agent, loop=here)
    first, second, third = session.run("a"), session.run("b"), session.run("c")
    await until(first, "running")
    second.stop(reason="changed my mind")
    await second
    await asyncio.sleep(0)
    assert (second.status, [event.type for event in second.events]) == ("interrupted", ["REPLY_END"])
    assert (third.status, third.ahead, first.status) == ("queued", 1, "running")
    gate.set()
    assert (await third).text == "3"
    assert [message.text for message in agent.state.context] == ["a", "1", "c", "3"]


async def test_a_failed_or_stopped_run_lets_the_next_one_start(here: asyncio.AbstractEventLoop) -> None:
    session = Session(agent_of(fail("gone"), [say(["half"]), wait(asyncio.Event())], "three"), loop=here)
    first, second, third = session.run("a"), session.run("b"), session.run("c")
    await until(second, "running")
    assert first.status == "error"
    session.interrupt(reason="next, please")
    assert (await third).text == "three"
    assert (second.status, second.events[-1].metadata["reason"]) == ("interrupted", "next, please")


async def test_a_prompt_waits_behind_a_pause_and_neither_executes_nor_drops_what_is_pending(
    here: asyncio.AbstractEventLoop,
) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}), "deleted", "next")
    session = Session(agent, loop=here)
    first = session.run("a")
    await until(first, "paused")
    second = session.run("b")
    await asyncio.sleep(0)
    assert (first.status, second.status, second.ahead) == ("paused", "queued", 1)
    first.approve()
    assert ((await first).text, (await second).text) == ("deleted", "next")


async def test_interrupt_ends_what_is_busy_or_paused_and_not_what_waits(here: asyncio.AbstractEventLoop) -> None:
    session = Session(agent_of(call("delete_rows", {"table": "t"}), "two"), loop=here)
    session.interrupt()
    first, second = session.run("a"), session.run("b")
    await until(first, "paused")
    session.interrupt()
    assert (await second).text == "two"
    assert (first.status, second.status) == ("interrupted", "completed")
    session.interrupt()


async def test_reset_begins_a_fresh_conversation_when_its_turn_comes(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of("one", "two", "three")
    session = Session(agent, loop=here)
    runs = [session.run("a"), session.run("b", reset=True), session.run("c")]
    before = agent.state.session_id
    for run in runs:
        await run
    assert [message.text for message in agent.state.context] == ["b", "two", "c", "three"]
    assert agent.state.session_id != before


async def test_a_reset_that_cannot_be_done_fails_its_own_run_only(here: asyncio.AbstractEventLoop) -> None:
    gate = asyncio.Event()
    agent = agent_of([say(["a"]), wait(gate)], "later")
    direct = asyncio.create_task(agent.reply("not of the session"))
    while not agent.state.context:
        await asyncio.sleep(0)
    session = Session(agent, loop=here)
    run = session.run("b", reset=True)
    with pytest.raises(AgentBusyError):
        await run
    gate.set()
    await direct
    assert (await session.run("c")).text == "later"


async def test_a_run_on_an_agent_that_replies_elsewhere_fails_and_the_session_goes_on(here: asyncio.AbstractEventLoop) -> None:
    gate = asyncio.Event()
    agent = agent_of([say(["a"]), wait(gate)], "later")
    direct = asyncio.create_task(agent.reply("not of the session"))
    while not agent.state.context:
        await asyncio.sleep(0)
    session = Session(agent, loop=here)
    with pytest.raises(AgentBusyError):
        await session.run("b")
    gate.set()
    await direct
    assert (await session.run("c")).text == "later"


async def test_resume_goes_on_without_a_new_message(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of([say(["half "]), fail("gone")], "and the rest")
    session = Session(agent, loop=here)
    run = session.run("go")
    await until(run, "error")
    again = run.resume()
    assert (await again).text == "and the rest"
    assert [message.text for message in agent.state.context] == ["go", "half ", "and the rest"]
    assert session.runs == (run, again)


async def test_a_decision_may_be_the_prompt_of_a_run(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of([call("delete_rows", {"table": "t"}), call("delete_rows", {"table": "u"})], "deleted")
    await agent.reply("go")
    first = agent.state.waiting()[0]
    decision = ev.UserConfirmResultEvent(
        reply_id=agent.state.reply_id, confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=first),)
    )
    run = Session(agent, loop=here).run(decision)
    await until(run, "paused")
    assert [waits.id for waits in run.transcript.waiting] == ["call_2"]
    run.deny()
    assert (await run).text == "deleted"


async def test_a_pause_that_was_ended_behind_the_runs_back_does_not_make_it_spin(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}), "next")
    session = Session(agent, loop=here)
    run = session.run("go")
    await until(run, "paused")
    agent.load(agent.dump() | {"context": [], "reply_id": ""})
    run.stop()
    await asyncio.wait_for(asyncio.wrap_future(run.ended), 5)
    assert [event.type for event in run.events].count("USER_INTERRUPT") == 1
    assert (await session.run("go")).text == "next"


@pytest.mark.parametrize("streams", [False, True])
async def test_an_interrupt_event_ends_the_pause_of_the_run_that_waits(here: asyncio.AbstractEventLoop, *, streams: bool) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}), "next")
    session = Session(agent, loop=here)
    run = session.run("go")
    await until(run, "paused")
    interrupt = ev.UserInterruptEvent(reply_id=agent.state.reply_id)
    if streams:
        said = [event.type async for event in agent.reply_stream(interrupt)]
        assert said == ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "REPLY_END"]
    else:
        assert (await agent.reply(interrupt)).metadata["_is_interrupted"]
    assert (run.status, session.current) == ("interrupted", None)
    assert (await session.run("go")).text == "next"


async def test_a_decision_for_a_run_that_waits_on_its_card_says_where_to_decide_and_loses_nothing(
    here: asyncio.AbstractEventLoop,
) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}), "gone")
    run = Session(agent, loop=here).run("go")
    await until(run, "paused")
    decision = ev.UserConfirmResultEvent(
        reply_id=agent.state.reply_id, confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=agent.state.waiting()[0]),)
    )
    with pytest.raises(AgentBusyError, match="decide on its card"):
        await agent.reply(decision)
    run.approve()
    assert (await run).text == "gone"


# -- the registry ---------------------------------------------------------------------------------------------------


def test_the_session_of_an_agent_is_found_again() -> None:
    agent = agent_of(name="bob")
    session = session_of(agent)
    assert (session.name, session.agent) == ("bob", agent)
    assert session_of(agent) is session
    assert session_of(agent, "another name") is session
    assert session_of(agent_of(name="ann"), "orders").name == "orders"
    assert [one.name for one in sessions()] == ["bob", "orders"]


def test_names_made_from_the_agent_are_numbered() -> None:
    assert [session_of(agent_of(name="bob")).name for _ in range(3)] == ["bob", "bob-2", "bob-3"]


def test_a_name_that_is_taken_is_refused_and_says_so() -> None:
    Session(agent_of(), "orders")
    with pytest.raises(
        InputError, match=r"There is a session called 'orders' already\. Choose another name, or close that one\."
    ):
        Session(agent_of(), "orders")
    assert len(sessions()) == 1


@pytest.mark.parametrize("wrong", [None, "gpt-5-mini", 5, object(), Agent])
def test_what_is_not_an_agent_is_refused_with_what_would_be(wrong: object) -> None:
    with pytest.raises(InputError, match=r"is not an agent that agent-widgets can drive. Give an agent_widgets.Agent"):
        session_of(wrong)
    assert sessions() == ()


def test_a_foreign_backend_has_a_session_without_a_state() -> None:
    class Foreign:
        name = "foreign"

        async def run(self, inputs: Any, emit: Any, /) -> None: ...

        def stop_after_step(self) -> bool:
            return False

        def dump(self) -> JsonObject:
            return {"own": 1}

        def load(self, saved: JsonObject, /) -> None: ...

    session = session_of(Foreign())
    assert (session.name, session.state) == ("foreign", None)


async def test_closing_stops_what_runs_and_what_waits_and_frees_the_name(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of([say(["half "]), wait(asyncio.Event())], "never")
    session = Session(agent, "orders", loop=here)
    first, second = session.run("a"), session.run("b")
    await until(first, "running")
    session.close()
    await asyncio.gather(first, second)
    assert (first.status, second.status) == ("interrupted", "interrupted")
    assert first.events[-1].metadata["reason"] == "the session was closed"
    assert len(agent.model.requests) == 1  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    assert sessions() == ()
    assert Session(agent_of(), "orders").name == "orders"
    session.close()


async def test_the_repr_says_how_it_stands(here: asyncio.AbstractEventLoop) -> None:
    session = Session(agent_of("x"), "orders", loop=here)
    assert repr(session) == "<Session 'orders': 0 runs, idle>"
    await session.run("a")
    assert repr(session) == "<Session 'orders': 1 runs, idle>"


# -- the loop thread ------------------------------------------------------------------------------------------------


def test_runs_go_on_on_the_loop_thread_while_this_one_is_busy() -> None:
    gate = threading.Event()
    session = session_of(agent_of([say(["one "]), wait(gate), say(["two"])], "next"))
    assert session.loop is LoopThread.get().loop
    first, second = session.run("a"), session.run("b")
    while not first.text:
        pass
    gate.set()
    assert second.wait(5).text == "next"
    assert (first.wait(5).text, first.status) == ("one two", "completed")
    LoopThread.get().close()


def test_a_person_decides_from_plain_code() -> None:
    session = session_of(agent_of(call("delete_rows", {"table": "t"}), "I see."))
    paused = threading.Event()
    run = session.run("go", on_pause=lambda _: paused.set())
    assert paused.wait(5)
    run.deny(reason="no")
    assert run.wait(5).text == "I see."
    LoopThread.get().close()


# -- files ----------------------------------------------------------------------------------------------------------


async def test_a_saved_session_goes_on_in_another_agent(tmp_path: Path, here: asyncio.AbstractEventLoop) -> None:
    path = tmp_path / "orders.json"
    session = Session(agent_of("one"), "orders", loop=here)
    await session.run("a")
    session.save(path)
    session.close()
    other = agent_of("two", instructions="Be brief.")
    loaded = Session.load(path, other)
    assert (loaded.name, loaded.agent, loaded.state) == ("orders", other, session.state)
    assert (await loaded.run("b")).text == "two"
    assert isinstance(other.model, ScriptedModel)
    assert_valid(other.model.requests[0].messages)
    assert [message["content"] for message in other.model.requests[0].messages] == ["Be brief.", "a", "one", "b"]
    LoopThread.get().close()


async def test_a_file_is_the_owners_only_and_has_no_key_in_it(tmp_path: Path) -> None:
    agent = Agent("some-model", api_key="sk-verysecret123", base_url="http://127.0.0.1:9/v1")
    session_of(agent).save(str(tmp_path / "s.json"))
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600
    assert "verysecret" not in (tmp_path / "s.json").read_text()


async def test_a_session_saved_in_the_middle_of_a_run_loads_mended(tmp_path: Path, here: asyncio.AbstractEventLoop) -> None:
    path = tmp_path / "s.json"
    session = Session(agent_of([say(["half "]), wait(asyncio.Event())]), loop=here)
    run = session.run("a")
    while not run.text:
        await asyncio.sleep(0)
    session.save(path)
    run.stop()
    await run
    other = agent_of("fine")
    Session.load(path, other)
    assert (other.state.context[-1].text, other.state.context[-1].finished_reason, other.state.check()) == (
        "half ",
        "interrupted",
        (),
    )
    assert (await other.reply("next")).text == "fine"


async def test_a_pause_survives_the_file(tmp_path: Path, here: asyncio.AbstractEventLoop) -> None:
    path = tmp_path / "s.json"
    session = Session(agent_of(call("delete_rows", {"table": "t"})), loop=here)
    await until(session.run("a"), "paused")
    session.save(path)
    session.close()
    other = agent_of("deleted")
    loaded = Session.load(path, other)
    assert loaded.state is not None
    assert [(waits.name, waits.input) for waits in loaded.state.waiting()] == [("delete_rows", '{"table": "t"}')]


async def test_a_loaded_pause_waits_for_its_decisions_again(tmp_path: Path, here: asyncio.AbstractEventLoop) -> None:
    path = tmp_path / "s.json"
    session = Session(agent_of([say("I delete."), call("delete_rows", {"table": "t"})]), loop=here)
    await until(session.run("a"), "paused")
    session.save(path)
    session.close()
    other = agent_of("deleted")
    Session(other, "orders", loop=here)
    run = Session.load(path, other).run()
    await until(run, "paused")
    assert [(waits.id, waits.input) for waits in run.transcript.waiting] == [("call_1", '{"table": "t"}')]
    run.approve()
    assert (await run).text == "I delete.\ndeleted"
    assert other.state.check() == ()


async def test_a_loaded_pause_can_be_stopped(here: asyncio.AbstractEventLoop) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}))
    await agent.reply("a")
    other = agent_of("fine")
    other.load(agent.dump())
    session = Session(other, loop=here)
    run = session.run()
    await until(run, "paused")
    run.stop()
    await run
    assert (run.status, other.state.waiting(), other.state.check()) == ("interrupted", (), ())
    assert (await session.run("next")).text == "fine"


def test_loading_into_an_agent_with_a_session_keeps_that_session_and_its_name(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    Session(agent_of(state=None), "orders").save(path)
    other = agent_of()
    mine = Session(other, "mine")
    assert Session.load(path, other) is mine
    third = Session.load(path, agent_of(name="bob"))
    assert third.name == "bob"  # "orders" is another agent's session here


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged"),
        (json.dumps({"format": "agent-widgets session", "version": 9, "name": "n", "state": {}}), "newer agent-widgets"),
        (
            json.dumps({"format": "agent-widgets session", "version": 1, "name": "n", "state": {"version": 9}}),
            "newer agent-widgets",
        ),
        (
            json.dumps({"format": "agent-widgets session", "version": 1, "name": "n", "state": {"context": 5}}),
            "not a saved agent state: context",
        ),
        ("{}", "not a session of agent-widgets"),
    ],
)
def test_a_file_that_cannot_be_read_changes_neither_the_agent_nor_the_file_nor_the_registry(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    agent = agent_of()
    agent.load({"context": [], "session_id": "mine"})
    before = agent.state
    with pytest.raises(SavedStateError, match=words):
        Session.load(path, agent)
    assert (agent.state, path.read_text(), sessions()) == (before, content, ())


async def test_loading_into_a_busy_agent_is_refused(tmp_path: Path, here: asyncio.AbstractEventLoop) -> None:
    path = tmp_path / "s.json"
    agent = agent_of([say(["half "]), wait(asyncio.Event())])
    session = Session(agent, loop=here)
    run = session.run(UserMsg("u", "a"))
    while not run.text:
        await asyncio.sleep(0)
    session.save(path)
    with pytest.raises(AgentBusyError):
        Session.load(path, agent)
    run.stop()
    await run


async def test_the_magic_lists_what_is_allowed_without_asking(
    here: asyncio.AbstractEventLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = (PermissionRule("delete_rows", "table=orders"), PermissionRule("look"))
    Session(Agent(ScriptedModel([]), state=AgentState(rules=rules)), "ruled", loop=here)
    AgentMagics().agent("list")  # pyright: ignore[reportCallIssue] - the decorator has no types
    assert capsys.readouterr().out == (
        "<Session 'ruled': 0 runs, idle>\n    rule: allow delete_rows(table=orders)\n    rule: allow look\n"
    )
