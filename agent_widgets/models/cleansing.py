"""Exceptions without secrets: keys and headers that a server, a client or a library has quoted are taken out of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

_LOOKS_SECRET = re.compile(r"(?i)\b(?:sk|pk|key|gsk|xai|hf|r8)[-_][\w*.\-]{8,}|(?<=bearer )[^\s'\"]{6,}")
_REMOVED = "[removed]"
_SECRET_LENGTH = 4
_CUT_LENGTH = 8


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and everything that led to it."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        link = todo.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        todo += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            todo += cast("tuple[BaseException, ...]", link.exceptions)


def hider(secrets: Iterable[str]) -> Callable[[str], str]:
    """Takes these secrets, and what looks like one, out of a text."""
    known = sorted({secret for secret in secrets if len(secret) >= _SECRET_LENGTH}, key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, _REMOVED)
            text = _without_cut_end(text, secret)
        return _LOOKS_SECRET.sub(_REMOVED, text)

    return hide


def _without_cut_end(text: str, secret: str) -> str:
    """A quotation that was cut may end in the middle of a secret."""
    for length in range(len(secret) - 1, _CUT_LENGTH - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + _REMOVED
    return text


def cleanse(error: BaseException, hide: Callable[[str], str]) -> None:
    """Take secrets out of an exception in place: it stays the same one, with the same traceback."""
    error.args = tuple(_hidden(value, hide) for value in error.args)
    for field in ("message", "body", "doc"):
        if hasattr(error, field):
            setattr(error, field, _hidden(getattr(error, field), hide))
    headers = getattr(_request_of(error), "headers", None)
    if hasattr(headers, "clear"):
        cast("Any", headers).clear()


def _request_of(error: BaseException) -> object:
    """That of the client's errors, or of the HTTP library's."""
    return error.__dict__.get("request") or error.__dict__.get("_request")


def holds_secret(error: BaseException, hide: Callable[[str], str]) -> bool:
    """Whether an exception shows a secret that could not be taken out.

    The two that are named quote a header as bytes, where a key is not found again.
    """
    if isinstance(error, UnicodeEncodeError) or type(error).__name__ == "LocalProtocolError":
        return True
    shown = (str(error), repr(error), str(getattr(_request_of(error), "url", "")))
    return any(hide(text) != text for text in shown)


def _hidden(value: object, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {key: _hidden(part, hide) for key, part in cast("dict[object, object]", value).items()}
    return [_hidden(part, hide) for part in cast("list[object]", value)] if isinstance(value, list) else value
