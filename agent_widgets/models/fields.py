"""Fields of what a server streamed: objects of the client or plain JSON, and perhaps of the wrong type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


class ChunkError(ValueError):
    """A chunk that is not what its wire says."""


def field_of(value: object, key: str) -> Any:
    """The field, or ``None`` if there is none; ``None`` has no fields.

    Raises:
        ChunkError: ``value`` is nothing that has fields.
    """
    if isinstance(value, str | int | float | list):
        raise ChunkError(f"expected an object with {key!r}, got {value!r:.80}")
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(key)
    return getattr(value, key, None)


def list_of(value: object, key: str) -> Sequence[object]:
    """The list in a field; empty if there is none.

    Raises:
        ChunkError: it is something else.
    """
    found = field_of(value, key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise ChunkError(f"{key!r} should be a list, got {found!r:.80}")
    return cast("list[object]", found)


def text_of(value: object, what: str) -> str:
    """The value as text, ``""`` for ``None``. ``what`` names it in the error.

    Raises:
        ChunkError: it is something else.
    """
    if value is None or isinstance(value, str):
        return value or ""
    raise ChunkError(f"{what} should be text, got {value!r:.80}")


def number_of(value: object, what: str) -> int | None:
    """The value as a number, also one that was sent as text; ``None`` for ``None``. ``what`` names it in the error.

    Raises:
        ChunkError: it is something else.
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    raise ChunkError(f"{what} should be a number, got {value!r:.80}")


def count_of(value: object, key: str) -> int | None:
    """The count in a field of a report; ``None`` if there is none that makes sense: an answer does not fail for its report."""
    found: object = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return found if type(found) is int and found >= 0 else None
