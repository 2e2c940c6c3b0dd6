"""■: one press stops the runs that cells wait for, and a kernel's loop is kept awake to hear it in the other cells.

Law of this room: the handler is set on the main thread only, and only while a cell waits; whoever had the signal before gets it
back.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from agent_widgets.loops import LoopThread
from agent_widgets.runs import Run
from agent_widgets.waiting import Waitable

HEARTBEAT_SECONDS = 0.2
"""How often the main loop is woken while a run is active: ipykernel hears ■ in an awaiting cell only when its loop wakes."""

DOUBLE_CLICK_SECONDS = 0.3
"""A second press of ■ within this time is the same press."""


@dataclass(slots=True)
class Interrupts:
    """One SIGINT handler for all runs that cells wait for: the first press stops them, a second one is the kernel's own."""

    runs: list[Waitable] = field(default_factory=list[Waitable])
    pressed_at: float = 0.0
    previous: Any = None

    def add(self, run: Waitable) -> bool:
        """Stop this run too on ■; ``False`` where no handler can be set (not the main thread, no signals)."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not self.runs:
            self.pressed_at = 0.0
            self.previous = signal.getsignal(signal.SIGINT)
            try:
                signal.signal(signal.SIGINT, self.on_signal)
            except (OSError, RuntimeError, ValueError):
                return False
        self.runs.append(run)
        return True

    def remove(self, run: Waitable) -> None:
        """Put the previous handler back with the last run, unless somebody has put in another one."""
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs and signal.getsignal(signal.SIGINT) == self.on_signal:
            signal.signal(signal.SIGINT, self.previous)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """SIGINT has come, on the main thread."""
        now = time.monotonic()
        if not self.pressed_at:
            self.pressed_at = now
            for run in self.runs:
                run.stop(reason="interrupted in the notebook", source="kernel")
        elif now - self.pressed_at > DOUBLE_CLICK_SECONDS and callable(self.previous):
            # Put the kernel's handler back before it raises: the coroutine that would do it may never be resumed.
            self.runs.clear()
            signal.signal(signal.SIGINT, self.previous)
            self.previous(number, frame)


class Heartbeat:
    """Wakes the kernel's loop while runs are active, and has its socket looked at while they are active or wait."""

    def __init__(self, main_loop: asyncio.AbstractEventLoop | None, look: Callable[[], None]) -> None:
        self._main_loop = main_loop
        self._look = look
        self._runs: set[Run] = set()

    def beat_for(self, run: Run) -> None:
        """Until this run has ended. Any thread."""
        if self._main_loop is not None:
            loop = LoopThread.get().loop
            loop.call_soon_threadsafe(self._begin, run, loop)

    def _begin(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._runs.add(run)
        if len(self._runs) == 1:
            self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._runs = {run for run in self._runs if not run.is_over}
        if self._runs and self._main_loop is not None and not self._main_loop.is_closed():
            self._look()
            if any(run.status != "paused" for run in self._runs):
                self._main_loop.call_soon_threadsafe(int)
            loop.call_later(HEARTBEAT_SECONDS, self._beat, loop)
