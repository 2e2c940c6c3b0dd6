"""When a card speaks to its pages: frames of joined events, and snapshots. Pure: the clock is passed in.

Measured: an iopub message costs about 630 bytes before its content, and Jupyter Server drops everything above 1,000
messages a second. So deltas wait for the next frame, whatever matters at once goes at once, and the snapshot (which
carries the whole transcript) comes the more rarely the larger it is.
"""

from __future__ import annotations

from agent_widgets import events as ev

FRAMES_A_SECOND = 12.0
"""For streamed text."""

BOUNDARY_GAP_SECONDS = 0.05
"""Between two frames that cannot wait: at most 20 a second."""

SNAPSHOT_BYTES_A_SECOND = 1024.0
"""A snapshot of n bytes is followed by the next one after n / 1024 seconds at the earliest."""

SNAPSHOT_GAP_SECONDS = 2.0


class Pacer:
    """Says when the next frame and the next snapshot of one card are due. Times are seconds of one monotonic clock."""

    def __init__(self, frames_a_second: float = FRAMES_A_SECOND) -> None:
        self._gap = 1.0 / frames_a_second
        self._last_frame = self._last_snapshot = float("-inf")
        self._snapshot_size = 0

    def frame_due(self, event: ev.Event | None, now: float) -> float:
        """When to send ``event`` (``None``: a change of status). Now, if the card has been quiet."""
        gap = self._gap if isinstance(event, ev.TextDelta) else BOUNDARY_GAP_SECONDS
        return max(now, self._last_frame + gap)

    def frame_sent(self, now: float) -> None:
        """A frame went out."""
        self._last_frame = now

    def snapshot_due(self, now: float) -> bool:
        """Whether it is time for a snapshot in the middle of a run."""
        gap = max(SNAPSHOT_GAP_SECONDS, self._snapshot_size / SNAPSHOT_BYTES_A_SECOND)
        return now - self._last_snapshot >= gap

    def snapshot_sent(self, now: float, size: int) -> None:
        """A snapshot of ``size`` bytes went out."""
        self._last_snapshot = now
        self._snapshot_size = size
