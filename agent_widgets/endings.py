"""The events that end what is open: a reply that was stopped, broke, or lost its kernel is closed like one that ended by itself.

Pure. The history they leave is valid: every call has a result, and the reply an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from agent_widgets import events as ev
from agent_widgets.messages import (
    Block,
    DataBlock,
    ErrorInfo,
    FinishedReason,
    HintBlock,
    JsonObject,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from agent_widgets.state import INTERRUPTED_TEXT, valid_arguments
from agent_widgets.transcript import Transcript


def closing(
    transcript: Transcript,
    *,
    session_id: str,
    finished_reason: FinishedReason,
    error: ErrorInfo | None = None,
    metadata: JsonObject | None = None,
    interrupted_text: str = INTERRUPTED_TEXT,
) -> Iterable[ev.Event]:
    """The events that end everything that is open in ``transcript``, and then the reply. None if it has ended.

    A call whose arguments were cut gets the part that can be read, as a JSON object; every call without a result gets one
    in state ``interrupted``, with what its sub-agent had said.
    """
    message = transcript.message
    if message.finished_reason:
        return
    reply_id = message.id
    answered = {b.id for b in message.content if isinstance(b, ToolResultBlock) and b.state != "running"}
    started = {b.id: b.text() or "\n" for b in message.content if isinstance(b, ToolResultBlock)}
    for block in message.content:
        if block.finished_at is None:
            yield from _end_of(block, reply_id)
    if transcript.calling:
        yield ev.ModelCallEndEvent(
            reply_id=reply_id, input_tokens=0, output_tokens=0, finished_reason="interrupted", metadata={"usage": "unknown"}
        )
    for call in message.content:
        if isinstance(call, ToolCallBlock) and call.id not in answered:
            if call.id not in started:
                yield ev.ToolResultStartEvent(reply_id=reply_id, tool_call_id=call.id, tool_call_name=call.name)
            said = [*cutting(transcript, call.id, session_id=session_id, metadata=metadata)]
            yield from said
            on_a_line = bool(said) or started.get(call.id, "\n").endswith("\n")
            delta = interrupted_text if on_a_line else f"\n{interrupted_text}"
            yield ev.ToolResultTextDeltaEvent(reply_id=reply_id, tool_call_id=call.id, delta=delta)
            yield ev.ToolResultEndEvent(reply_id=reply_id, tool_call_id=call.id, state="interrupted")
    yield ev.ReplyEndEvent(
        session_id=session_id, reply_id=reply_id, finished_reason=finished_reason, error=error, metadata=metadata or {}
    )


def cutting(transcript: Transcript, call_id: str, *, session_id: str, metadata: JsonObject | None = None) -> Iterable[ev.Event]:
    """The events that end the sub-agent of a call, and give what it had said as text of the call's result: seen is kept.

    None if the call has no sub-agent; only the text if the sub-agent has ended.
    """
    for child in transcript.children:
        if child.call_id == call_id:
            ends = closing(child.transcript, session_id=session_id, finished_reason="interrupted", metadata=metadata)
            yield from (ev.under(call_id, event) for event in ends)
            if text := child.transcript.message.text:
                reply_id = transcript.message.id
                yield ev.ToolResultTextDeltaEvent(reply_id=reply_id, tool_call_id=call_id, delta=f"{text}\n")


def _end_of(block: Block, reply_id: str) -> Iterable[ev.Event]:
    match block:
        case TextBlock():
            yield ev.TextBlockEndEvent(reply_id=reply_id, block_id=block.id)
        case ThinkingBlock():
            yield ev.ThinkingBlockEndEvent(reply_id=reply_id, block_id=block.id)
        case DataBlock():
            yield ev.DataBlockEndEvent(reply_id=reply_id, block_id=block.id)
        case ToolCallBlock():
            whole = valid_arguments(block.input)
            metadata: JsonObject = {} if whole == block.input else {"input": whole}
            yield ev.ToolCallEndEvent(reply_id=reply_id, tool_call_id=block.id, metadata=metadata)
        case ToolResultBlock() | HintBlock():
            pass  # results are closed after their calls; hints have no end
        case _:
            assert_never(block)
