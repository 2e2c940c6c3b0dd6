"""A log of events: in order, each once, with the deltas of one block joined into one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO

from agent_widgets import events as ev


class EventLog:
    """Events in order, with the deltas of one block joined into one: a million tokens cost their text, not their objects.

    ``append`` and ``events`` may be called from any thread.
    """

    def __init__(self, events: Iterable[ev.Event] = ()) -> None:
        self._lock = threading.Lock()
        self._entries: list[ev.Event | _JoinedDelta] = []
        self._open: dict[tuple[str, ...], _JoinedDelta] = {}
        for event in events:
            self.append(event)

    def append(self, event: ev.Event) -> None:
        """Add one event."""
        with self._lock:
            if isinstance(event, ev.TextDelta):
                key = ev.block_key(event)
                joined = self._open.get(key)
                if joined is None:
                    joined = self._open[key] = _JoinedDelta(event)
                    self._entries.append(joined)
                else:
                    joined.add(event.delta)
            else:
                if isinstance(event, ev.ToolResultDataDeltaEvent):  # text after an image stays after it
                    self._open.pop(ev.block_key(event), None)
                self._entries.append(event)

    def events(self) -> tuple[ev.Event, ...]:
        """All events so far."""
        with self._lock:
            return tuple(entry.event() if isinstance(entry, _JoinedDelta) else entry for entry in self._entries)

    def take(self) -> tuple[ev.Event, ...]:
        """All events so far, and forget them."""
        with self._lock:
            taken = tuple(entry.event() if isinstance(entry, _JoinedDelta) else entry for entry in self._entries)
            self._entries.clear()
            self._open.clear()
            return taken

    def __len__(self) -> int:
        return len(self._entries)


class _JoinedDelta:
    """The deltas of one block as one event."""

    __slots__ = ("_first", "_text")

    def __init__(self, first: ev.TextDelta) -> None:
        self._first = first
        self._text = StringIO()
        self._text.write(first.delta)

    def add(self, delta: str) -> None:
        self._text.write(delta)

    def event(self) -> ev.TextDelta:
        return replace(self._first, delta=self._text.getvalue())
