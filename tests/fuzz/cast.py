"""The cast of a story: the tools, which note what they do, and the model, which checks what it is sent."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ToolCallPiece
from agent_widgets.execution import output_sink
from agent_widgets.models.scripted import Item, ScriptedModel, say
from agent_widgets.threads import stop_requested
from agent_widgets.tools import Tool, tool
from tests.fuzz.clock import VirtualLoop
from tests.fuzz.stories import Story
from tests.validator import faults


class Notes(Protocol):
    """Where the cast notes what it does."""

    story: Story
    loop: VirtualLoop

    def began(self, key: str, name: str, given: dict[str, Any]) -> None: ...
    def ended(self, key: str, text: str) -> None: ...
    def noticed(self, key: str) -> None: ...
    def stop_from_inside(self) -> None: ...
    def model_failed(self) -> None: ...
    def refused(self, fault: str) -> None: ...
    def next_turn(self, prompt: str) -> tuple[Item, ...]: ...


AFTER = '{"key": "after", "seconds": 0}'
"""What a model that has swallowed its cancel asks for."""

on_stage: contextvars.ContextVar[Notes] = contextvars.ContextVar("fuzz_notes")
"""Whose tools these are: a run takes the context in which it was made along, also into threads."""


def _begin(name: str, key: str, seconds: float, note: str) -> Notes:
    notes = on_stage.get()
    notes.began(key, name, {"key": key, "seconds": seconds, **({"note": note} if note else {})})
    return notes


def _end(notes: Notes, key: str) -> str:
    text = f"<result of {key}>"
    notes.ended(key, text)
    return text


async def _wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def quick(key: str, seconds: float, note: str = "") -> str:
    """Answer in the next turn."""
    notes = _begin("quick", key, seconds, note)
    await asyncio.sleep(0)
    return _end(notes, key)


async def slow(key: str, seconds: float, note: str = "") -> str:
    """Answer after some time."""
    notes = _begin("slow", key, seconds, note)
    await _wait(seconds)
    return _end(notes, key)


async def failing(key: str, seconds: float, note: str = "") -> str:
    """Fail after some time."""
    notes = _begin("failing", key, seconds, note)
    await _wait(seconds)
    raise ValueError(_end(notes, key))


def thread(key: str, seconds: float, note: str = "") -> str:
    """Answer at once, in a thread."""
    return _end(_begin("thread", key, seconds, note), key)


def polling(key: str, seconds: float, note: str = "") -> str:
    """Work in a thread, and look whether to stop."""
    notes = _begin("polling", key, seconds, note)
    for _ in range(int(seconds / 0.01)):
        if stop_requested():
            notes.noticed(key)
            return "half of it"
        notes.loop.hold(0.01)
    return _end(notes, key)


def deaf(key: str, seconds: float, note: str = "") -> str:
    """Work in a thread, and never look whether to stop."""
    notes = _begin("deaf", key, seconds, note)
    notes.loop.hold(seconds)
    return _end(notes, key)


async def swallowing(key: str, seconds: float, note: str = "") -> str:
    """Swallow the cancel, and answer a little later."""
    notes = _begin("swallowing", key, seconds, note)
    try:
        await _wait(seconds)
    except asyncio.CancelledError:  # noqa: ASYNC103 - what it is for
        await _wait(0.05)  # noqa: ASYNC120
    return _end(notes, key)


async def stubborn(key: str, seconds: float, note: str = "") -> str:
    """Swallow the cancel, and answer when nobody waits any more."""
    notes = _begin("stubborn", key, seconds, note)
    try:
        await _wait(seconds)
    except asyncio.CancelledError:  # noqa: ASYNC103 - what it is for
        await _wait(3)  # noqa: ASYNC120
    return _end(notes, key)


async def streaming(key: str, seconds: float, note: str = "") -> AsyncIterator[str]:
    """Answer piece by piece, and clean up."""
    notes = _begin("streaming", key, seconds, note)
    try:
        for number in range(3):
            yield f"<{number} of {key}>"
            await _wait(seconds / 3)
        yield f"<result of {key}>"
    finally:
        await asyncio.sleep(0)
    _end(notes, key)


def stepping(key: str, seconds: float, note: str = "") -> Iterator[str]:
    """Answer piece by piece in a thread."""
    notes = _begin("stepping", key, seconds, note)
    for number in range(3):
        notes.loop.hold(seconds / 3)
        yield f"<{number} of {key}>"
    return _end(notes, key)


async def printing(key: str, seconds: float, note: str = "") -> str:
    """Print before and after some time."""
    notes, sink = _begin("printing", key, seconds, note), output_sink.get()
    assert sink is not None
    sink("stdout", {"text": "before "})
    await _wait(seconds)
    sink("stdout", {"text": "after"})
    return _end(notes, key)


async def self_cancelling(key: str, seconds: float, note: str = "") -> str:
    """Raise a cancel of its own."""
    notes = _begin("self_cancelling", key, seconds, note)
    await _wait(seconds)
    notes.ended(key, "cancelled from inside")
    raise asyncio.CancelledError


async def self_stopping(key: str, seconds: float, note: str = "") -> str:
    """Stop the agent that called it."""
    notes = _begin("self_stopping", key, seconds, note)
    notes.stop_from_inside()
    await _wait(seconds)
    return _end(notes, key)


async def _alone(key: str, seconds: float, note: str = "") -> str:
    """Answer after some time, with no other call beside it."""
    notes = _begin("alone", key, seconds, note)
    await _wait(seconds)
    return _end(notes, key)


async def _ask_alone(key: str, seconds: float, note: str = "") -> str:
    """Answer after some time, if a person allows it, with no other call beside it."""
    notes = _begin("ask_alone", key, seconds, note)
    await _wait(seconds)
    return _end(notes, key)


def _asking(name: str, function: Callable[..., Any]) -> Tool:
    return tool(name=name, confirm=True)(function)


async def _ask_quick(key: str, seconds: float, note: str = "") -> str:
    """Answer in the next turn, if a person allows it."""
    notes = _begin("ask_quick", key, seconds, note)
    await asyncio.sleep(0)
    return _end(notes, key)


async def _ask_slow(key: str, seconds: float, note: str = "") -> str:
    """Answer after some time, if a person allows it."""
    notes = _begin("ask_slow", key, seconds, note)
    await _wait(seconds)
    return _end(notes, key)


def _ask_thread(key: str, seconds: float, note: str = "") -> str:
    """Work in a thread, if a person allows it."""
    notes = _begin("ask_thread", key, seconds, note)
    notes.loop.hold(seconds)
    return _end(notes, key)


_FUNCTIONS = (
    *(
        quick,
        slow,
        failing,
        thread,
        polling,
        deaf,
        swallowing,
        stubborn,
        streaming,
        stepping,
        printing,
        self_cancelling,
        self_stopping,
    ),
    tool(name="alone", sequential=True)(_alone),
    tool(name="ask_alone", sequential=True, confirm=True)(_ask_alone),
    _asking("ask_quick", _ask_quick),
    _asking("ask_slow", _ask_slow),
    _asking("ask_thread", _ask_thread),
)
TOOLS: dict[str, Tool] = {made.name: made for made in (f if isinstance(f, Tool) else tool(f) for f in _FUNCTIONS)}


class StoryModel:
    """Says the story's turns for the last prompt that it is sent, and judges every request as a strict server would."""

    name = "story"

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        notes = on_stage.get()
        messages = request.messages
        for fault in faults(messages):
            notes.refused(fault)
        prompt = next(str(m["content"]) for m in reversed(messages) if m["role"] == "user")
        if prompt == "next":
            turn: tuple[Item, ...] = (say("All is well."),)
        else:
            turn = notes.next_turn(prompt)
        seconds = notes.story.piece_seconds
        source = ScriptedModel([turn], tokens_per_second=None if seconds is None else 1 / seconds)
        try:
            async for piece in source.stream(request):
                yield piece
        except asyncio.CancelledError:  # noqa: ASYNC103 - some models swallow it
            if notes.story.stubborn_model == "no":
                raise
            yield TextPiece("I heard nothing.")  # noqa: ASYNC104
            if notes.story.stubborn_model == "goes on":
                await asyncio.sleep(0)
                yield ToolCallPiece(index=99, call_id="after", name="quick", arguments=AFTER)  # noqa: ASYNC104
        except Exception:
            notes.model_failed()
            raise
