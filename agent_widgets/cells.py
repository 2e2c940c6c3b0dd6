"""How a cell waits for a run, in a notebook and in a terminal: ■ stops the run, and clicks are heard meanwhile."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from contextlib import suppress
from functools import partial

from agent_widgets.errors import AgentStopped, InputError
from agent_widgets.interrupts import Interrupts, Wait
from agent_widgets.loops import LoopThread
from agent_widgets.mainthread import MainThread
from agent_widgets.nesting import run_sync
from agent_widgets.runs import Run
from agent_widgets.tap import EarlyTap
from agent_widgets.waiting import CLEAN_UP_SECONDS, Waitable

POLL_SECONDS = 0.2
"""How often a waiting cell looks up, so that a cancel of its task is heard."""

PUMP_SECONDS = 0.04
"""How often a blocked cell reads the socket where nobody else does (ipykernel 6)."""


class CellWaiter:
    """How a cell waits: the first press of ■ stops the run, a second one frees the cell while the run's clean-up goes on."""

    pause = POLL_SECONDS

    def __init__(self, interrupts: Interrupts, tap: EarlyTap | None = None) -> None:
        self._interrupts = interrupts
        self._tap = tap

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended.

        Raises:
            AgentStopped: ■ was pressed; the run has been stopped and its state is kept.
        """
        ended, freed = asyncio.wrap_future(run.ended), _Freed()
        wait = self._interrupts.add(run, freed.set)
        try:
            await self._watch(wait, {ended, freed.future})
        except asyncio.CancelledError:
            run.stop(reason="the waiting cell was cancelled")
            wait.presses = max(wait.presses, 1)  # the next press frees it
            await self._watch(wait, {ended, freed.future}, time.monotonic() + CLEAN_UP_SECONDS)
            raise
        finally:
            self._interrupts.remove(wait)
            self._walk_away(run)
        _raise_if_pressed(wait)

    async def until(self, arrived: asyncio.Future[None], run: Waitable) -> None:
        """Return when something of the run has arrived.

        Raises:
            AgentStopped: ■ was pressed; the run is being stopped.
        """
        freed = _Freed()
        wait = self._interrupts.add(run, freed.set, presses_to_free=1)
        try:
            with MainThread.get().served_here():
                await asyncio.wait({arrived, freed.future}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._interrupts.remove(wait)
        if wait.is_freed:
            raise AgentStopped(_STOPPED)

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough.

        Raises:
            AgentStopped: ■ was pressed; the run has been stopped and its state is kept.
            InputError: it would wait for itself: on the loop thread, or on the kernel's loop that carries the run, without the
                extra ``nest``.
        """
        if LoopThread.is_current():
            raise InputError("run.wait() would block the thread that carries the run. In a tool or callback use `await run`.")
        wake = queue.SimpleQueue[None]()  # not an Event: that one must not be set by a signal handler of the thread that waits
        run.ended.add_done_callback(lambda _: wake.put(None))
        freed = _Freed() if run.is_carried_here and not run.is_over else None
        wait = self._interrupts.add(run, partial(wake.put, None) if freed is None else freed.set, blocks=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if freed is None:
                self._block(wait, wake, deadline)
            else:
                ended = asyncio.wrap_future(run.ended)
                run_sync(self._watch(wait, {ended, freed.future}, deadline), asyncio.get_running_loop())
        except KeyboardInterrupt:  # pressed in the moment before it was heard here
            run.stop(reason="interrupted in the notebook", source="kernel")
            raise
        finally:
            self._interrupts.remove(wait)
        if wait.is_freed:
            self._walk_away(run)
        _raise_if_pressed(wait)
        return run.is_over

    def _block(self, wait: Wait, wake: queue.SimpleQueue[None], deadline: float | None) -> None:
        pause = PUMP_SECONDS if self._tap is not None and self._tap.must_pump else self.pause
        with MainThread.get().waking(partial(wake.put, None)):
            while not wait.is_settled and (deadline is None or time.monotonic() < deadline):
                with suppress(queue.Empty):
                    wake.get(timeout=_at_most(pause, deadline))
                MainThread.get().run_pending()
                if self._tap is not None and threading.current_thread() is threading.main_thread():
                    self._tap.pump()
                self._look(wait.run)

    async def _watch(self, wait: Wait, wakes: set[asyncio.Future[None]], deadline: float | None = None) -> None:
        """The same where the loop goes on."""
        while not wait.is_settled and (deadline is None or time.monotonic() < deadline):
            with MainThread.get().served_here():
                await asyncio.wait(wakes, timeout=_at_most(self.pause, deadline), return_when=asyncio.FIRST_COMPLETED)
            self._look(wait.run)

    def _look(self, run: Waitable) -> None:
        """Called while the cell waits: in a notebook there is nothing to do, the card asks."""

    def _walk_away(self, run: Waitable) -> None:
        """The caller waits no more: what has not ended is left to its clean-up, and a next reply waits for that."""
        if not run.is_over:
            run.abandon()


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


class _Freed:
    """Set by a signal handler, awaited on the loop that runs here."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._set)  # not call_soon: a loop that sleeps would not hear it

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


_STOPPED = "the run was stopped and its state is kept. Run the next cell to go on from it."
_FREED = "the run was stopped, and its clean-up goes on without this cell. The next prompt waits for its end."


def _at_most(seconds: float, deadline: float | None) -> float:
    return seconds if deadline is None else max(0.0, min(seconds, deadline - time.monotonic()))


def _raise_if_pressed(wait: Wait) -> None:
    if wait.presses:
        raise AgentStopped(_STOPPED if wait.run.is_over else _FREED)
