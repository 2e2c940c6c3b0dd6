"""The reasoning-acting loop and its memory, below the agent: what is said is what is remembered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.loops import LastStep
from agent_widgets.memory import Memory
from agent_widgets.messages import (
    Base64Source,
    DataBlock,
    PermissionRule,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    Usage,
    UserMsg,
)
from agent_widgets.models.scripted import ScriptedModel, Turn, call, say
from agent_widgets.reasoning import ReplyLoop
from agent_widgets.state import AgentState
from agent_widgets.tools import Tool, tool
from agent_widgets.transcript import fold


class Pieces:
    """A model that answers with exactly these pieces."""

    name = "pieces"

    def __init__(self, *pieces: ModelDelta) -> None:
        self.pieces = pieces

    async def stream(self, request: Any, /) -> Any:
        for piece in self.pieces:
            yield piece


def loop_of(memory: Memory, model: Any, said: list[ev.Event], *tools: Tool, last_step: LastStep | None = None) -> ReplyLoop:
    def say(event: ev.Event) -> None:
        memory.apply(event)
        said.append(event)

    return ReplyLoop(
        agent_name="bob",
        memory=memory,
        model=model,
        tools={one.name: one for one in tools},
        max_steps=5,
        say=say,
        last_step=last_step or LastStep(),
        allow=memory.allow,
        keep_late=memory.keep_late,
    )


async def reply(*pieces: ModelDelta) -> tuple[Memory, list[ev.Event]]:
    memory, said = Memory(), list[ev.Event]()
    await loop_of(memory, Pieces(*pieces), said).carry("go")
    return memory, said


async def test_the_memory_is_the_fold_of_what_was_said() -> None:
    memory, said = Memory(), list[ev.Event]()
    script: list[Turn] = [[say("a b"), call("nothing", {})], "c"]
    await loop_of(memory, ScriptedModel(script), said).carry("go")
    assert memory.state.context[-1] == replace(fold(None, *said).message)
    assert (memory.state.reply_id, memory.state.cur_iter, memory.state.check()) == ("", 0, ())


async def test_blocks_of_one_kind_are_joined_and_a_change_of_kind_begins_a_new_one() -> None:
    memory, _ = await reply(
        ThinkingPiece("a"), ThinkingPiece("b"), TextPiece("c"), TextPiece(""), TextPiece("d"), ThinkingPiece("e")
    )
    found = [(block.type, getattr(block, "text", getattr(block, "thinking", ""))) for block in memory.state.context[-1].content]
    assert found == [("thinking", "ab"), ("text", "cd"), ("thinking", "e")]


async def test_an_empty_answer_is_an_empty_message_that_is_never_sent() -> None:
    memory, said = await reply(TextPiece(""))
    assert [event.type for event in said] == ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "REPLY_END"]
    assert memory.state.context[-1].content == ()


async def test_pieces_of_several_calls_may_interleave() -> None:
    pieces = [
        ToolCallPiece(index=0, call_id="x", name="one"),
        ToolCallPiece(index=1, call_id="y", name="two"),
        ToolCallPiece(index=0, arguments="{"),
        ToolCallPiece(index=1, arguments='{"b"'),
        ToolCallPiece(index=0, arguments="}"),
        ToolCallPiece(index=1, arguments=": 1}"),
    ]
    memory, said = Memory(), list[ev.Event]()

    class Once(Pieces):
        async def stream(self, request: Any, /) -> Any:
            for piece in self.pieces if len(request.context) == 2 and not request.context[-1].content else ():
                yield piece

    await loop_of(memory, Once(*pieces), said).carry("go")
    calls = [(b.id, b.name, b.input) for b in memory.state.context[-1].content if isinstance(b, ToolCallBlock)]
    assert calls == [("x", "one", "{}"), ("y", "two", '{"b": 1}')]
    ends = [event.tool_call_id for event in said if isinstance(event, ev.ToolCallEndEvent)]
    assert ends == ["x", "y"]


async def test_a_call_without_an_id_gets_one() -> None:
    memory, said = Memory(), list[ev.Event]()

    class Once(Pieces):
        async def stream(self, request: Any, /) -> Any:
            for piece in self.pieces if not request.context[-1].content else ():
                yield piece

    await loop_of(memory, Once(ToolCallPiece(index=0, name="one"), ToolCallPiece(index=1, name="two")), said).carry("go")
    ids = [block.id for block in memory.state.context[-1].content if isinstance(block, ToolCallBlock)]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("call_") for call_id in ids)
    assert memory.state.check() == ()


async def test_usage_is_what_was_reported_or_unknown() -> None:
    memory, _ = await reply(TextPiece("x"), UsageReport(input_tokens=5, output_tokens=6, cache_input_tokens=4))
    assert memory.state.context[-1].usage == Usage(input_tokens=5, output_tokens=6, cache_input_tokens=4)
    memory, _ = await reply(TextPiece("x"))
    assert memory.state.context[-1].usage == Usage(unknown_calls=1)


async def test_text_and_images_of_a_tool_arrive_in_order() -> None:
    image, link = DataBlock(Base64Source("AAAA", "image/png")), DataBlock(URLSource("https://example.org/a.png", "image/png"))

    @tool
    async def plot() -> list[Any]:
        """Plot a thing."""
        return [TextBlock("before"), image, link, TextBlock("after")]

    memory, said = Memory(), list[ev.Event]()
    await loop_of(memory, ScriptedModel([call("plot"), "ok"]), said, plot).carry("go")
    (result,) = [block for block in memory.state.context[-1].content if isinstance(block, ToolResultBlock)]
    assert isinstance(result.output, tuple)
    assert [part.text if isinstance(part, TextBlock) else part.source for part in result.output] == [
        "before",
        image.source,
        link.source,
        "after",
    ]


async def test_what_a_tool_prints_through_its_sink_is_an_event_of_its_call_and_not_for_the_model() -> None:
    from agent_widgets.execution import output_sink

    @tool
    def chatty() -> str:
        """Print a thing."""
        sink = output_sink.get()
        assert sink is not None
        sink("stdout", {"text": "printed"})
        return "returned"

    memory, said, model = Memory(), list[ev.Event](), ScriptedModel([call("chatty"), "ok"])
    await loop_of(memory, model, said, chatty).carry("go")
    printed = [event.value for event in said if isinstance(event, ev.CustomEvent)]
    assert printed == [{"call_id": "call_1", "name": "stdout", "text": "printed"}]
    assert "printed" not in str(model.requests[1].messages)


async def test_a_step_that_ends_the_reply_ends_it_after_its_tools() -> None:
    @tool
    async def work() -> str:
        """Work a little."""
        return "worked"

    memory, said = Memory(), list[ev.Event]()
    last_step = LastStep()
    last_step.set()
    await loop_of(memory, ScriptedModel([call("work"), "never"]), said, work, last_step=last_step).carry("go")
    assert isinstance(end := said[-1], ev.ReplyEndEvent)
    assert end.finished_reason == "interrupted"
    assert memory.state.context[-1].content[-1] == next(
        b for b in memory.state.context[-1].content if isinstance(b, ToolResultBlock)
    )


@pytest.mark.parametrize("failure", [ValueError("no"), asyncio.CancelledError()])
async def test_whatever_ends_the_loop_what_is_open_is_closed_before_it_is_raised(failure: BaseException) -> None:
    class Fails(Pieces):
        async def stream(self, request: Any, /) -> Any:
            yield TextPiece("half")
            raise failure

    memory, said = Memory(), list[ev.Event]()
    with pytest.raises(type(failure)):
        await loop_of(memory, Fails(), said).carry("go")
    assert [event.type for event in said[-3:]] == ["TEXT_BLOCK_END", "MODEL_CALL_END", "REPLY_END"]
    assert memory.state.check() == ()
    assert memory.state.reply_id == ""


def test_a_memory_gives_the_open_reply_as_its_last_message() -> None:
    memory = Memory()
    memory.begin((UserMsg("u", "hi"),))
    memory.apply(ev.ReplyStartEvent(session_id="s", reply_id="r", name="bob"))
    memory.apply(ev.ModelCallStartEvent(reply_id="r", model_name="m"))
    memory.allow((PermissionRule("rm"),))
    state = memory.state
    assert (state.reply_id, state.cur_iter, state.rules) == ("r", 1, (PermissionRule("rm"),))
    assert [message.role for message in state.context] == ["user", "assistant"]
    memory.apply(ev.ReplyEndEvent(session_id="s", reply_id="r"))
    assert (memory.state.reply_id, memory.state.cur_iter, len(memory.state.context)) == ("", 0, 2)


def test_a_memory_ignores_events_when_no_reply_is_open() -> None:
    memory = Memory()
    memory.apply(ev.ReplyEndEvent(session_id="s", reply_id="r"))
    assert memory.state.context == ()


def test_a_memory_loads_a_state_mended() -> None:
    message = replace(UserMsg("u", "x"), role="assistant")
    memory = Memory()
    memory.load(AgentState(session_id="s", context=(message,), reply_id=message.id, cur_iter=3))
    assert (memory.session_id, memory.state.reply_id, memory.steps) == ("s", "", 0)
    assert memory.state.context[0].finished_reason == "interrupted"
