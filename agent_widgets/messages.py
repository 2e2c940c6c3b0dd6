"""Messages and the blocks they are made of: frozen values, spelled as in AgentScope 2.

One reply of an agent is one assistant ``Msg``, whose ``id`` is the reply's id and whose content holds the whole
sequence ``thinking, text, tool_call, tool_result, text``.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, cast

from pydantic import JsonValue

from agent_widgets.errors import AgentWidgetsError, InputError, MissingPackageError, ModelError, ModelSetupError, in_words

JsonObject = dict[str, JsonValue]
Role = Literal["user", "assistant", "system"]
ToolCallState = Literal["pending", "asking", "allowed", "submitted", "finished"]
ToolResultState = Literal["success", "error", "interrupted", "denied", "running"]
FinishedReason = Literal["completed", "interrupted", "exceed_max_iters", "error"]
PermissionBehavior = Literal["allow", "deny", "ask", "passthrough"]


def new_id() -> str:
    """A fresh id: 32 hexadecimal characters."""
    return os.urandom(16).hex()  # four times as fast as uuid4, and every streamed token has one


def timestamp() -> str:
    """The time now as ISO 8601 in UTC, with microseconds."""
    return datetime.now(UTC).isoformat()


def no_metadata() -> JsonObject:
    """The default of every ``metadata`` field: an empty dict of its own."""
    return {}


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """What to do about calls of a tool: "allow", "ask" or "deny" them.

    ``rule_content`` narrows it to some calls: a glob on ``argument=value``, such as ``"table=staging_*"``; ``None`` means all.
    ``agent_widgets.permissions`` says exactly what matches. "passthrough" is AgentScope's and decides nothing here.
    """

    tool_name: str
    rule_content: str | None = None
    behavior: PermissionBehavior = "allow"
    source: str = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why a reply ended with ``error``: what kind of fault it was, and a sentence for the person.

    ``type`` is one of AgentScope's categories: authentication, permission, rate_limit, invalid_request, upstream,
    connection, setup, internal, unknown.
    """

    type: str = "unknown"
    message: str

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        """How an exception is told; see ``in_words``."""
        return cls(type=_error_type(error), message=in_words(error))


_BY_STATUS = {400: "invalid_request", 401: "authentication", 403: "permission", 422: "invalid_request", 429: "rate_limit"}
_SERVER_FAULTS = 500


def _error_type(error: BaseException) -> str:
    status = getattr(error.__cause__, "status_code", None)
    if isinstance(status, int):
        return _BY_STATUS.get(status, "upstream" if status >= _SERVER_FAULTS else "unknown")
    match error:
        case ModelSetupError() | MissingPackageError():
            return "setup"
        case ModelError():
            return "connection"
        case AgentWidgetsError():
            return "unknown"
        case _:
            return "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a reply, as the provider reported them. ``unknown_calls`` counts model calls without a report."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    unknown_calls: int = 0


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text, in Markdown when a model wrote it."""

    text: str
    id: str = field(default_factory=new_id)
    type: Literal["text"] = "text"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingBlock:
    """What a model thought before it answered. Never sent back to a model."""

    thinking: str
    id: str = field(default_factory=new_id)
    type: Literal["thinking"] = "thinking"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None


@dataclass(frozen=True, slots=True)
class Base64Source:
    """Bytes, base64-encoded."""

    data: str
    media_type: str
    type: Literal["base64"] = "base64"


@dataclass(frozen=True, slots=True)
class URLSource:
    """Bytes that live at an address."""

    url: str
    media_type: str
    type: Literal["url"] = "url"


@dataclass(frozen=True, slots=True)
class DataBlock:
    """An image, a sound or a file."""

    source: Base64Source | URLSource
    name: str | None = None
    id: str = field(default_factory=new_id)
    type: Literal["data"] = "data"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None


@dataclass(frozen=True, slots=True)
class HintBlock:
    """A hint for the model, put in while it works; sent to it as a user message."""

    hint: str | tuple[TextBlock | DataBlock, ...]
    source: str | None = None
    id: str = field(default_factory=new_id)
    type: Literal["hint"] = "hint"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBlock:
    """A call that a model asked for. ``input`` is raw JSON text, as it was streamed or as a person edited it.

    Ours, and ignored by AgentScope's reader: ``original_input`` is what the model had asked for, if a person changed it.
    ``answer_by`` is when a call that waits is given up (ISO 8601, UTC), ``answer_within`` after how many seconds that is.
    """

    id: str
    name: str
    input: str = "{}"
    state: ToolCallState = "pending"
    suggested_rules: tuple[PermissionRule, ...] = ()
    type: Literal["tool_call"] = "tool_call"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None
    original_input: str | None = None
    answer_by: str | None = None
    answer_within: float | None = None

    def __post_init__(self) -> None:
        """Check what is calculated with.

        Raises:
            InputError: ``answer_by`` is not a moment with its zone.
        """
        if self.answer_by is not None and not _is_moment(self.answer_by):
            raise InputError(f"answer_by is {self.answer_by!r:.60}; it must be a time as 2026-01-31T09:30:00+00:00.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """What a call gave. ``id`` is the call's id. A denied result holds the person's reason in its metadata."""

    id: str
    name: str
    output: str | tuple[TextBlock | DataBlock, ...] = ""
    state: ToolResultState = "running"
    metadata: JsonObject = field(default_factory=no_metadata)
    type: Literal["tool_result"] = "tool_result"
    created_at: str = field(default_factory=timestamp)
    finished_at: str | None = None

    def text(self) -> str:
        """The text of the output, without its images and files."""
        if isinstance(self.output, str):
            return self.output
        return "\n".join(block.text for block in self.output if isinstance(block, TextBlock))


Block = TextBlock | ThinkingBlock | HintBlock | ToolCallBlock | ToolResultBlock | DataBlock


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Msg:
    """One message: who says what. ``Msg("user", "Hello", "user")``.

    ``finished_reason`` is set on the message of a reply that ended. An interrupted one carries
    ``metadata={"_is_interrupted": True}`` and keeps the text that had been streamed.
    """

    name: str
    content: tuple[Block, ...]
    role: Role
    id: str = field(default_factory=new_id)
    metadata: JsonObject = field(default_factory=no_metadata)
    created_at: str = field(default_factory=timestamp)
    usage: Usage | None = None
    finished_at: str | None = None
    finished_reason: FinishedReason | None = None
    error: ErrorInfo | None = None

    def __init__(
        self,
        name: str,
        content: str | Sequence[Block],
        role: Role,
        *,
        id: str | None = None,  # noqa: A002 - the field's name on the wire
        metadata: JsonObject | None = None,
        created_at: str | None = None,
        usage: Usage | None = None,
        finished_at: str | None = None,
        finished_reason: FinishedReason | None = None,
        error: ErrorInfo | None = None,
    ) -> None:
        if role not in ("user", "assistant", "system"):
            raise InputError(f"Msg: role is {role!r}; it must be 'user', 'assistant' or 'system'.")
        blocks = (TextBlock(content),) if isinstance(content, str) else tuple(content)
        put = object.__setattr__
        put(self, "name", name)
        put(self, "content", blocks)
        put(self, "role", role)
        put(self, "id", id or new_id())
        put(self, "metadata", {} if metadata is None else metadata)
        put(self, "created_at", created_at or timestamp())
        put(self, "usage", usage)
        put(self, "finished_at", finished_at)
        put(self, "finished_reason", finished_reason)
        put(self, "error", error)

    @property
    def text(self) -> str:
        """All text of the message; ``""`` if there is none."""
        return self.get_text_content() or ""

    def __repr__(self) -> str:
        text = self.text
        reason = f" ({self.finished_reason})" if self.finished_reason else ""
        return f"<Msg {self.name}{reason}: {textwrap.shorten(text, 80, placeholder='…')}>"

    def get_text_content(self, separator: str = "\n") -> str | None:
        """All text blocks joined with ``separator``, or ``None`` if there is none."""
        texts = [block.text for block in self.content if isinstance(block, TextBlock)]
        return separator.join(texts) if texts else None

    def get_content_blocks(self, block_type: str | None = None) -> list[Block]:
        """The blocks whose ``type`` is ``block_type``; all blocks if it is ``None``."""
        return [block for block in self.content if block_type is None or block.type == block_type]


def UserMsg(name: str, content: str | Sequence[TextBlock | DataBlock]) -> Msg:  # noqa: N802 - AgentScope's name
    """A message of a person."""
    return Msg(name, content if isinstance(content, str) else cast("Sequence[Block]", content), "user")


def AssistantMsg(name: str, content: str | Sequence[Block]) -> Msg:  # noqa: N802 - AgentScope's name
    """A message of an agent."""
    return Msg(name, content, "assistant")


def SystemMsg(name: str, content: str | Sequence[TextBlock]) -> Msg:  # noqa: N802 - AgentScope's name
    """Instructions."""
    return Msg(name, content if isinstance(content, str) else cast("Sequence[Block]", content), "system")


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
