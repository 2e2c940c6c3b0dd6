"""One result of a tool as events: what was given, what was refused, what was cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from agent_widgets import events as ev
from agent_widgets.execution import STILL_RUNNING_TEXT
from agent_widgets.messages import Base64Source, DataBlock, JsonObject, TextBlock, ToolCallBlock, ToolResultState
from agent_widgets.outcomes import ToolOutcome
from agent_widgets.state import INTERRUPTED_TEXT

DENIED_TEXT = '<system-reminder>The execution of tool "{name}" is denied by user!</system-reminder>'
"""What the model reads for a denied call: AgentScope 2's text. A reason follows, word for word."""

LATE_CHARACTERS = 500
"""A longer late result is cut: it is a notice."""

DENIED_BY_RULE_TEXT = "Permission to use {name} has been denied"
"""What the model reads for a call that a rule denies: AgentScope 2's text."""


def started(reply_id: str, call: ToolCallBlock) -> ev.ToolResultStartEvent:
    """The first event of a result."""
    return ev.ToolResultStartEvent(reply_id=reply_id, tool_call_id=call.id, tool_call_name=call.name)


def given(
    reply_id: str, call_id: str, state: ToolResultState, content: Sequence[TextBlock | DataBlock], metadata: JsonObject
) -> Iterable[ev.Event]:
    """What a result holds, then its end."""
    for block in content:
        yield piece(reply_id, call_id, block)
    yield ev.ToolResultEndEvent(reply_id=reply_id, tool_call_id=call_id, state=state, metadata=metadata)


def denied(reply_id: str, call: ToolCallBlock, reason: str) -> Iterable[ev.Event]:
    """A whole result: a person refused the call."""
    text = DENIED_TEXT.format(name=call.name) + (f"\nReason: {reason}" if reason else "")
    yield started(reply_id, call)
    yield from given(reply_id, call.id, "denied", (TextBlock(text),), {"reason": reason} if reason else {})


def denied_by_rule(reply_id: str, call: ToolCallBlock, rule: str) -> Iterable[ev.Event]:
    """A whole result: a rule refused the call. ``rule`` tells the person which."""
    yield started(reply_id, call)
    yield from given(reply_id, call.id, "denied", (TextBlock(DENIED_BY_RULE_TEXT.format(name=call.name)),), {"reason": rule})


def interrupted(*, still_running: bool, why: JsonObject | None = None) -> ToolOutcome:
    """What is known of a tool that was cut. ``why`` are the facts of the stop, if this call alone was stopped."""
    text = interruption(why or {}) + (f"\n{STILL_RUNNING_TEXT}" if still_running else "")
    metadata: JsonObject = {**(why or {}), **({"still_running": True} if still_running else {})}
    return ToolOutcome(state="interrupted", content=(TextBlock(text),), metadata=metadata)


def interruption(why: JsonObject) -> str:
    """What the model reads where a call was stopped. A reason follows, word for word."""
    reason = why.get("reason")
    return f"{INTERRUPTED_TEXT}\nReason: {reason}" if reason else INTERRUPTED_TEXT


def late(call: ToolCallBlock, outcome: ToolOutcome) -> ev.CustomEvent:
    """What a tool gave after its result had ended without it. For the person: the model never reads it."""
    text = textwrap.shorten(outcome.text, LATE_CHARACTERS, placeholder=" …")
    return ev.CustomEvent(
        name=ev.LATE_RESULT, value={"call_id": call.id, "name": call.name, "state": outcome.state, "text": text}
    )


def piece(reply_id: str, call_id: str, block: TextBlock | DataBlock) -> ev.Event:
    """A part of a result, or all of it."""
    if isinstance(block, TextBlock):
        return ev.ToolResultTextDeltaEvent(reply_id=reply_id, tool_call_id=call_id, delta=block.text)
    source = block.source
    data, url = (source.data, None) if isinstance(source, Base64Source) else (None, source.url)
    return ev.ToolResultDataDeltaEvent(
        reply_id=reply_id, tool_call_id=call_id, block_id=block.id, media_type=source.media_type, data=data, url=url
    )
