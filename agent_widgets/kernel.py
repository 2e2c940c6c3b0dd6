"""The kernel around a run: how a cell waits for one, what ■ does meanwhile, and whether anybody is there to ask.

The only room that knows ipykernel. In a terminal IPython or a plain script the same waiting works without a tap.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from agent_widgets.capture import OutputCapture
from agent_widgets.errors import AgentStopped, InputError
from agent_widgets.loops import LoopThread
from agent_widgets.runs import Run
from agent_widgets.tap import EarlyTap
from agent_widgets.waiting import CLEAN_UP_SECONDS, Waitable

OUTSIDE_LOOK_SECONDS = 1.0
"""How often the end of a cell looks whether its run waits for results that only a later cell can bring."""

POLL_SECONDS = 0.2
"""How often a waiting cell looks up, so that a cancel of its task is heard."""

PUMP_SECONDS = 0.04
"""How often a blocked cell reads the socket where nobody else does (ipykernel 6)."""

HEARTBEAT_SECONDS = 0.2
"""How often the main loop is woken while a run is active: ipykernel hears ■ in an awaiting cell only when its loop wakes."""

DOUBLE_CLICK_SECONDS = 0.3
"""A second press of ■ within this time is the same press."""


class NotebookKernel:
    """What this process has of a notebook: its shell, its tap, whether a page has ever spoken.

    Module state with a documented life: made when first needed, ended by ``close`` (``%unload_ext``, tests).
    """

    _one: NotebookKernel | None = None

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.kernel: Any = getattr(shell, "kernel", None)
        self.page_seen = False
        self.tap = EarlyTap(self.kernel)
        self.waiter = CellWaiter(self.tap) if self.kernel is not None else TerminalWaiter()
        self._capture = OutputCapture(shell)
        self._capture.install()
        main_loop = getattr(getattr(self.kernel, "io_loop", None), "asyncio_loop", None)
        self._heartbeat = _Heartbeat(main_loop, self.tap.look)
        self._started_in_cell: list[Run] = []
        self.tap.install()
        shell.events.register("post_run_cell", self._after_cell)

    @classmethod
    def get(cls) -> NotebookKernel | None:
        """The one of this process; ``None`` outside IPython."""
        shell = _ipython()
        if shell is None:
            return None
        one = cls._one
        if one is None or one.shell is not shell:
            one = cls._one = cls(shell)
        one.tap.install()
        return one

    @property
    def is_terminal(self) -> bool:
        """IPython in a terminal: there is no page."""
        return self.kernel is None

    @property
    def anybody_there(self) -> bool:
        """Whether somebody could answer a question.

        Those that execute notebooks (nbclient, papermill) allow no stdin. Neither does Voilà, but there people click; and a
        page that has said hello proves that somebody is there.
        """
        if self.is_terminal or self.page_seen or getattr(self.kernel, "_allow_stdin", True):
            return not self.is_terminal
        return "VOILA_KERNEL_ID" in os.environ or os.environ.get("SERVER_SOFTWARE", "").startswith("voila")

    def watch(self, run: Run) -> None:
        """Look after a run that a cell started: keep the kernel's loop awake, and with nobody there end it inside its cell."""
        self._heartbeat.beat_for(run)
        if not self.anybody_there:
            self._started_in_cell.append(run)

    def close(self) -> None:
        """Take out everything that was put in."""
        self.tap.uninstall()
        self._capture.uninstall()
        self.shell.events.unregister("post_run_cell", self._after_cell)
        NotebookKernel._one = None

    def _after_cell(self, *_: object) -> None:
        """With nobody there a run ends inside its own cell: nbclient drops updates that belong to an earlier one.

        One that waits for outside results is left waiting: only a later cell can bring them.
        """
        started, self._started_in_cell = self._started_in_cell, []
        for run in started:
            while not self.waiter.block(run, OUTSIDE_LOOK_SECONDS) and not _waits_for_outside(run):
                pass


def _waits_for_outside(run: Run) -> bool:
    return run.status == "paused" and all(call.state == "submitted" for call in run.transcript.waiting)


@dataclass(slots=True)
class _Interrupts:
    """One SIGINT handler for all runs that cells wait for: the first press stops them, a second one is the kernel's own."""

    runs: list[Waitable] = field(default_factory=list[Waitable])
    pressed_at: float = 0.0
    previous: Any = None

    def add(self, run: Waitable) -> bool:
        """Stop this run too on ■; ``False`` where no handler can be set (not the main thread)."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not self.runs:
            self.pressed_at = 0.0
            self.previous = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self.on_signal)
        self.runs.append(run)
        return True

    def remove(self, run: Waitable) -> None:
        """Put the previous handler back with the last run, unless somebody has put in another one."""
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs and signal.getsignal(signal.SIGINT) == self.on_signal:
            signal.signal(signal.SIGINT, self.previous)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
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


class CellWaiter:
    """How a cell waits for a run: ■ stops the run first and the cell after it, clicks are heard meanwhile."""

    def __init__(self, tap: EarlyTap | None = None) -> None:
        self._tap = tap
        self._interrupts = _Interrupts()

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended.

        Raises:
            AgentStopped: ■ was pressed; the run has been stopped and its state is kept.
        """
        ended = asyncio.wrap_future(run.ended)
        hears = self._interrupts.add(run)
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=POLL_SECONDS)
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
            pause = PUMP_SECONDS if self._tap is not None and self._tap.must_pump else POLL_SECONDS
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


class _Heartbeat:
    """Wakes the kernel's loop while runs are active, and has its socket looked at while they are active or wait."""

    def __init__(self, main_loop: asyncio.AbstractEventLoop | None, look: Callable[[], None]) -> None:
        self._main_loop = main_loop
        self._look = look
        self._runs: set[Run] = set()

    def beat_for(self, run: Run) -> None:
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


def _ipython() -> Any:
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - slow to import, and not needed in a script

    return get_ipython()
