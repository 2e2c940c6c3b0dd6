"""The agent: replies, stops at every moment, decisions, and a history that is valid whatever happened."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from agent_widgets import acting, threads
from agent_widgets import events as ev
from agent_widgets.agent import INTERRUPTION_TEXT, WAITING_TEXT, Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece
from agent_widgets.budgets import Budget
from agent_widgets.decisions import StopLevel
from agent_widgets.errors import AgentBusyError, AgentInterruptedError, InputError, ModelError, NotWaitingError, SavedStateError
from agent_widgets.loops import LoopThread
from agent_widgets.messages import Msg, PermissionRule, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from agent_widgets.models.scripted import ScriptedModel, Turn, call, fail, say, think, wait
from agent_widgets.results import DENIED_TEXT
from agent_widgets.runs import Run
from agent_widgets.state import INTERRUPTED_TEXT, AgentState
from agent_widgets.threads import stop_requested
from agent_widgets.tools import tool
from tests.validator import assert_valid

done: list[str] = []
"""What tools have done, in order; emptied before each test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest.fixture(autouse=True)
def nothing_failed_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a callback of the loop raises is only logged: here it fails the test."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    done.append(f"add {a} {b}")
    return a + b


@tool(confirm=True)
async def delete_rows(table: str, where: str = "") -> str:
    """Delete the rows of TABLE that match WHERE."""
    await asyncio.sleep(0)
    done.append(f"delete {table} {where}")
    return f"deleted from {table}"


class Next:
    """A script, and "fine" to whoever says "next": every history must allow that. Checks each request."""

    name = "next"

    def __init__(self, script: list[Turn]) -> None:
        self.script = ScriptedModel(script)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        assert_valid(request.messages)
        self.requests.append(request)
        if request.messages[-1] == {"role": "user", "content": "next"}:
            await asyncio.sleep(0)
            yield TextPiece("fine")
            return
        async for piece in self.script.stream(request):
            yield piece


def agent_of(*script: Turn, **options: Any) -> tuple[Agent, Next]:
    model = Next(list(script))
    options = {"tools": [add, delete_rows], **options}
    return Agent(model, **options), model


async def heard(agent: Agent, kind: type[ev.Event] = ev.TextBlockDeltaEvent, inputs: Any = "go") -> asyncio.Task[Msg]:
    """A task that waits for the reply, once the agent has said the first event of this kind."""
    task = asyncio.create_task(agent.reply(inputs))
    while agent._run is None or not any(isinstance(event, kind) for event in agent._run.events):
        await asyncio.sleep(0)
    return task


async def assert_goes_on(agent: Agent) -> None:
    """Valid, idle, and the next prompt is answered."""
    assert agent.state.check() == ()
    assert agent.state.reply_id == ""
    assert (await agent.reply("next")).text == "fine"
    assert strays() == []


def strays() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def results(agent: Agent) -> dict[str, tuple[str, str]]:
    """State and text of each tool result in the history, by call id."""
    blocks = [block for message in agent.state.context for block in message.content]
    return {block.id: (block.state, block.text()) for block in blocks if isinstance(block, ToolResultBlock)}


def decided(agent: Agent, *answers: tuple[str, bool], **more: Any) -> ev.UserConfirmResultEvent:
    """Decisions about waiting calls, by id."""
    waiting = {waits.id: waits for waits in agent.state.waiting()}
    decisions = tuple(ev.ConfirmResult(confirmed=yes, tool_call=waiting[call_id], **more) for call_id, yes in answers)
    return ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=decisions)


def run_of(agent: Agent) -> Run:
    """The run that carries or carried its reply."""
    assert agent._run is not None
    return agent._run


def ended(run: Run) -> ev.ReplyEndEvent:
    """The one end of a run, last in its log."""
    last = run.events[-1]
    assert isinstance(last, ev.ReplyEndEvent)
    assert sum(isinstance(event, ev.ReplyEndEvent) for event in run.events) == 1
    return last


# -- replies --------------------------------------------------------------------------------------------------------


async def test_a_reply_is_the_message_that_the_history_keeps() -> None:
    agent, model = agent_of([think("hm"), say("Hello you.")], name="bob", instructions="Be brief.")
    reply = await agent.reply("Hi")
    assert (reply.name, reply.role, reply.text, reply.finished_reason) == ("bob", "assistant", "Hello you.", "completed")
    assert [message.text for message in agent.state.context] == ["Hi", "Hello you."]
    assert agent.state.context[-1] == reply
    assert model.requests[0].messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


async def test_calling_the_agent_is_the_same_as_reply() -> None:
    agent, _ = agent_of("one")
    assert (await agent("x")).text == "one"


async def test_inputs_may_be_text_a_message_several_or_none() -> None:
    agent, model = agent_of("1", "2", "3", "4")
    for inputs in ("a", UserMsg("ann", "b"), [UserMsg("ann", "c"), UserMsg("bob", "d")], None):
        await agent.reply(inputs)
    asked = [message["content"] for message in model.requests[-1].messages if message["role"] == "user"]
    assert asked == ["a", "b", "c", "d"]


@pytest.mark.parametrize("inputs", [5, ["text"], {"role": "user"}, ev.ExceedMaxItersEvent(reply_id="r", name="n")])
async def test_an_input_that_cannot_be_answered_is_refused_before_anything_changes(inputs: Any) -> None:
    agent, model = agent_of()
    with pytest.raises(InputError, match="An input must be text or Msg, or a list of Msg; got "):
        await agent.reply(inputs)
    assert (agent.state.context, model.requests) == ((), [])


async def test_tools_run_and_the_model_sees_their_results() -> None:
    agent, model = agent_of([say("I add."), call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})], "3 and 7")
    assert (await agent.reply("go")).text == "I add.\n3 and 7"
    assert [(m["tool_call_id"], m["content"]) for m in model.requests[1].messages if m["role"] == "tool"] == [
        ("call_1", "3"),
        ("call_2", "7"),
    ]
    assert [spec.name for spec in model.requests[0].tools] == ["add", "delete_rows"]


async def test_the_events_of_a_reply_come_in_the_documented_order() -> None:
    agent, _ = agent_of([think(["hm"]), say(["a"]), call("add", {"a": 1, "b": 2})], [say(["b"])])
    types: list[str] = [event.type async for event in agent.reply_stream("go")]
    assert types == [
        "REPLY_START",
        "MODEL_CALL_START",
        "THINKING_BLOCK_START",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_END",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "TOOL_CALL_START",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_END",
        "MODEL_CALL_END",
        "TOOL_RESULT_START",
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "REPLY_END",
    ]


async def test_a_call_id_that_a_server_repeats_is_made_unique() -> None:
    agent, _ = agent_of(call("add", {"a": 1, "b": 1}, id="call_0"), call("add", {"a": 2, "b": 2}, id="call_0"), "ok")
    await agent.reply("go")
    assert sorted(text for _, text in results(agent).values()) == ["2", "4"]
    assert agent.state.check() == ()


async def test_a_reply_that_takes_too_many_steps_ends_and_can_go_on() -> None:
    turn = call("add", {"a": 1, "b": 1})
    agent, model = agent_of(turn, turn, "enough", max_steps=2)
    reply = await agent.reply("go")
    assert reply.finished_reason == "exceed_max_iters"
    assert len(model.requests) == 2
    assert (await agent.reply(None)).text == "enough"
    await assert_goes_on(agent)


async def test_arguments_that_no_server_would_take_are_mended_in_the_history_and_never_executed() -> None:
    agent, model = agent_of(call("add", '{"a": 1, "b": 2, "c'), call("delete_rows", '{"table": "t'), "ok")
    await agent.reply("go")
    assert done == []
    assert {state for state, _ in results(agent).values()} == {"error"}
    assert "do not fit add" in results(agent)["call_1"][1]
    calls: Any = model.requests[1].messages[1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == '{"a":1,"b":2}'
    await assert_goes_on(agent)


async def test_a_call_without_any_arguments_still_asks_when_its_tool_must_be_confirmed() -> None:
    @tool(confirm=True)
    async def wipe() -> str:
        """Wipe the whole disk."""
        done.append("wiped")
        return "wiped"

    agent, _ = agent_of(call("wipe", ""), "ok", tools=[wipe])
    await agent.reply("go")
    assert (done, [waits.input for waits in agent.state.waiting()]) == ([], ["{}"])


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (call("no_such", {}), "There is no tool called 'no_such'. There are: add, delete_rows."),
        (call("add", {"a": "x"}), "The arguments do not fit add: a: Input should be a valid integer"),
        (call("add", {"a": 1, "b": 2, "c": 3}), "c: Extra inputs are not permitted"),
    ],
)
async def test_a_call_that_cannot_work_is_an_error_that_the_model_reads(turn: Turn, words: str) -> None:
    agent, model = agent_of(turn, "sorry")
    assert (await agent.reply("go")).text == "sorry"
    assert results(agent)["call_1"][0] == "error"
    assert words in str(model.requests[1].messages[-1]["content"])
    await assert_goes_on(agent)


async def test_what_a_tool_raises_is_for_the_model_and_the_traceback_for_the_person() -> None:
    @tool
    async def broken() -> str:
        """Fail at once."""
        raise LookupError("no such table")

    agent, model = agent_of(call("broken"), "sorry", tools=[broken])
    await agent.reply("go")
    assert model.requests[1].messages[-1]["content"] == "LookupError: no such table"
    end = next(event for event in run_of(agent).events if isinstance(event, ev.ToolResultEndEvent))
    assert "in broken" in str(end.metadata["traceback"])


async def test_a_tool_that_raises_a_cancel_of_its_own_stops_nothing_else() -> None:
    @tool
    async def odd() -> str:
        """Raise a cancel."""
        raise asyncio.CancelledError

    agent, _ = agent_of([call("odd"), call("add", {"a": 1, "b": 2})], "on we go", tools=[odd, add])
    assert (await agent.reply("go")).text == "on we go"
    assert results(agent) == {"call_1": ("error", "odd was cancelled from inside."), "call_2": ("success", "3")}


async def test_a_huge_result_is_cut_before_the_model_sees_it() -> None:
    @tool
    async def dump() -> str:
        """Give very much."""
        return "x" * 1_000_000

    agent, model = agent_of(call("dump"), "ok", tools=[dump])
    await agent.reply("go")
    sent = str(model.requests[1].messages[-1]["content"])
    assert sent.endswith("[cut: 50,000 of 1,000,000 characters are shown]")
    assert len(sent) < 50_100


# -- stopping -------------------------------------------------------------------------------------------------------


async def test_a_stop_in_mid_text_keeps_the_text_and_reply_says_so() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    task = await heard(agent)
    agent.interrupt(reason="enough")
    reply = await task
    assert (reply.text, reply.metadata) == (INTERRUPTION_TEXT, {"_is_interrupted": True})
    assert reply.text == "I notice the interruption. How can I help you?"
    last = agent.state.context[-1]
    assert (last.text, last.finished_reason, last.metadata["_is_interrupted"]) == ("half ", "interrupted", True)
    assert ended(run_of(agent)).metadata["reason"] == "enough"
    await assert_goes_on(agent)


async def test_a_stop_in_mid_thinking_keeps_the_thinking_and_never_sends_it() -> None:
    agent, model = agent_of([think(["secret"]), wait(asyncio.Event())])
    task = await heard(agent, ev.ThinkingBlockDeltaEvent)
    agent.interrupt()
    await task
    assert agent.state.context[-1].content[0].type == "thinking"
    await assert_goes_on(agent)
    assert "secret" not in json.dumps(model.requests[-1].messages)


@pytest.mark.parametrize("cut", ["", "{", '{"a": 1', '{"a": 1, "b": 2}'])
async def test_a_call_that_was_cut_is_never_executed_and_is_valid_in_the_history(cut: str) -> None:
    agent, _ = agent_of([call("add", cut), wait(asyncio.Event())])
    task = await heard(agent, ev.ToolCallDeltaEvent if cut else ev.ToolCallStartEvent)
    while not isinstance(block := agent.state.context[-1].content[0], ToolCallBlock) or block.input != cut:
        await asyncio.sleep(0)
    agent.interrupt()
    await task
    assert done == []
    assert results(agent) == {"call_1": ("interrupted", INTERRUPTED_TEXT)}
    await assert_goes_on(agent)


async def test_a_stop_between_submitting_and_the_first_await_takes_effect() -> None:
    agent, model = agent_of("never")
    task = asyncio.create_task(agent.reply("go"))
    await asyncio.sleep(0)
    agent.interrupt()
    assert (await task).metadata == {"_is_interrupted": True}
    assert model.requests == []
    await assert_goes_on(agent)


@pytest.mark.parametrize("way", ["reply", "call", "stream"])
async def test_a_stop_before_the_first_step_of_a_reply_that_was_asked_for_takes_effect(way: str) -> None:
    agent, model = agent_of("never")
    if way == "stream":
        stream = agent.reply_stream("go")
        await asyncio.to_thread(agent.interrupt)
        assert [event async for event in stream] == []
    else:
        task = asyncio.create_task(agent.reply("go") if way == "reply" else agent("go"))
        agent.interrupt(reason="at once")
        assert (await task).metadata == {"_is_interrupted": True}
    assert (agent.state.context, model.requests) == ((), [])
    await assert_goes_on(agent)  # and nothing is left for the next one


async def test_a_stop_of_what_runs_is_not_a_stop_of_what_was_asked_for_beside_it() -> None:
    agent, _ = agent_of(say(["one "] * 100))
    task = await heard(agent)
    second = agent.reply("next")
    agent.interrupt()
    assert (await task).metadata == {"_is_interrupted": True}
    assert (await second).text == "fine"


async def test_a_task_that_is_cancelled_before_it_ran_changes_nothing() -> None:
    agent, model = agent_of("never")
    task = asyncio.create_task(agent.reply("go"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (agent.state.context, model.requests) == ((), [])
    await assert_goes_on(agent)


async def test_a_stopped_async_tool_runs_its_finally_and_finished_ones_keep_their_results() -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            done.append("finally")
        return "never"

    agent, model = agent_of([call("add", {"a": 1, "b": 2}), call("slow")], tools=[add, slow])
    task = await heard(agent, ev.ToolResultEndEvent)
    await begun.wait()
    agent.interrupt()
    await task
    assert done == ["add 1 2", "finally"]
    assert results(agent) == {"call_1": ("success", "3"), "call_2": ("interrupted", INTERRUPTED_TEXT)}
    await assert_goes_on(agent)
    assert [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"] == ["3", INTERRUPTED_TEXT]


async def test_a_sync_tool_that_notices_the_stop_is_simply_interrupted() -> None:
    begun = threading.Event()

    @tool
    def slow() -> str:
        """Work until told."""
        begun.set()
        while not stop_requested():
            pass
        return "half"

    agent, _ = agent_of(call("slow"), tools=[slow])
    task = asyncio.create_task(agent.reply("go"))
    await asyncio.to_thread(begun.wait)
    agent.interrupt()
    await task
    assert results(agent) == {"call_1": ("interrupted", INTERRUPTED_TEXT)}
    end = next(event for event in run_of(agent).events if isinstance(event, ev.ToolResultEndEvent))
    assert "still_running" not in end.metadata
    await assert_goes_on(agent)


async def test_a_sync_tool_that_does_not_notice_is_said_to_run_on_and_its_late_result_is_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    begun, gate, late = threading.Event(), threading.Event(), threading.Event()

    @tool
    def deaf() -> str:
        """Wait for the gate only."""
        begun.set()
        gate.wait(10)
        late.set()
        return "late"

    agent, _ = agent_of(call("deaf"), tools=[deaf])
    task = asyncio.create_task(agent.reply("go"))
    await asyncio.to_thread(begun.wait)
    agent.interrupt()
    await task
    state, text = results(agent)["call_1"]
    assert state == "interrupted"
    assert text.endswith("It could not be ended and is still running: its effects may still happen.")
    end = next(event for event in run_of(agent).events if isinstance(event, ev.ToolResultEndEvent))
    assert end.metadata == {"still_running": True}
    gate.set()
    await asyncio.to_thread(late.wait, 5)
    await assert_goes_on(agent)
    assert results(agent)["call_1"] == (state, text)


async def test_a_tool_that_swallows_its_cancel_does_not_let_the_reply_go_on() -> None:
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Swallow the cancel."""
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # such tools exist
            await asyncio.Event().wait()
        done.append("swallowed")
        return "I finished anyway"

    agent, model = agent_of(call("stubborn"), "never", tools=[stubborn])
    task = asyncio.create_task(agent.reply("go"))
    await begun.wait()
    agent.interrupt()
    assert (await task).metadata == {"_is_interrupted": True}
    assert (done, len(model.requests)) == (["swallowed"], 1)
    assert results(agent) == {"call_1": ("success", "I finished anyway")}  # it did: a result is never dropped
    await assert_goes_on(agent)


async def test_a_model_that_swallows_its_cancel_is_not_heard_any_further() -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    class Stubborn:
        name = "stubborn"

        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
            try:
                yield TextPiece("before")
                begun.set()
                with contextlib.suppress(asyncio.CancelledError):  # such models exist
                    await asyncio.Event().wait()
                while True:
                    yield TextPiece(" after")
                    await asyncio.sleep(0)
            finally:
                closed.set()

    agent = Agent(Stubborn())
    task = asyncio.create_task(agent.reply("go"))
    await begun.wait()
    agent.interrupt()
    assert (await asyncio.wait_for(task, 5)).metadata == {"_is_interrupted": True}
    assert closed.is_set()
    assert agent.state.context[-1].text == "before"


@pytest.mark.parametrize("answer", ["approve", "deny", "stop"])
async def test_a_state_saved_when_the_answer_to_a_pause_is_told_does_not_wait_for_it_again(answer: str) -> None:
    agent, _ = agent_of([call("delete_rows", {"table": "t"}), call("delete_rows", {"table": "u"})], "gone")
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    saved: list[AgentState] = []
    kinds = ev.UserConfirmResultEvent | ev.UserInterruptEvent
    run.listen(lambda _, event: saved.append(agent.state) if isinstance(event, kinds) else None)
    run.start()
    while run.status != "paused":
        await asyncio.sleep(0)
    {"approve": run.approve, "deny": run.deny, "stop": run.stop}[answer]()
    await run
    assert [state.waiting() for state in saved] == [()]
    assert saved[0].repair().check() == ()
    assert saved[0].repair().reply_id == ""


async def test_a_tool_that_does_not_end_is_left_behind_and_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "TOOL_CLEAN_UP_SECONDS", 0.01)
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Swallow every cancel."""
        begun.set()
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):  # such tools exist
                await gate.wait()
        return "late"

    agent, _ = agent_of(call("stubborn"), tools=[stubborn])
    task = asyncio.create_task(agent.reply("go"))
    await begun.wait()
    agent.interrupt()
    await task
    before = agent.state
    assert results(agent)["call_1"][0] == "interrupted"
    assert "still running" in results(agent)["call_1"][1]
    (stray,) = strays()
    gate.set()
    await stray
    assert agent.state == before
    await assert_goes_on(agent)


async def test_a_stop_after_the_step_lets_its_tools_finish_and_loses_nothing() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the gate."""
        begun.set()
        await gate.wait()
        return "slow result"

    agent, model = agent_of([call("slow"), call("add", {"a": 1, "b": 2})], "and on", tools=[slow, add])
    task = asyncio.create_task(agent.reply("go"))
    await begun.wait()
    agent.interrupt("step", "lunch")
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    await task
    assert results(agent) == {"call_1": ("success", "slow result"), "call_2": ("success", "3")}
    assert {key: ended(run_of(agent)).metadata[key] for key in ("when", "reason", "source")} == {
        "when": "step",
        "reason": "lunch",
        "source": "code",
    }
    assert len(model.requests) == 1
    assert (await agent.reply(None)).text == "and on"
    await assert_goes_on(agent)


async def test_a_stop_after_the_last_step_is_a_completed_reply_and_leaves_nothing_behind() -> None:
    gate = asyncio.Event()
    agent, _ = agent_of([say(["whole "]), wait(gate), say(["answer"])], call("add", {"a": 1, "b": 2}), "both steps")
    task = await heard(agent)
    agent.interrupt("step")
    gate.set()
    assert (await task).text == "whole answer"
    assert ended(run_of(agent)).finished_reason == "completed"
    assert (await agent.reply("more")).text == "both steps"
    await assert_goes_on(agent)


async def test_now_upgrades_a_step() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    task = await heard(agent)
    agent.interrupt("step")
    await asyncio.sleep(0)
    agent.interrupt("now")
    await task
    assert ended(run_of(agent)).metadata["when"] == "now"
    await assert_goes_on(agent)


@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_stop_of_an_idle_agent_leaves_nothing_behind(level: StopLevel) -> None:
    agent, _ = agent_of(call("add", {"a": 1, "b": 2}), "both steps")
    agent.interrupt(level)
    assert (await agent.reply("go")).text == "both steps"
    agent.interrupt(level)
    await assert_goes_on(agent)


async def test_a_stop_from_another_thread_and_a_second_one_are_fine() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    task = await heard(agent)
    await asyncio.gather(*(asyncio.to_thread(agent.interrupt) for _ in range(5)))
    await task
    agent.interrupt()
    await assert_goes_on(agent)


async def test_a_tool_may_stop_its_own_agent() -> None:
    @tool
    async def enough() -> str:
        """Stop the agent."""
        agent.interrupt(reason="from inside")
        await asyncio.Event().wait()
        return "never"

    agent, _ = agent_of(call("enough"), tools=[enough])
    assert (await agent.reply("go")).metadata == {"_is_interrupted": True}
    assert ended(run_of(agent)).metadata["reason"] == "from inside"
    await assert_goes_on(agent)


async def test_stopping_an_agent_stops_the_agents_that_its_tools_run() -> None:
    child, _ = agent_of([say(["child "]), wait(asyncio.Event())])
    heard_child = asyncio.Event()

    @tool
    async def ask_child() -> str:
        """Ask the other agent."""
        async for event in child.reply_stream("work"):
            if isinstance(event, ev.TextBlockDeltaEvent):
                heard_child.set()
        return "never"

    agent, _ = agent_of(call("ask_child"), tools=[ask_child])
    task = asyncio.create_task(agent.reply("go"))
    await heard_child.wait()
    agent.interrupt()
    await task
    assert child.state.context[-1].finished_reason == "interrupted"
    assert results(agent)["call_1"][0] == "interrupted"
    await assert_goes_on(child)
    await assert_goes_on(agent)


async def test_stopping_one_child_leaves_the_parent_running() -> None:
    child, _ = agent_of([say(["child "]), wait(asyncio.Event())])

    @tool
    async def ask_child() -> str:
        """Ask the other agent."""
        return (await child.reply("work")).text

    agent, _ = agent_of(call("ask_child"), "parent goes on", tools=[ask_child])
    task = asyncio.create_task(agent.reply("go"))
    while not (child._run and child._run.text):
        await asyncio.sleep(0)
    child.interrupt()
    assert (await task).text == "parent goes on"
    assert results(agent)["call_1"] == ("success", INTERRUPTION_TEXT)


@pytest.mark.parametrize("level", ["later", "", None])
async def test_a_level_of_stopping_that_does_not_exist_is_refused_also_when_idle(level: Any) -> None:
    agent, _ = agent_of()
    with pytest.raises(InputError, match=r"it must be 'now' or 'step'"):
        agent.interrupt(level)


# -- whose cancel ---------------------------------------------------------------------------------------------------


async def within(seconds: float, work: Awaitable[object]) -> None:
    async with asyncio.timeout(seconds):
        await work


async def test_a_timeout_around_reply_is_a_timeout_error_and_the_history_is_valid() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    with pytest.raises(TimeoutError):
        await within(0.01, agent.reply("go"))
    assert agent.state.context[-1].text == "half "
    await assert_goes_on(agent)


async def test_wait_for_around_reply_is_a_timeout_error_and_the_history_is_valid() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.reply("go"), 0.01)
    await assert_goes_on(agent)


async def test_a_timeout_around_reply_stream_is_a_timeout_error_after_the_closing_events() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    types: list[str] = []
    with pytest.raises(TimeoutError):
        await within(0.01, read(agent, types))
    assert types[-3:] == ["TEXT_BLOCK_END", "MODEL_CALL_END", "REPLY_END"]
    await assert_goes_on(agent)


async def test_a_task_group_that_fails_cancels_the_reply_beside_it() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])

    async def fails() -> None:
        while not agent.state.context or agent.state.context[-1].text != "half ":
            await asyncio.sleep(0)
        raise ValueError("neighbour")

    async def side_by_side() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.reply("go"))
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as caught:
        await side_by_side()
    assert [str(error) for error in caught.value.exceptions] == ["neighbour"]
    await assert_goes_on(agent)


async def test_when_our_stop_and_a_foreign_cancel_meet_the_foreign_one_wins() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    task = await heard(agent)
    agent.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await assert_goes_on(agent)


async def test_our_own_stop_does_not_leave_the_waiting_task_cancelled() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])

    async def story() -> int:
        await agent.reply("go")
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(story())
    while not agent.state.context or agent.state.context[-1].text != "half ":
        await asyncio.sleep(0)
    agent.interrupt()
    assert await task == 0


# -- reply_stream ---------------------------------------------------------------------------------------------------


async def read(agent: Agent, types: list[str]) -> None:
    """Read the stream to its end, and keep the types of its events."""
    async for event in agent.reply_stream("go"):
        types.append(event.type)  # noqa: PERF401 - what came before an error is kept


async def read_until(agent: Agent, kind: type[ev.Event], after: Callable[[], Awaitable[None]] | None = None) -> list[str]:
    types: list[str] = []
    async for event in agent.reply_stream("go"):
        types.append(event.type)
        if isinstance(event, kind):
            if after is None:
                break
            await after()
    return types


async def test_a_cancelled_reader_gets_the_closing_events_and_then_its_cancel() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    types: list[str] = []
    task = asyncio.create_task(read(agent, types))
    while "TEXT_BLOCK_DELTA" not in types:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert types == [
        "REPLY_START",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "REPLY_END",
    ]
    await assert_goes_on(agent)


async def test_a_reader_that_breaks_off_stops_the_reply() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    await read_until(agent, ev.TextBlockDeltaEvent)
    run = run_of(agent)
    while not run.is_over:
        await asyncio.sleep(0)
    assert ended(run).metadata["reason"] == "the reader walked away"
    await assert_goes_on(agent)


async def test_closing_the_stream_waits_for_the_clean_up() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    stream: Any = agent.reply_stream("go")
    async for event in stream:
        if isinstance(event, ev.TextBlockDeltaEvent):
            break
    await stream.aclose()
    assert ended(run_of(agent)).finished_reason == "interrupted"
    await assert_goes_on(agent)


async def test_a_stream_that_is_simply_forgotten_stops_the_reply() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    stream = agent.reply_stream("go")
    await anext(stream)
    run = run_of(agent)
    del stream
    gc.collect()
    while not run.is_over:
        await asyncio.sleep(0)
    assert ended(run).finished_reason == "interrupted"
    await assert_goes_on(agent)


async def test_a_reader_that_is_cancelled_in_an_await_of_its_own_stops_the_reply() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])
    waiting = asyncio.Event()

    async def think_about_it() -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(read_until(agent, ev.TextBlockDeltaEvent, think_about_it))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = run_of(agent)
    while not run.is_over:
        await asyncio.sleep(0)
    await assert_goes_on(agent)


async def test_a_reader_that_fails_stops_the_reply_and_keeps_its_own_error() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())])

    async def fails() -> None:
        raise KeyError("reader")

    with pytest.raises(KeyError, match="reader"):
        await read_until(agent, ev.TextBlockDeltaEvent, fails)
    run = run_of(agent)
    while not run.is_over:
        await asyncio.sleep(0)
    await assert_goes_on(agent)


async def test_a_slow_reader_loses_nothing() -> None:
    agent, _ = agent_of([say(["a", "b", "c"])])
    deltas: list[str] = []
    async for event in agent.reply_stream("go"):
        await asyncio.sleep(0.001)
        if isinstance(event, ev.TextBlockDeltaEvent):
            deltas.append(event.delta)
    assert deltas == ["a", "b", "c"]


async def test_a_stopped_stream_ends_without_an_error_also_when_reply_would_raise() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())], on_interrupt="raise")
    types: list[str] = []
    async for event in agent.reply_stream("go"):
        types.append(event.type)
        if isinstance(event, ev.TextBlockDeltaEvent):
            agent.interrupt()
    assert types[-1] == "REPLY_END"


# -- failing models -------------------------------------------------------------------------------------------------


async def test_a_model_that_fails_in_mid_text_keeps_the_text_and_the_next_reply_tries_again() -> None:
    agent, model = agent_of([say(["half "]), fail("the line dropped")], "and the rest")
    with pytest.raises(ModelError, match="the line dropped"):
        await agent.reply("go")
    assert run_of(agent).status == "error"
    end = ended(run_of(agent))
    assert end.error is not None
    assert (end.error.type, end.error.message) == ("connection", "scripted: the line dropped")
    last = agent.state.context[-1]
    assert (last.text, last.finished_reason, last.error) == ("half ", "error", end.error)
    assert (await agent.reply(None)).text == "and the rest"
    assert model.requests[1].messages[-1] == {"role": "assistant", "content": "half "}
    await assert_goes_on(agent)


async def test_a_model_that_fails_in_mid_call_closes_the_call_and_runs_nothing() -> None:
    agent, _ = agent_of([call("add", '{"a": 1, "b'), fail("gone")])
    with pytest.raises(ModelError):
        await agent.reply("go")
    assert done == []
    assert results(agent)["call_1"][0] == "interrupted"
    await assert_goes_on(agent)


async def test_a_failing_stream_gives_its_closing_events_and_then_the_error() -> None:
    agent, _ = agent_of([say(["half "]), fail("gone")])
    types: list[str] = []
    with pytest.raises(ModelError, match="gone"):
        await read(agent, types)
    assert types[-3:] == ["TEXT_BLOCK_END", "MODEL_CALL_END", "REPLY_END"]


async def test_an_unreported_usage_is_unknown_and_not_nought() -> None:
    agent, _ = agent_of([say(["half "]), fail("gone")])
    with pytest.raises(ModelError):
        await agent.reply("go")
    usage = agent.state.context[-1].usage
    assert usage is not None
    assert (usage.unknown_calls, usage.output_tokens) == (1, 0)


# -- confirmation ---------------------------------------------------------------------------------------------------

DELETE = call("delete_rows", {"table": "orders", "where": "id=1"})


async def test_a_call_that_must_be_confirmed_pauses_the_reply_and_runs_nothing() -> None:
    agent, _ = agent_of(DELETE)
    reply = await agent.reply("go")
    assert (reply.text, reply.finished_reason, done) == (WAITING_TEXT, None, [])
    assert [(waits.name, waits.input, waits.state) for waits in agent.state.waiting()] == [
        ("delete_rows", '{"table": "orders", "where": "id=1"}', "asking")
    ]
    assert agent.state.reply_id == agent.state.context[-1].id
    assert agent.state.check() == ()
    assert strays() == []


async def test_an_approved_call_runs_once_and_the_reply_goes_on() -> None:
    agent, model = agent_of([say(["I delete."]), DELETE], "Done.", name="bob")
    await agent.reply("go")
    reply = await agent.reply(decided(agent, ("call_1", True)))
    assert (reply.name, reply.text, reply.finished_reason) == ("bob", "I delete.\nDone.", "completed")
    assert reply == agent.state.context[-1]
    assert done == ["delete orders id=1"]
    assert model.requests[1].messages[-1]["content"] == "deleted from orders"
    await assert_goes_on(agent)


async def test_the_stream_of_a_decision_begins_with_its_results_and_without_a_second_start() -> None:
    agent, _ = agent_of(DELETE, [say(["ok"])])
    await agent.reply("go")
    types: list[str] = [event.type async for event in agent.reply_stream(decided(agent, ("call_1", True)))]
    assert types[:4] == ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "MODEL_CALL_START"]
    assert "REPLY_START" not in types
    assert types[-1] == "REPLY_END"


@pytest.mark.parametrize("reason", ["Not the orders table — use `archive`!", 'line one\nline "two"', "  spaces  ", "{}%s<b>"])
async def test_the_model_reads_the_reason_of_a_denial_word_for_word(reason: str) -> None:
    agent, model = agent_of(DELETE, "I see.")
    await agent.reply("go")
    await agent.reply(decided(agent, ("call_1", False), reason=reason))
    assert done == []
    assert model.requests[1].messages[-1] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": DENIED_TEXT.format(name="delete_rows") + f"\nReason: {reason}",
    }
    assert results(agent)["call_1"][0] == "denied"
    block = next(b for b in agent.state.context[1].content if isinstance(b, ToolResultBlock))
    assert block.metadata == {"reason": reason}
    await assert_goes_on(agent)


async def test_a_denial_without_a_reason_has_agentscopes_words() -> None:
    agent, model = agent_of(DELETE, "I see.")
    await agent.reply("go")
    await agent.reply(decided(agent, ("call_1", False)))
    sent = model.requests[1].messages[-1]["content"]
    assert sent == '<system-reminder>The execution of tool "delete_rows" is denied by user!</system-reminder>'


async def test_edited_arguments_are_what_runs_and_what_the_history_shows() -> None:
    agent, model = agent_of(DELETE, "ok")
    await agent.reply("go")
    waits = replace(agent.state.waiting()[0], input='{"table": "drafts"}')
    decision = ev.UserConfirmResultEvent(
        reply_id=agent.state.reply_id, confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=waits),)
    )
    await agent.reply(decision)
    assert done == ["delete drafts "]
    calls: Any = model.requests[1].messages[1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == '{"table": "drafts"}'


async def test_edited_arguments_that_do_not_fit_are_refused_and_the_call_still_waits() -> None:
    agent, model = agent_of(DELETE, "ok")
    await agent.reply("go")
    (waits,) = agent.state.waiting()

    def approval(arguments: str) -> ev.UserConfirmResultEvent:
        result = ev.ConfirmResult(confirmed=True, tool_call=replace(waits, input=arguments))
        return ev.UserConfirmResultEvent(reply_id=agent.state.reply_id, confirm_results=(result,))

    with pytest.raises(InputError, match=r"do not fit delete_rows: table: Field required.*Nothing was executed"):
        await agent.reply(approval('{"tabel": "drafts"}'))
    assert (done, agent.state.waiting(), len(model.requests)) == ([], (waits,), 1)
    await agent.reply(approval('{"table": "drafts"}'))
    assert done == ["delete drafts "]
    await assert_goes_on(agent)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": '{"table": "or'}, "are not a JSON object. Nothing was executed"),
        ({"name": "add", "input": '{"a": 1, "b": 2}'}, "asks for 'delete_rows', not for 'add'. Nothing was executed"),
    ],
)
async def test_a_decision_cannot_change_a_call_into_another_or_into_nonsense(change: dict[str, str], words: str) -> None:
    agent, _ = agent_of(DELETE, "ok")
    await agent.reply("go")
    waits = replace(agent.state.waiting()[0], **change)
    decision = ev.UserConfirmResultEvent(
        reply_id=agent.state.reply_id, confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=waits),)
    )
    with pytest.raises(InputError, match=words):
        await agent.reply(decision)
    assert done == []
    assert (await agent.reply(decided(agent, ("call_1", True)))).text == "ok"


async def test_always_is_a_rule_in_the_state_that_survives_and_the_next_call_does_not_ask() -> None:
    agent, _ = agent_of(DELETE, "ok", DELETE, "again")
    await agent.reply("go")
    await agent.reply(decided(agent, ("call_1", True), rules=(PermissionRule("delete_rows"),)))
    assert agent.state.rules == (PermissionRule("delete_rows"),)
    assert (await agent.reply("more")).text == "again"
    assert len(done) == 2
    other, _ = agent_of(DELETE, "ok")
    other.load(agent.dump())
    assert (await other.reply("go")).text == "ok"


async def test_a_rule_for_another_tool_or_for_some_arguments_does_not_allow() -> None:
    rules = (PermissionRule("add"), PermissionRule("delete_rows", "orders"), PermissionRule("delete_rows", None, "ask"))
    agent, _ = agent_of(DELETE, state=AgentState(rules=rules))
    await agent.reply("go")
    assert len(agent.state.waiting()) == 1


async def test_calls_that_need_no_confirmation_run_meanwhile_and_never_twice() -> None:
    agent, model = agent_of([DELETE, call("add", {"a": 1, "b": 2})], "ok")
    await agent.reply("go")
    assert (done, results(agent)) == (["add 1 2"], {"call_2": ("success", "3")})
    await agent.reply(decided(agent, ("call_1", True)))
    assert done == ["add 1 2", "delete orders id=1"]
    assert [m["tool_call_id"] for m in model.requests[1].messages if m["role"] == "tool"] == ["call_1", "call_2"]
    await assert_goes_on(agent)


@pytest.mark.parametrize(
    "order",
    [
        [[("call_1", True)], [("call_2", False)], [("call_3", True)]],
        [[("call_3", True)], [("call_1", False), ("call_2", True)]],
        [[("call_2", False)], [("call_3", False), ("call_1", False)]],
        [[("call_3", True), ("call_2", True), ("call_1", True)]],
    ],
)
async def test_several_calls_may_be_decided_in_any_order_and_in_parts(order: list[list[tuple[str, bool]]]) -> None:
    script = [call("delete_rows", {"table": f"t{n}"}) for n in (1, 2, 3)]
    agent, model = agent_of(script, "ok")
    await agent.reply("go")
    reply = await agent.reply(decided(agent))
    for number, part in enumerate(order, 1):
        reply = await agent.reply(decided(agent, *part))
        if number < len(order):
            assert (reply.text, reply.finished_reason, len(model.requests)) == (WAITING_TEXT, None, 1)
            assert run_of(agent).status == "paused"
    assert (reply.text, reply.finished_reason) == ("ok", "completed")
    answers = dict(answer for part in order for answer in part)
    assert {call_id: state for call_id, (state, _) in results(agent).items()} == {
        i: "success" if yes else "denied" for i, yes in answers.items()
    }
    assert sorted(done) == [f"delete t{call_id[-1]} " for call_id, yes in sorted(answers.items()) if yes]
    await assert_goes_on(agent)


async def test_a_decision_for_another_reply_or_another_call_executes_nothing() -> None:
    agent, _ = agent_of(DELETE)
    await agent.reply("go")
    good = decided(agent, ("call_1", True))
    stranger = replace(good.confirm_results[0], tool_call=replace(good.confirm_results[0].tool_call, id="call_9"))
    with pytest.raises(NotWaitingError, match=r"This decision is for reply 'other'.*Nothing was executed"):
        await agent.reply(replace(good, reply_id="other"))
    with pytest.raises(NotWaitingError, match=r"The call 'call_9' does not wait for a decision. Nothing was executed"):
        await agent.reply(replace(good, confirm_results=(stranger,)))
    with pytest.raises(NotWaitingError, match=r"does not wait for an outside result"):
        await agent.reply(
            ev.ExternalExecutionResultEvent(
                reply_id=good.reply_id,
                execution_results=(ToolResultBlock(id="call_1", name="delete_rows", output="x", state="success"),),
            )
        )
    assert done == []
    assert len(agent.state.waiting()) == 1


async def test_two_answers_for_one_call_in_one_decision_are_refused() -> None:
    agent, _ = agent_of(DELETE)
    await agent.reply("go")
    yes, no = decided(agent, ("call_1", True)), decided(agent, ("call_1", False))
    with pytest.raises(InputError, match=r"There are 2 answers for the call 'call_1'; give one"):
        await agent.reply(replace(yes, confirm_results=(*no.confirm_results, *yes.confirm_results)))
    assert done == []


async def test_the_same_decision_twice_executes_once() -> None:
    agent, _ = agent_of(DELETE, "ok")
    await agent.reply("go")
    decision = decided(agent, ("call_1", True))
    await agent.reply(decision)
    with pytest.raises(NotWaitingError, match="Nothing was executed"):
        await agent.reply(decision)
    assert done == ["delete orders id=1"]


async def test_two_decisions_at_once_execute_once() -> None:
    agent, _ = agent_of(DELETE, "ok")
    await agent.reply("go")
    decision = decided(agent, ("call_1", True))
    first, second = await asyncio.gather(agent.reply(decision), agent.reply(decision), return_exceptions=True)
    assert isinstance(first, Msg)
    assert isinstance(second, AgentBusyError)
    assert done == ["delete orders id=1"]


async def test_a_new_message_while_it_waits_is_refused_and_says_what_to_do() -> None:
    agent, _ = agent_of(DELETE, "ok")
    await agent.reply("go")
    for inputs in ("hello?", None, [UserMsg("u", "x")]):
        with pytest.raises(
            NotWaitingError,
            match=r"waits for a decision about delete_rows. Approve or deny first .* or end the reply with interrupt\(\)",
        ):
            await agent.reply(inputs)
    assert (await agent.reply(decided(agent, ("call_1", True)))).text == "ok"


async def test_an_empty_decision_goes_on_waiting() -> None:
    agent, _ = agent_of(DELETE, "ok")
    await agent.reply("go")
    reply = await agent.reply(decided(agent))
    assert (reply.text, len(agent.state.waiting())) == (WAITING_TEXT, 1)
    assert (await agent.reply(decided(agent, ("call_1", True)))).text == "ok"


async def test_an_outside_result_is_taken_for_a_call_that_was_submitted() -> None:
    message = Msg("a", [ToolCallBlock(id="c", name="ask_person", state="submitted")], "assistant")
    agent, model = agent_of("Thanks.", state=AgentState(context=(UserMsg("u", "x"), message), reply_id=message.id))
    result = ToolResultBlock(id="c", name="ask_person", output="42", state="success")
    with pytest.raises(NotWaitingError, match="does not wait for a decision"):
        await agent.reply(decided(agent, ("c", True)))
    reply = await agent.reply(ev.ExternalExecutionResultEvent(reply_id=message.id, execution_results=(result,)))
    assert reply.text == "Thanks."
    assert model.requests[0].messages[-1] == {"role": "tool", "tool_call_id": "c", "content": "42"}
    await assert_goes_on(agent)


async def test_a_tool_that_exceeds_its_timeout_is_an_error_and_the_reply_goes_on() -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    agent, model = agent_of([call("slow"), call("add", {"a": 1, "b": 2})], "ok", tools=[slow, add])
    assert (await agent.reply("go")).text == "ok"
    assert results(agent) == {"call_1": ("error", "slow exceeded its timeout of 0.01 s."), "call_2": ("success", "3")}
    assert model.requests[1].messages[-2]["content"] == "slow exceeded its timeout of 0.01 s."
    await assert_goes_on(agent)


async def test_a_stop_of_a_reply_whose_tool_has_a_timeout_interrupts_the_tool() -> None:
    @tool(timeout=60)
    async def slow() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    agent, _ = agent_of(call("slow"), tools=[slow])
    task = await heard(agent, ev.ToolResultStartEvent)
    agent.interrupt()
    await task
    assert results(agent) == {"call_1": ("interrupted", INTERRUPTED_TEXT)}
    await assert_goes_on(agent)


@tool(external=True)
def ask_person(question: str) -> str:  # pyright: ignore[reportReturnType] - it has no body
    """Ask a person a question, and give the answer."""


ASK = call("ask_person", {"question": "Why?"})


def outside(agent: Agent, *answers: tuple[str, Any]) -> ev.ExternalExecutionResultEvent:
    """Results from outside, by call id."""
    blocks = tuple(ToolResultBlock(id=i, name="ask_person", output=output, state="success") for i, output in answers)
    return ev.ExternalExecutionResultEvent(reply_id=agent.state.reply_id, execution_results=blocks)


async def test_an_external_call_begins_its_result_pauses_and_goes_on_with_the_result() -> None:
    agent, model = agent_of(ASK, "Thanks.", tools=[ask_person])
    seen = [event async for event in agent.reply_stream("go")]
    assert [event.type for event in seen[-3:]] == ["MODEL_CALL_END", "TOOL_RESULT_START", "REQUIRE_EXTERNAL_EXECUTION"]
    assert isinstance(asked := seen[-1], ev.RequireExternalExecutionEvent)
    assert [(c.id, c.name, c.input, c.state) for c in asked.tool_calls] == [
        ("call_1", "ask_person", '{"question": "Why?"}', "submitted")
    ]
    assert (agent.state.check(), [c.state for c in agent.state.waiting()]) == ((), ["submitted"])
    agent.load(json.loads(json.dumps(agent.dump())))
    seen = [event async for event in agent.reply_stream(outside(agent, ("call_1", "Because.")))]
    assert [event.type for event in seen[:3]] == ["TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "MODEL_CALL_START"]
    assert model.requests[1].messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "Because."}
    await assert_goes_on(agent)


async def test_external_confirmed_and_running_calls_of_one_batch_go_their_own_ways() -> None:
    agent, model = agent_of([ASK, DELETE, call("add", {"a": 1, "b": 2}), ASK], "ok", tools=[add, delete_rows, ask_person])
    assert (await agent.reply("go")).text == WAITING_TEXT
    assert [(c.id, c.state) for c in agent.state.waiting()] == [
        ("call_1", "submitted"),
        ("call_2", "asking"),
        ("call_4", "submitted"),
    ]
    assert done == ["add 1 2"]
    await agent.reply(outside(agent, ("call_4", "four")))
    await agent.reply(decided(agent, ("call_2", True)))
    assert (len(model.requests), done) == (1, ["add 1 2", "delete orders id=1"])
    assert (await agent.reply(outside(agent, ("call_1", "one")))).text == "ok"
    assert [m["content"] for m in model.requests[1].messages if m["role"] == "tool"] == [
        "one",
        "deleted from orders",
        "3",
        "four",
    ]
    await assert_goes_on(agent)


async def test_an_external_call_may_need_a_confirmation_and_is_handed_out_as_it_was_approved() -> None:
    agent, _ = agent_of(ASK, "ok", tools=[replace(ask_person, confirm=True)])
    await agent.reply("go")
    decision = decided(agent, ("call_1", True))
    (result,) = decision.confirm_results
    edited = replace(result, tool_call=replace(result.tool_call, input='{"question": "How?"}'))
    seen = [event async for event in agent.reply_stream(replace(decision, confirm_results=(edited,)))]
    assert isinstance(asked := seen[-1], ev.RequireExternalExecutionEvent)
    assert asked.tool_calls[0].input == agent.state.waiting()[0].input == '{"question": "How?"}'
    assert (await agent.reply(outside(agent, ("call_1", "So.")))).text == "ok"


async def test_a_stop_closes_an_external_call_as_interrupted_and_a_late_result_is_refused() -> None:
    agent, _ = agent_of(ASK, tools=[ask_person])
    await agent.reply("go")
    late = outside(agent, ("call_1", "late"))
    seen = [event.type async for event in agent.reply_stream(ev.UserInterruptEvent(reply_id=agent.state.reply_id))]
    assert seen == ["TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "REPLY_END"]
    assert results(agent) == {"call_1": ("interrupted", INTERRUPTED_TEXT)}
    with pytest.raises(NotWaitingError, match="Nothing was executed"):
        await agent.reply(late)
    await assert_goes_on(agent)


async def test_an_external_call_that_a_rule_denies_or_whose_arguments_do_not_fit_is_not_handed_out() -> None:
    wrong = call("ask_person", {"nothing": 1})
    agent, _ = agent_of([wrong, ASK], "ok", tools=[ask_person], permissions=[PermissionRule("ask_person", "question=*", "deny")])
    assert (await agent.reply("go")).text == "ok"
    assert [(state, text[:28]) for state, text in results(agent).values()] == [
        ("denied", "Permission to use ask_person"),
        ("error", "The arguments do not fit ask"),
    ]


async def test_an_external_result_may_be_blocks_or_a_failure_and_is_cut_when_it_is_huge() -> None:
    agent, _ = agent_of([ASK, ASK, ASK], "ok", tools=[ask_person])
    await agent.reply("go")
    given = outside(agent, ("call_1", "x" * 60_000), ("call_2", (TextBlock("a"), TextBlock("b"))), ("call_3", ()))
    failed = replace(given.execution_results[2], state="error", metadata={"code": 7})
    await agent.reply(replace(given, execution_results=(*given.execution_results[:2], failed)))
    found = results(agent)
    assert found["call_1"][1].endswith("[cut: 50,000 of 60,000 characters are shown]")
    assert (found["call_2"], found["call_3"]) == (("success", "a\nb"), ("error", ""))
    assert [b.metadata for b in agent.state.context[-1].content if isinstance(b, ToolResultBlock)][2] == {"code": 7}


async def test_a_new_message_while_an_outside_result_is_awaited_says_what_to_do() -> None:
    agent, _ = agent_of(ASK, tools=[ask_person])
    await agent.reply("go")
    with pytest.raises(NotWaitingError, match=r"waits for the result of ask_person from outside. Give it first \(run.answer"):
        await agent.reply("hello?")


async def test_a_run_answers_while_others_still_work_and_goes_on_when_all_have_ended() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Work until the gate opens."""
        begun.set()
        await gate.wait()
        done.append("slow")
        return "worked"

    agent, _ = agent_of([ASK, call("slow"), DELETE], "ok", tools=[ask_person, slow, delete_rows])
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    run.start()
    await begun.wait()
    run.answer("call_1", "early")
    run.approve("call_3")
    await asyncio.sleep(0)
    gate.set()
    assert (await run).text == "ok"
    assert done == ["slow", "delete orders id=1"]
    assert results(agent)["call_1"] == ("success", "early")
    assert ended(run).finished_reason == "completed"


async def test_a_stop_of_a_run_that_waits_for_a_result_closes_it_as_interrupted() -> None:
    agent, _ = agent_of(ASK, tools=[ask_person])
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    run.start()
    while run.status != "paused":
        await asyncio.sleep(0)
    run.stop(reason="enough")
    await run
    assert (ended(run).finished_reason, results(agent)["call_1"][0]) == ("interrupted", "interrupted")
    await assert_goes_on(agent)


async def test_a_budget_lets_no_external_call_out_that_goes_beyond_it() -> None:
    agent, _ = agent_of([ASK, ASK], tools=[ask_person], budget=Budget(tool_calls=1))
    seen = [event async for event in agent.reply_stream("go")]
    assert [e.tool_calls[0].id for e in seen if isinstance(e, ev.RequireExternalExecutionEvent)] == ["call_1"]
    assert [state for state, _ in results(agent).values()] == ["interrupted", "interrupted"]
    agent.budget = None
    await assert_goes_on(agent)


async def test_a_paused_agent_is_ended_by_interrupt_at_once_from_any_thread() -> None:
    agent, _ = agent_of([DELETE, call("add", {"a": 1, "b": 2})])
    await agent.reply("go")
    await asyncio.to_thread(agent.interrupt, reason="no")
    assert agent.state.waiting() == ()
    assert results(agent) == {"call_1": ("interrupted", INTERRUPTED_TEXT), "call_2": ("success", "3")}
    assert agent.state.context[-1].metadata == {"source": "code", "when": "now", "reason": "no", "_is_interrupted": True}
    await assert_goes_on(agent)


async def test_a_user_interrupt_ends_the_pause_and_reply_gives_the_interrupted_message() -> None:
    agent, _ = agent_of(DELETE)
    await agent.reply("go")
    reply = await agent.reply(ev.UserInterruptEvent(reply_id=agent.state.reply_id))
    assert reply.metadata == {"_is_interrupted": True}
    await assert_goes_on(agent)


async def test_a_user_interrupt_of_an_idle_agent_is_a_no_op() -> None:
    agent, model = agent_of("ok")
    interrupt = ev.UserInterruptEvent(reply_id=agent.state.reply_id)
    assert [event async for event in agent.reply_stream(interrupt)] == []
    assert (await agent.reply(interrupt)).content == ()
    assert (agent.state.context, model.requests) == ((), [])
    await assert_goes_on(agent)


async def test_a_decision_that_is_stopped_at_once_is_recorded_and_executes_nothing() -> None:
    agent, _ = agent_of(DELETE)
    await agent.reply("go")
    task = asyncio.create_task(agent.reply(decided(agent, ("call_1", True))))
    await asyncio.sleep(0)
    agent.interrupt()
    assert (await task).metadata == {"_is_interrupted": True}
    assert done == []
    assert results(agent)["call_1"][0] == "interrupted"
    await assert_goes_on(agent)


# -- one at a time --------------------------------------------------------------------------------------------------


async def test_a_second_reply_is_refused_and_the_first_goes_on() -> None:
    gate = asyncio.Event()
    agent, _ = agent_of([say(["a"]), wait(gate), say(["b"])], name="bob")
    first = await heard(agent)
    with pytest.raises(AgentBusyError, match=r"'bob' is already carrying a run. .*agent.interrupt\(\), or use chat\(\)"):
        await agent.reply("me too")
    with pytest.raises(AgentBusyError):
        await anext(agent.reply_stream("me too"))
    with pytest.raises(AgentBusyError):
        agent.load({})
    gate.set()
    assert (await first).text == "ab"
    assert [message.text for message in agent.state.context] == ["go", "ab"]


async def test_of_two_replies_in_one_turn_the_first_is_carried_and_can_be_stopped() -> None:
    agent, _ = agent_of([say(["a"]), wait(asyncio.Event())])
    first, second = asyncio.create_task(agent.reply("1")), asyncio.create_task(agent.reply("2"))
    await asyncio.sleep(0)
    agent.interrupt()
    assert (await first).metadata == {"_is_interrupted": True}
    with pytest.raises(AgentBusyError):
        await second
    await assert_goes_on(agent)


async def test_an_agent_is_free_again_when_the_loop_that_carried_it_is_gone() -> None:
    agent, _ = agent_of([say(["a"]), wait(threading.Event())], "ok")

    def other_program() -> None:
        async def main() -> None:
            task = await heard(agent)
            del task

        asyncio.run(main())

    await asyncio.to_thread(other_program)
    await assert_goes_on(agent)


# -- what an interrupted reply gives --------------------------------------------------------------------------------


async def test_on_interrupt_raise_raises_smolagents_words_and_the_state_is_the_same() -> None:
    agent, _ = agent_of([say(["half "]), wait(asyncio.Event())], on_interrupt="raise")
    task = await heard(agent)
    agent.interrupt()
    with pytest.raises(AgentInterruptedError, match=r"^Agent interrupted\.$"):
        await task
    assert agent.state.context[-1].metadata["_is_interrupted"] is True
    await assert_goes_on(agent)


async def test_handle_interrupt_can_say_something_else_and_gets_the_reason() -> None:
    class Polite(Agent):
        async def handle_interrupt(self, reason: str) -> Msg:
            return Msg(self.name, f"Stopped: {reason}", "assistant")

    model = Next([[say(["half "]), wait(asyncio.Event())]])
    agent = Polite(model)
    task = await heard(agent)
    agent.interrupt(reason="lunch")
    assert (await task).text == "Stopped: lunch"
    assert [message.text for message in agent.state.context] == ["go", "half "]


# -- without await --------------------------------------------------------------------------------------------------


def test_reply_sync_works_in_plain_code() -> None:
    agent, _ = agent_of(call("add", {"a": 1, "b": 2}), "3", "next")
    assert agent.reply_sync("go").text == "3"
    assert agent.reply_sync("next").text == "fine"


async def test_reply_sync_works_in_the_thread_of_a_running_loop() -> None:
    agent, _ = agent_of("ok")
    assert agent.reply_sync("go").text == "ok"


def test_reply_sync_raises_as_reply_does() -> None:
    agent, _ = agent_of(fail("gone"))
    with pytest.raises(ModelError, match="gone"):
        agent.reply_sync("go")


def test_reply_sync_inside_an_async_tool_of_the_loop_thread_is_refused_and_not_a_deadlock() -> None:
    inner, _ = agent_of("never")

    @tool
    async def ask_other() -> str:
        """Ask the other agent."""
        return inner.reply_sync("x").text

    agent, _ = agent_of(call("ask_other"), "ok", tools=[ask_other])
    assert agent.reply_sync("go").text == "ok"
    assert "Use await here" in results(agent)["call_1"][1]


def test_reply_sync_is_stopped_from_another_thread() -> None:
    agent, _ = agent_of([say(["half "]), wait(threading.Event())])

    def stop() -> None:
        while not agent.state.context or agent.state.context[-1].text != "half ":
            pass
        agent.interrupt()

    thread = threading.Thread(target=stop)
    thread.start()
    assert agent.reply_sync("go").metadata == {"_is_interrupted": True}
    thread.join()


@pytest.fixture(autouse=True, scope="module")
def loop_thread() -> Any:
    yield
    LoopThread.get().close()


# -- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_interrupt": "Raise"}, r"on_interrupt is 'Raise'; it must be 'reply' or 'raise'"),
        ({"on_interrupt": None}, r"on_interrupt is None; it must be 'reply' or 'raise'"),
        ({"max_steps": 0}, r"max_steps is 0; it must be a whole number, at least 1"),
        ({"max_steps": -3}, r"max_steps is -3; "),
        ({"max_steps": "20"}, r"max_steps is '20'; "),
        ({"max_steps": 2.5}, r"max_steps is 2.5; "),
        ({"max_steps": None}, r"max_steps is None; "),
        ({"state": {"context": []}}, r"state is .*it must be an AgentState. For a dumped one use agent.load"),
        ({"tools": [add, add]}, r"two tools are called 'add'"),
        ({"tools": add}, r"tools: .* is one tool, and a list is needed"),
        ({"tools": ["add"]}, r"tools: 'add' is not a function"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_in_one_clear_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Agent(ScriptedModel([]), **options)


def test_plain_functions_are_tools_and_their_faults_show_when_the_agent_is_made() -> None:
    def find(word) -> str:  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]  # noqa: ANN001
        """Find a word."""
        return str(word)  # pyright: ignore[reportUnknownArgumentType]

    with pytest.raises(InputError, match=r"@tool find: the parameter 'word' has no annotation"):
        Agent(ScriptedModel([]), tools=[cast("Any", find)])


# -- state ----------------------------------------------------------------------------------------------------------


async def test_a_dumped_state_gives_another_agent_the_same_one() -> None:
    agent, _ = agent_of([say("x"), call("add", {"a": 1, "b": 2})], "done")
    await agent.reply("go")
    other, _ = agent_of()
    other.load(json.loads(json.dumps(agent.dump())))
    assert other.state == agent.state
    again, _ = agent_of(state=agent.state)
    assert again.state == agent.state
    await assert_goes_on(other)


async def test_a_paused_state_goes_on_in_another_agent() -> None:
    agent, _ = agent_of([say("I delete."), DELETE])
    await agent.reply("go")
    other, _ = agent_of("ok")
    other.load(json.loads(json.dumps(agent.dump())))
    assert other.state == agent.state
    assert (await other.reply(decided(other, ("call_1", True)))).text == "I delete.\nok"
    assert done == ["delete orders id=1"]
    await assert_goes_on(other)


async def test_steps_are_counted_across_a_pause() -> None:
    agent, model = agent_of(DELETE, DELETE, "never", max_steps=2)
    await agent.reply("go")
    await agent.reply(decided(agent, ("call_1", True)))
    reply = await agent.reply(decided(agent, ("call_2", True)))
    assert (reply.finished_reason, len(model.requests)) == ("exceed_max_iters", 2)


async def test_a_state_that_cannot_be_read_changes_nothing() -> None:
    agent, _ = agent_of("ok")
    await agent.reply("go")
    before = agent.state
    broken: list[Any] = [{"context": 5}, {"version": 99}]
    for saved in broken:
        with pytest.raises(SavedStateError):
            agent.load(saved)
    assert agent.state == before


async def test_a_state_saved_at_any_event_loads_is_mended_and_goes_on() -> None:
    script: list[Turn] = [
        [think("hm"), say("I will."), call("add", {"a": 1, "b": 2}), DELETE],
        [call("add", '{"a": 1')],
        [say("The end.")],
    ]
    agent, _ = agent_of(*script)
    saved: list[tuple[str, str]] = []
    for inputs in ("go", None):
        given = decided(agent, ("call_2", True)) if inputs is None else inputs
        run = Run(agent, given, loop=asyncio.get_running_loop(), keeps_pause=False)
        run.listen(lambda _, event: saved.append((event.type if event else "status", json.dumps(agent.dump()))))
        run.start()
        await run
    assert agent.state.context[-1].text == "I will.\nThe end."
    assert len({kind for kind, _ in saved}) > 14
    for _kind, text in saved:
        other, _ = agent_of()
        other.load(json.loads(text))
        assert other.state.check() == ()
        assert other.state.repair() == other.state
        if other.state.waiting():
            other.interrupt()
        await assert_goes_on(other)


async def test_another_thread_reads_valid_states_while_the_agent_works() -> None:
    agent, _ = agent_of([say(["x "] * 300), call("add", {"a": 1, "b": 2})], say(["y "] * 300))
    stop, faults = threading.Event(), list[Any]()

    def read() -> None:
        while not stop.is_set():
            state = agent.state
            faults.extend(state.check())
            faults.extend(state.repair().check())

    thread = threading.Thread(target=read)
    thread.start()
    await agent.reply("go")
    stop.set()
    thread.join()
    assert faults == []


async def test_a_key_never_reaches_the_state_the_log_or_an_error() -> None:
    secret = "sk-verysecret123"
    agent = Agent("some-model", base_url="http://127.0.0.1:9/v1", api_key=secret)
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    run.start()
    with pytest.raises(ModelError) as caught:
        await run
    from agent_widgets.wire import dump_event, snapshot_message

    said = [
        json.dumps(agent.dump()),
        *(json.dumps(dump_event(event)) for event in run.events),
        json.dumps(snapshot_message(1, [run.view()])),
    ]
    said += [str(caught.value), repr(caught.value), repr(agent), repr(agent.model), repr(run)]
    assert not [text for text in said if secret in text]


# -- a stop at every turn of the loop -------------------------------------------------------------------------------


class Turns:
    """Counts the turns of the loop, and acts at one of them."""

    def __init__(self, at: int = 0, act: Callable[[], None] | None = None) -> None:
        self.count, self._at, self._act, self._on = 0, at, act, True
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._on = False

    def _turn(self) -> None:
        if self._on:
            self.count += 1
            if self.count == self._at and self._act is not None:
                self._act()
            self._loop.call_soon(self._turn)


SCENARIOS: dict[str, list[Turn]] = {
    "text": [[think(["hm", "m"]), say(["one ", "two ", "three ", "four ", "five ", "six ", "seven "])]],
    "two parallel tools": [[say(["I add."]), call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})], [say(["both"])]],
    "a confirmation": [[call("delete_rows", {"table": "t"}), call("add", {"a": 1, "b": 2})], [say(["gone"])]],
    "half arguments": [[say(["so"]), call("add", '{"a": 1, "b": 22, "note": "a note that is not cut too so')], [say(["sorry"])]],
}


async def carried(script: list[Turn], at: int, level: StopLevel) -> tuple[Agent, Run, Turns]:
    """One run of the script, approved when it pauses, stopped at one turn of the loop."""
    done.clear()
    agent, _ = agent_of(*script)
    run = Run(agent, "go", loop=asyncio.get_running_loop(), on_pause=lambda run: run.approve())
    turns = Turns(at, lambda: run.stop(level))
    run.start()
    await asyncio.wait_for(run, 10)
    turns.stop()
    await asyncio.sleep(0)
    return agent, run, turns


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_stop_at_every_turn_of_the_loop_leaves_a_valid_history(name: str, level: StopLevel) -> None:
    script = SCENARIOS[name]
    whole, run, turns = await carried(script, 0, level)
    assert run.status == "completed"
    everything, full_text = sorted(done), whole.state.context[-1].text
    assert turns.count > 10
    outcomes: list[str] = []
    for at in range(1, turns.count + 1):
        agent, run, _ = await carried(script, at, level)
        where = f"{name}, {level} at turn {at}: "
        end = ended(run)
        outcomes.append(run.status)
        assert run.status == end.finished_reason, where
        assert run.status in ("interrupted", "completed"), where
        if run.status == "completed":
            assert run.text == full_text, where
        else:
            assert end.metadata["when"] == level, where
        assert len(done) == len(set(done)), where
        assert set(done) <= set(everything), where
        kept = {b.id: b.state for b in run.reply.content if isinstance(b, ToolResultBlock)}
        assert sum(state == "success" for state in kept.values()) == len(done), where
        if agent.state.context:  # stopped before it began: the prompt was never taken
            assert agent.state.context[-1].content == run.reply.content, where
            assert full_text.startswith(run.text), where
        await assert_goes_on(agent)
    assert outcomes[0] == "interrupted"
    assert outcomes.count("interrupted") >= (10 if level == "now" else 1)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_foreign_cancel_at_every_turn_of_the_loop_is_raised_and_leaves_a_valid_history(name: str) -> None:
    async def story(at: int) -> tuple[int, Agent, bool]:
        done.clear()
        agent, _ = agent_of(*SCENARIOS[name])

        async def use() -> None:
            async for _ in agent.reply_stream("go"):
                pass
            if agent.state.waiting():
                await agent.reply(decided(agent, *((waits.id, True) for waits in agent.state.waiting())))

        task = asyncio.create_task(use())
        accepted: list[bool] = []
        turns = Turns(at, lambda: accepted.append(task.cancel()))
        await asyncio.wait([task])
        turns.stop()
        await asyncio.sleep(0)
        assert task.cancelled() == any(accepted), at
        return turns.count, agent, task.cancelled()

    count, _, cancelled = await story(0)
    assert not cancelled
    cancels = 0
    for at in range(1, count):
        _, agent, cancelled = await story(at)
        cancels += cancelled
        assert len(done) == len(set(done)), at
        assert agent.state.check() == (), at
        if agent.state.waiting():
            agent.interrupt()
        await assert_goes_on(agent)
    assert cancels > 10


# -- readers that leave ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", ["break", "raises", "is cancelled in an await of its own"])
async def test_the_reply_of_a_reader_that_leaves_is_stopped_and_the_next_one_waits_for_its_end(leaves: str) -> None:
    agent, model = agent_of([say(["one "] * 100), call("add", {"a": 1, "b": 2})], "never")
    asleep = asyncio.Event()

    async def read() -> None:
        async for event in agent.reply_stream("go"):
            if isinstance(event, ev.TextBlockDeltaEvent):
                if leaves == "break":
                    break
                if leaves == "raises":
                    raise ValueError("the reader's own")
                asleep.set()
                await asyncio.sleep(1000)

    reader = asyncio.create_task(read())
    if leaves.startswith("is cancelled"):
        await asleep.wait()
        reader.cancel()
    (read_out,) = await asyncio.gather(reader, return_exceptions=True)
    run = run_of(agent)
    assert {"break": type(None), "raises": ValueError}.get(leaves, asyncio.CancelledError) is type(read_out)
    assert (run.is_abandoned, run.is_over) == (True, False)
    assert (await agent.reply("next")).text == "fine"
    assert run.status == "interrupted"
    assert ended(run).metadata["reason"] == "the reader walked away"
    assert [len(request.messages) for request in model.requests] == [1, 3]
    await assert_goes_on(agent)


async def test_a_stream_that_is_dropped_unread_has_begun_nothing() -> None:
    agent, model = agent_of("never")
    agent.reply_stream("go")
    await agent.reply_stream("go").aclose()
    assert (model.requests, agent.state.context) == ([], ())
