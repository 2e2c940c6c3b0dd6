"""Sub-agents: what they say, how they are stopped, how they wait, and that nothing of two of them mixes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import acting, threads
from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ToolCallPiece, chat_messages
from agent_widgets.budgets import Budget
from agent_widgets.decisions import Decision
from agent_widgets.errors import ConfirmationRequiredError, ToolDefinitionError
from agent_widgets.execution import Sink, output_sink
from agent_widgets.messages import Msg, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, Turn, call, fail, say, think, wait
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import INTERRUPTED_TEXT, AgentState
from agent_widgets.tools import tool
from agent_widgets.transcript import Transcript, fold
from agent_widgets.wire import load_event, page_event
from tests.validator import assert_valid

done: list[str] = []
"""What tools have done, in order; emptied before each test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@tool
async def look(at: str) -> str:
    """Look at something."""
    await asyncio.sleep(0)
    done.append(f"look {at}")
    return f"seen {at}"


@tool(confirm=True)
async def delete(what: str) -> str:
    """Delete something, for ever."""
    await asyncio.sleep(0)
    done.append(f"delete {what}")
    return f"deleted {what}"


@tool(external=True)
async def ask_boss(question: str) -> str:
    """Ask the boss a question."""
    raise NotImplementedError(question)


class ByTask:
    """A model whose script depends on the task: many conversations side by side, each with its own. Checks each request."""

    name = "by task"

    def __init__(self, **scripts: list[Turn]) -> None:
        self.scripts = {task: ScriptedModel(script) for task, script in scripts.items()}
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        assert_valid(request.messages)
        self.requests.append(request)
        task = [message for message in request.messages if message["role"] == "user"][-1]["content"]
        if task == "next":
            yield TextPiece("fine")
            return
        async for piece in self.scripts[str(task)].stream(request):
            yield piece


def child_of(name: str = "helper", /, **scripts: Any) -> Agent:
    return Agent(ByTask(**scripts), name=name, tools=[look, delete, ask_boss])


def parent_of(*children: Agent, go: list[Turn], **options: Any) -> Agent:
    tools = [*(child.as_tool() for child in children), look, delete]
    return Agent(ByTask(go=go), name="boss", tools=tools, **options)


def asks(task: str, call_id: str, name: str = "helper") -> Any:
    return call(name, {"task": task}, call_id)


async def started(agent: Agent, inputs: Any = "go", **options: Any) -> Run:
    """A run of its own, which keeps a pause, as on a card."""
    loop = asyncio.get_running_loop()
    options = {"transcript": agent.paused_reply(inputs), **options}
    run = Run(agent, inputs, loop=loop, session_id=agent.state.session_id, **options)
    run.start()
    return run


async def until(truth: Callable[[], object]) -> None:
    for _ in range(10_000):
        if truth():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def wait_until(truth: Callable[[], object]) -> None:
    """From another thread: the run is on the loop thread."""
    for _ in range(2_000):
        if truth():
            return
        time.sleep(0.005)
    raise AssertionError("it never came true")


async def rest(run: Run) -> None:
    """Until it has ended or waits."""
    await until(lambda: run.is_over or run.status == "paused")


def said(run: Run, *path: str) -> list[ev.Event]:
    return [event for event in run.events if ev.agent_path(event) == path]


def results(agent: Agent) -> dict[str, tuple[str, str]]:
    """State and text of each tool result in the history, by call id."""
    blocks = [block for message in agent.state.context for block in message.content]
    return {block.id: (block.state, block.text()) for block in blocks if isinstance(block, ToolResultBlock)}


def strays() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def assert_whole(run: Run) -> None:
    """One end of the run, last; each sub-agent's before the result that it is for; nothing is left open."""
    own_ends = [at for at, event in enumerate(run.events) if isinstance(event, ev.ReplyEndEvent) and not ev.agent_path(event)]
    assert own_ends == [len(run.events) - 1]
    assert_closed(run.transcript)
    assert fold(None, *run.events) == run.transcript
    for at, event in enumerate(run.events):
        if path := ev.agent_path(event):
            assert not any(
                isinstance(before, ev.ToolResultEndEvent)
                and (*ev.agent_path(before), before.tool_call_id) == path[: len(ev.agent_path(before)) + 1]
                for before in run.events[:at]
            ), f"{event} after the result of its call"


def assert_closed(transcript: Transcript) -> None:
    assert transcript.message.finished_reason
    assert not transcript.calling
    assert [block for block in transcript.message.content if block.finished_at is None] == []
    assert_valid([{"role": "user", "content": "x"}, *chat_messages([transcript.message])])
    for child in transcript.children:
        assert_closed(child.transcript)


async def assert_goes_on(agent: Agent) -> None:
    """Valid, idle, and the next prompt is answered."""
    assert agent.state.check() == ()
    assert (agent.state.reply_id, agent.state.children) == ("", ())
    assert (await agent.reply("next")).text == "fine"
    assert strays() == []


# -- what it is ---------------------------------------------------------------------------------------------------------


async def test_the_answer_of_a_sub_agent_is_the_result_of_its_call() -> None:
    helper = child_of(dig=[[say("I look."), call("look", {"at": "soil"})], "It is wet."])
    boss = parent_of(helper, go=[asks("dig", "c1"), "So it is wet."])
    run = await started(boss)
    assert (await run).text == "So it is wet."
    assert results(boss) == {"c1": ("success", "It is wet.")}
    assert done == ["look soil"]
    assert helper.state.context == ()
    assert_whole(run)
    await assert_goes_on(boss)


async def test_what_it_says_carries_its_path_and_is_folded_into_a_transcript_of_its_own() -> None:
    run = await started(parent_of(child_of(dig=[call("look", {"at": "x"}), "Wet."]), go=[asks("dig", "c1"), "Done."]))
    await run
    assert [event.type for event in said(run, "c1")][::13] == ["REPLY_START", "REPLY_END"] or said(run, "c1")
    assert said(run, "c1")[0].type == "REPLY_START"
    assert said(run, "c1")[-1].type == "REPLY_END"
    (child,) = run.transcript.children
    assert (child.call_id, child.transcript.message.name, child.transcript.message.text) == ("c1", "helper", "Wet.")
    assert (child.transcript.steps, run.transcript.steps, run.text) == (2, 2, "Done.")


async def test_the_tokens_of_a_sub_agent_are_also_its_callers() -> None:
    run = await started(parent_of(child_of(dig=["Wet and cold."]), go=[asks("dig", "c1"), "Done."]))
    await run
    ends = [event for event in run.events if isinstance(event, ev.ModelCallEndEvent)]
    assert len(ends) == 3
    usage, below = run.reply.usage, run.transcript.children[0].transcript.message.usage
    assert usage is not None
    assert below is not None
    assert usage.output_tokens == sum(end.output_tokens for end in ends)
    assert below.output_tokens == 3


async def test_two_calls_of_one_sub_agent_run_side_by_side_and_do_not_mix() -> None:
    meet = asyncio.Barrier(2)

    class Meeting:
        async def wait(self) -> None:
            await meet.wait()

    helper = child_of(
        one=[[say(["One", " "]), wait(Meeting()), say(["is", " odd."])]],
        two=[[say(["Two", " "]), wait(Meeting()), say("is even.")]],
    )
    boss = parent_of(helper, go=[[asks("one", "c1"), asks("two", "c2")], "Both."])
    run = await started(boss)
    await run
    assert results(boss) == {"c1": ("success", "One is odd."), "c2": ("success", "Two is even.")}
    assert_whole(run)


async def test_equal_ids_of_blocks_and_calls_do_not_mix_in_the_log_nor_in_the_pages_form() -> None:
    def child(path: list[str], *pieces: str) -> list[ev.Event]:
        place: dict[str, Any] = {"metadata": {"agent_path": path}}
        return [
            ev.ReplyStartEvent(session_id="s", reply_id="r", name="x", **place),
            ev.TextBlockStartEvent(reply_id="r", block_id="t", **place),
            *(ev.TextBlockDeltaEvent(reply_id="r", block_id="t", delta=piece, **place) for piece in pieces),
        ]

    from agent_widgets.eventlog import EventLog

    mixed = [event for pair in zip(child(["a"], "1", "2"), child(["b"], "x", "y"), strict=True) for event in pair]
    joined = EventLog([*mixed, *child([], "P")[1:]]).events()
    assert [event.delta for event in joined if isinstance(event, ev.TextBlockDeltaEvent)] == ["12", "xy", "P"]
    sent = [load_event({"reply_id": "r", **page_event(event)}) for event in joined]
    shown = fold(None, *sent)
    assert [child.transcript.message.text for child in shown.children] == ["12", "xy"]
    assert shown.message.text == "P"


async def test_a_grandchild_has_two_ids_in_its_path() -> None:
    leaf = child_of("leaf", dig=["Wet."])
    middle = Agent(ByTask(plan=[call("leaf", {"task": "dig"}), "The leaf says wet."]), name="middle", tools=[leaf.as_tool()])
    run = await started(parent_of(middle, go=[asks("plan", "c1", "middle"), "Done."]))
    await run
    below = run.transcript.children[0].transcript
    (inner,) = [block.id for block in below.message.content if isinstance(block, ToolCallBlock)]
    assert [event.type for event in said(run, "c1", inner)][-1] == "REPLY_END"
    assert below.children[0].transcript.message.text == "Wet."
    assert_whole(run)


async def test_calls_of_a_sub_agent_get_ids_of_their_own() -> None:
    helper = child_of(dig=[[call("look", {"at": "x"}, "c1"), call("look", {"at": "y"}, "c1")], "Wet."])
    run = await started(parent_of(helper, go=[asks("dig", "c1"), "Done."]))
    await run
    ids = [event.tool_call_id for event in run.events if isinstance(event, ev.ToolCallStartEvent)]
    assert len(set(ids)) == 3
    assert all(len(call_id) <= 40 for call_id in ids)


async def test_a_sub_agent_that_fails_is_a_result_that_its_caller_reads() -> None:
    boss = parent_of(child_of(dig=[[say("I try. "), fail("no connection")]]), go=[asks("dig", "c1"), "Too bad."])
    run = await started(boss)
    await run
    state, text = results(boss)["c1"]
    assert (state, run.status, run.text) == ("error", "completed", "Too bad.")
    assert text.startswith("I try. \nhelper failed: ")
    assert "no connection" in text
    assert_whole(run)


async def test_a_sub_agent_without_steps_left_says_so() -> None:
    helper = child_of(dig=[[say("Look."), call("look", {"at": "x"})]])
    helper.max_steps = 1
    boss = parent_of(helper, go=[asks("dig", "c1"), "Done."])
    await boss.reply("go")
    assert results(boss) == {"c1": ("error", "Look.\nhelper has used all its steps and has not finished.")}


@pytest.mark.parametrize("arguments", ["{}", '{"task": 3}', '{"tas'])
async def test_a_task_that_is_none_is_an_error_that_the_model_reads(arguments: str) -> None:
    boss = parent_of(child_of(), go=[call("helper", arguments, "c1"), "Done."])
    await boss.reply("go")
    assert results(boss)["c1"][0] == "error"
    assert "do not fit helper" in results(boss)["c1"][1]


async def test_an_empty_task_is_an_error_that_the_model_reads() -> None:
    boss = parent_of(child_of(), go=[asks(" ", "c1"), "Done."])
    await boss.reply("go")
    assert results(boss)["c1"] == ("error", "The task for helper is empty.")
    await assert_goes_on(boss)


def test_a_sub_agent_needs_a_name_that_a_model_can_call() -> None:
    with pytest.raises(ToolDefinitionError, match="as_tool"):
        Agent("demo", name="my helper").as_tool()
    with pytest.raises(ToolDefinitionError, match="description"):
        Agent("demo", name="helper").as_tool(description=" ")
    made = Agent("demo", name="my helper").as_tool(name="helper", description="Helps.")
    assert (made.name, made.spec.description, made.spec.parameters["required"]) == ("helper", "Helps.", ["task"])
    assert "helper" in Agent("demo", name="helper").as_tool().description


async def test_called_by_hand_it_answers_too() -> None:
    assert await child_of(dig=["Wet."]).as_tool()("dig") == "Wet."
    with pytest.raises(ConfirmationRequiredError):
        await child_of(dig=[call("delete", {"what": "x"})]).as_tool()("dig")


# -- budgets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "says"),
    [(Budget(tokens=60), "60 tokens"), (Budget(steps=2), "2 steps"), (Budget(tool_calls=2), "2 tool calls")],
)
async def test_a_sub_agent_does_not_escape_its_callers_budget(budget: Budget, says: str) -> None:
    turns: list[Turn] = [[say("word " * 40), call("look", {"at": str(number)})] for number in range(4)]
    boss = parent_of(child_of(dig=turns), go=[asks("dig", "c1"), "Done."])
    run = await started(boss, budget=budget)
    await run
    assert run.status == "interrupted"
    assert says in str(run.reply.metadata["reason"])
    assert_whole(run)
    await assert_goes_on(boss)


async def test_the_budget_of_a_sub_agent_stops_its_call_and_not_its_caller() -> None:
    helper = child_of(dig=[[say("Look."), call("look", {"at": str(number)})] for number in range(4)])
    helper.budget = Budget(steps=2)
    boss = parent_of(helper, go=[asks("dig", "c1"), "Done."])
    run = await started(boss)
    await run
    state, text = results(boss)["c1"]
    assert (run.status, state) == ("completed", "interrupted")
    assert text.startswith("Look.\nLook.\n")
    assert "the budget of 2 steps is used up" in text
    assert_whole(run)
    await assert_goes_on(boss)


async def test_the_seconds_of_a_sub_agents_budget_are_its_own() -> None:
    helper = child_of(dig=[[say("Look. "), wait(asyncio.Event())]])
    helper.budget = Budget(seconds=0.01)
    boss = parent_of(helper, go=[asks("dig", "c1"), "Done."])
    run = await started(boss)
    await run
    assert (run.status, results(boss)["c1"][0]) == ("completed", "interrupted")
    assert "0.01 s" in results(boss)["c1"][1]
    assert_whole(run)
    await assert_goes_on(boss)


# -- stopping all -------------------------------------------------------------------------------------------------------


async def test_a_stop_cuts_the_sub_agent_and_keeps_what_it_had_said() -> None:
    boss = parent_of(child_of(dig=[[say("I see "), wait(asyncio.Event())]]), go=[asks("dig", "c1"), "Done."])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text == "I see ")
    run.stop(reason="enough")
    await run
    assert results(boss) == {"c1": ("interrupted", f"I see \n{INTERRUPTED_TEXT}")}
    assert (run.status, run.transcript.children[0].transcript.message.finished_reason) == ("interrupted", "interrupted")
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_stop_cuts_the_tool_inside_the_sub_agent() -> None:
    @tool
    async def dig_deep() -> str:
        """Dig for a very long time."""
        try:
            await asyncio.Event().wait()
        finally:
            done.append("shovel put away")
        return ""

    helper = Agent(ByTask(dig=[call("dig_deep")]), name="helper", tools=[dig_deep])
    boss = parent_of(helper, go=[asks("dig", "c1"), "Done."])
    run = await started(boss)
    await until(lambda: any(isinstance(event, ev.ToolResultStartEvent) for event in said(run, "c1")))
    run.stop()
    await run
    assert done == ["shovel put away"]
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_stop_after_the_step_ends_the_sub_agent_after_its_own_step_and_then_its_caller() -> None:
    gate = asyncio.Event()
    helper = child_of(dig=[[say("I look."), wait(gate), call("look", {"at": "x"})], "Never asked for."])
    boss = parent_of(helper, go=[[asks("dig", "c1"), call("look", {"at": "y"}, "c2")], "Never asked for."])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text)
    run.stop("step")
    await until(lambda: run.status == "stopping")
    gate.set()
    await run
    assert sorted(done) == ["look x", "look y"]
    assert results(boss)["c1"] == ("interrupted", f"I look.\n{INTERRUPTED_TEXT}")
    assert results(boss)["c2"] == ("success", "seen y")
    assert run.status == "interrupted"
    assert_whole(run)
    await assert_goes_on(boss)


class Swallows:
    """A model that takes a cancel for a joke, and goes on."""

    name = "swallows"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        self.asked += 1
        yield TextPiece("I hear ")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        yield TextPiece("nothing.")


async def test_a_sub_agent_whose_model_swallows_the_cancel_does_not_let_its_caller_go_on() -> None:
    model = Swallows()
    boss = parent_of(Agent(model, name="helper"), go=[asks("dig", "c1"), "Never asked for."])
    run = await started(boss)
    await until(lambda: model.asked and run.transcript.children[0].transcript.message.text)
    run.stop()
    await run
    assert (run.status, run.text) == ("interrupted", "")
    assert results(boss)["c1"] == ("interrupted", f"I hear \n{INTERRUPTED_TEXT}")
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_sub_agent_whose_tool_swallows_the_cancel_does_not_let_its_caller_go_on() -> None:
    @tool
    async def deaf() -> str:
        """Hear no cancel."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "still here"

    helper = Agent(ByTask(dig=[call("deaf"), "Never asked for."]), name="helper", tools=[deaf])
    boss = parent_of(helper, go=[asks("dig", "c1"), "Never asked for."])
    run = await started(boss)
    await until(lambda: any(isinstance(event, ev.ToolResultStartEvent) for event in said(run, "c1")))
    run.stop()
    await run
    assert run.status == "interrupted"
    inner = [b.text() for b in run.transcript.children[0].transcript.message.content if isinstance(b, ToolResultBlock)]
    assert inner == ["still here"]
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_sub_agent_that_does_not_end_is_left_behind_and_heard_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "TOOL_CLEAN_UP_SECONDS", 0.01)
    monkeypatch.setattr(acting, "LEVEL_SECONDS", 0.01)
    gate = asyncio.Event()

    class Deaf:
        name = "deaf"

        async def stream(self, _: ModelRequest, /) -> AsyncIterator[ModelDelta]:
            yield TextPiece("La ")
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()
            yield TextPiece("la")

    boss = parent_of(Agent(Deaf(), name="helper"), go=[asks("sing", "c1")])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text)
    run.stop()
    await run
    assert results(boss)["c1"][0] == "interrupted"
    assert results(boss)["c1"][1].startswith("La \n")
    assert_whole(run)
    heard = len(run.events)
    gate.set()
    await until(lambda: not strays())
    assert len(run.events) == heard
    await assert_goes_on(boss)


# -- stopping one -------------------------------------------------------------------------------------------------------


async def test_one_call_is_stopped_alone_and_its_caller_reads_the_text_and_the_reason() -> None:
    forever = asyncio.Event()
    helper = child_of(one=[[say("I see "), wait(forever)]], two=[[say("Me too "), wait(forever), say("fine.")]])
    boss = parent_of(helper, go=[[asks("one", "c1"), asks("two", "c2")], "One was enough."])
    run = await started(boss)
    await until(lambda: [child.transcript.message.text for child in run.transcript.children] == ["I see ", "Me too "])
    run.stop(call_id="c1", reason="go home", source="user")
    await until(lambda: "c1" in results(boss) and results(boss)["c1"][0] == "interrupted")
    assert (run.status, results(boss)["c2"]) == ("running", ("running", ""))
    forever.set()
    assert (await run).text == "One was enough."
    assert results(boss)["c1"] == ("interrupted", f"I see \n{INTERRUPTED_TEXT}\nReason: go home")
    assert results(boss)["c2"] == ("success", "Me too fine.")
    (end,) = [event for event in said(run) if isinstance(event, ev.ToolResultEndEvent) and event.tool_call_id == "c1"]
    assert (end.metadata["source"], end.metadata["reason"]) == ("user", "go home")
    assert (run.status, "source" in run.reply.metadata) == ("completed", False)
    assert_whole(run)
    await assert_goes_on(boss)


async def test_one_call_is_stopped_after_its_step() -> None:
    gate = asyncio.Event()
    helper = child_of(dig=[[say("I look."), wait(gate), call("look", {"at": "x"})], "Never asked for."])
    boss = parent_of(helper, go=[asks("dig", "c1"), "Good."])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text)
    run.stop("step", "that will do", call_id="c1")
    await asyncio.sleep(0)
    gate.set()
    assert (await run).text == "Good."
    assert done == ["look x"]
    assert results(boss)["c1"] == ("interrupted", f"I look.\n{INTERRUPTED_TEXT}\nReason: that will do")
    assert_whole(run)


async def test_a_tool_of_a_sub_agent_is_stopped_alone() -> None:
    @tool
    async def dig_deep() -> str:
        """Dig for a very long time."""
        await asyncio.Event().wait()
        return ""

    helper = Agent(ByTask(dig=[call("dig_deep"), "Not deep."]), name="helper", tools=[dig_deep])
    boss = parent_of(helper, go=[asks("dig", "c1"), "Fine."])
    run = await started(boss)
    await until(lambda: any(isinstance(event, ev.ToolResultStartEvent) for event in said(run, "c1")))
    (inner,) = [event.tool_call_id for event in said(run, "c1") if isinstance(event, ev.ToolCallStartEvent)]
    run.stop(call_id=inner)
    run.stop(call_id=inner)  # a double click
    assert (await run).text == "Fine."
    assert results(boss)["c1"] == ("success", "Not deep.")
    assert_whole(run)


async def test_a_plain_tool_is_stopped_alone_and_a_deaf_one_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "TOOL_CLEAN_UP_SECONDS", 0.01)
    gate = asyncio.Event()

    @tool
    async def deaf() -> str:
        """Hear no cancel."""
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return "late"

    boss = Agent(ByTask(go=[[call("deaf", {}, "c1"), call("look", {"at": "y"}, "c2")], "Fine."]), tools=[deaf, look])
    run = await started(boss)
    await until(lambda: len(results(boss)) == 2)
    run.stop(call_id="c1")
    assert (await run).text == "Fine."
    assert results(boss)["c1"][0] == "interrupted"
    assert "still running" in results(boss)["c1"][1]
    gate.set()
    await until(lambda: not strays())
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_call_cut_before_its_first_step_has_a_result_all_the_same() -> None:
    boss = Agent(ByTask(go=[call("look", {"at": "y"}, "c1"), "Fine."]), tools=[look])
    run = await started(boss)
    run.listen(lambda _, event: run.stop(call_id="c1") if isinstance(event, ev.ModelCallEndEvent) else None)
    await run
    assert (run.text, done, results(boss)) == ("Fine.", [], {"c1": ("interrupted", INTERRUPTED_TEXT)})
    types = [event.type for event in run.events if event.type in ("TOOL_RESULT_END", "MODEL_CALL_START")]
    assert types == ["MODEL_CALL_START", "TOOL_RESULT_END", "MODEL_CALL_START"]
    assert_whole(run)


async def test_a_deaf_sub_agent_that_is_stopped_alone_is_left_behind_and_heard_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "TOOL_CLEAN_UP_SECONDS", 0.01)
    monkeypatch.setattr(acting, "LEVEL_SECONDS", 0.0)
    gate, back, printers = asyncio.Event(), asyncio.Event(), list[Sink]()

    class Deaf:
        name = "deaf"

        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
            if request.messages[-1]["role"] == "user":
                yield TextPiece("I dig.")
                yield ToolCallPiece(index=0, call_id="x", name="talk")
                return
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()

    @tool
    async def talk() -> str:
        """Leave somebody behind who prints when all is over."""
        sink = output_sink.get()
        assert sink is not None
        printers.append(sink)
        return "later"

    @tool
    async def pause() -> str:
        """Wait until the deaf one is back."""
        await back.wait()
        return "rested"

    helper = Agent(Deaf(), name="helper", tools=[talk])
    boss = Agent(ByTask(go=[[asks("dig", "c1"), call("pause", {}, "c2")], "Fine."]), tools=[helper.as_tool(), pause])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.steps == 2)
    run.stop(call_id="c1")
    while results(boss)["c1"][0] != "interrupted":
        await asyncio.sleep(0.005)
    heard = len(said(run, "c1"))
    printers[0]("stdout", {"text": "I live"})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(said(run, "c1")) == heard
    gate.set()
    back.set()
    assert (await run).text == "Fine."
    assert results(boss)["c1"][1].startswith("I dig.\n")
    await until(lambda: not strays())
    assert len(said(run, "c1")) == heard
    assert_whole(run)
    await assert_goes_on(boss)


async def test_what_a_sub_agents_thread_gives_when_that_has_ended_is_told_by_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    gate, back = threading.Event(), asyncio.Event()

    @tool
    def stubborn() -> str:
        """Work in a thread and hear nothing."""
        done.append("begun")
        gate.wait(10)
        return "late"

    @tool
    async def pause() -> str:
        """Wait until the thread is back."""
        await back.wait()
        return "rested"

    helper = Agent(ByTask(dig=[call("stubborn"), "Never asked for."]), name="helper", tools=[stubborn])
    go: list[Turn] = [[asks("dig", "c1"), call("pause", {}, "c2")], "Fine."]
    boss = Agent(ByTask(go=go), tools=[helper.as_tool(), pause])
    run = await started(boss)
    while not done:
        await asyncio.sleep(0.005)
    run.stop(call_id="c1")
    while results(boss)["c1"][0] != "interrupted":
        await asyncio.sleep(0.005)
    gate.set()
    while not (late := [e for e in run.events if isinstance(e, ev.CustomEvent) and e.name == ev.LATE_RESULT]):
        await asyncio.sleep(0.005)
    assert (ev.agent_path(late[0]), late[0].value["name"], late[0].value["text"]) == ((), "stubborn", "late")
    back.set()
    assert (await run).text == "Fine."
    assert_whole(run)
    await assert_goes_on(boss)


@pytest.mark.parametrize("call_id", ["c1", "no such call"])
async def test_stopping_a_call_that_does_not_run_does_nothing(call_id: str) -> None:
    boss = parent_of(child_of(dig=["Wet."]), go=[asks("dig", "c1"), [call("delete", {"what": "x"}, "c2")], "Done."])
    run = await started(boss)
    await rest(run)
    run.stop(call_id=call_id)
    await asyncio.sleep(0)
    assert run.status == "paused"
    run.approve()
    assert (await run).text == "Done."
    run.stop(call_id=call_id)
    assert run.status == "completed"


# -- waiting ------------------------------------------------------------------------------------------------------------


def deleting(*whats: str) -> dict[str, list[Turn]]:
    """A script for each: delete what the task says, then say so."""
    return {what: [[say(f"I delete {what}. "), call("delete", {"what": what})], f"{what} is gone."] for what in whats}


async def test_a_call_of_a_sub_agent_that_needs_a_person_pauses_the_run_and_no_task_stays() -> None:
    boss = parent_of(child_of(**deleting("rows")), go=[asks("rows", "c1"), "Done."])
    run = await started(boss)
    await rest(run)
    assert (run.status, strays(), done) == ("paused", [], [])
    (waits,) = run.transcript.waiting
    assert (waits.name, waits.input, boss.state.waiting()) == ("delete", '{"what": "rows"}', (waits,))
    (asked,) = [event for event in run.events if isinstance(event, ev.RequireUserConfirmEvent)]
    assert ev.agent_path(asked) == ("c1",)
    run.approve(waits.id)
    assert (await run).text == "Done."
    assert (done, results(boss)) == (["delete rows"], {"c1": ("success", "rows is gone.")})
    assert_whole(run)
    await assert_goes_on(boss)


async def test_a_denial_reaches_the_sub_agent_with_its_reason() -> None:
    boss = parent_of(child_of(**deleting("rows")), go=[asks("rows", "c1"), "Done."])
    run = await started(boss)
    await rest(run)
    run.deny(reason="they are mine")
    await run
    inner = [b for b in run.transcript.children[0].transcript.message.content if isinstance(b, ToolResultBlock)]
    assert (done, [b.state for b in inner]) == ([], ["denied"])
    assert "they are mine" in inner[0].text()
    assert_whole(run)


async def test_what_is_edited_is_what_runs_in_the_sub_agent() -> None:
    boss = parent_of(child_of(**deleting("rows")), go=[asks("rows", "c1"), "Done."])
    run = await started(boss)
    await rest(run)
    run.approve(arguments={"what": "one row"})
    await run
    assert done == ["delete one row"]
    assert fold(None, *run.events) == run.transcript


async def test_edited_arguments_are_checked_by_the_sub_agents_own_tool() -> None:
    @tool(name="delete")
    async def other(number: int) -> str:
        """The caller has a tool of the same name."""
        return str(number)

    boss = Agent(ByTask(go=[asks("rows", "c1"), "Done."]), tools=[child_of(**deleting("rows")).as_tool(), other])
    run = await started(boss)
    await rest(run)
    said_no = run.decide(None, Decision(confirmed=True, arguments='{"number": 1}'))
    assert "do not fit delete" in said_no
    assert (run.status, done) == ("paused", [])
    assert run.decide(None, Decision(confirmed=True, arguments='{"what": "one row"}')) == ""
    await run
    assert done == ["delete one row"]


async def test_what_a_person_adds_is_read_by_the_agent_and_not_by_its_sub_agent() -> None:
    gate = asyncio.Event()
    helper = child_of(dig=[[say("I dig."), wait(gate), call("look", {"at": "x"})], "Wet."])
    boss = parent_of(helper, go=[asks("dig", "c1")])
    boss.model.scripts["and fast"] = ScriptedModel(["Done."])  # type: ignore[attr-defined]
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text)
    run.steer("and fast")
    await asyncio.sleep(0)
    gate.set()
    assert (await run).text == "Done."
    (hint,) = [event for event in run.events if isinstance(event, ev.HintBlockEvent)]
    assert (hint.hint, ev.agent_path(hint)) == ("and fast", ())
    assert_whole(run)


async def test_an_outside_result_reaches_the_sub_agent() -> None:
    helper = child_of(ask=[call("ask_boss", {"question": "Why?"}), "Because."])
    boss = parent_of(helper, go=[asks("ask", "c1"), "Done."])
    run = await started(boss)
    await rest(run)
    (waits,) = run.transcript.waiting
    run.answer(waits.id, "So.")
    await run
    assert results(boss) == {"c1": ("success", "Because.")}
    assert_whole(run)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_several_sub_agents_and_their_caller_wait_and_are_decided_in_any_order(order: tuple[int, ...]) -> None:
    calls = [asks("a", "c1"), asks("b", "c2"), call("delete", {"what": "own"}, "c3"), call("look", {"at": "y"}, "c4")]
    boss = parent_of(child_of(**deleting("a", "b")), go=[calls, "Done."])
    run = await started(boss)
    await rest(run)
    waiting = sorted(run.transcript.waiting, key=lambda waits: waits.input)
    assert [json.loads(waits.input)["what"] for waits in waiting] == ["a", "b", "own"]
    for number in order:
        await rest(run)
        run.approve(waiting[number].id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await run
    assert sorted(done) == ["delete a", "delete b", "delete own", "look y"]
    assert results(boss) == {
        "c1": ("success", "a is gone."),
        "c2": ("success", "b is gone."),
        "c3": ("success", "deleted own"),
        "c4": ("success", "seen y"),
    }
    assert_whole(run)
    await assert_goes_on(boss)


async def test_all_that_wait_are_decided_at_once_and_go_on_side_by_side() -> None:
    boss = parent_of(child_of(**deleting("a", "b")), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    run = await started(boss)
    await rest(run)
    legs = sum(isinstance(event, ev.UserConfirmResultEvent) for event in run.events)
    run.approve()
    await run
    decisions = [event for event in run.events if isinstance(event, ev.UserConfirmResultEvent)]
    assert (legs, len(decisions), len(decisions[0].confirm_results)) == (0, 1, 2)
    assert sorted(done) == ["delete a", "delete b"]
    assert_whole(run)


async def test_a_grandchild_waits_and_is_answered() -> None:
    leaf = child_of("leaf", **deleting("rows"))
    middle = Agent(ByTask(plan=[call("leaf", {"task": "rows"}), "The leaf did."]), name="middle", tools=[leaf.as_tool()])
    boss = parent_of(middle, go=[asks("plan", "c1", "middle"), "Done."])
    run = await started(boss)
    await rest(run)
    assert (run.status, strays()) == ("paused", [])
    run.approve()
    assert (await run).text == "Done."
    assert (done, results(boss)) == (["delete rows"], {"c1": ("success", "The leaf did.")})
    assert_whole(run)


async def test_a_sub_agent_may_wait_twice() -> None:
    helper = child_of(dig=[call("delete", {"what": "a"}), call("delete", {"what": "b"}), "Both."])
    boss = parent_of(helper, go=[asks("dig", "c1"), "Done."])
    run = await started(boss)
    for what in ("a", "b"):
        await rest(run)
        assert [waits.input for waits in run.transcript.waiting] == [f'{{"what": "{what}"}}']
        run.approve()
        await until(lambda: run.status != "paused")
    await run
    assert done == ["delete a", "delete b"]
    assert_whole(run)


@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_stop_in_the_pause_closes_the_sub_agent_and_its_caller(level: Any) -> None:
    boss = parent_of(child_of(**deleting("a", "b")), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    run = await started(boss)
    await rest(run)
    run.stop(level)
    await run
    assert (run.status, done) == ("interrupted", [])
    assert results(boss)["c1"] == ("interrupted", f"I delete a. \n{INTERRUPTED_TEXT}")
    assert_whole(run)
    await assert_goes_on(boss)


async def test_interrupt_without_a_run_closes_the_sub_agent_too() -> None:
    boss = parent_of(child_of(**deleting("a")), go=[asks("a", "c1"), "Done."])
    await boss.reply("go")
    assert len(boss.state.waiting()) == 1
    boss.interrupt()
    assert results(boss)["c1"] == ("interrupted", f"I delete a. \n{INTERRUPTED_TEXT}")
    await assert_goes_on(boss)


async def test_a_sub_agent_that_waits_is_stopped_alone() -> None:
    boss = parent_of(child_of(**deleting("a", "b")), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    run = await started(boss)
    await rest(run)
    run.stop(call_id="c1", reason="not this one")
    await until(lambda: results(boss)["c1"][0] == "interrupted" and run.status == "paused")
    assert [waits.input for waits in run.transcript.waiting] == ['{"what": "b"}']
    run.approve()
    assert (await run).text == "Done."
    assert results(boss)["c1"] == ("interrupted", f"I delete a. \n{INTERRUPTED_TEXT}\nReason: not this one")
    assert results(boss)["c2"] == ("success", "b is gone.")
    assert done == ["delete b"]
    assert_whole(run)


async def test_a_grandchild_that_waits_is_stopped_alone_and_its_caller_goes_on() -> None:
    leaf = child_of("leaf", **deleting("rows"))
    middle = Agent(ByTask(plan=[call("leaf", {"task": "rows"}), "Without it."]), name="middle", tools=[leaf.as_tool()])
    boss = parent_of(middle, go=[asks("plan", "c1", "middle"), "Done."])
    run = await started(boss)
    await rest(run)
    run.stop(call_id=run.transcript.children[0].transcript.children[0].call_id)
    assert (await run).text == "Done."
    assert (done, results(boss)) == ([], {"c1": ("success", "Without it.")})
    assert_whole(run)


async def test_a_stop_of_a_sub_agent_that_waits_while_another_tool_runs_counts_when_the_run_has_parked() -> None:
    gate = asyncio.Event()

    @tool
    async def slow() -> str:
        """Be slow."""
        await gate.wait()
        return "at last"

    helper = child_of(**deleting("a"))
    boss = Agent(ByTask(go=[[asks("a", "c1"), call("slow", {}, "c2")], "Done."]), tools=[helper.as_tool(), slow])
    run = await started(boss)
    await until(lambda: run.transcript.waiting)
    run.stop(call_id="c1")
    await asyncio.sleep(0)
    gate.set()
    assert (await run).text == "Done."
    assert results(boss)["c1"][0] == "interrupted"
    assert results(boss)["c2"] == ("success", "at last")
    assert_whole(run)


# -- the pause is data --------------------------------------------------------------------------------------------------


def through_json(state: AgentState) -> AgentState:
    agent = Agent("demo", state=state)
    return through_text(agent.dump())


def through_text(dumped: Any) -> AgentState:
    agent = Agent("demo")
    agent.load(json.loads(json.dumps(dumped)))
    return agent.state


async def test_a_pause_of_a_sub_agent_survives_a_restart() -> None:
    def made(*, go: list[Turn], **scripts: list[Turn]) -> Agent:
        leaf = child_of("leaf", **scripts)
        middle = Agent(ByTask(plan=go), name="middle", tools=[leaf.as_tool(), look])
        return parent_of(middle, go=[asks("plan", "c1", "middle"), "Done."])

    first = made(go=[[say("I plan. "), call("look", {"at": "x"})], call("leaf", {"task": "rows"}), "It did."], **deleting("rows"))
    run = await started(first)
    await rest(run)
    saved = json.dumps(first.dump())
    assert through_text(json.loads(saved)) == first.state

    second = made(go=["It did."], rows=["rows is gone."])
    second.model.scripts["go"] = ScriptedModel(["Done."])  # type: ignore[attr-defined]
    second.load(json.loads(saved))
    assert second.state.check() == ()
    again = await started(second, None)
    await rest(again)
    assert (again.status, [waits.name for waits in again.transcript.waiting]) == ("paused", ["delete"])
    assert again.transcript.children[0].transcript.message.text == "I plan. "
    assert again.transcript.children[0].transcript.children[0].transcript.message.text == "I delete rows. "
    again.approve()
    assert (await again).text == "Done."
    assert done == ["look x", "delete rows"]
    assert results(second) == {"c1": ("success", "It did.")}
    assert second.state.check() == ()


async def test_a_state_saved_at_any_event_loads_repaired_and_valid() -> None:
    scripts = {**deleting("a"), "b": [[say("B "), call("look", {"at": "b"})], "B is seen."]}
    boss = parent_of(child_of(**scripts), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    saved: list[str] = []
    run = await started(boss)
    run.listen(lambda _, __: saved.append(json.dumps(boss.dump())))
    await rest(run)
    before = len(saved)
    run.approve()
    await run
    decided = [through_text(json.loads(text)) for text in saved[before + 1 :]]  # the first is told of the new status
    assert [state.waiting() for state in decided if state.waiting()] == []
    assert len(saved) > 50
    waited = 0
    for text in saved:
        state = through_text(json.loads(text))
        assert state.check() == ()
        assert_valid(
            [{"role": "user", "content": "x"}, *chat_messages(replace(state, reply_id="").context)]
        ) if not state.waiting() else None
        waited += bool(state.waiting())
        other = parent_of(child_of(a=["A again."]), go=["Again."], state=state)
        if state.waiting():
            other.interrupt()
        assert other.state.check() == ()
        assert (await other.reply("next")).text == "fine"
    assert waited


def read_again(path: Path) -> AgentState:
    """What another kernel would find in the folder now, whatever this one still does."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(path, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*lock*"))
        agent = Agent("demo")
        session = Session.open(copy, agent)
        session.close()
        return agent.state


async def test_a_stored_session_has_at_each_event_what_its_sub_agents_do(tmp_path: Path) -> None:
    boss = parent_of(child_of(**deleting("a", "b")), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    session = Session.open(tmp_path / "boss.session", boss)
    found: list[AgentState] = []
    kinds = ev.ReplyStartEvent | ev.RequireUserConfirmEvent | ev.ToolResultEndEvent | ev.ReplyEndEvent
    run = session.run("go", before_start=lambda run: run.listen(lambda _, event: look_again(event)) and None)

    def look_again(event: ev.Event | None) -> None:
        if isinstance(event, kinds):
            found.append(read_again(tmp_path / "boss.session"))

    await asyncio.to_thread(wait_until, lambda: run.status == "paused")
    stored, live = read_again(tmp_path / "boss.session"), boss.state
    assert stored == live
    assert [waits.name for waits in stored.waiting()] == ["delete", "delete"]
    run.approve()
    await run
    assert sorted(done) == ["delete a", "delete b"]
    assert [state.check() for state in found if state.check()] == []
    assert found[-1].children == ()
    session.close()


async def test_a_crash_keeps_what_a_sub_agent_had_said() -> None:
    boss = parent_of(child_of(dig=[[say("I see "), wait(asyncio.Event())]]), go=[asks("dig", "c1")])
    run = await started(boss)
    await until(lambda: run.transcript.children and run.transcript.children[0].transcript.message.text == "I see ")
    loaded = through_text(boss.dump())
    (block,) = [block for block in loaded.context[-1].content if isinstance(block, ToolResultBlock)]
    assert (block.state, block.text()) == ("interrupted", f"I see \n{INTERRUPTED_TEXT}")
    assert (loaded.reply_id, loaded.children) == ("", ())
    run.stop()
    await run


async def test_check_looks_into_sub_agents() -> None:
    boss = parent_of(child_of(**deleting("a")), go=[asks("a", "c1")])
    await boss.reply("go")
    state = boss.state
    (child,) = state.children
    broken = replace(
        child.state, context=(*child.state.context[:-1], Msg("helper", (ToolResultBlock(id="x", name="y"),), "assistant"))
    )
    (fault,) = replace(state, children=(replace(child, state=broken),)).check()
    assert fault.startswith("sub-agent of call 'c1': ")
    assert replace(state, children=(replace(child, state=broken),)).repair().check() == ()


async def test_a_decision_may_be_given_to_reply() -> None:
    boss = parent_of(child_of(**deleting("a", "b")), go=[[asks("a", "c1"), asks("b", "c2")], "Done."])
    await boss.reply("go")
    for count in (2, 1):
        waiting = boss.state.waiting()
        assert len(waiting) == count
        decision = ev.ConfirmResult(confirmed=True, tool_call=waiting[0])
        await boss.reply(ev.UserConfirmResultEvent(reply_id=boss.state.reply_id, confirm_results=(decision,)))
    assert boss.state.context[-1].text == "Done."
    assert done == ["delete a", "delete b"]


# -- rules --------------------------------------------------------------------------------------------------------------


async def test_what_is_allowed_for_always_holds_for_the_next_call_and_can_be_taken_back() -> None:
    boss = parent_of(child_of(**deleting("a", "b", "c")), go=[asks("a", "c1"), asks("b", "c2"), "Done."])
    run = await started(boss)
    await rest(run)
    run.approve(always=True)
    await run
    assert done == ["delete a", "delete b"]
    assert boss.state.rules == (PermissionRule("helper/delete"),)
    assert boss.forget_rule("helper/delete") == 1
    boss.model.scripts["again"] = ScriptedModel([asks("c", "c9")])  # type: ignore[attr-defined]
    await boss.reply("again")
    assert [waits.input for waits in boss.state.waiting()] == ['{"what": "c"}']


async def test_a_rule_of_the_caller_reaches_into_the_sub_agent() -> None:
    rules = [PermissionRule("helper/delete", "what=a*", "deny"), PermissionRule("helper/look", None, "ask")]
    helper = child_of(go=[call("delete", {"what": "all"}), call("look", {"at": "x"}), "Done."])
    boss = parent_of(helper, go=[asks("go", "c1"), "Done."], permissions=rules)
    run = await started(boss)
    await rest(run)
    assert [waits.name for waits in run.transcript.waiting] == ["look"]
    assert done == []
    run.stop()
    await run


# -- chance -------------------------------------------------------------------------------------------------------------


def family() -> tuple[Agent, list[Agent]]:
    """A caller with two sub-agents side by side, one of which has one of its own, and one that asks a person."""
    leaf = child_of("leaf", deep=[[think("Hm. "), say("Deep "), call("look", {"at": "deep"})], [say("Deep is seen.")]])
    middle = Agent(
        ByTask(plan=[[say("I plan. "), call("leaf", {"task": "deep"}), call("look", {"at": "plan"})], "Planned."]),
        name="middle",
        tools=[leaf.as_tool(), look],
    )
    helper = child_of(rows=[[say("Rows. "), call("look", {"at": "rows"}), call("delete", {"what": "rows"})], "Rows are gone."])
    calls = [asks("plan", "c1", "middle"), asks("rows", "c2"), call("look", {"at": "own"}, "c3")]
    return parent_of(middle, helper, go=[[say("I begin. "), *calls], "All done."]), [middle, helper, leaf]


async def carried(seed: int) -> tuple[Run, Agent]:
    chance = random.Random(seed)
    boss, children = family()
    run = await started(boss)
    turns = chance.randrange(1, 160)
    for _ in range(turns):
        await asyncio.sleep(0)
        if run.status == "paused":
            match chance.choice(["approve", "deny", "stop", "reload", "stop one"]):
                case "approve":
                    run.approve()
                case "deny":
                    run.deny(reason="no")
                case "stop":
                    run.stop()
                case "reload":
                    assert through_text(boss.dump()) == boss.state
                case _:
                    run.stop(call_id=chance.choice(["c1", "c2", "c3"]))
        elif chance.random() < 0.02 and run.running_calls:
            run.stop(chance.choice(["now", "step"]), "alone", call_id=chance.choice(list(run.running_calls)))
    run.stop(chance.choice(["now", "step"]))
    await rest(run)
    if run.status == "paused":
        run.stop()
    await run
    assert [child.state.context for child in children] == [()] * 3
    return run, boss


@pytest.mark.parametrize("first", range(0, 300, 50))
async def test_random_stops_leave_every_history_valid_and_nothing_behind(first: int) -> None:
    for seed in range(first, first + 50):
        done.clear()
        run, boss = await carried(seed)
        try:
            assert_whole(run)
            assert len(done) == len(set(done))
            await assert_goes_on(boss)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
