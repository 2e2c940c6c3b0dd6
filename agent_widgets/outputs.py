"""What one call prints and displays, on its way to the card: from any thread, joined, bounded, in order.

Nothing of it is ever sent to the model. A loop that prints a million lines costs the page twenty messages a second, and what is
too long for a page is left out and its size said: of text the beginning and the end are kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agent_widgets.messages import JsonObject
from agent_widgets.outcomes import MAX_DATA_CHARACTERS, sendable
from agent_widgets.printed import overwritten

PRINTED_CHARACTERS = 200_000
"""So much of what a call prints is shown as it comes; after that only its end, when the call has ended."""

END_CHARACTERS = 20_000
"""How much of the end is kept."""

DISPLAYED_CHARACTERS = 200_000
"""A longer text or HTML is left out: no page scrolls through it."""

FLUSH_SECONDS = 0.05
"""What is printed within this time is told together."""

_TEXTS = ("text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_WIDGET = "application/vnd.jupyter.widget-view+json"


class Outputs:
    """Takes what one call prints and displays (a ``Sink``), from any thread; tells it on the loop.

    ``("stdout" | "stderr", {"text": str})``; ``("display", {"data": {mime: str}, "metadata": {…}, "display_id": str, "update":
    bool})``; ``("clear", {"wait": bool})``; ``("waits", {"text": str})``, which says what the call waits for (``""``: nothing
    any more).
    """

    def __init__(self, tell: Callable[[JsonObject], None]) -> None:
        """``tell`` takes the outputs as the ``TOOL_OUTPUT`` event has them; on the loop that is running now."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._pending: list[tuple[str, JsonObject, list[str]]] = []
        self._is_due = self._clears_next = False
        self._flushed_at = float("-inf")
        self._printed = self._displayed = 0
        self._end: dict[str, str] = {}

    def __call__(self, name: str, value: JsonObject) -> None:
        """Take one output. Any thread."""
        with self._lock:
            self._add(name, value)
            if self._is_due or not self._pending:
                return
            self._is_due = True
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens
            self._loop.call_soon_threadsafe(self._soon, context=self._context)

    def flush(self) -> None:
        """Tell what has come so far. On the loop."""
        with self._lock:
            pending, self._pending = self._pending, []
            self._is_due = False
        self._flushed_at = self._loop.time()
        for name, value, pieces in pending:
            if name in ("stdout", "stderr"):
                self._print(name, sendable(_joined(pieces)))
            else:
                self._tell({"name": name, **value})

    def close(self) -> None:
        """The call has ended: tell the rest, and the end of what was too long."""
        self.flush()
        left_out = self._printed - PRINTED_CHARACTERS - sum(len(text) for text in self._end.values())
        if self._end and left_out > 0:
            self._tell({"name": "stderr", "text": f"\n[left out: {left_out:,} of {self._printed:,} printed characters]\n"})
        for name, text in self._end.items():
            self._tell({"name": name, "text": text})
        self._end = {}

    def _soon(self) -> None:
        self._loop.call_at(max(self._flushed_at + FLUSH_SECONDS, self._loop.time()), self.flush)

    def _add(self, name: str, value: JsonObject) -> None:
        if name == "clear":
            self._clears_next = bool(value.get("wait"))
            if self._clears_next:
                return
            self._pending.clear()
        elif self._clears_next and name != "waits":
            self._clears_next = False
            self._pending = [("clear", {}, [])]
        if name not in ("stdout", "stderr"):
            self._pending.append((name, {} if name == "clear" else self._bounded(name, value), []))
        elif self._pending and self._pending[-1][0] == name:
            self._pending[-1][2].append(str(value["text"]))
        else:
            self._pending.append((name, {}, [str(value["text"])]))

    def _print(self, name: str, text: str) -> None:
        room = max(0, PRINTED_CHARACTERS - self._printed)
        self._printed += len(text) if "\r" not in text else text.rfind("\n") + 1  # progress takes the place of itself
        if text[:room]:
            self._tell({"name": name, "text": text[:room]})
        if text[room:]:
            self._end[name] = (self._end.get(name, "") + text[room:])[-END_CHARACTERS:]

    def _bounded(self, name: str, value: JsonObject) -> JsonObject:
        """A display with what may be shown of it; all that a call displays is bounded together."""
        data = value.get("data")
        if name != "display" or not isinstance(data, dict):
            return value
        kept: JsonObject = {}
        left_out: list[str] = []
        for mime, content in data.items():
            size = len(str(content))
            is_image = mime in _IMAGES
            if self._displayed + size > MAX_DATA_CHARACTERS or (size > DISPLAYED_CHARACTERS and not is_image):
                left_out.append(f"[left out: {mime} of {size:,} characters, which is more than is shown here]")
            else:
                self._displayed += size
                kept[mime] = content
        if left_out and not any(mime in kept for mime in (*_IMAGES, *_TEXTS[1:])):
            kept["text/plain"] = "\n".join([*filter(None, [str(kept.get("text/plain", ""))]), *left_out])
        return {**value, "data": kept}


def _joined(pieces: list[str]) -> str:
    """As one text that does the same: it begins with a carriage return if it takes the place of what is there."""
    text = "".join(pieces)
    return ("\r" if "\r" in text.split("\n", 1)[0].rstrip("\r") else "") + overwritten(text)


def shown(data: Mapping[str, Any]) -> JsonObject:
    """A MIME bundle as a card can show it: texts and images. What it cannot show becomes a sentence."""
    kept: JsonObject = {}
    for mime, content in data.items():
        if mime in _IMAGES and isinstance(content, bytes):
            kept[mime] = base64.b64encode(content).decode()
        elif mime in (*_TEXTS, *_IMAGES) and isinstance(content, str):
            kept[mime] = sendable(content)
    if "application/json" in data:
        kept["text/plain"] = sendable(json.dumps(data["application/json"], indent=2, ensure_ascii=False, default=str))
    plain = str(kept.get("text/plain", ""))
    if _WIDGET in data:
        return {"text/plain": f"{plain}\n(a widget: it works where a cell displays it, not in a tool's card)".lstrip()}
    if not kept:
        kept["text/plain"] = f"({', '.join(data) or 'nothing'}: it cannot be shown in a tool's card)"
    return kept
