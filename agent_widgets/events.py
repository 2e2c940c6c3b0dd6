"""What happened: the event vocabulary of AgentScope 2.0.11, with its names, ``type`` values and fields.

Order within one reply::

    REPLY_START
      MODEL_CALL_START
        THINKING_BLOCK_START, THINKING_BLOCK_DELTA*, THINKING_BLOCK_END
        TEXT_BLOCK_START, TEXT_BLOCK_DELTA*, TEXT_BLOCK_END
        TOOL_CALL_START, TOOL_CALL_DELTA*, TOOL_CALL_END            (several calls may interleave)
      MODEL_CALL_END
      TOOL_RESULT_START, TOOL_RESULT_TEXT_DELTA*, TOOL_RESULT_END   (parallel calls interleave)
      MODEL_CALL_START ...
    REPLY_END

A reply that pauses ends with ``REQUIRE_USER_CONFIRM`` or ``REQUIRE_EXTERNAL_EXECUTION`` and without ``REPLY_END``; when
it goes on, there is no second ``REPLY_START``. What this package adds stands in ``metadata``,
and is named in the class that carries it.

A sub-agent's events stand in its parent's log, between the start and the end of the result of the call that it works for.
Each carries ``metadata={"agent_path": [...]}``: the ids of the calls that lead to it, outermost first; for the rest they are
a reply's as above, with an id of its own. An answer to a pause names its calls by id and carries no path.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from agent_widgets.messages import (
    DataBlock,
    ErrorInfo,
    FinishedReason,
    JsonObject,
    PermissionRule,
    Role,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    new_id,
    no_metadata,
    timestamp,
)

TOOL_OUTPUT = "tool_output"
"""``CustomEvent.name`` of what a tool printed or displayed: shown on its card, never sent to the model.
``value`` is ``{"call_id": str, "name": "stdout"|"stderr", "text": str}`` (a carriage return in it begins its line anew),
``{"call_id": str, "name": "display", "data": {mime: str}}``, which may have ``"metadata": {…}``, ``"display_id": str`` and
``"update": true`` (in place of what was displayed under this id), ``{"call_id": str, "name": "clear"}`` (nothing of the call's
output is shown any more), or ``{"call_id": str, "name": "waits", "text": str}``: what the call waits for, ``""`` when it goes
on."""

NOTICE = "notice"
"""``CustomEvent.name`` of a sentence for the person who watches: ``value`` is ``{"text": str}``."""

SUMMARY = "summary"
"""``CustomEvent.name`` of a summary that a model reads from now on in place of the oldest messages, which the history keeps:
``value`` is ``{"text": str, "messages": int, "blocks": int}``, see ``agent_widgets.state.Summary``."""

LATE_RESULT = "late_result"
"""``CustomEvent.name`` of what a tool gave after it was left behind: shown on the card, never sent to the model.
``value`` is ``{"call_id": str, "name": str, "state": "success"|"error"|"interrupted", "text": str}``; the call may be one of an
earlier reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBase:
    """Every event has an id, the time it was made (ISO 8601, UTC) and room for what is not in the vocabulary."""

    id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=timestamp)
    metadata: JsonObject = field(default_factory=no_metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStartEvent(EventBase):
    """A reply began."""

    type: Literal["REPLY_START"] = "REPLY_START"
    session_id: str
    reply_id: str
    name: str
    role: Role = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEndEvent(EventBase):
    """A reply ended; the last event of its log.

    When it was stopped, ``metadata`` holds ``source`` (user, code, kernel, deadline, budget), ``when`` (now, step),
    ``reason`` (str) and ``stop_ms`` (milliseconds from the request to here).
    """

    type: Literal["REPLY_END"] = "REPLY_END"
    session_id: str
    reply_id: str
    finished_reason: FinishedReason = "completed"
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStartEvent(EventBase):
    """A model was asked, which begins a step; ``metadata={"purpose": …}`` says that this call begins none.

    "compression": it summarises older messages. "again": the step's call once more, because the first was refused as too long.
    """

    type: Literal["MODEL_CALL_START"] = "MODEL_CALL_START"
    reply_id: str
    model_name: str

    @property
    def begins_step(self) -> bool:
        """Whether this is a step's own call, and its first."""
        return "purpose" not in self.metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEndEvent(EventBase):
    """A model's answer ended. ``metadata={"usage": "unknown"}`` when the provider reported no tokens."""

    type: Literal["MODEL_CALL_END"] = "MODEL_CALL_END"
    reply_id: str
    input_tokens: int
    output_tokens: int
    cache_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    finished_reason: Literal["completed", "interrupted"] = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlockStartEvent(EventBase):
    """A text block began."""

    type: Literal["TEXT_BLOCK_START"] = "TEXT_BLOCK_START"
    reply_id: str
    block_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlockDeltaEvent(EventBase):
    """More of a text block."""

    type: Literal["TEXT_BLOCK_DELTA"] = "TEXT_BLOCK_DELTA"
    reply_id: str
    block_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlockEndEvent(EventBase):
    """A text block ended. ``text`` is set only when the final text is not the sum of the deltas."""

    type: Literal["TEXT_BLOCK_END"] = "TEXT_BLOCK_END"
    reply_id: str
    block_id: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlockStartEvent(EventBase):
    """A thinking block began."""

    type: Literal["THINKING_BLOCK_START"] = "THINKING_BLOCK_START"
    reply_id: str
    block_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlockDeltaEvent(EventBase):
    """More of a thinking block."""

    type: Literal["THINKING_BLOCK_DELTA"] = "THINKING_BLOCK_DELTA"
    reply_id: str
    block_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlockEndEvent(EventBase):
    """A thinking block ended."""

    type: Literal["THINKING_BLOCK_END"] = "THINKING_BLOCK_END"
    reply_id: str
    block_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataBlockStartEvent(EventBase):
    """An image, sound or file began."""

    type: Literal["DATA_BLOCK_START"] = "DATA_BLOCK_START"
    reply_id: str
    block_id: str
    media_type: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataBlockDeltaEvent(EventBase):
    """More of a data block: base64 text in ``data``, or an address in ``url``."""

    type: Literal["DATA_BLOCK_DELTA"] = "DATA_BLOCK_DELTA"
    reply_id: str
    block_id: str
    media_type: str
    data: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataBlockEndEvent(EventBase):
    """A data block ended."""

    type: Literal["DATA_BLOCK_END"] = "DATA_BLOCK_END"
    reply_id: str
    block_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HintBlockEvent(EventBase):
    """A hint was put before the model."""

    type: Literal["HINT_BLOCK"] = "HINT_BLOCK"
    reply_id: str
    block_id: str
    source: str | None = None
    hint: str | tuple[TextBlock | DataBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStartEvent(EventBase):
    """A model began to ask for a tool."""

    type: Literal["TOOL_CALL_START"] = "TOOL_CALL_START"
    reply_id: str
    tool_call_id: str
    tool_call_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDeltaEvent(EventBase):
    """More of a call's arguments: a fragment of JSON."""

    type: Literal["TOOL_CALL_DELTA"] = "TOOL_CALL_DELTA"
    reply_id: str
    tool_call_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEndEvent(EventBase):
    """A call's arguments ended. ``metadata={"input": str}`` replaces arguments that were cut in the middle."""

    type: Literal["TOOL_CALL_END"] = "TOOL_CALL_END"
    reply_id: str
    tool_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultStartEvent(EventBase):
    """A tool began to run."""

    type: Literal["TOOL_RESULT_START"] = "TOOL_RESULT_START"
    reply_id: str
    tool_call_id: str
    tool_call_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultTextDeltaEvent(EventBase):
    """More text of a tool's result."""

    type: Literal["TOOL_RESULT_TEXT_DELTA"] = "TOOL_RESULT_TEXT_DELTA"
    reply_id: str
    tool_call_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultDataDeltaEvent(EventBase):
    """An image, sound or file in a tool's result: base64 text in ``data``, or an address in ``url``."""

    type: Literal["TOOL_RESULT_DATA_DELTA"] = "TOOL_RESULT_DATA_DELTA"
    reply_id: str
    tool_call_id: str
    block_id: str = field(default_factory=new_id)
    media_type: str
    data: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultEndEvent(EventBase):
    """A tool's result ended.

    ``metadata`` may hold ``reason`` (a person's words on a denied call, or the rule that denied it), ``still_running`` (a
    tool that could not be ended) and ``traceback`` (for the person; the model sees the message only).
    """

    type: Literal["TOOL_RESULT_END"] = "TOOL_RESULT_END"
    reply_id: str
    tool_call_id: str
    state: ToolResultState


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireUserConfirmEvent(EventBase):
    """The reply waits for a person's decision about these calls."""

    type: Literal["REQUIRE_USER_CONFIRM"] = "REQUIRE_USER_CONFIRM"
    reply_id: str
    tool_calls: tuple[ToolCallBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireExternalExecutionEvent(EventBase):
    """The reply waits for results of these calls from outside."""

    type: Literal["REQUIRE_EXTERNAL_EXECUTION"] = "REQUIRE_EXTERNAL_EXECUTION"
    reply_id: str
    tool_calls: tuple[ToolCallBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmResult:
    """One decision. ``reason`` is ours (AgentScope's reader ignores it): the model gets it word for word."""

    confirmed: bool
    tool_call: ToolCallBlock
    rules: tuple[PermissionRule, ...] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfirmResultEvent(EventBase):
    """A person decided about waiting calls. An input, and logged where it took effect."""

    type: Literal["USER_CONFIRM_RESULT"] = "USER_CONFIRM_RESULT"
    reply_id: str
    confirm_results: tuple[ConfirmResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInterruptEvent(EventBase):
    """A person ends a paused reply. An input; a no-op for a reply that does not wait."""

    type: Literal["USER_INTERRUPT"] = "USER_INTERRUPT"
    reply_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalExecutionResultEvent(EventBase):
    """Results from outside for waiting calls. An input, and logged where it took effect."""

    type: Literal["EXTERNAL_EXECUTION_RESULT"] = "EXTERNAL_EXECUTION_RESULT"
    reply_id: str
    execution_results: tuple[ToolResultBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceedMaxItersEvent(EventBase):
    """AgentScope still emits this beside ``REPLY_END(exceed_max_iters)``; read, never written."""

    type: Literal["EXCEED_MAX_ITERS"] = "EXCEED_MAX_ITERS"
    reply_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomEvent(EventBase):
    """Anything else. Cards show ``TOOL_OUTPUT``, ``NOTICE`` and ``LATE_RESULT``; other names are kept and ignored."""

    type: Literal["CUSTOM"] = "CUSTOM"
    name: str
    value: JsonObject = field(default_factory=no_metadata)


Event = (
    ReplyStartEvent
    | ReplyEndEvent
    | ModelCallStartEvent
    | ModelCallEndEvent
    | TextBlockStartEvent
    | TextBlockDeltaEvent
    | TextBlockEndEvent
    | ThinkingBlockStartEvent
    | ThinkingBlockDeltaEvent
    | ThinkingBlockEndEvent
    | DataBlockStartEvent
    | DataBlockDeltaEvent
    | DataBlockEndEvent
    | HintBlockEvent
    | ToolCallStartEvent
    | ToolCallDeltaEvent
    | ToolCallEndEvent
    | ToolResultStartEvent
    | ToolResultTextDeltaEvent
    | ToolResultDataDeltaEvent
    | ToolResultEndEvent
    | RequireUserConfirmEvent
    | RequireExternalExecutionEvent
    | UserConfirmResultEvent
    | UserInterruptEvent
    | ExternalExecutionResultEvent
    | ExceedMaxItersEvent
    | CustomEvent
)

EVENT_CLASSES: tuple[type[Event], ...] = get_args(Event)

TextDelta = TextBlockDeltaEvent | ThinkingBlockDeltaEvent | ToolCallDeltaEvent | ToolResultTextDeltaEvent
"""The events that carry streamed text: joining two of one block loses nothing."""


def block_key(event: TextDelta | ToolResultDataDeltaEvent) -> tuple[str, ...]:
    """Which block a delta belongs to: two with the same key may be joined. An image among a result's text has the text's."""
    match event:
        case TextBlockDeltaEvent() | ThinkingBlockDeltaEvent():
            return event.type, event.block_id, *agent_path(event)
        case ToolCallDeltaEvent():
            return event.type, event.tool_call_id, *agent_path(event)
        case ToolResultTextDeltaEvent() | ToolResultDataDeltaEvent():
            return "TOOL_RESULT_TEXT_DELTA", event.tool_call_id, *agent_path(event)


AGENT_PATH = "agent_path"
"""The key of ``metadata`` that says which sub-agent an event is of."""


def agent_path(event: Event) -> tuple[str, ...]:
    """The ids of the calls that lead to the agent that said this, outermost first; ``()`` for the run's own."""
    path = event.metadata.get(AGENT_PATH)
    return tuple(cast("list[str]", path)) if isinstance(path, list) and all(isinstance(part, str) for part in path) else ()


def under(call_id: str, event: Event) -> Event:
    """What a sub-agent said, as the agent that called it with ``call_id`` tells it."""
    return replace(event, metadata={**event.metadata, AGENT_PATH: [call_id, *agent_path(event)]})


def inside(event: Event) -> Event:
    """The other way: an event with a path, as the sub-agent of the path's first call said it."""
    rest = {key: value for key, value in event.metadata.items() if key != AGENT_PATH}
    path = agent_path(event)[1:]
    return replace(event, metadata={**rest, AGENT_PATH: [*path]} if path else rest)
