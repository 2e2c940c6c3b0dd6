"""What an agent remembers: its ``AgentState``, and the check and repair that keep its history valid.

A history is valid when an OpenAI-grade server accepts it: every tool call is answered by exactly one result before the
next message, no result is an orphan, and the arguments of every call are a JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pydantic_core

from agent_widgets.messages import (
    Block,
    HintBlock,
    Msg,
    PermissionRule,
    ToolCallBlock,
    ToolResultBlock,
    new_id,
    timestamp,
)

STATE_VERSION = 2
"""2 brought ``summary``: a package that does not know it would send the whole history again, so it must refuse the state."""
INTERRUPTED_TEXT = "<system-reminder>The tool call has been interrupted by the user.</system-reminder>"
"""What the model reads where a call was cut: AgentScope 2's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a model reads in place of the oldest part of a history. The history itself stays whole.

    It stands for the first ``messages`` messages, and for the first ``blocks`` blocks of the one after them; there it ends
    between two steps (``step_ends``).
    """

    text: str
    messages: int = 0
    blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """Everything that must survive for a conversation to go on. A value: read it from any thread, at any time.

    ``context`` holds the messages in order; while a reply is open, its unfinished message is the last. ``reply_id`` names
    the reply that is running or paused, and is ``""`` when there is none. ``cur_iter`` counts that reply's steps, and
    ``children`` holds the conversations of the sub-agents that it has called: they are gone when it ends.
    ``summary`` is what a model reads in place of the oldest messages, once they were compressed.
    """

    session_id: str = field(default_factory=new_id)
    context: tuple[Msg, ...] = ()
    reply_id: str = ""
    cur_iter: int = 0
    rules: tuple[PermissionRule, ...] = ()
    summary: Summary | None = None
    children: tuple[ChildState, ...] = ()
    version: int = STATE_VERSION

    def waiting(self) -> tuple[ToolCallBlock, ...]:
        """The calls that wait for a person or for an outside result, in order; those of sub-agents come last."""
        if not self.reply_id or not self.context or self.context[-1].id != self.reply_id:
            return ()
        open_ids = unanswered(self.context[-1])
        below = [call for child in self.children if child.call_id in open_ids for call in child.state.waiting()]
        return (*waiting_calls(self.context[-1]), *below)

    def check(self) -> tuple[str, ...]:
        """What a server would refuse in this history, as sentences; empty when it is valid.

        Calls that wait in a paused reply are not faults: the reply has not ended.
        """
        faults: list[str] = []
        for number, message in enumerate(self.context):
            is_open = message.id == self.reply_id and message is self.context[-1]
            faults += (f"message {number}: {fault}" for fault in _faults(message, is_open=is_open))
        for child in self.children:
            faults += (f"sub-agent of call {child.call_id!r}: {fault}" for fault in child.state.check())
        return (*faults, *_summary_faults(self.summary, self.context))

    def repair(self) -> AgentState:
        """The same history with every fault mended, as after a crash: cut calls are closed as interrupted.

        A reply that waits for a person goes on waiting, and so does one whose sub-agent waits. One that was running when the
        state was saved is ended; what a sub-agent had said stands in the result of its call. A summary that does not fit the
        history (any more) is dropped: the messages themselves are all there.
        """
        paused = bool(self.waiting())
        children = tuple(replace(child, state=child.state.repair()) for child in self.children)
        waiting = {child.call_id for child in children if child.state.waiting()} if paused else set[str]()
        waiting |= {call.id for call in waiting_calls(self.context[-1])} if paused else set()
        said = {child.call_id: child.said for child in children}
        context = tuple(
            _repaired(message, was_open=True, waiting=waiting, said=said)
            if message.id == self.reply_id
            else _repaired(message, was_open=False, waiting=set(), said={})
            for message in self.context
        )
        return replace(
            self,
            context=context,
            children=children if paused else (),
            reply_id=self.reply_id if paused else "",
            cur_iter=self.cur_iter if paused else 0,
            summary=self.summary if _still_fits(self.summary, self.context, context) else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildState:
    """The conversation of a sub-agent that works, or has worked, for the call ``call_id``: ``steps`` are its model calls."""

    call_id: str
    state: AgentState
    steps: int = 0

    @property
    def said(self) -> str:
        """The text of its reply, as far as it has come."""
        last = self.state.context[-1] if self.state.context else None
        return last.text if last is not None and last.role == "assistant" else ""


def unanswered(message: Msg) -> set[str]:
    """The ids of the calls of this message that have no final result."""
    closed = {b.id for b in message.content if isinstance(b, ToolResultBlock) and b.state != "running"}
    return {b.id for b in message.content if isinstance(b, ToolCallBlock)} - closed


def step_ends(message: Msg) -> tuple[int, ...]:
    """After how many of its blocks a step of a reply is over: where every call has its result, and after a hint."""
    ends: list[int] = []
    open_calls: set[str] = set()
    for at, block in enumerate(message.content, 1):
        if isinstance(block, ToolCallBlock):
            open_calls.add(block.id)
        elif isinstance(block, ToolResultBlock) and block.state != "running":
            open_calls.discard(block.id)
        if isinstance(block, ToolResultBlock | HintBlock) and not open_calls:
            ends.append(at)
    return tuple(ends)


def waiting_calls(message: Msg) -> tuple[ToolCallBlock, ...]:
    """The calls of this message that are ``asking`` or ``submitted`` and have no final result."""
    closed = {b.id for b in message.content if isinstance(b, ToolResultBlock) and b.state != "running"}
    calls: dict[str, ToolCallBlock] = {}
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            calls.setdefault(block.id, block)  # a damaged history may hold the double of a call
    return tuple(call for call in calls.values() if call.state in ("asking", "submitted") and call.id not in closed)


def valid_arguments(text: str) -> str:
    """``text`` if it is a JSON object; else as much of it as can be read, as a JSON object: ``{"a": 1, "b`` gives ``{"a":1}``."""
    try:
        if isinstance(pydantic_core.from_json(text), dict):
            return text
    except ValueError:
        pass
    try:
        partial = pydantic_core.from_json(text, allow_partial=True)
    except ValueError:
        return "{}"
    return pydantic_core.to_json(partial).decode() if isinstance(partial, dict) else "{}"


def _summary_faults(summary: Summary | None, context: tuple[Msg, ...]) -> list[str]:
    if summary is None:
        return []
    if not 0 <= summary.messages <= len(context):
        return [f"the summary stands for {summary.messages} messages, and there are {len(context)}"]
    if summary.blocks and (summary.messages == len(context) or summary.blocks not in step_ends(context[summary.messages])):
        return [f"the summary ends inside a step of message {summary.messages}"]
    return []


def _still_fits(summary: Summary | None, before: tuple[Msg, ...], after: tuple[Msg, ...]) -> bool:
    """Whether a summary stands for the same blocks after a repair as before it."""
    if summary is None or _summary_faults(summary, before) or _summary_faults(summary, after):
        return False
    then, now = ([(b.type, b.id) for m in context[summary.messages :][:1] for b in m.content] for context in (before, after))
    return then[: summary.blocks] == now[: summary.blocks]


def _faults(message: Msg, *, is_open: bool) -> list[str]:
    calls = [b for b in message.content if isinstance(b, ToolCallBlock)]
    results = [b for b in message.content if isinstance(b, ToolResultBlock)]
    call_ids = [call.id for call in calls]
    faults = [f"two calls have the id {call_id!r}" for call_id in sorted(set(call_ids)) if call_ids.count(call_id) > 1]
    waiting = {call.id for call in waiting_calls(message)} if is_open else set[str]()
    for call in calls:
        answers = [r for r in results if r.id == call.id and r.state != "running"]
        if len(answers) > 1:
            faults.append(f"call {call.id!r} is answered {len(answers)} times")
        if not answers and not (is_open and (call.id in waiting or call.state != "finished")):
            faults.append(f"call {call.id!r} of {call.name!r} has no result")
        if not is_open and valid_arguments(call.input) != call.input:
            faults.append(f"the arguments of call {call.id!r} are not a JSON object")
    faults += [f"result {r.id!r} answers no call" for r in results if r.id not in call_ids]
    return faults


def _repaired(message: Msg, *, was_open: bool, waiting: set[str], said: Mapping[str, str]) -> Msg:
    """``waiting`` are the calls that stay open, ``said`` what the sub-agents of the others had said."""
    seen_calls: set[str] = set()
    answered: set[str] = set()
    content: list[Block] = []
    now = timestamp()
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            if block.id in seen_calls:
                continue
            seen_calls.add(block.id)
            state = block.state if block.id in waiting else "finished"
            finished_at = block.finished_at or (now if was_open else None)
            content.append(replace(block, input=valid_arguments(block.input), state=state, finished_at=finished_at))
        elif isinstance(block, ToolResultBlock):
            if block.id not in seen_calls or block.id in answered:
                continue
            cut = block.state == "running" and block.id not in waiting
            if cut or block.state != "running":
                answered.add(block.id)
            output = cut_text(block.text() or said.get(block.id, ""))
            content.append(replace(block, output=output, state="interrupted", finished_at=now) if cut else block)
        else:
            content.append(replace(block, finished_at=now) if was_open and not block.finished_at else block)
    open_calls = [b for b in content if isinstance(b, ToolCallBlock) and b.id not in answered and b.id not in waiting]
    content += (
        ToolResultBlock(id=call.id, name=call.name, output=INTERRUPTED_TEXT, state="interrupted", finished_at=now)
        for call in open_calls
    )
    if not was_open or message.finished_reason or waiting:
        return replace(message, content=tuple(content))
    return replace(
        message,
        content=tuple(content),
        finished_at=now,
        finished_reason="interrupted",
        metadata={**message.metadata, "_is_interrupted": True},
    )


def cut_text(said: str) -> str:
    """What the model reads where a call was cut: what had come of it, then that it was cut."""
    return f"{said}\n{INTERRUPTED_TEXT}" if said else INTERRUPTED_TEXT
