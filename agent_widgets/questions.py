"""Until when a question can be answered. The end stands in the call that waits, so a pause keeps it as data: after a reload
and in the next kernel it is still known, and all that is alive for it is one timer.

Times of the day are UTC, because a pause outlives its process; how long is left of one is said in seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent_widgets import events as ev
from agent_widgets.errors import InputError
from agent_widgets.messages import ToolCallBlock


def checked_limit(seconds: float | None, name: str) -> float | None:
    """The limit ``name``: ``None`` and infinity are none.

    Raises:
        InputError: not above 0.
    """
    if seconds is None or seconds == math.inf:
        return None
    if not seconds > 0:
        raise InputError(f"{name} is {seconds}; it must be a number of seconds above 0, or math.inf for no limit.")
    return seconds


def dated(event: ev.Event, seconds: float | None) -> ev.Event:
    """A question with the end of its time; another event, and one that has an end, as it is."""
    if seconds is None or not isinstance(event, ev.RequireUserConfirmEvent | ev.RequireExternalExecutionEvent):
        return event
    end = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    calls = (call if call.answer_by else replace(call, answer_by=end, answer_within=seconds) for call in event.tool_calls)
    return replace(event, tool_calls=tuple(calls))


def unanswered(call: ToolCallBlock) -> str:
    """The reason for which a call is given up, for the model and for the person."""
    return f"Nobody answered within {call.answer_within or 0:g} s."


class AnswerClock:
    """One timer, for the questions of one run whose time ends next. On the run's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, give_up: Callable[[set[str]], None]) -> None:
        """Prepare; ``give_up`` is told the ids of the calls whose time is over."""
        self._loop = loop
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None

    def set(self, waiting: Iterable[ToolCallBlock]) -> None:
        """Watch these calls, and no others."""
        self.clear()
        ends = {call.id: datetime.fromisoformat(call.answer_by) for call in waiting if call.answer_by}
        if ends:
            soonest = min(ends.values())
            due = {call_id for call_id, end in ends.items() if end == soonest}
            left = (soonest - datetime.now(UTC)).total_seconds()
            self._timer = self._loop.call_later(max(0.0, left), self._give_up, due)

    def clear(self) -> None:
        """Watch nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
