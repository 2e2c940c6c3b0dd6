"""When a card speaks to its pages: frames of joined events. Pure: the clock is passed in.

Measured: an iopub message costs about 630 bytes before its content, and Jupyter Server drops everything above 1,000
messages a second. So deltas wait for the next frame, and whatever matters at once goes at once.
"""

from __future__ import annotations

from agent_widgets import events as ev

FRAMES_A_SECOND = 13.0
"""For streamed text."""

BOUNDARY_GAP_SECONDS = 0.05
"""Between two frames that cannot wait: at most 20 a second."""


class Pacer:
    """Says when the next frame of one card is due. Times are seconds of one monotonic clock."""

    def __init__(self, frames_a_second: float = FRAMES_A_SECOND) -> None:
        self._gap = 1.0 / frames_a_second
        self._last_frame = float("-inf")

    def frame_due(self, event: ev.Event | None, now: float) -> float:
        """When to send ``event`` (``None``: a change of status). Now, if the card has been quiet."""
        gap = self._gap if isinstance(event, ev.TextDelta) else BOUNDARY_GAP_SECONDS
        return max(now, self._last_frame + gap)

    def frame_sent(self, now: float) -> None:
        """A frame went out."""
        self._last_frame = now
