"""When cards speak to their pages: frames of joined events, and turns among the cards of a kernel. Pure: the clock is passed in.

Measured: an iopub message costs about 630 bytes before its content, and Jupyter Server drops everything above 1,000
messages a second. So deltas wait for the next frame, frames of many cards wait for their turn, and whatever matters at once
goes at once.
"""

from __future__ import annotations

import threading
from collections import deque

from agent_widgets import events as ev

FRAMES_A_SECOND = 13.0
"""For streamed text of one card."""

BOUNDARY_GAP_SECONDS = 0.05
"""Between two frames that cannot wait: at most 20 a second."""

TURNS_A_SECOND = 70.0
"""For the frames of all cards: six cards or more share it. What is left of the limit is for ends, answers and cells."""

MESSAGES_A_SECOND = 80
"""A turn waits while so many messages went out in the last second. A kernel shall say no more than 100."""


LONGEST_WAIT_SECONDS = 1.0
"""For room below the limit, where what cannot wait takes all of it: streamed text must not stand still."""


class Airtime:
    """What the cards of one kernel share: a turn goes to whoever has asked first. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_turn = float("-inf")
        self._said: deque[float] = deque(maxlen=MESSAGES_A_SECOND)

    def turn(self, now: float) -> float:
        """Take a turn for one message: when it is. Now, if the kernel has been quiet."""
        with self._lock:
            room = self._said[0] + 1.0 if len(self._said) == MESSAGES_A_SECOND else now
            at = max(now, self._next_turn, min(room, now + LONGEST_WAIT_SECONDS))
            self._next_turn = at + 1.0 / TURNS_A_SECOND
            self._said.append(at)
            return at

    def count(self, now: float, messages: int) -> None:
        """Messages that took no turn: the turns to come make room for them."""
        with self._lock:
            self._said.extend([now] * messages)


class Pacer:
    """Says when the next frame of one card is due, and when it is its turn. Times are seconds of one monotonic clock."""

    def __init__(self, airtime: Airtime | None = None, frames_a_second: float = FRAMES_A_SECOND) -> None:
        self._airtime = airtime or Airtime()
        self._gap = 1.0 / frames_a_second
        self._last_frame = float("-inf")
        self._turn: float | None = None

    def frame_due(self, event: ev.Event | None, now: float) -> float:
        """When to ask for a turn, to send ``event`` (``None``: a change of status). Now, if the card has been quiet."""
        if self._turn is not None:
            return self._turn
        gap = self._gap if isinstance(event, ev.TextDelta) else BOUNDARY_GAP_SECONDS
        return max(now, self._last_frame + gap)

    def turn(self, now: float) -> float:
        """When the frame that is due goes out: at ``now`` or before, or later, because other cards come first."""
        if self._turn is None:
            self._turn = self._airtime.turn(now)
        return self._turn

    def frame_sent(self, now: float, messages: int = 1) -> None:
        """A frame went out, with or without a turn."""
        self._airtime.count(now, messages - 1 if self._turn is not None else messages)
        self._turn = None
        self._last_frame = now

    def reserve(self, now: float) -> float:
        """A turn for something that can wait."""
        return self._airtime.turn(now)

    def count(self, now: float, messages: int) -> None:
        """Something else was said on behalf of this card."""
        self._airtime.count(now, messages)
