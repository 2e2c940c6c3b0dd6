"""How a cell waits for a run, in a notebook and in a terminal: ■ stops the run, and clicks are heard meanwhile."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

from agent_widgets.errors import AgentStopped, InputError
from agent_widgets.interrupts import Interrupts
from agent_widgets.loops import LoopThread
from agent_widgets.runs import Run
from agent_widgets.tap import EarlyTap
from agent_widgets.waiting import CLEAN_UP_SECONDS, Waitable

POLL_SECONDS = 0.2
"""How often a waiting cell looks up, so that a cancel of its task is heard."""

PUMP_SECONDS = 0.04
"""How often a blocked cell reads the socket where nobody else does (ipykernel 6)."""


class CellWaiter:
    """How a cell waits for a run: ■ stops the run first and the cell after it, clicks are heard meanwhile."""

    pause = POLL_SECONDS

    def __init__(self, tap: EarlyTap | None = None) -> None:
        self._tap = tap
        self._interrupts = Interrupts()

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended.

        Raises:
            AgentStopped: ■ was pressed; the run has been stopped and its state is kept.
        """
        ended = asyncio.wrap_future(run.ended)
        hears = self._interrupts.add(run)
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=self.pause)
                self._look(run)
        except asyncio.CancelledError:
            run.stop(reason="the waiting cell was cancelled")
            limit = time.monotonic() + CLEAN_UP_SECONDS
            while not ended.done() and not self._interrupts.pressed_at and time.monotonic() < limit:
                await asyncio.wait({ended}, timeout=POLL_SECONDS)  # a timeout waits for the clean-up, a press of ■ does not
            raise
        finally:
            pressed = self._pressed(run, hears=hears)
        if pressed:
            raise AgentStopped(_STOPPED)

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough.

        Raises:
            AgentStopped: ■ was pressed; the run has been stopped and its state is kept.
            InputError: called on the loop thread, where it would wait for itself.
        """
        if LoopThread.get().is_here:
            raise InputError("run.wait() would block the thread that carries the run. In a tool or callback use `await run`.")
        deadline = None if timeout is None else time.monotonic() + timeout
        hears = self._interrupts.add(run)
        try:
            ended = threading.Event()
            run.ended.add_done_callback(lambda _: ended.set())
            pause = PUMP_SECONDS if self._tap is not None and self._tap.must_pump else self.pause
            while not run.is_over and (deadline is None or time.monotonic() < deadline):
                ended.wait(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
                if hears and self._tap is not None:
                    self._tap.pump()
                self._look(run)
        finally:
            pressed = self._pressed(run, hears=hears)
        if pressed:
            raise AgentStopped(_STOPPED)
        return run.is_over

    def _look(self, run: Waitable) -> None:
        """Called while the cell waits: in a notebook there is nothing to do, the card asks."""

    def _pressed(self, run: Waitable, *, hears: bool) -> bool:
        pressed = hears and bool(self._interrupts.pressed_at) and run in self._interrupts.runs
        if hears:
            self._interrupts.remove(run)
        return pressed


class TerminalWaiter(CellWaiter):
    """Waiting in a terminal IPython, where nobody can click: it asks about the calls that wait."""

    def _look(self, run: Waitable) -> None:
        """Ask, with the run's own text above: ``y`` approves, everything else is the reason of a denial."""
        if not isinstance(run, Run) or run.status != "paused" or threading.current_thread() is not threading.main_thread():
            return
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            answer = input("Approve? y, or a reason to deny: ")
        except (KeyboardInterrupt, EOFError):
            signal.signal(signal.SIGINT, handler)
            self._interrupts.on_signal(signal.SIGINT, None)
        else:
            signal.signal(signal.SIGINT, handler)
            if answer.strip().lower() in ("y", "yes"):
                run.approve()
            else:
                run.deny(reason=answer.strip())


_STOPPED = "the run was stopped and its state is kept. Run the next cell to go on from it."
