"""A question's time limit: kept with the question, on a loop whose time is a number, over a save, a crash and a second run."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.errors import InputError
from agent_widgets.messages import ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say
from agent_widgets.questions import AnswerClock, checked_limit, dated
from agent_widgets.runs import Run
from agent_widgets.sessions import Session, sessions
from agent_widgets.state import AgentState
from agent_widgets.tools import tool
from agent_widgets.wire import dump_state, load_state
from tests.fuzz.clock import VirtualLoop
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


ORDERS = call("delete_rows", {"table": "orders"})
LUNCH = call("ask_person", {"question": "Lunch?"})


def agent_of(*script: Turn) -> Agent:
    return Agent(ScriptedModel(list(script)), tools=[delete_rows, ask_person])


@pytest.fixture(autouse=True)
def no_sessions(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    executed.clear()
    yield
    for session in sessions():
        session.close()
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def settle(loop: VirtualLoop, run: Run) -> Run:
    async def ended() -> None:
        await asyncio.wrap_future(run.ended)

    loop.run_until_complete(ended())
    return run


def paused(loop: VirtualLoop, run: Run) -> Run:
    async def turns() -> None:
        for _ in range(200):
            if run.status == "paused":
                return
            await asyncio.sleep(0)

    loop.run_until_complete(turns())
    assert run.status == "paused"
    return run


def timers(loop: VirtualLoop) -> list[asyncio.TimerHandle]:
    scheduled: list[asyncio.TimerHandle] = vars(loop)["_scheduled"]
    return [timer for timer in scheduled if not timer.cancelled()]


def results(run: Run) -> dict[str, ToolResultBlock]:
    return {block.name: block for block in run.reply.content if isinstance(block, ToolResultBlock)}


def read(agent: Agent) -> list[str]:
    """What the model has read of its calls, in a history that a strict server takes."""
    assert isinstance(agent.model, ScriptedModel)
    assert_valid(agent.model.requests[-1].messages)
    return [str(message["content"]) for message in agent.model.requests[-1].messages if message["role"] == "tool"]


def test_a_question_is_denied_when_its_time_is_over_and_the_model_reads_why(loop: VirtualLoop) -> None:
    agent = agent_of([ORDERS], [say("as you say")])
    run = settle(loop, Session(agent, loop=loop).run("clean up", answer_within=3600))
    assert 3599 < loop.now < 3601
    assert (run.status, run.text, executed) == ("completed", "as you say", [])
    assert results(run)["delete_rows"].metadata["reason"] == "Nobody answered within 3600 s."
    assert read(agent)[0].endswith("Reason: Nobody answered within 3600 s.")
    assert agent.state.check() == ()


def test_an_outside_result_that_does_not_come_is_an_error_that_says_so(loop: VirtualLoop) -> None:
    agent = agent_of([LUNCH], [say("then not")])
    run = settle(loop, Session(agent, loop=loop).run("ask", answer_within=60))
    assert (run.text, results(run)["ask_person"].state) == ("then not", "error")
    assert "Nobody answered within 60 s. There is no result." in read(agent)[0]
    assert agent.state.check() == ()


def test_all_questions_of_an_answer_are_given_up_together_and_once(loop: VirtualLoop) -> None:
    agent = agent_of([ORDERS, call("delete_rows", {"table": "drafts"}), LUNCH], [say("well")])
    run = settle(loop, Session(agent, loop=loop).run("clean up", answer_within=30))
    denials = [event for event in run.events if isinstance(event, ev.UserConfirmResultEvent)]
    assert [len(event.confirm_results) for event in denials] == [2]
    assert len(read(agent)) == 3
    assert 29 < loop.now < 61
    assert agent.state.check() == ()


def test_an_answer_in_time_counts_and_leaves_no_timer(loop: VirtualLoop) -> None:
    agent = agent_of([ORDERS], [say("done")])
    run = paused(loop, Session(agent, loop=loop).run("clean up", answer_within=3600))
    run.approve()
    settle(loop, run)
    assert (executed, run.text) == (["orders"], "done")
    assert loop.now < 1
    assert timers(loop) == []


def test_what_is_alive_for_a_question_is_one_timer_and_no_task(loop: VirtualLoop) -> None:
    agent = agent_of([ORDERS, LUNCH])
    run = paused(loop, Session(agent, loop=loop).run("clean up", answer_within=3600))
    gc.collect()
    assert len(timers(loop)) == 1
    assert asyncio.all_tasks(loop) == set()
    run.stop()
    settle(loop, run)
    assert run.status == "interrupted"


def test_a_stop_ends_the_pause_and_nothing_is_given_up_after_it(loop: VirtualLoop) -> None:
    run = paused(loop, Session(agent_of([ORDERS]), loop=loop).run("clean up", answer_within=10))
    run.stop(reason="enough")
    settle(loop, run)
    loop.run_until_complete(asyncio.sleep(20))
    assert not [event for event in run.events if isinstance(event, ev.UserConfirmResultEvent)]


def test_of_two_questions_only_that_whose_time_is_over_is_given_up(loop: VirtualLoop) -> None:
    now, given_up = datetime.now(UTC), list[set[str]]()
    clock = AnswerClock(loop, given_up.append)
    ends = {"first": 10, "second": 1000}
    clock.set(ToolCallBlock(id=n, name="rm", answer_by=(now + timedelta(seconds=s)).isoformat()) for n, s in ends.items())
    loop.run_until_complete(asyncio.sleep(20))
    assert given_up == [{"first"}]
    clock.clear()


def test_without_a_limit_a_question_waits_for_ever(loop: VirtualLoop) -> None:
    for limit in (None, math.inf):
        run = paused(loop, Session(agent_of([ORDERS]), loop=loop).run("clean up", answer_within=limit))
        loop.run_until_complete(asyncio.sleep(100_000))
        assert run.status == "paused"
        assert run.transcript.waiting[0].answer_by is None
        run.stop()
        settle(loop, run)


def test_the_limit_of_a_sub_agents_question_is_the_runs(loop: VirtualLoop) -> None:
    cleaner = Agent(ScriptedModel([[ORDERS], [say("refused")]]), name="cleaner", tools=[delete_rows])
    boss = Agent(ScriptedModel([[call("cleaner", {"task": "clean up"})], [say("ok")]]), tools=[cleaner.as_tool()])
    session = Session(boss, loop=loop)
    run = paused(loop, session.run("clean up", answer_within=60))
    assert boss.state.children[0].state.waiting()[0].answer_within == 60
    settle(loop, run)
    assert (run.text, executed) == ("ok", [])
    assert boss.state.check() == ()


def saved_question(loop: VirtualLoop, answer_by: datetime) -> AgentState:
    """The state of a kernel that has died while its question waited until ``answer_by``."""
    agent = agent_of([ORDERS])
    paused(loop, Session(agent, loop=loop).run("clean up", answer_within=60))
    state = load_state(dump_state(agent.state))
    content = (
        replace(block, answer_by=answer_by.isoformat()) if isinstance(block, ToolCallBlock) else block
        for block in state.context[-1].content
    )
    return replace(state, context=(*state.context[:-1], replace(state.context[-1], content=tuple(content))))


@pytest.mark.parametrize(("left", "waits"), [(40, 40), (-3600, 0)])
def test_in_the_next_kernel_the_rest_of_the_time_is_left_and_no_more(loop: VirtualLoop, left: float, waits: float) -> None:
    state = saved_question(loop, datetime.now(UTC) + timedelta(seconds=left))
    agent = agent_of([say("so be it")])
    agent.load(dump_state(state))
    began = loop.now
    run = settle(loop, Session(agent, loop=loop).run())  # no limit of its own: the question has brought it
    assert waits - 1 < loop.now - began < waits + 1
    assert results(run)["delete_rows"].metadata["reason"] == "Nobody answered within 60 s."


async def test_a_killed_kernel_leaves_the_end_of_the_time_in_the_folder(tmp_path: Path) -> None:
    first = agent_of([ORDERS])
    session = Session.open(tmp_path / "orders.session", first)
    run = session.run("clean up", answer_within=3600)
    while run.status != "paused":
        await asyncio.sleep(0.01)
    end = first.state.waiting()[0].answer_by
    session.close()  # what waits goes on waiting in its folder
    await asyncio.wrap_future(run.ended)
    while True:
        second = agent_of()
        try:
            Session.open(tmp_path / "orders.session", second)
            break
        except Exception:  # noqa: BLE001 - it is being let go
            await asyncio.sleep(0.01)
    assert end is not None
    assert second.state.waiting()[0].answer_by == end


def test_a_limit_that_cannot_be_is_refused_with_a_sentence() -> None:
    for wrong in (0, -1, math.nan):
        with pytest.raises(InputError, match=r"answer_within is .* above 0"):
            checked_limit(wrong, "answer_within")


def test_only_questions_are_dated_and_only_once() -> None:
    question: Any = ev.RequireUserConfirmEvent(reply_id="r", tool_calls=(ToolCallBlock(id="c", name="rm"),))
    once: Any = dated(question, 5)
    assert dated(once, 60) == once
    assert once.tool_calls[0].answer_within == 5
    other = ev.ReplyStartEvent(session_id="s", reply_id="r", name="a")
    assert dated(other, 5) is other
    assert dated(question, None) is question
