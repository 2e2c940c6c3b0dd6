"""The two programs of AgentScope 2's page "Interrupt Agent", with nothing changed but the imports and a filled-in agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import agent_widgets as aw
from agent_widgets import Agent, UserInterruptEvent, UserMsg
from agent_widgets.backends import ModelDelta, ModelRequest
from agent_widgets.models.scripted import ScriptedModel, call, say, wait
from agent_widgets.state import INTERRUPTED_TEXT
from tests.validator import assert_valid


@aw.tool
async def slow() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@aw.tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    raise AssertionError(f"{table} must not be touched")


class Strict(ScriptedModel):
    """Refuses a history that a server would refuse."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        assert_valid(request.messages)
        async for piece in super().stream(request):
            yield piece


async def assert_consistent(agent: Agent) -> None:
    """The context is left in a consistent state, and the conversation can be resumed immediately with a new message."""
    assert agent.state.check() == ()
    assert agent.state.reply_id == ""
    assert (await agent.reply(UserMsg(name="user", content="next"))).get_text_content() == "fine"


# -- interrupt a running agent --------------------------------------------------------------------------------------


async def chat(agent: Agent) -> None:
    async for _event in agent.reply_stream(
        UserMsg(name="user", content="..."),
    ):
        ...


@pytest.mark.parametrize(
    "turn",
    [
        [wait(asyncio.Event()), say("never")],
        [say(["half "]), wait(asyncio.Event())],
        [call("slow", '{"half'), wait(asyncio.Event())],
        [say(["I work. "]), call("slow")],
    ],
    ids=["before the first token", "in mid-text", "in mid-call", "in a tool"],
)
async def test_a_running_agent_is_interrupted_by_cancelling_its_task(monkeypatch: pytest.MonkeyPatch, turn: Any) -> None:
    agent = Agent(Strict([turn, "fine"]), tools=[slow])
    tasks: list[asyncio.Task[None]] = []
    sleep = asyncio.sleep

    async def sleep_for_turns(delay: float) -> None:
        """The program sleeps for a second, so that the agent gets into the middle of its work: a hundred turns of the loop."""
        for _ in range(100 if delay else 1):
            await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep_for_turns)

    async def main() -> None:
        task = asyncio.create_task(chat(agent))
        tasks.append(task)

        # Cancel the task at any point to interrupt the agent
        await asyncio.sleep(1)
        task.cancel()

    await main()
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert agent.state.context[-1].finished_reason == "interrupted"
    await assert_consistent(agent)


async def test_a_new_message_may_follow_as_soon_as_the_state_says_that_no_reply_is_open() -> None:
    agent = Agent(Strict([[say(["half "]), wait(asyncio.Event())], "fine"]))
    task = asyncio.create_task(chat(agent))
    while not agent.state.context or agent.state.context[-1].text != "half ":
        await asyncio.sleep(0)
    task.cancel()
    while agent.state.reply_id:
        await asyncio.sleep(0)
    await assert_consistent(agent)


# -- interrupt a paused agent ---------------------------------------------------------------------------------------


async def test_a_paused_agent_is_interrupted_by_a_user_interrupt_event() -> None:
    agent = Agent(
        Strict([[say("I ask."), call("delete_rows", {"table": "a"}), call("delete_rows", {"table": "b"})], "fine"]),
        tools=[delete_rows],
    )
    printed: list[Any] = []
    print = printed.append  # noqa: A001 - the program prints

    async def main() -> None:
        # The agent has previously paused on a RequireUserConfirmEvent
        # or a RequireExternalExecutionEvent. Send UserInterruptEvent to
        # clear the pending state and end the current reply.
        async for event in agent.reply_stream(
            UserInterruptEvent(reply_id=agent.state.reply_id),
        ):
            print(event)

    await agent.reply("go")
    paused = agent.state.reply_id
    await main()
    each = ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"]
    assert [event.type for event in printed] == [*each, *each, "REPLY_END"]
    assert [event.tool_call_id for event in printed[:-1]] == ["call_1"] * 3 + ["call_2"] * 3
    assert [event.state for event in printed if event.type == "TOOL_RESULT_END"] == ["interrupted", "interrupted"]
    assert {event.delta for event in printed if event.type == "TOOL_RESULT_TEXT_DELTA"} == {INTERRUPTED_TEXT}
    assert (printed[-1].reply_id, printed[-1].finished_reason) == (paused, "interrupted")
    await assert_consistent(agent)


async def test_if_the_agent_is_not_paused_the_event_is_a_no_op() -> None:
    agent = Agent(Strict(["fine"]))
    assert [event async for event in agent.reply_stream(UserInterruptEvent(reply_id=agent.state.reply_id))] == []
    await agent.reply(UserInterruptEvent(reply_id=agent.state.reply_id))
    assert agent.state.context == ()
    await assert_consistent(agent)
