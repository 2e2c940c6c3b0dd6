"""■: a press stops the runs that the executing cell waits for, a second one frees the cell; what else runs is left alone.

Law of this room: the handler is set on the main thread only, and only while a cell waits. A press that neither stops nor frees
goes to whoever had the signal before, and so does the signal afterwards. A second press is no second cancel: that would cut
the clean-up.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from agent_widgets.loops import LoopThread
from agent_widgets.mainthread import DOUBLE_CLICK_SECONDS
from agent_widgets.runs import Run
from agent_widgets.waiting import Waitable

HEARTBEAT_SECONDS = 0.2
"""How often the main loop is woken while a run is active: ipykernel hears ■ in an awaiting cell only when its loop wakes."""


@dataclass(slots=True, eq=False)
class Wait:
    """Somebody on the main thread who waits for a run, as ■ sees it."""

    run: Waitable
    free: Callable[[], None]
    """Let the caller go, whatever the run does. Called by a signal handler."""
    presses_to_free: int
    cell: object
    """Whose ■ it hears; ``None``: it blocks the main thread, so that every press means it."""
    presses: int = 0

    @property
    def is_freed(self) -> bool:
        """Whether it is to wait no longer."""
        return self.presses >= self.presses_to_free

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.is_freed or self.run.is_over

    def press(self) -> None:
        """Stop the run at first, free the caller when it was enough."""
        self.presses += 1
        if self.presses == 1:
            self.run.stop(reason="interrupted in the notebook", source="kernel")
        if self.presses == self.presses_to_free:
            self.free()


class Interrupts:
    """One SIGINT handler for all that the executing cell waits for."""

    def __init__(self, *, in_cell: bool = True) -> None:
        """Made in the middle of a cell, or (``in_cell=False``) where none is being executed."""
        self._first = object()  # of what had begun before
        self._cell = contextvars.ContextVar[object]("agent_widgets_cell", default=self._first)  # a task keeps its maker's
        self._cells: list[object] = [self._first] if in_cell else []  # a cell can execute another one: %%capture
        self._waits: list[Wait] = []
        self._pressed_at = 0.0
        self._previous: Any = None
        self._has_taken = False

    @property
    def is_in_cell(self) -> bool:
        """Whether the caller is inside of a cell that was seen to begin."""
        return self._cells[-1:] == [self._cell.get()] and self._cells != [self._first]

    @property
    def is_busy(self) -> bool:
        """Whether a cell is executed that waits for no run. Any thread."""
        return bool(self._cells) and not self._waits

    def begin_cell(self, *_: object) -> None:
        """A cell begins: IPython's event ``pre_run_cell``, in the context in which its code will run."""
        if _on_main_thread():
            while self._cells and self._cells[-1] is not self._cell.get():
                self._cells.pop()  # no event has said its end: JupyterLite sends none for a cell that awaits
            self._cells.append(object())
            self._cell.set(self._cells[-1])

    def end_cell(self, *_: object) -> None:
        """It has ended: tasks that it left behind hear ■ no more. IPython's event ``post_run_cell``."""
        if _on_main_thread() and self._cells:
            ended = self._cells.pop()
            self._cell.set(self._cells[-1] if self._cells else None)
            self._pressed_at = 0.0
            self._waits = [wait for wait in self._waits if wait.cell is not ended]
            self._let_go()

    def add(self, run: Waitable, free: Callable[[], None], *, presses_to_free: int = 2, blocks: bool = False) -> Wait:
        """Stop this run too on ■, until ``remove``. Nothing is heard off the main thread, or in a task that outlived its cell."""
        wait = Wait(run, free, presses_to_free, None if blocks else self._cell.get())
        if _on_main_thread() and (blocks or wait.cell in self._cells[-1:]):
            self._waits.append(wait)
            self._take()
        return wait

    def remove(self, wait: Wait) -> None:
        """Nobody waits there any more."""
        if wait in self._waits:
            self._waits.remove(wait)
            self._let_go()

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """SIGINT has come, on the main thread."""
        now = time.monotonic()
        if now - self._pressed_at < DOUBLE_CLICK_SECONDS:
            return
        self._pressed_at = now  # before any call: the second click of two can come in the middle of this
        meant = [wait for wait in self._waits if not wait.is_freed and (wait.cell is None or wait.cell in self._cells[-1:])]
        for wait in meant:
            wait.press()
        if not meant and self._previous is not None:
            # Given back before it raises: the coroutine that would do it later may never be resumed.
            signal.signal(signal.SIGINT, self._previous)
            self._has_taken = False
            signal.raise_signal(signal.SIGINT)

    def _take(self) -> None:
        held = signal.getsignal(signal.SIGINT)
        if self._has_taken or held is None or held == self.on_signal:  # None: not set by Python, and could not be given back
            return
        with suppress(OSError, RuntimeError, ValueError):  # there are no signals here (Pyodide)
            signal.signal(signal.SIGINT, self.on_signal)
            self._previous, self._has_taken = held, True

    def _let_go(self) -> None:
        """Give the signal back with the last wait, unless somebody has taken it meanwhile."""
        if not self._waits:
            self._has_taken = False
            if signal.getsignal(signal.SIGINT) == self.on_signal:
                signal.signal(signal.SIGINT, self._previous)


class Heartbeat:
    """Wakes the kernel's loop while runs are active."""

    def __init__(self, main_loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self._main_loop = main_loop
        self._runs: set[Run] = set()

    def beat_for(self, run: Run) -> None:
        """Until this run has ended. Any thread."""
        if self._main_loop() is not None:
            loop = LoopThread.get().loop
            loop.call_soon_threadsafe(self._begin, run, loop)

    def _begin(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._runs.add(run)
        if len(self._runs) == 1:
            self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._runs = {run for run in self._runs if not run.is_over}
        main_loop = self._main_loop()
        if self._runs and main_loop is not None and not main_loop.is_closed():
            if any(run.status != "paused" for run in self._runs):
                main_loop.call_soon_threadsafe(int)
            loop.call_later(HEARTBEAT_SECONDS, self._beat, loop)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
