"""What waits to take effect in a run: notes for the next step, decisions and answers for a pause. All through a run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Emit, Inputs
from agent_widgets.budgets import Budget
from agent_widgets.decisions import Decision
from agent_widgets.errors import AgentWidgetsError, InputError
from agent_widgets.messages import HintBlock, JsonObject, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say, wait
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.tools import tool
from agent_widgets.wire import dump_state, fingerprint, load_state
from tests.validator import assert_valid

done: list[str] = []
"""What tools have done, in order; emptied before each test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@tool(confirm=True)
async def delete_rows(table: str, limit: int = 10) -> str:
    """Delete some rows of TABLE."""
    done.append(f"{table} {limit}")
    return f"deleted {limit} rows of {table}"


@tool(external=True)
def ask_boss(question: str) -> str:
    """Ask the boss a QUESTION."""
    raise NotImplementedError(question)


@tool
async def look(at: str) -> str:
    """Look AT something."""
    return f"saw {at}"


DELETE = call("delete_rows", {"table": "orders"})
TWO = (DELETE, call("delete_rows", {"table": "drafts"}))


def started(*script: Turn, **options: Any) -> tuple[Run, Agent, ScriptedModel]:
    model = ScriptedModel(list(script))
    agent = Agent(model, tools=[delete_rows, ask_boss, look], **options)
    run = Run(agent, "go", loop=asyncio.get_running_loop(), session_id="s")
    run.start()
    return run, agent, model


async def until(run: Run, *wanted: str) -> None:
    reached = asyncio.Event()
    forget = run.listen(lambda run, _: reached.set() if run.status in wanted else None)
    if run.status not in wanted:
        await asyncio.wait_for(reached.wait(), 5)
    forget()


def seen_by(run: Run) -> dict[str, str]:
    return {waits.id: fingerprint(waits.name, waits.input) for waits in run.transcript.waiting}


def spoken(model: ScriptedModel, request: int) -> list[tuple[str, Any]]:
    return [(str(message["role"]), message["content"]) for message in model.requests[request].messages]


def notices(run: Run) -> list[str]:
    return [str(e.value["text"]) for e in run.events if isinstance(e, ev.CustomEvent) and e.name == ev.NOTICE]


# -- steering -------------------------------------------------------------------------------------------------------


async def test_a_note_enters_at_the_next_step_as_a_message_of_the_user() -> None:
    go = asyncio.Event()
    run, agent, model = started([say("I look."), wait(go), call("look", {"at": "Rome"})], [say("And Paris.")])
    await until(run, "running")
    note = run.steer("Look at Paris too, please")
    await asyncio.sleep(0)
    assert run.status_facts()["steering"] == [{"id": note, "text": "Look at Paris too, please"}]
    go.set()
    await run
    assert spoken(model, 0) == [("user", "go")]
    assert spoken(model, 1)[1:] == [("assistant", "I look."), ("tool", "saw Rome"), ("user", "Look at Paris too, please")]
    (hint,) = [block for block in run.reply.content if isinstance(block, HintBlock)]
    assert (hint.id, hint.source, hint.hint) == (note, "user", "Look at Paris too, please")
    assert (run.notes, run.status, notices(run)) == ((), "completed", [])
    assert "steering" not in run.status_facts()
    assert_valid(model.requests[1].messages)
    assert agent.state.check() == ()
    assert load_state(dump_state(agent.state)) == agent.state


async def test_an_answer_without_calls_is_followed_by_another_step_when_a_note_waits() -> None:
    go = asyncio.Event()
    run, _, model = started([say("Done."), wait(go)], [say("Once more, in French.")])
    await until(run, "running")
    run.steer("In French!")
    go.set()
    assert (await run).text == "Done.\nOnce more, in French."
    assert spoken(model, 1)[1:] == [("assistant", "Done."), ("user", "In French!")]


async def test_a_note_from_another_thread_before_the_start_is_there_at_the_first_step() -> None:
    model = ScriptedModel([[say("ok")]])
    run = Run(Agent(model), "go", loop=asyncio.get_running_loop())
    thread = threading.Thread(target=run.steer, args=("and be brief",))
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    run.start()
    await run
    assert spoken(model, 0) == [("user", "go"), ("user", "and be brief")]


async def test_a_note_can_be_withdrawn_until_it_has_entered() -> None:
    go = asyncio.Event()
    run, _, model = started([say("one"), wait(go), call("look", {"at": "it"})], [say("two")])
    await until(run, "running")
    first, second = run.steer("first"), run.steer("second")
    run.withdraw(first)
    await asyncio.sleep(0)
    assert [note.id for note in run.notes] == [second]
    run.withdraw()
    await asyncio.sleep(0)
    assert run.notes == ()
    third = run.steer("third")
    go.set()
    await run
    assert [content for role, content in spoken(model, 1) if role == "user"] == ["go", "third"]
    assert "has read this already" in run.take_back(third)
    run.withdraw(third)
    await asyncio.sleep(0)
    assert run.status == "completed"


async def test_a_note_waits_while_the_reply_waits_for_a_decision() -> None:
    run, _, model = started([DELETE], [say("ok")])
    await until(run, "paused")
    run.steer("and tell me how many")
    await asyncio.sleep(0)
    assert (run.status, len(run.notes), len(model.requests)) == ("paused", 1, 1)
    run.approve()
    await run
    assert spoken(model, 1)[-1] == ("user", "and tell me how many")
    assert done == ["orders 10"]


async def test_a_note_that_has_not_entered_when_the_run_is_stopped_is_shown_as_not_sent_and_can_be_sent_by_the_next() -> None:
    agent = Agent(ScriptedModel([[say("half"), wait(asyncio.Event())], [say("bonjour")]]))
    session = Session(agent, "steering", loop=asyncio.get_running_loop())
    try:
        run = session.run("go")
        await until(run, "running")
        note = run.steer("In French!")
        run.stop()
        await run
        assert [kept.text for kept in run.notes] == ["In French!"]
        assert run.status_facts()["steering"] == [{"id": note, "text": "In French!"}]
        assert notices(run) == ["Not sent: “In French!” (the run had no further step)"]
        assert isinstance(run.events[-1], ev.ReplyEndEvent)
        resumed = run.resume()
        for unread in run.notes:
            resumed.steer(unread.text)
        assert (await resumed).text == "bonjour"
        assert isinstance(agent.model, ScriptedModel)
        assert spoken(agent.model, 1)[-1] == ("user", "In French!")
    finally:
        session.close()


async def test_a_note_counts_for_max_steps_and_for_the_budget() -> None:
    go = asyncio.Event()
    run, _, model = started([say("one"), wait(go)], max_steps=1)
    await until(run, "running")
    run.steer("and two")
    go.set()
    await run
    assert (run.status, len(model.requests), len(run.notes)) == ("exceed_max_iters", 1, 1)
    go = asyncio.Event()
    agent = Agent(ScriptedModel([[say("one"), wait(go)]]))
    run = Run(agent, "go", loop=asyncio.get_running_loop(), budget=Budget(steps=1))
    run.start()
    await until(run, "running")
    run.steer("and two")
    go.set()
    await run
    assert (run.status, run.reply.metadata["source"]) == ("interrupted", "budget")


async def test_a_run_stopped_after_its_step_takes_no_note_any_more() -> None:
    go = asyncio.Event()
    run, _, model = started([say("one"), wait(go), call("look", {"at": "it"})])
    await until(run, "running")
    run.stop(after="step")
    run.steer("and two")
    go.set()
    await run
    assert (run.status, len(model.requests), len(run.notes)) == ("interrupted", 1, 1)


class Deaf:
    """A backend that never asks for notes."""

    name = "deaf"

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        emit(ev.ReplyStartEvent(session_id="s", reply_id="r", name=str(inputs)))
        await self.go.wait()

    def stop_after_step(self) -> bool:
        return False

    def dump(self) -> JsonObject:
        return {}

    def load(self, saved: JsonObject, /) -> None:
        raise NotImplementedError(saved)


async def test_a_backend_that_cannot_be_steered_is_told_apart() -> None:
    backend = Deaf()
    run = Run(backend, "go", loop=asyncio.get_running_loop())
    run.start()
    await until(run, "running")
    run.steer("Hello?")
    backend.go.set()
    await run
    assert "steerable" not in run.status_facts()
    assert notices(run) == ["Not sent: “Hello?” (deaf takes nothing in while it works)"]
    agent, *_ = started([say("ok")])
    await agent
    assert agent.status_facts()["steerable"] is True


async def test_a_note_is_for_the_runs_own_reply_and_not_for_an_agent_that_works_inside_it() -> None:
    inner_model, go = ScriptedModel([[say("inner")]]), asyncio.Event()

    @tool
    async def ask_inner() -> str:
        """Ask another agent."""
        await go.wait()
        await Agent(inner_model).run("what?", lambda _: None)
        return "asked"

    model = ScriptedModel([[call("ask_inner", {})], [say("ok")]])
    run = Run(Agent(model, tools=[ask_inner]), "go", loop=asyncio.get_running_loop())
    run.start()
    await until(run, "running")
    run.steer("for the outer one")
    go.set()
    await run
    assert spoken(inner_model, 0) == [("user", "what?")]
    assert spoken(model, 1)[-1] == ("user", "for the outer one")


@pytest.mark.parametrize("text", ["", "  \n", None, 7])
async def test_a_note_needs_some_text(text: Any) -> None:
    run, *_ = started([say("ok")])
    with pytest.raises(InputError, match="give some text"):
        run.steer(text)
    await run


async def test_a_run_that_has_ended_takes_no_note() -> None:
    run, *_ = started([say("ok")])
    await run
    with pytest.raises(AgentWidgetsError, match="this run is completed"):
        run.steer("one more thing")


# -- edited arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [('{"limit": 3}', "table: Field required"), ({"table": "a", "limit": "many"}, "limit: Input should be a valid integer")],
)
async def test_edited_arguments_that_do_not_fit_are_refused_before_the_decision_counts(arguments: Any, fault: str) -> None:
    run, _, model = started([DELETE], [say("ok")])
    await until(run, "paused")
    with pytest.raises(InputError, match=f"{fault}.*the call still waits"):
        run.approve(arguments=arguments)
    said = run.decide("call_1", Decision(confirmed=True, arguments='{"tabel": 1}', seen=seen_by(run)["call_1"]))
    assert "do not fit delete_rows: table: Field required" in said
    await asyncio.sleep(0)
    assert (run.status, done, len(model.requests), len(run.transcript.waiting)) == ("paused", [], 1, 1)
    run.approve(arguments='{"table": "drafts"}')
    await run
    assert done == ["drafts 10"]


async def test_what_runs_is_what_was_approved_and_the_history_and_the_model_know_who_wrote_it() -> None:
    run, agent, model = started([DELETE], [say("ok")])
    await until(run, "paused")
    edited = '{"limit":  3.0,"table": "dr\\u0061fts"}'
    run.approve(arguments=edited)
    await run
    assert done == ["drafts 3"]
    (made,) = [block for block in run.reply.content if isinstance(block, ToolCallBlock)]
    assert (made.input, made.original_input) == (edited, '{"table": "orders"}')
    asked, result = model.requests[1].messages[1:]
    assert asked["tool_calls"][0]["function"]["arguments"] == edited  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue, reportOptionalSubscript]
    assert result["content"] == (
        "deleted 3 rows of drafts\n<system-reminder>The user changed the arguments of this call before approving it. "
        'You had asked for: {"table": "orders"}</system-reminder>'
    )
    (given,) = [block for block in run.reply.content if isinstance(block, ToolResultBlock)]
    assert given.text() == "deleted 3 rows of drafts"
    assert load_state(dump_state(agent.state)) == agent.state
    assert_valid(model.requests[1].messages)


async def test_a_call_that_was_approved_as_it_was_says_nothing_of_a_change() -> None:
    run, _, model = started([DELETE], [say("ok")])
    await until(run, "paused")
    run.approve()
    await run
    assert spoken(model, 1)[-1] == ("tool", "deleted 10 rows of orders")


# -- always -----------------------------------------------------------------------------------------------------------


async def test_always_stores_the_widest_suggestion_or_the_rule_that_is_given() -> None:
    run, agent, _ = started([*TWO], [say("ok")])
    await until(run, "paused")
    first, second = run.transcript.waiting
    assert first.suggested_rules == (PermissionRule("delete_rows"), PermissionRule("delete_rows", "table=orders"))
    run.approve(first.id, always=PermissionRule("delete_rows", "table=tmp_*"))
    run.approve(second.id, always=True)
    await run
    assert agent.rules == agent.state.rules == (PermissionRule("delete_rows", "table=tmp_*"), PermissionRule("delete_rows"))


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (PermissionRule("look"), None),
        (PermissionRule("delete_rows", None, "deny"), None),
        (PermissionRule("delete_rows", "table=*"), None),
        (PermissionRule("delete_rows", "table=orders"), '{"table": "drafts"}'),
    ],
)
async def test_a_page_can_store_only_what_was_offered_for_these_arguments(rule: PermissionRule, arguments: str | None) -> None:
    run, agent, _ = started([DELETE], [say("ok")])
    await until(run, "paused")
    said = run.decide("call_1", Decision(confirmed=True, arguments=arguments, always=rule, seen=seen_by(run)["call_1"]))
    assert "nothing was executed" in said
    await asyncio.sleep(0)
    assert (run.status, done, agent.rules) == ("paused", [], ())
    run.stop()
    await run


# -- several calls ------------------------------------------------------------------------------------------------------


async def test_one_decision_about_all_that_was_seen_takes_effect_at_once() -> None:
    run, *_ = started([*TWO], [say("ok")])
    await until(run, "paused")
    assert run.decide_all(seen_by(run), Decision(confirmed=True)) == ""
    await run
    assert done == ["orders 10", "drafts 10"]
    assert [event.type for event in run.events].count("USER_CONFIRM_RESULT") == 1


@pytest.mark.parametrize("stale", ["decided", "changed", "unknown"])
async def test_approving_all_executes_nothing_when_one_of_them_is_stale(stale: str) -> None:
    run, *_ = started([*TWO], [say("ok")])
    await until(run, "paused")
    seen = seen_by(run)
    if stale == "decided":
        run.decide("call_1", Decision(confirmed=False, seen=seen["call_1"]))
        await until(run, "paused")
    seen = {**seen, **({"call_2": "0" * 16} if stale == "changed" else {"no such call": "0" * 16} if stale == "unknown" else {})}
    assert "nothing was executed" in run.decide_all(seen, Decision(confirmed=True))
    await asyncio.sleep(0)
    assert done == []
    run.stop()
    await run


async def test_denying_all_counts_for_those_that_still_wait() -> None:
    run, _, model = started([*TWO], [say("ok")])
    await until(run, "paused")
    seen = seen_by(run)
    run.approve("call_1")
    await until(run, "running")
    await until(run, "paused")
    assert run.decide_all(seen, Decision(confirmed=False, reason="enough")) == ""
    await run
    assert done == ["orders 10"]
    assert "Reason: enough" in str(spoken(model, 1)[-1])
    assert "ended" in run.decide_all(seen, Decision(confirmed=False))


# -- answers ----------------------------------------------------------------------------------------------------------


async def test_an_answer_counts_once_and_only_for_a_call_that_waits_for_one() -> None:
    run, _, model = started([call("ask_boss", {"question": "why?"}), DELETE], [say("ok")])
    await until(run, "paused")
    assert "not waiting for a result" in run.take_answer("call_2", "42")
    run.decide("call_2", Decision(confirmed=False))
    assert run.take_answer("call_1", "because") == ""
    assert "not waiting for a result" in run.take_answer("call_1", "or not")
    await run
    assert ("tool", "because") in spoken(model, 1)


# -- at every turn ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steered_at", [0, 1, 3, 6, 9, 12])
async def test_a_note_is_read_once_or_kept_wherever_the_run_is_stopped(steered_at: int) -> None:
    for stopped_at in range(steered_at, 32):
        run, agent, model = started([call("look", {"at": "it"})], [say("ok")], [say("and that")], [say("spare")])
        note = ""
        for turn in range(stopped_at):
            if turn == steered_at and not run.is_over:
                note = run.steer("and that?")
            await asyncio.sleep(0)
        run.stop()
        await asyncio.wait_for(asyncio.wrap_future(run.ended), 5)
        read = [block.id for block in run.reply.content if isinstance(block, HintBlock)]
        assert [*read, *(kept.id for kept in run.notes)] == ([note] if note else [])
        if run.status != "completed":  # else it may have come when the log was closed: then the status tells
            assert len(notices(run)) == len(run.notes)
        assert run.status_facts().get("steering", []) == [kept.facts() for kept in run.notes]
        assert agent.state.check() == ()
        for request in model.requests:
            assert_valid(request.messages)


@pytest.mark.parametrize("where", ["another thread", "a click"])
async def test_between_a_denial_and_its_stop_nothing_begins(where: str) -> None:
    model = ScriptedModel([[call("delete_rows", {"table": "t"}, "c1")]])  # another call of the model would be an error
    agent = Agent(model, tools=[delete_rows])
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    run.start()
    while run.status != "paused":
        await asyncio.sleep(0)
    if where == "a click":
        (waits,) = run.transcript.waiting
        seen = {waits.id: fingerprint(waits.name, waits.input)}
        assert run.then_stop(lambda: run.decide_all(seen, Decision(confirmed=False, reason="no")), "no") == ""
    else:
        await asyncio.to_thread(run.deny, reason="no", stop=True)
    await run
    assert (run.status, len(model.requests)) == ("interrupted", 1)
    assert run.reply.metadata["source"] == "user"
    results = [block for block in run.reply.content if isinstance(block, ToolResultBlock)]
    assert [result.state for result in results] == ["denied"]
    assert agent.state.check() == ()
