"""How an execution of a tool ended, as a model reads it. Pure values: whatever a tool gives becomes text and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pydantic_core
from pydantic import JsonValue

from agent_widgets.messages import DataBlock, JsonObject, TextBlock, ToolResultState

MAX_OUTPUT_CHARACTERS = 50_000
"""A longer result is cut, with its size said: it would fill the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """How an execution ended: the state, what the model reads, and what only the person sees."""

    state: ToolResultState
    content: tuple[TextBlock | DataBlock, ...]
    metadata: JsonObject = field(default_factory=dict[str, Any])


def succeeded(result: object) -> ToolOutcome:
    """A result as a model reads it: text as it is, blocks as they are, everything else as JSON; cut when it is huge."""
    items: list[object] = list(cast("Sequence[object]", result)) if isinstance(result, list | tuple) else [result]
    blocks = [item for item in items if isinstance(item, TextBlock | DataBlock)]
    if items and len(blocks) == len(items):
        return ToolOutcome(
            state="success", content=tuple(replace(b, text=_cut(b.text)) if isinstance(b, TextBlock) else b for b in blocks)
        )
    return ToolOutcome(state="success", content=(TextBlock(_cut(text_of(cast("object", result)))),))


def failed(message: str, **metadata: JsonValue) -> ToolOutcome:
    """A failure as a model reads it; ``metadata`` is for the person."""
    return ToolOutcome(state="error", content=(TextBlock(_cut(message)),), metadata=dict(metadata))


def text_of(result: object) -> str:
    """A result as text."""
    if result is None:
        return "(done, no output)"
    if isinstance(result, str):
        return result
    try:
        return pydantic_core.to_json(result).decode()
    except (pydantic_core.PydanticSerializationError, UnicodeDecodeError, ValueError):
        return str(result)


def _cut(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARACTERS:
        return text
    return f"{text[:MAX_OUTPUT_CHARACTERS]}\n[cut: {MAX_OUTPUT_CHARACTERS:,} of {len(text):,} characters are shown]"
