"""Stored sessions: one line opens them, the same line in the next kernel goes on, and only one kernel at a time."""

from __future__ import annotations

import asyncio
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets import store as store_module
from agent_widgets.agent import Agent
from agent_widgets.chat import chat
from agent_widgets.errors import AgentBusyError, InputError, SavedStateError
from agent_widgets.messages import Msg, PermissionRule, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say, wait
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, sessions
from agent_widgets.store import Store
from agent_widgets.tools import tool
from tests.validator import assert_valid

executed: list[str] = []


@tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    executed.append(table)
    return f"deleted from {table}"


@tool(external=True)
async def ask_person(question: str) -> str:
    """Ask a person who is somewhere else."""
    raise NotImplementedError


def agent_of(*script: Turn, **options: Any) -> Agent:
    return Agent(ScriptedModel(list(script)), tools=[delete_rows, ask_person], **options)


@pytest.fixture(autouse=True)
def no_sessions(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    executed.clear()
    yield
    for session in sessions():
        close(session)
    assert sessions() == ()
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


def asked(agent: Agent) -> Any:
    """The messages of the first request."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests[0].messages


def close(session: Session) -> None:
    session.close()
    session._wait_closed()


def until(session: Session, prompt: str | None, wanted: str, *, reset: bool = False) -> Run:
    """Start a run and wait until it is so."""
    reached = threading.Event()

    def listen(run: Run) -> None:
        run.listen(lambda run, _: reached.set() if run.status == wanted else None)

    run = session.run(prompt, reset, before_start=listen)
    assert reached.wait(5), run
    return run


def killed(folder: Path) -> Path:
    """What a kernel that dies now leaves: a copy, because the lock of this one goes on."""
    copy = folder.with_name(f"{folder.name}-of-a-dead-kernel")
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy))


def notices(run: Run) -> list[str]:
    return [str(e.value["text"]) for e in run.events if isinstance(e, ev.CustomEvent) and e.name == ev.NOTICE]


# -- one line ---------------------------------------------------------------------------------------------------------


def test_the_same_line_in_the_next_kernel_goes_on(tmp_path: Path) -> None:
    first = agent_of("one", "two")
    session = Session.open(tmp_path / "orders.session", first)
    assert (session.name, session.path) == ("orders", tmp_path / "orders.session")
    session.run("a").wait(5)
    session.run("b").wait(5)
    second = agent_of("three")
    again = Session.open(killed(tmp_path / "orders.session"), second)
    assert second.state == first.state
    assert again.run("c").wait(5).text == "three"
    assert_valid(asked(second))
    assert [message.text for message in second.state.context] == ["a", "one", "b", "two", "c", "three"]


def test_everything_is_the_owners_only(tmp_path: Path) -> None:
    Session.open(tmp_path / "s", agent_of("one")).run("a").wait(5)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "s", *(tmp_path / "s").iterdir()]}
    assert modes == {"s": 0o700, "state.json": 0o600, "log-1.jsonl": 0o600, "lock": 0o600}


def test_a_cell_that_is_run_again_gets_the_session_that_is_open(tmp_path: Path) -> None:
    agent = agent_of("one")
    session = Session.open(tmp_path / "s", agent)
    assert Session.open(str(tmp_path / "x" / ".." / "s"), agent) is session
    run = chat(agent, "a")
    assert run.wait(5).text == "one"
    assert session.runs == (run,)


def test_an_agent_that_has_chatted_keeps_its_session_and_takes_it_to_the_folder(tmp_path: Path) -> None:
    agent = agent_of("one", "two")
    run = chat(agent, "a")
    run.wait(5)
    session = Session.open(tmp_path / "s", agent)
    assert session.runs == (run,)
    session.run("b").wait(5)
    other = agent_of()
    Session.open(killed(tmp_path / "s"), other)
    assert [message.text for message in other.state.context] == ["a", "one", "b", "two"]


def test_a_new_agent_takes_over_in_the_same_kernel_and_what_ran_is_ended_and_kept(tmp_path: Path) -> None:
    session = Session.open(tmp_path / "s", agent_of([say(["half "]), wait(threading.Event())]))
    reached = threading.Event()

    def listen(run: Run) -> None:
        run.listen(lambda _, event: reached.set() if isinstance(event, ev.TextBlockDeltaEvent) else None)

    run = session.run("a", before_start=listen)
    assert reached.wait(5)
    second = agent_of("two")
    again = Session.open(tmp_path / "s", second)
    assert run.status == "interrupted"
    assert (session in sessions(), again.name) == (False, "s")
    assert [(m.text, m.finished_reason) for m in second.state.context] == [("a", None), ("half ", "interrupted")]
    assert again.run("b").wait(5).text == "two"


def test_a_new_agent_takes_over_what_waits_without_ending_it(tmp_path: Path) -> None:
    first = Session.open(tmp_path / "s", agent_of(call("delete_rows", {"table": "t"})))
    run = until(first, "a", "paused")
    second = agent_of("done")
    session = Session.open(tmp_path / "s", second)
    run.wait(5)
    assert run.status == "interrupted"
    again = until(session, None, "paused")
    again.approve()
    assert (again.wait(5).text, executed) == ("done", ["t"])


@pytest.mark.parametrize("turn", range(5))
def test_a_session_that_is_closed_and_opened_at_once_waits_as_before(tmp_path: Path, turn: int) -> None:
    agent = agent_of(call("delete_rows", {"table": "t"}), "done")
    first = Session.open(tmp_path / "s", agent)
    until(first, "a", "paused")
    first.close()
    session = Session.open(tmp_path / "s", agent)
    assert session is not first
    assert session.waits
    again = until(session, None, "paused")
    again.approve()
    assert (again.wait(5).text, executed) == ("done", ["t"])


# -- pauses and decisions after a restart -------------------------------------------------------------------------------


def test_what_waited_waits_again_and_a_new_prompt_waits_behind_it(tmp_path: Path) -> None:
    session = Session.open(tmp_path / "s", agent_of(call("delete_rows", {"table": "t"})))
    until(session, "a", "paused")
    agent = agent_of("deleted", "next")
    again = Session.open(killed(tmp_path / "s"), agent)
    assert again.waits
    run = again.run("b")
    paused = again.current
    assert paused is not None
    assert (again.waits, run.status, run.ahead, len(again.runs)) == (False, "queued", 1, 2)
    paused.approve()
    assert (run.wait(5).text, paused.text, executed) == ("next", "deleted", ["t"])
    assert [message.text for message in agent.state.context] == ["a", "deleted", "b", "next"]


def test_chat_with_a_prompt_decides_what_waited_by_its_policy_first(tmp_path: Path) -> None:
    session = Session.open(tmp_path / "s", agent_of(call("delete_rows", {"table": "t"})))
    until(session, "a", "paused")
    agent = agent_of("I see.", "next")
    Session.open(killed(tmp_path / "s"), agent)
    assert chat(agent, "b", on_confirm="deny").wait(5).text == "next"
    assert executed == []
    assert "on_confirm='deny'" in repr(agent.state.context[1].content)


def test_an_early_decision_and_an_early_answer_survive(tmp_path: Path) -> None:
    slow = threading.Event()

    @tool
    async def look(word: str) -> str:
        """Look at something for a long time."""
        while not slow.is_set():
            await asyncio.sleep(0.001)
        return word

    script = [
        call("look", {"word": "w"}, "l"),
        call("delete_rows", {"table": "t"}, "x"),
        call("delete_rows", {"table": "u"}, "y"),
        call("ask_person", {"question": "?"}, "q"),
    ]
    agent = Agent(ScriptedModel([script, "never mind"]), tools=[delete_rows, ask_person, look])
    session = Session.open(tmp_path / "s", agent)
    copies: list[Path] = []

    def follow(run: Run, event: ev.Event | None) -> None:
        if isinstance(event, ev.RequireExternalExecutionEvent):
            run.approve("x", always=True)
            run.deny("y", reason="keep them")
            run.answer("q", "forty-two")
            asyncio.get_running_loop().call_later(0.01, lambda: (copies.append(killed(tmp_path / "s")), slow.set()))

    def listen(run: Run) -> None:
        run.listen(follow)

    run = session.run("go", before_start=listen)
    run.wait(5)
    assert executed == ["t"]
    executed.clear()
    second = agent_of("done")
    again = Session.open(copies[0], second)
    assert {call.id for call in second.state.waiting()} == {"x", "y", "q"}
    assert again.run().wait(5).text == "done"
    assert executed == ["t"]
    found = {b.id: (b.state, b.text()) for b in second.state.context[-1].content if isinstance(b, ToolResultBlock)}
    assert found["x"] == ("success", "deleted from t")
    assert found["y"][0] == "denied"
    assert "keep them" in found["y"][1]
    assert found["q"] == ("success", "forty-two")
    assert found["l"][0] == "interrupted"
    assert second.state.rules == (PermissionRule("delete_rows"),)
    assert_valid(asked(second))


def test_a_decision_from_before_is_for_its_reply_only(tmp_path: Path) -> None:
    """After a reset a model may use the id of an old call again: it must be asked about."""
    session = Session.open(tmp_path / "s", agent_of(call("delete_rows", {"table": "t"}, "x")))
    run = until(session, "a", "paused")
    decision = ev.UserConfirmResultEvent(
        reply_id=run.reply.id, confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=run.transcript.waiting[0]),)
    )
    assert session._keeping is not None
    session._keeping.takes(decision)
    agent = agent_of(call("delete_rows", {"table": "u"}, "x"), "ok")
    again = Session.open(killed(tmp_path / "s"), agent)
    agent.load({})
    agent.reply_sync("b")
    assert [(call.id, call.input) for call in agent.state.waiting()] == [("x", '{"table": "u"}')]
    new = until(again, None, "paused")
    assert executed == []
    new.deny()
    new.wait(5)
    assert executed == []


# -- one kernel at a time ---------------------------------------------------------------------------------------------


OTHER = """
import sys, time
from pathlib import Path
from agent_widgets.store import Store
store = Store(Path(sys.argv[1]))
store.renew("other", {})
print("open", flush=True)
time.sleep(60)
"""


def test_a_second_kernel_is_refused_and_a_killed_one_frees_the_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
        agent = agent_of("one")
        with pytest.raises(SavedStateError, match="is open in another kernel"):
            Session.open(tmp_path / "s", agent)
        assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before
        assert sessions() == ()
        other.send_signal(signal.SIGKILL)
        other.wait(5)
    assert Session.open(tmp_path / "s", agent).run("a").wait(5).text == "one"


def test_closing_frees_the_folder(tmp_path: Path) -> None:
    session = Session.open(tmp_path / "s", agent_of("one"))
    session.run("a").wait(5)
    close(session)
    store = Store(tmp_path / "s")
    assert store.read() is not None
    store.close()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_another_folder_a_file_and_a_saved_session_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "a.txt").write_text("mine")
    with pytest.raises(SavedStateError, match="other files in it"):
        Session.open(tmp_path / "things", agent_of())
    assert [path.name for path in (tmp_path / "things").iterdir()] == ["a.txt"]
    session = Session.open(tmp_path / "s", agent_of())
    session.save(tmp_path / "copy.json")
    with pytest.raises(SavedStateError, match=r"is a file.*Session\.load"):
        Session.open(tmp_path / "copy.json", agent_of())
    with pytest.raises(SavedStateError, match=r"is a folder.*Session\.open"):
        Session.load(tmp_path / "s", agent_of())
    with pytest.raises(FileNotFoundError):
        Session.open(tmp_path / "not" / "there", agent_of())


def test_an_agent_in_two_folders_or_with_a_run_is_refused(tmp_path: Path) -> None:
    agent = agent_of([wait(threading.Event())])
    session = Session.open(tmp_path / "s", agent)
    with pytest.raises(InputError, match=r"is kept in .*s\. Call close"):
        Session.open(tmp_path / "t", agent)
    close(session)
    busy = agent_of([wait(threading.Event())])
    run = until(Session(busy), "a", "running")
    with pytest.raises(AgentBusyError):
        Session.open(tmp_path / "u", busy)
    store = Store(tmp_path / "u")  # it was let go
    store.close()
    run.stop()
    run.wait(5)


# -- the disk, other agents ---------------------------------------------------------------------------------------------


def test_a_failing_disk_is_told_once_on_the_card_and_never_stops_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(["one ", say("and more")], "two", "three")
    session = Session.open(tmp_path / "s", agent)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "_write", refuse)
    runs = [session.run(prompt).wait(5) for prompt in "ab"]
    assert [(run.status, run.text) for run in runs] == [("completed", "one and more"), ("completed", "two")]
    assert [len(notices(run)) for run in runs] == [1, 0]
    assert "No space left on device" in notices(runs[0])[0]
    assert runs[0].transcript.notices == (notices(runs[0])[0],)
    monkeypatch.undo()
    last = session.run("c").wait(5)
    assert ["again" in text for text in notices(last)] == [True]
    other = agent_of()
    Session.open(killed(tmp_path / "s"), other)
    assert other.state == agent.state


def test_what_fails_while_nothing_runs_is_told_on_the_next_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of("one")
    session = Session.open(tmp_path / "s", agent)
    agent._memory.allow([PermissionRule("delete_rows")])

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "_write", refuse)
    assert agent.forget_rule("delete_rows") == 1
    assert len(notices(session.run("a").wait(5))) == 1


def test_a_foreign_agents_state_is_kept_at_each_end(tmp_path: Path) -> None:
    class Counter:
        name = "counter"
        count = 0

        async def run(self, inputs: Any, emit: Any, /) -> None:
            self.count += 1
            emit(ev.ReplyStartEvent(session_id="", reply_id="r", name="counter"))

        def stop_after_step(self) -> bool:
            return False

        def dump(self) -> Any:
            return {"count": self.count}

        def load(self, saved: Any, /) -> None:
            self.count = saved["count"]

    session = Session.open(tmp_path / "s", Counter())
    for _ in range(3):
        session.run("go").wait(5)
    other = Counter()
    Session.open(killed(tmp_path / "s"), other)
    assert other.count == 3


def test_the_reply_of_an_agent_that_is_asked_directly_is_kept_too(tmp_path: Path) -> None:
    agent = agent_of("one")
    Session.open(tmp_path / "s", agent)
    assert isinstance(agent.reply_sync("a"), Msg)
    other = agent_of()
    Session.open(killed(tmp_path / "s"), other)
    assert [message.text for message in other.state.context] == ["a", "one"]
