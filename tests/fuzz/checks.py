"""What must hold for a log and for a history. Nothing here knows how a story is carried."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agent_widgets import events as ev
from agent_widgets.messages import Msg, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from agent_widgets.transcript import Transcript

Kind = Literal[
    "invalid history",
    "executed twice",
    "executed without leave",
    "result lost",
    "wrong outcome",
    "broken log",
    "leftover",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Fault:
    """Something that the contract forbids."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def key_of(arguments: str) -> str:
    """The key that a story's call carries; empty if it was cut before it."""
    try:
        value: Any = json.loads(arguments)
    except ValueError:
        return ""
    return str(value.get("key", "")) if isinstance(value, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def results_by_key(messages: Sequence[Msg]) -> dict[str, tuple[ToolCallBlock, ToolResultBlock]]:
    """Call and result of each key in a history."""
    found: dict[str, tuple[ToolCallBlock, ToolResultBlock]] = {}
    for message in messages:
        calls = {block.id: block for block in message.content if isinstance(block, ToolCallBlock)}
        for block in message.content:
            if isinstance(block, ToolResultBlock) and block.id in calls and (key := key_of(calls[block.id].input)):
                found[key] = calls[block.id], block
    return found


class LogCheck:
    """Reads a log event by event and notes what is out of order."""

    def __init__(self, base: Transcript) -> None:
        self._open: set[tuple[str, str]] = set()
        self._ended: set[tuple[str, str]] = set()
        self._calling = False
        self._has_begun = bool(base.message.content)
        self._is_over = False
        self.faults: list[str] = []
        self._below = {child.call_id: LogCheck(child.transcript) for child in base.children}
        for block in base.message.content:
            if isinstance(block, ToolCallBlock):
                self._ended.add(("call", block.id))
            elif isinstance(block, ToolResultBlock):
                if block.state != "running":  # a waiting one that was begun before a crash begins again
                    self._ended.add(("result", block.id))
            elif isinstance(block, TextBlock | ThinkingBlock):
                self._ended.add(("block", block.id))

    def read(self, event: ev.Event) -> None:
        if self._is_over:
            self.faults.append(f"{event.type} after the end")
        if path := ev.agent_path(event):
            self._read_below(path[0], ev.inside(event))
            return
        match event:
            case ev.TextBlockStartEvent() | ev.ThinkingBlockStartEvent():
                self._start("block", event.block_id)
            case ev.TextBlockDeltaEvent() | ev.ThinkingBlockDeltaEvent():
                self._go_on("block", event.block_id)
            case ev.TextBlockEndEvent() | ev.ThinkingBlockEndEvent():
                self._end("block", event.block_id)
            case ev.ToolCallStartEvent():
                self._start("call", event.tool_call_id)
            case ev.ToolCallDeltaEvent():
                self._go_on("call", event.tool_call_id)
            case ev.ToolCallEndEvent():
                self._end("call", event.tool_call_id)
            case ev.ToolResultStartEvent():
                if ("call", event.tool_call_id) not in self._ended:
                    self.faults.append(f"result {event.tool_call_id} of a call that has not ended")
                self._start("result", event.tool_call_id)
            case ev.ToolResultTextDeltaEvent():
                self._go_on("result", event.tool_call_id)
            case ev.ToolResultEndEvent():
                self._end("result", event.tool_call_id)
            case ev.ModelCallStartEvent() | ev.ModelCallEndEvent():
                begins = isinstance(event, ev.ModelCallStartEvent)
                if begins == self._calling:
                    self.faults.append(f"{event.type} out of order")
                self._calling = begins
            case ev.ReplyStartEvent():
                if self._has_begun:
                    self.faults.append("a second REPLY_START")
            case ev.ReplyEndEvent():
                self._is_over = True
            case _:
                pass
        self._has_begun = True

    def _read_below(self, call_id: str, event: ev.Event) -> None:
        """A sub-agent speaks: in order as everybody, and while its call is carried out."""
        if ("result", call_id) not in self._open:
            self.faults.append(f"the sub-agent of {call_id} says {event.type} outside of its call")
        self._below.setdefault(call_id, LogCheck(Transcript(message=Msg("", (), "assistant")))).read(event)

    def end(self, *, paused: bool, waiting: set[str]) -> Iterator[str]:
        """What is wrong with the log as a whole."""
        yield from self.faults
        for call_id, below in self._below.items():
            faults = below.faults if paused else below.end(paused=False, waiting=set())
            yield from (f"sub-agent of {call_id}: {fault}" for fault in faults)
        if self._is_over == paused:
            yield "a paused run with REPLY_END" if paused else "no REPLY_END"
        if self._open:
            yield f"not ended: {sorted(self._open)}"
        if self._calling:
            yield "a model call is not ended"
        unanswered = {call for kind, call in self._ended if kind == "call"} - {
            call for kind, call in self._ended if kind == "result"
        }
        if unanswered != (waiting if paused else set()):
            yield f"calls without a result: {sorted(unanswered)}, waiting: {sorted(waiting)}"

    def _start(self, kind: str, name: str) -> None:
        if (kind, name) in self._open | self._ended:
            self.faults.append(f"{kind} {name} started twice")
        self._open.add((kind, name))

    def _go_on(self, kind: str, name: str) -> None:
        if (kind, name) not in self._open:
            self.faults.append(f"more of {kind} {name}, which is not open")

    def _end(self, kind: str, name: str) -> None:
        if (kind, name) not in self._open:
            self.faults.append(f"{kind} {name} ended, which is not open")
        self._open.discard((kind, name))
        self._ended.add((kind, name))
