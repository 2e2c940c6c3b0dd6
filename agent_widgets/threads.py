"""A sync function in a worker thread: nobody can kill it, so it may ask ``stop_requested()``, and may be left behind.

What ends after it was left behind is told once, as late: it is no result any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio.to_thread

from agent_widgets.loops import threads_can_start

THREAD_GRACE_SECONDS = 0.2
"""How long a stopped sync tool may take to notice, before its result says that it still runs."""

STILL_RUNNING = "the tool's thread is still running"
"""Carried by the ``CancelledError`` of a sync tool that did not notice the stop."""

Result = TypeVar("Result")


class StopSignal:
    """Whether a tool is to stop, whether it has noticed, and whether its thread was left behind."""

    def __init__(self, grace: float | None = None) -> None:
        """``grace``: seconds until it is left behind; ``THREAD_GRACE_SECONDS`` if ``None``."""
        self.is_set = self.noticed = self.left_behind = False
        self.grace = THREAD_GRACE_SECONDS if grace is None else grace
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None

    def set(self) -> None:
        """Ask it to stop. What can be killed is killed."""
        with self._lock:
            self.is_set = True
            if self._kill is not None:
                self._kill()

    def kills(self, kill: Callable[[], None] | None) -> None:
        """From now on a stop calls ``kill``, from any thread; at once if it has come already. ``None``: not any more."""
        with self._lock:
            self._kill = kill
            if self.is_set and kill is not None:
                kill()


stopping: contextvars.ContextVar[StopSignal | None] = contextvars.ContextVar("agent_widgets_stopping", default=None)
"""The signal of the tool that runs here. Worker threads inherit it."""


def stop_requested() -> bool:
    """Whether the run that this tool works for is being stopped. Ask it in the loop of a long sync tool, and return.

    A tool that was told so has an interrupted result, whatever it returns. In a process of its own it is always ``False``: there
    the stop kills.
    """
    signal = stopping.get()
    if signal is None or not signal.is_set:
        return False
    signal.noticed = True
    return True


async def in_worker(work: Callable[[], None]) -> None:
    """Run in a worker thread with this context."""
    await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


async def in_thread(
    work: Callable[[], Result],
    signal: StopSignal,
    late: Callable[[Result], None],
    carrier: Callable[[Callable[[], None]], Awaitable[None]] = in_worker,
) -> Result:
    """Run in another thread with this context. When cancelled, give the thread a moment to notice; it cannot be killed.

    Where no thread can be started it runs here, and the loop stands still meanwhile.

    A thread that ends in that moment without having noticed has done its work: its result is kept. One that does not end is left
    behind, and what it gives is told to ``late``: on the loop, or in the thread if the loop has been closed. One that had not
    begun when the cancel came never begins. ``carrier`` calls what it is given in the thread that is meant.

    Raises:
        CancelledError: the caller was cancelled; with ``STILL_RUNNING`` if the thread was left behind.
    """
    if not threads_can_start():
        await asyncio.sleep(0)  # a stop that has come is heard before it begins
        return work()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    result: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def settle() -> None:
        ended.set()
        if signal.left_behind:
            late(result.result())

    def carry() -> None:
        if not result.set_running_or_notify_cancel():
            return  # a stop came before this thread did: nobody waits
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: ASYNC103, BLE001 - raised where it is waited for
            result.set_exception(error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop has been closed
            settle()

    try:
        await carrier(carry)
        return result.result()
    except asyncio.CancelledError:  # noqa: ASYNC103 - who stopped this run was cancelled too: it ends, and loses no result
        signal.set()
        if result.cancel():  # the thread had not come to it, and never begins
            raise
        try:
            async with asyncio.timeout(signal.grace):
                await ended.wait()
        except TimeoutError:
            if not result.done():  # it may have ended in the very moment in which the time was over
                signal.left_behind = True
                raise asyncio.CancelledError(STILL_RUNNING) from None  # noqa: ASYNC104 - the same cancel, with what is known now
            await ended.wait()  # what it has said is on its way
        if signal.noticed:
            raise
        return result.result()  # noqa: ASYNC104
