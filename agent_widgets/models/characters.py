"""Whole characters: halves of UTF-16, which JSON can hold and UTF-8 cannot, are joined or replaced. Pure.

Servers written in JavaScript or Java cut their text between two halves, and file names hold them too. One that is kept
cannot be printed, and a request that holds it cannot be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport

_FIRST_HALVES = ("\ud800", "\udbff")
_UNKNOWN = "\ufffd"


def whole(text: str) -> str:
    """The text with its halves joined where two belong together, and replaced by U+FFFD where one stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def whole_json(value: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {key: whole_json(part) for key, part in cast("dict[str, Any]", value).items()}
    return [whole_json(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


class Joiner:
    """Makes the characters of one answer whole, also where one is cut between two pieces."""

    def __init__(self) -> None:
        """Begin: no half is held back."""
        self._last: TextPiece | ThinkingPiece | ToolCallPiece = TextPiece("")
        self._half = ""

    def join(self, pieces: Iterable[ModelDelta]) -> Iterator[ModelDelta]:
        """The pieces; half a character at the end of one is held back until the next."""
        for piece in pieces:
            if isinstance(piece, UsageReport):
                yield piece
            else:
                yield from self._joined(piece)

    def rest(self) -> Iterator[ModelDelta]:
        """What is held back, when nothing more comes for it."""
        if self._half:
            self._half = ""
            yield _with_text(self._last, _UNKNOWN)

    def _joined(self, piece: TextPiece | ThinkingPiece | ToolCallPiece) -> Iterator[ModelDelta]:
        if self._half and _lane(piece) != _lane(self._last):
            yield from self.rest()
        text = self._half + (piece.arguments if isinstance(piece, ToolCallPiece) else piece.text)
        self._half = text[-1:] if _FIRST_HALVES[0] <= text[-1:] <= _FIRST_HALVES[1] else ""
        self._last = ToolCallPiece(index=piece.index) if isinstance(piece, ToolCallPiece) else piece
        if isinstance(piece, ToolCallPiece) and piece.name:
            piece = replace(piece, name=whole(piece.name), call_id=whole(piece.call_id))
        yield _with_text(piece, whole(text.removesuffix(self._half)))


def _lane(piece: TextPiece | ThinkingPiece | ToolCallPiece) -> object:
    return piece.index if isinstance(piece, ToolCallPiece) else type(piece)


def _with_text(piece: TextPiece | ThinkingPiece | ToolCallPiece, text: str) -> TextPiece | ThinkingPiece | ToolCallPiece:
    if isinstance(piece, ToolCallPiece):
        return replace(piece, arguments=text)
    return type(piece)(text)
