"""The fold: events in, transcript out. State, page, export and replay are all made here, and ``js/src/transcript.ts`` is
its twin: both fold the golden logs in ``tests/golden`` to the same transcripts.

Pure values and one builder; no clock, no asyncio. The cost is linear in the text.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any, assert_never, cast

from agent_widgets import events as ev
from agent_widgets.messages import (
    Base64Source,
    Block,
    DataBlock,
    HintBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    Usage,
)
from agent_widgets.printed import PrintedBuilder, ToolOutput
from agent_widgets.state import unanswered, waiting_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """What the sub-agent that works for the call ``call_id`` has done."""

    call_id: str
    transcript: Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What one run looks like: the assistant message so far, and what surrounds it.

    ``model`` names the model called last for a step, ``steps`` counts steps, ``calling`` says that a model call is open. What
    sub-agents do is in ``children``, in the order in which they began; their tokens are also in the message's ``usage``.
    """

    message: Msg
    model: str = ""
    steps: int = 0
    calling: bool = False
    outputs: tuple[ToolOutput, ...] = ()
    notices: tuple[str, ...] = ()
    children: tuple[Child, ...] = ()

    @property
    def waiting(self) -> tuple[ToolCallBlock, ...]:
        """The calls that wait for a decision or an outside result, sub-agents' last; none once the reply has ended."""
        if self.message.finished_reason:
            return ()
        return (*waiting_calls(self.message), *(call for child in self.working for call in child.transcript.waiting))

    @property
    def working(self) -> tuple[Child, ...]:
        """The sub-agents whose reply has not ended."""
        open_ids = unanswered(self.message)
        return tuple(c for c in self.children if c.call_id in open_ids and not c.transcript.message.finished_reason)

    def working_for(self, call_id: str) -> Transcript | None:
        """The sub-agent that works for this call, here or further down."""
        for child in self.working:
            found = child.transcript if child.call_id == call_id else child.transcript.working_for(call_id)
            if found is not None:
                return found
        return None


class _OpenBlock:
    """One block being built: the last frozen value and the text that came since."""

    __slots__ = ("block", "data", "pieces")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pieces = StringIO()
        self.data: list[DataBlock] = []

    def freeze(self) -> Block:
        """The block with all its text; joined once per read, not once per delta."""
        if self.pieces.tell() or self.data:
            text = self.pieces.getvalue()
            self.pieces = StringIO()
            match self.block:
                case TextBlock():
                    self.block = replace(self.block, text=self.block.text + text)
                case ThinkingBlock():
                    self.block = replace(self.block, thinking=self.block.thinking + text)
                case ToolCallBlock():
                    self.block = replace(self.block, input=self.block.input + text)
                case ToolResultBlock():
                    self.block = replace(self.block, output=_joined_output(self.block, text, self.data))
                    self.data = []
                case DataBlock(source=Base64Source() as source):
                    self.block = replace(self.block, source=replace(source, data=source.data + text))
                case DataBlock() | HintBlock():
                    pass
        return self.block


class TranscriptBuilder:
    """Folds events into a ``Transcript``. ``apply`` runs on one thread; ``freeze`` may be called from any."""

    def __init__(self, start: Transcript | None = None) -> None:
        base = start or Transcript(message=Msg("assistant", (), "assistant"))
        self._lock = threading.Lock()
        self._frozen: Transcript | None = base
        self._base = base
        self._blocks: list[_OpenBlock] = [_OpenBlock(block) for block in base.message.content]
        self._index: dict[tuple[str, str], _OpenBlock] = {_key(b.block): b for b in self._blocks}
        self._printed = PrintedBuilder(base.outputs)
        self._children = {child.call_id: TranscriptBuilder(child.transcript) for child in base.children}

    def freeze(self) -> Transcript:
        """The transcript so far; the same object until the next event."""
        with self._lock:
            if self._frozen is None:
                content = tuple(block.freeze() for block in self._blocks)
                children = tuple(Child(call_id=call_id, transcript=below.freeze()) for call_id, below in self._children.items())
                message = replace(self._base.message, content=content)
                self._base = replace(self._base, message=message, outputs=self._printed.freeze(), children=children)
                self._frozen = self._base
            return self._frozen

    def holds(self, reply_id: str) -> bool:
        """Whether this reply, or that of a sub-agent, has this id."""
        return self._base.message.id == reply_id or any(below.holds(reply_id) for below in self._children.values())

    def apply(self, event: ev.Event) -> None:
        """Fold one event. Events about unknown blocks are ignored: a damaged log must still be readable."""
        with self._lock:
            self._frozen = None
            if path := ev.agent_path(event):
                self._child(path[0], event)
            else:
                self._apply(event)

    def _child(self, call_id: str, event: ev.Event) -> None:
        """A sub-agent's event is its own, but for the tokens, which the parent has used as well."""
        self._children.setdefault(call_id, TranscriptBuilder()).apply(ev.inside(event))
        if isinstance(event, ev.ModelCallEndEvent):
            self._use(event)

    def _use(self, event: ev.ModelCallEndEvent) -> None:
        message = self._base.message
        self._base = replace(self._base, message=replace(message, usage=_added(message.usage or Usage(), event)))

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.TextBlockDeltaEvent(block_id=block_id, delta=delta):
                self._text("text", block_id, delta)
            case ev.ThinkingBlockDeltaEvent(block_id=block_id, delta=delta):
                self._text("thinking", block_id, delta)
            case ev.ToolCallDeltaEvent(tool_call_id=call_id, delta=delta):
                self._text("tool_call", call_id, delta)
            case ev.ToolResultTextDeltaEvent(tool_call_id=call_id, delta=delta):
                self._text("tool_result", call_id, delta)
            case ev.TextBlockStartEvent(block_id=block_id, created_at=at):
                self._open(TextBlock("", id=block_id, created_at=at))
            case ev.ThinkingBlockStartEvent(block_id=block_id, created_at=at):
                self._open(ThinkingBlock("", id=block_id, created_at=at))
            case ev.ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, created_at=at):
                self._open(ToolCallBlock(id=call_id, name=name, input="", created_at=at))
            case ev.ToolResultStartEvent(tool_call_id=call_id, tool_call_name=name, created_at=at):
                self._open(ToolResultBlock(id=call_id, name=name, created_at=at))
            case ev.TextBlockEndEvent(block_id=block_id, text=text, created_at=at):
                self._change("text", block_id, finished_at=at, **({} if text is None else {"text": text}))
            case ev.ThinkingBlockEndEvent(block_id=block_id, created_at=at):
                self._change("thinking", block_id, finished_at=at)
            case ev.ToolCallEndEvent(tool_call_id=call_id, created_at=at, metadata=metadata):
                cut = metadata.get("input")
                self._change("tool_call", call_id, finished_at=at, **({"input": cut} if isinstance(cut, str) else {}))
            case ev.ToolResultEndEvent(tool_call_id=call_id, state=state, created_at=at, metadata=metadata):
                self._change("tool_result", call_id, state=state, finished_at=at, metadata=metadata)
                self._change("tool_call", call_id, state="finished")
            case ev.DataBlockStartEvent() | ev.DataBlockDeltaEvent() | ev.DataBlockEndEvent() | ev.ToolResultDataDeltaEvent():
                self._data(event)
            case ev.HintBlockEvent(block_id=block_id, hint=hint, source=source, created_at=at):
                self._open(HintBlock(hint, source, id=block_id, created_at=at, finished_at=at))
            case ev.ReplyStartEvent() | ev.ReplyEndEvent() | ev.ModelCallStartEvent() | ev.ModelCallEndEvent():
                self._frame(event)
            case (
                ev.RequireUserConfirmEvent()
                | ev.RequireExternalExecutionEvent()
                | ev.UserConfirmResultEvent()
                | ev.ExternalExecutionResultEvent()
                | ev.UserInterruptEvent()
            ):
                self._pause(event)
            case ev.CustomEvent(name=ev.TOOL_OUTPUT, value=value):
                self._printed.add(value)
            case ev.CustomEvent(name=ev.NOTICE, value={"text": str(text)}):
                self._notice(text)
            case ev.CustomEvent(name=ev.LATE_RESULT, value={"name": str(name), "state": str(state), "text": str(text)}):
                self._notice(_late_notice(name, state, text))
            case ev.CustomEvent() | ev.ExceedMaxItersEvent():
                pass
            case _:
                assert_never(event)

    def _notice(self, text: str) -> None:
        self._base = replace(self._base, notices=(*self._base.notices, text))

    def _text(self, kind: str, block_id: str, delta: str) -> None:
        block = self._index.get((kind, block_id))
        if block is not None:
            block.pieces.write(delta)

    def _open(self, block: Block) -> None:
        entry = self._index.get(_key(block))
        if entry is not None:  # a second start (AgentScope emits one when a tool resumes): go on in the same block
            return
        entry = _OpenBlock(block)
        self._blocks.append(entry)
        self._index[_key(block)] = entry

    def _change(self, kind: str, block_id: str, **changes: object) -> None:
        entry = self._index.get((kind, block_id))
        if entry is not None:
            entry.block = replace(entry.freeze(), **cast("dict[str, Any]", changes))

    def _data(
        self, event: ev.DataBlockStartEvent | ev.DataBlockDeltaEvent | ev.DataBlockEndEvent | ev.ToolResultDataDeltaEvent
    ) -> None:
        match event:
            case ev.DataBlockStartEvent():
                source = Base64Source("", event.media_type)
                self._open(DataBlock(source, event.name, id=event.block_id, created_at=event.created_at))
            case ev.DataBlockDeltaEvent(url=str(url)):
                self._change("data", event.block_id, source=URLSource(url, event.media_type))
            case ev.DataBlockDeltaEvent():
                self._text("data", event.block_id, event.data or "")
            case ev.DataBlockEndEvent():
                self._change("data", event.block_id, finished_at=event.created_at)
            case ev.ToolResultDataDeltaEvent():
                entry = self._index.get(("tool_result", event.tool_call_id))
                source = URLSource(event.url, event.media_type) if event.url else Base64Source(event.data or "", event.media_type)
                if entry is not None:
                    entry.freeze()  # the text before this image stays before it
                    entry.data.append(
                        DataBlock(source, id=event.block_id, created_at=event.created_at, finished_at=event.created_at)
                    )
                    entry.freeze()

    def _frame(self, event: ev.ReplyStartEvent | ev.ReplyEndEvent | ev.ModelCallStartEvent | ev.ModelCallEndEvent) -> None:
        base, message = self._base, self._base.message
        match event:
            case ev.ReplyStartEvent():
                message = replace(message, id=event.reply_id, name=event.name, role=event.role, created_at=event.created_at)
            case ev.ReplyEndEvent():
                metadata = {**message.metadata, **event.metadata}
                if event.finished_reason == "interrupted":
                    metadata["_is_interrupted"] = True
                message = replace(
                    message,
                    id=event.reply_id,
                    finished_at=event.created_at,
                    finished_reason=event.finished_reason,
                    error=event.error,
                    metadata=metadata,
                )
            case ev.ModelCallStartEvent() if event.begins_step:
                base = replace(base, model=event.model_name, steps=base.steps + 1, calling=True)
            case ev.ModelCallStartEvent():
                base = replace(base, calling=True)
            case ev.ModelCallEndEvent():
                self._use(event)
                base, message = replace(base, calling=False), self._base.message
        self._base = replace(base, message=message)

    def _pause(
        self,
        event: ev.RequireUserConfirmEvent
        | ev.RequireExternalExecutionEvent
        | ev.UserConfirmResultEvent
        | ev.ExternalExecutionResultEvent
        | ev.UserInterruptEvent,
    ) -> None:
        match event:
            case ev.RequireUserConfirmEvent():
                for call in event.tool_calls:
                    self._change("tool_call", call.id, state="asking", suggested_rules=call.suggested_rules, **_limit(call))
            case ev.RequireExternalExecutionEvent():
                for call in event.tool_calls:
                    self._change("tool_call", call.id, state="submitted", **_limit(call))
            case ev.UserConfirmResultEvent():
                for result in event.confirm_results:
                    self._decide(result)
                theirs = tuple(r for r in event.confirm_results if ("tool_call", r.tool_call.id) not in self._index)
                for below in self._children.values() if theirs else ():
                    below.apply(replace(event, confirm_results=theirs))
            case ev.UserInterruptEvent():
                self._end_waiting(event)
            case ev.ExternalExecutionResultEvent():
                pass  # the results follow as TOOL_RESULT events

    def _decide(self, result: ev.ConfirmResult) -> None:
        """What runs is what was approved; what the model had asked for is kept beside it."""
        call_id, now = result.tool_call.id, result.tool_call.input
        entry = self._index.get(("tool_call", call_id))
        before = entry.freeze() if entry else None
        if isinstance(before, ToolCallBlock) and before.input != now and before.original_input is None:
            self._change("tool_call", call_id, original_input=before.input)
        self._change("tool_call", call_id, state="allowed" if result.confirmed else "finished", input=now)

    def _end_waiting(self, event: ev.UserInterruptEvent) -> None:
        """Nothing waits any more, also if the results that say so never come: in one sub-agent, or in the whole reply."""
        meant = [below for below in self._children.values() if below.holds(event.reply_id)]
        for below in meant or self._children.values():
            below.apply(event)
        for entry in self._blocks if not meant else ():
            if isinstance(entry.block, ToolCallBlock) and entry.block.state in ("asking", "submitted"):
                entry.block = replace(entry.freeze(), state="finished")


def fold(transcript: Transcript | None, *events: ev.Event) -> Transcript:
    """The transcript after these events. ``None`` starts an empty one."""
    builder = TranscriptBuilder(transcript)
    for event in events:
        builder.apply(event)
    return builder.freeze()


def _limit(call: ToolCallBlock) -> dict[str, object]:
    return {"answer_by": call.answer_by, "answer_within": call.answer_within}


def _key(block: Block) -> tuple[str, str]:
    return block.type, block.id


def _added(usage: Usage, end: ev.ModelCallEndEvent) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens + end.input_tokens,
        output_tokens=usage.output_tokens + end.output_tokens,
        cache_input_tokens=usage.cache_input_tokens + end.cache_input_tokens,
        cache_creation_input_tokens=usage.cache_creation_input_tokens + end.cache_creation_input_tokens,
        unknown_calls=usage.unknown_calls + (1 if end.metadata.get("usage") == "unknown" else 0),
    )


def _late_notice(name: str, state: str, text: str) -> str:
    ended = "has failed" if state == "error" else "has ended"
    return f"{name}, which was left behind, {ended} after all{': ' if text else ''}{text} (not part of the conversation)"


def _joined_output(result: ToolResultBlock, text: str, data: list[DataBlock]) -> str | tuple[TextBlock | DataBlock, ...]:
    """Plain text stays a string; with an image it becomes blocks, in the order in which they came."""
    output = result.output
    if isinstance(output, str) and not data:
        return output + text
    blocks: list[TextBlock | DataBlock] = list(output) if not isinstance(output, str) else []
    if isinstance(output, str) and output:
        blocks.append(TextBlock(output, id=f"{result.id}-0", created_at=result.created_at))
    last = blocks[-1] if blocks else None
    if text and isinstance(last, TextBlock):  # the same text, read in between
        blocks[-1] = replace(last, text=last.text + text)
    elif text:
        blocks.append(TextBlock(text, id=f"{result.id}-{len(blocks)}", created_at=result.created_at))
    return (*blocks, *data)
