"""Calls being executed, through the agent: pieces in the log and in the history, order, and what comes late."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agent_widgets import acting, execution, threads
from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.messages import Base64Source, DataBlock, TextBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import INTERRUPTED_TEXT
from agent_widgets.threads import stop_requested
from agent_widgets.tools import tool
from tests.validator import assert_valid

order: list[str] = []
"""What tools have done, in order; emptied before each test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    order.clear()


def agent_of(*script: Turn, tools: list[Any]) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([*script])
    return Agent(model, tools=tools), model


def run_of(agent: Agent) -> Run:
    assert agent._run is not None
    return agent._run


def results(agent: Agent) -> dict[str, tuple[str, str]]:
    blocks = [block for message in agent.state.context for block in message.content]
    return {block.id: (block.state, block.text()) for block in blocks if isinstance(block, ToolResultBlock)}


def late_results(agent: Agent) -> list[dict[str, Any]]:
    return [e.value for e in run_of(agent).events if isinstance(e, ev.CustomEvent) and e.name == ev.LATE_RESULT]


async def until(is_so: Callable[[], object]) -> None:
    """Turns of the loop until it is so."""
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0.001)


# -- streaming ------------------------------------------------------------------------------------------------------


@tool
async def parts() -> AsyncIterator[object]:
    """Give parts, then wait until stopped."""
    try:
        yield "one "
        yield "two"
        await asyncio.Event().wait()
    finally:
        order.append("finally")


async def test_pieces_are_events_and_the_model_reads_them_joined() -> None:
    @tool
    async def read() -> AsyncIterator[object]:
        """Read a thing."""
        yield "one "
        yield "two"
        yield DataBlock(Base64Source("AAAA", "image/png"))
        yield TextBlock("three")

    agent, model = agent_of([call("read")], [say("ok")], tools=[read])
    events = [event async for event in agent.reply_stream("go")]
    kinds = [event.type for event in events if event.type.startswith("TOOL_RESULT")]
    text, data = "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_DATA_DELTA"
    assert kinds == ["TOOL_RESULT_START", text, text, data, text, "TOOL_RESULT_END"]
    assert model.requests[-1].messages[-1]["content"] == "one two\nthree"
    assert results(agent) == {"call_1": ("success", "one two\nthree")}


async def test_a_stop_keeps_what_was_yielded_and_the_next_request_is_valid() -> None:
    agent, model = agent_of([call("parts")], [say("fine")], tools=[parts])
    task = asyncio.create_task(agent.reply("go"))
    await until(lambda: agent._run and "two" in str(run_of(agent).events))
    agent.interrupt()
    await task
    assert order == ["finally"]
    assert results(agent) == {"call_1": ("interrupted", f"one two\n{INTERRUPTED_TEXT}")}
    assert (await agent.reply("next")).text == "fine"
    assert_valid(model.requests[-1].messages)


async def test_a_failure_after_pieces_stands_on_a_line_of_its_own() -> None:
    @tool
    def breaks() -> Iterator[str]:
        """Give a part, and fail."""
        yield "one"
        raise ValueError("no more")

    agent, _ = agent_of([call("breaks")], [say("ok")], tools=[breaks])
    await agent.reply("go")
    assert results(agent) == {"call_1": ("error", "one\nValueError: no more")}


async def test_pieces_that_come_after_the_result_has_ended_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "TIMEOUT_GRACE_SECONDS", 0.01)
    gate = asyncio.Event()

    @tool(timeout=0.05)
    async def stubborn() -> AsyncIterator[str]:
        """Give a part, swallow the cancel, and give another when the gate is open."""
        yield "one"
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
                continue  # noqa: ASYNC104
        yield "too late"

    @tool
    async def opens() -> str:
        """Open the gate."""
        gate.set()
        await asyncio.sleep(0.01)
        return "open"

    agent, _ = agent_of([call("stubborn")], [call("opens")], [say("ok")], tools=[stubborn, opens])
    await agent.reply("go")
    assert results(agent)["call_1"][1].startswith("one\nstubborn exceeded its timeout")
    assert "too late" not in str(run_of(agent).events)


# -- order ----------------------------------------------------------------------------------------------------------


def noting(name: str, **options: Any) -> Any:
    async def work() -> str:
        """Note the beginning and the end."""
        order.append(f"{name} begins")
        for _ in range(3):
            await asyncio.sleep(0)
        order.append(f"{name} ends")
        return name

    return tool(name=name, **options)(work)


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_sequential_call_runs_alone_and_the_others_side_by_side_in_the_models_order(confirmed: bool) -> None:
    tools = [noting("a", confirm=confirmed), noting("b", confirm=confirmed), noting("alone", confirm=confirmed, sequential=True)]
    names = ["a", "b", "alone", "alone", "b", "a"]
    agent, _ = agent_of([*(call(name) for name in names)], [say("ok")], tools=tools)
    await agent.reply("go")
    if confirmed:
        waiting = agent.state.waiting()
        confirm = tuple(ev.ConfirmResult(confirmed=True, tool_call=item) for item in reversed(waiting))
        await agent.reply(ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=confirm))
    together = ["a begins", "b begins", "a ends", "b ends"]
    alone = ["alone begins", "alone ends"]
    assert order == [*together, *alone, *alone, "b begins", "a begins", "b ends", "a ends"]
    assert [state for state, _ in results(agent).values()] == ["success"] * 6
    assert list(results(agent)) == [f"call_{number}" for number in range(1, 7)]


@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_stop_in_the_middle_keeps_what_has_not_begun_from_beginning(level: Any) -> None:
    @tool
    async def waits() -> str:
        """Wait for the gate."""
        order.append("waits begins")
        await gate.wait()
        return "waited"

    gate = asyncio.Event()
    agent, model = agent_of(
        [call("waits"), call("alone"), call("a")], [say("fine")], tools=[waits, noting("alone", sequential=True), noting("a")]
    )
    task = asyncio.create_task(agent.reply("go"))
    await until(lambda: order)
    agent.interrupt(level)
    await asyncio.sleep(0)
    gate.set()
    await task
    states = [state for state, _ in results(agent).values()]
    if level == "now":
        assert order == ["waits begins"]
        assert states == ["interrupted"] * 3
    else:
        assert order == ["waits begins", "alone begins", "alone ends", "a begins", "a ends"]
        assert states == ["success"] * 3
    assert agent.state.check() == ()
    assert (await agent.reply("next")).text == "fine"
    assert_valid(model.requests[-1].messages)


async def test_a_sequential_call_after_one_that_swallowed_its_cancel_does_not_begin() -> None:
    @tool
    async def swallows() -> str:
        """Swallow the cancel."""
        order.append("swallows")
        with contextlib.suppress(asyncio.CancelledError):  # such tools exist
            await asyncio.Event().wait()
        return "done anyway"

    agent, _ = agent_of([call("swallows"), call("alone")], tools=[swallows, noting("alone", sequential=True)])
    task = asyncio.create_task(agent.reply("go"))
    await until(lambda: order)
    agent.interrupt()
    await task
    assert order == ["swallows"]
    assert [state for state, _ in results(agent).values()] == ["success", "interrupted"]


# -- late results ---------------------------------------------------------------------------------------------------


class Deaf:
    """A sync tool that waits for its gate only."""

    def __init__(self, end: Callable[[], object] = lambda: 5) -> None:
        self.begun, self.gate, self.ended = threading.Event(), threading.Event(), threading.Event()
        self._end = end

    def __call__(self) -> object:
        """Count the rows."""
        self.begun.set()
        self.gate.wait(10)
        return self._end()


async def test_the_late_result_of_a_stopped_tool_is_said_when_the_next_reply_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    deaf = Deaf()
    agent, model = agent_of([call("count_rows")], [say("fine")], [say("fine")], tools=[tool(name="count_rows")(deaf)])
    task = asyncio.create_task(agent.reply("go"))
    await asyncio.to_thread(deaf.begun.wait)
    agent.interrupt()
    await task
    first, before = run_of(agent), agent.state
    assert "still running" in results(agent)["call_1"][1]
    events = first.events
    deaf.gate.set()
    await until(lambda: agent._memory._held.late)
    assert first.events == events
    assert first.events[-1].type == "REPLY_END"
    assert agent.state == before
    await agent.reply("next")
    assert [event.type for event in run_of(agent).events[:3]] == ["REPLY_START", "CUSTOM", "MODEL_CALL_START"]
    assert late_results(agent) == [{"call_id": "call_1", "name": "count_rows", "state": "success", "text": "5"}]
    assert run_of(agent).transcript.notices == (
        "count_rows, which was left behind, has ended after all: 5 (not part of the conversation)",
    )
    assert "after all" not in str(model.requests[-1].messages)
    assert results(agent)["call_1"][0] == "interrupted"
    await agent.reply("next")
    assert late_results(agent) == []  # once


async def test_the_late_result_of_a_timeout_is_in_the_log_of_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)

    def fails() -> object:
        raise ValueError("gone")

    deaf = Deaf(fails)

    @tool
    async def opens() -> str:
        """Open the gate, and wait for what it does."""
        deaf.gate.set()
        await until(lambda: late_results(agent))
        return "open"

    counts = tool(name="count_rows", timeout=0.2)(deaf)
    agent, model = agent_of([call("count_rows")], [call("opens")], [say("ok")], tools=[counts, opens])
    await agent.reply("go")
    assert late_results(agent) == [{"call_id": "call_1", "name": "count_rows", "state": "error", "text": "ValueError: gone"}]
    assert run_of(agent).events[-1].type == "REPLY_END"
    assert results(agent)["call_1"][0] == "error"
    assert "gone" not in str(model.requests[-1].messages)


async def test_an_async_tool_that_was_left_behind_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "TOOL_CLEAN_UP_SECONDS", 0.01)
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Swallow every cancel."""
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
                continue  # noqa: ASYNC104
        return "x" * 1_000 + " y"

    agent, _ = agent_of([call("stubborn")], [say("fine")], tools=[stubborn])
    task = asyncio.create_task(agent.reply("go"))
    await begun.wait()
    agent.interrupt()
    await task
    gate.set()
    await until(lambda: agent._memory._held.late)
    await agent.reply("next")
    (late,) = late_results(agent)
    assert (late["name"], late["state"]) == ("stubborn", "success")
    assert len(late["text"]) <= 500
    assert results(agent)["call_1"][0] == "interrupted"


def test_a_result_that_comes_when_the_loop_has_been_closed_is_kept_for_the_next_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    deaf = Deaf()
    agent, _ = agent_of([call("count_rows")], [say("fine")], tools=[tool(name="count_rows")(deaf)])

    async def first() -> None:
        task = asyncio.create_task(agent.reply("go"))
        await asyncio.to_thread(deaf.begun.wait)
        agent.interrupt()
        await task

    async def second() -> None:
        await until(lambda: agent._memory._held.late)
        await agent.reply("next")

    asyncio.run(first())
    deaf.gate.set()
    asyncio.run(second())
    assert [late["text"] for late in late_results(agent)] == ["5"]


async def test_another_conversation_hears_nothing_of_it() -> None:
    agent, _ = agent_of([say("fine")], tools=[])
    session = Session(agent, loop=asyncio.get_running_loop())
    agent._memory.keep_late(ev.CustomEvent(name=ev.LATE_RESULT, value={"name": "x", "state": "success", "text": "5"}))
    run = session.run("go", reset=True)
    await run
    assert [event.type for event in run.events].count("CUSTOM") == 0
    session.close()


async def test_a_sync_generator_that_asks_is_told_like_every_thread() -> None:
    @tool
    def polls() -> Iterator[str]:
        """Give a part, and ask whether to stop."""
        yield "half of it"
        order.append("yielded")
        while not stop_requested():
            pass

    agent, _ = agent_of([call("polls")], tools=[polls])
    task = asyncio.create_task(agent.reply("go"))
    await until(lambda: order)
    agent.interrupt()
    await task
    assert results(agent) == {"call_1": ("interrupted", f"half of it\n{INTERRUPTED_TEXT}")}
