"""The main thread for tools that must run there: a queue, and who looks into it.

GUI toolkits, SQLite connections made in a cell and other objects that are tied to a thread are used there or not at all. A job is
carried out when the main thread gives way: on the kernel's own loop between two cells and in awaiting ones, or by whoever blocks
the main thread to wait for a run. While a cell does something else the job waits; a stop takes it out, and it is never begun.

■ and Ctrl-C interrupt the job that runs. Module state with a documented life: one queue for each process; it ends with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, ClassVar

from agent_widgets.errors import InputError

UNATTENDED_SECONDS = 10.0
"""How long a job waits where nobody looks into the queue: a script that sleeps, a terminal at its prompt."""

SILENT_SECONDS = 0.2
"""How long a job waits before that is said."""

DOUBLE_CLICK_SECONDS = 0.3
"""A second press of ■ within this time is the same press."""


class MainThread:
    """The queue. All methods may be called on any thread."""

    _one: ClassVar[MainThread | None] = None

    def __init__(self) -> None:
        self._jobs: deque[_Job] = deque()
        self._loops: Counter[asyncio.AbstractEventLoop] = Counter()
        self._waiting: list[Callable[[], object]] = []
        self._is_interruptible = False
        self._depth = 0

    @classmethod
    def get(cls) -> MainThread:
        """The one of this process."""
        if cls._one is None:
            cls._one = cls()
        return cls._one

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the main thread."""
        return threading.current_thread() is threading.main_thread()

    @property
    def is_attended(self) -> bool:
        """Whether somebody will look into the queue, sooner or later."""
        return bool(self._depth or self._waiting or any(not loop.is_closed() for loop in self._loops))

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the main thread's ``loop`` carries out the jobs, until it was deserted as often. On the main thread."""
        self._loops[loop] += 1
        if self._jobs:
            self._wake()

    def desert(self, loop: asyncio.AbstractEventLoop) -> None:
        """It does so no more."""
        self._loops[loop] -= 1
        if not self._loops[loop]:
            del self._loops[loop]

    @contextlib.contextmanager
    def served_here(self) -> Generator[None, None, None]:
        """While a coroutine on the main thread waits, its loop carries out the jobs."""
        if not self.is_here:
            yield
            return
        loop = asyncio.get_running_loop()
        self.serve(loop)
        try:
            yield
        finally:
            self.desert(loop)

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], object]) -> Generator[None, None, None]:
        """For those who block the main thread: ``wake`` is called, on any thread, when they are to call ``run_pending``."""
        if not self.is_here:
            yield
            return
        self._waiting.append(wake)
        try:
            self.run_pending()
            yield
        finally:
            self._waiting.remove(wake)

    def wait_for(self, future: concurrent.futures.Future[Any], timeout: float | None = None) -> bool:
        """Block until ``future`` is done, and carry out jobs meanwhile; ``False`` when ``timeout`` seconds were not enough."""
        look = threading.Event()
        future.add_done_callback(lambda _: look.set())
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.waking(look.set):
            while not future.done() and (deadline is None or time.monotonic() < deadline):
                look.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
                look.clear()
                self.run_pending()
        return future.done()

    def run_pending(self) -> None:
        """Carry out the jobs that wait, if this is the main thread."""
        while self._jobs and self.is_here:
            try:
                job = self._jobs.popleft()
            except IndexError:  # it was taken out just now
                return
            self._run(job)

    async def carry(self, work: Callable[[], None], waits: Callable[[str], None]) -> None:
        """Run ``work`` on the main thread, in this context. It must not raise.

        Args:
            work: What to do. When this is cancelled before its turn has come, it is never begun.
            waits: Told what it waits for, if it has to wait; ``""`` when it goes on.

        Raises:
            InputError: nobody looks into the queue.
        """
        job = _Job(work)
        if self.is_here:  # the loop that carries the run is the main thread's
            self._run(job)
            return
        begun, ended = asyncio.wrap_future(job.begun), asyncio.wrap_future(job.ended)
        self._jobs.append(job)
        self._wake()
        try:
            await asyncio.wait({begun}, timeout=SILENT_SECONDS)
            if not begun.done():
                waits("for the main thread, which is busy")
                try:
                    await self._begins(begun)
                finally:
                    waits("")
            await asyncio.wait({ended})
        finally:
            with contextlib.suppress(ValueError):
                self._jobs.remove(job)

    @contextlib.contextmanager
    def interruptible(self) -> Generator[None, None, None]:
        """What runs in here is ended by ■ and Ctrl-C: it gets a ``KeyboardInterrupt``. On other threads nothing happens."""
        if not self.is_here or not self._depth:
            yield
            return
        try:
            self._is_interruptible = True
            yield
        finally:
            self._is_interruptible = False

    async def _begins(self, begun: asyncio.Future[None]) -> None:
        unattended_since: float | None = None
        while not begun.done():
            now = time.monotonic()
            unattended_since = None if self.is_attended else unattended_since or now
            if unattended_since is not None and now - unattended_since >= UNATTENDED_SECONDS:
                raise InputError(
                    f"This tool must run on the main thread, and for {UNATTENDED_SECONDS:g} s nothing there has waited for it. "
                    "Wait for the run on the main thread: run.wait(), agent.reply_sync(…) or await."
                )
            await asyncio.wait({begun}, timeout=UNATTENDED_SECONDS / 10)

    def _wake(self) -> None:
        for wake in list(self._waiting):
            wake()
        for loop in list(self._loops):
            with contextlib.suppress(RuntimeError):  # it has been closed: another one may be there
                loop.call_soon_threadsafe(self.run_pending)

    def _run(self, job: _Job) -> None:
        previous, pressed_at = signal.getsignal(signal.SIGINT), 0.0

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal pressed_at
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)  # that of a waiting cell: it stops the run
            before, pressed_at = pressed_at, time.monotonic()
            if self._is_interruptible and pressed_at - before >= DOUBLE_CLICK_SECONDS:
                raise KeyboardInterrupt

        outer, self._is_interruptible = self._is_interruptible, False
        self._depth += 1
        if previous is not None:  # else somebody who is not Python handles it
            signal.signal(signal.SIGINT, interrupt)
        try:
            job.run()
        finally:
            self._depth -= 1
            if signal.getsignal(signal.SIGINT) == interrupt:
                signal.signal(signal.SIGINT, previous)
            self._is_interruptible = outer


class _Job:
    """One function to be called, in the context in which it was given."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._context = contextvars.copy_context()
        self.begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        for future in (self.begun, self.ended):
            future.set_running_or_notify_cancel()  # who waits for them may be cancelled, they are not

    def run(self) -> None:
        self.begun.set_result(None)
        try:
            self._context.run(self._work)
        finally:
            self.ended.set_result(None)
