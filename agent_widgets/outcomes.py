"""What a tool gives, as a model reads it. Values only: whatever a function yields, returns or raises becomes text and blocks.

One rule for all of it, yielded or returned: text is joined as it comes; a ``TextBlock`` stands on lines of its own, and so does
any other value, as JSON; images and files keep their place. What is huge is cut while it comes, and its size is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pydantic_core
from pydantic import JsonValue

from agent_widgets.errors import in_words
from agent_widgets.messages import Base64Source, DataBlock, JsonObject, TextBlock, ToolResultState

MAX_OUTPUT_CHARACTERS = 50_000
"""A longer result is cut, with its size said: it would fill the model's context."""

MAX_DATA_CHARACTERS = 20_000_000
"""Images and files beyond that (base64, together) are left out, and counted: they would choke the page."""

RAISED_BY_TOOLS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""Whatever a tool raises is a result that the model reads: exit() would end the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """How an execution ended: the state, what the model reads, and what only the person sees.

    Of a tool that streams, ``content`` holds what comes after the pieces.
    """

    state: ToolResultState
    content: tuple[TextBlock | DataBlock, ...]
    metadata: JsonObject = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


class Pieces:
    """Takes what a tool gives, piece by piece, and tells it as blocks. Holds none of it, so it may be endless."""

    def __init__(self, tell: Callable[[TextBlock | DataBlock], None]) -> None:
        self._tell = tell
        self._characters = self._data_characters = self._left_out = 0
        self._on_a_line = self._after_block = False
        self._is_empty, self._is_closed = True, False

    def add(self, piece: object) -> None:
        """One more: text, a block, or any value; ``None`` is nothing."""
        match piece:
            case None | "":
                pass
            case str():
                self._add_text(f"\n{piece}" if self._after_block else piece)
                self._after_block = False
            case DataBlock(source=source):
                self._add_data(piece, len(source.data if isinstance(source, Base64Source) else source.url))
            case _:
                text = piece.text if isinstance(piece, TextBlock) else text_of(piece)
                self._add_text(f"\n{text}" if self._on_a_line else text)
                self._after_block = self._on_a_line

    def close(self) -> None:
        """Say once what was cut. Nothing is told any more."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._characters > MAX_OUTPUT_CHARACTERS:
            cut = f"[cut: {MAX_OUTPUT_CHARACTERS:,} of {self._characters:,} characters are shown]"
            self._tell(TextBlock(f"\n{cut}"))
        if self._left_out:
            self._tell(TextBlock(f"\n[left out: {self._left_out:,} images or files, which were too large]"))

    def outcome(self, last: object = None) -> ToolOutcome:
        """Of a tool that has yielded all of it; what it returned is the last piece."""
        if self._is_empty:
            return succeeded(last)
        self.add(last)
        self.close()
        return ToolOutcome(state="success", content=())

    def _add_text(self, text: str) -> None:
        self._is_empty = self._is_empty and not text
        shown = text[: max(0, MAX_OUTPUT_CHARACTERS - self._characters)]
        self._characters += len(text)
        self._on_a_line = not text.endswith("\n")
        if shown:
            self._tell(TextBlock(sendable(shown)))

    def _add_data(self, block: DataBlock, characters: int) -> None:
        self._is_empty = self._on_a_line = self._after_block = False
        if self._data_characters + characters > MAX_DATA_CHARACTERS:
            self._left_out += 1
            return
        self._data_characters += characters
        self._tell(block)


def succeeded(result: object) -> ToolOutcome:
    """A result as a model reads it; a list of blocks as its blocks."""
    items: list[object] = list(cast("Sequence[object]", result)) if isinstance(result, list | tuple) else [result]
    has_blocks = items and all(isinstance(item, TextBlock | DataBlock) for item in items)
    content: list[TextBlock | DataBlock] = []
    pieces = Pieces(content.append)
    for piece in items if has_blocks else [text_of(cast("object", result))]:
        pieces.add(piece)
    pieces.close()
    return ToolOutcome(state="success", content=tuple(content))


def failed(message: str, **metadata: JsonValue) -> ToolOutcome:
    """A failure as a model reads it; ``metadata`` is for the person."""
    return ToolOutcome(state="error", content=succeeded(message).content, metadata=dict(metadata))


def failed_with(error: BaseException, tool_name: str) -> ToolOutcome:
    """What a tool raised: the model reads the message, the person the traceback."""
    if isinstance(error, asyncio.CancelledError):
        return failed(f"{tool_name} was cancelled from inside.")
    return failed(in_words(error), traceback=sendable("".join(traceback.format_exception(error))))


def text_of(result: object) -> str:
    """A result as text."""
    if result is None:
        return "(done, no output)"
    if isinstance(result, str):
        return result
    with contextlib.suppress(pydantic_core.PydanticSerializationError, ValueError):
        return pydantic_core.to_json(result).decode()
    return str(result)


def sendable(text: str) -> str:
    """The same text, with an escape for each lone surrogate: no JSON and no socket could carry it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
