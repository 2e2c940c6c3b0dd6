"""How a tool is executed, and how its printing finds its card.

An async function runs on the run's loop and is cancelled there; a sync one runs in a worker thread, which nobody can kill:
it may ask ``stop_requested()``. Whatever a function raises is an outcome; only a cancel from outside goes on up.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio.to_thread

from agent_widgets.loops import within
from agent_widgets.messages import JsonObject
from agent_widgets.outcomes import ToolOutcome, failed, succeeded, text_of

THREAD_GRACE_SECONDS = 0.2
"""How long a stopped sync tool may take to notice, before its result says that it still runs."""

TIMEOUT_GRACE_SECONDS = 2.0
"""How long a tool that has exceeded its timeout may take for its clean-up, before it is left behind."""

STILL_RUNNING_TEXT = "It could not be ended and is still running: its effects may still happen."

STILL_RUNNING = "the tool's thread is still running"
"""Carried by the ``CancelledError`` of a sync tool that did not notice the stop."""

Sink = Callable[[str, JsonObject], None]
"""Takes what a tool prints (``"stdout"`` or ``"stderr"``, ``{"text": str}``) or displays (``"display"``, ``{"data": {...}}``).
Any thread may call it."""

output_sink: contextvars.ContextVar[Sink | None] = contextvars.ContextVar("agent_widgets_sink", default=None)
"""Where this tool's printing goes. A context variable: worker threads that copy their context inherit it."""


class _StopSignal:
    """Whether a tool is to stop, whether it has noticed, and whether its thread was left behind."""

    def __init__(self) -> None:
        self.is_set = self.noticed = self.left_behind = False


_stopping: contextvars.ContextVar[_StopSignal | None] = contextvars.ContextVar("agent_widgets_stopping", default=None)


def stop_requested() -> bool:
    """Whether the run that this tool works for is being stopped. Ask it in the loop of a long sync tool, and return.

    A tool that was told so has an interrupted result, whatever it returns.
    """
    signal = _stopping.get()
    if signal is None or not signal.is_set:
        return False
    signal.noticed = True
    return True


class Execution:
    """One execution of a function with its arguments."""

    def __init__(self, name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
        self._name = name
        self._function = function
        self._given = given
        self._stopping = _StopSignal()

    async def perform(self, limit: float | None = None) -> ToolOutcome:
        """Run it, for at most ``limit`` seconds. A failure is an outcome, not an exception; a cancel is raised."""
        _stopping.set(self._stopping)
        try:
            if limit is None:
                return succeeded(await self._call())
            return await self._call_within(limit)
        except asyncio.CancelledError:  # noqa: ASYNC103 - a tool's own, when nobody has cancelled this task
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return failed(f"{self._name} was cancelled from inside.")  # noqa: ASYNC104
        # Whatever a tool raises is a result that the model reads; exit() would end the loop.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return failed(f"{type(error).__name__}: {error}", traceback="".join(traceback.format_exception(error)))

    async def _call(self) -> object:
        if inspect.iscoroutinefunction(self._function):
            return await cast("Callable[..., Awaitable[object]]", self._function)(**self._given)
        result = await _in_thread(lambda: self._function(**self._given), self._stopping)
        return await result if inspect.isawaitable(result) else result  # a wrapper around an async function

    async def _call_within(self, seconds: float) -> ToolOutcome:
        task, late = await within(self._call(), seconds=seconds, patience=TIMEOUT_GRACE_SECONDS)
        if not late:
            return succeeded(task.result())
        text = f"{self._name} exceeded its timeout of {seconds:g} s."
        if self._stopping.left_behind or not task.done():
            return failed(f"{text} {STILL_RUNNING_TEXT}", still_running=True)
        if task.cancelled():
            return failed(text)
        if error := task.exception():
            return failed(f"{text} It ended with {type(error).__name__}: {error}")
        return failed(f"{text} It gave, too late: {text_of(task.result())}")  # what it did is done: the model is to know


async def _in_thread(call: Callable[[], object], stopping: _StopSignal) -> object:
    """Run in a worker thread with this context. When cancelled, give the thread a moment to notice; it cannot be killed.

    A thread that ends in that moment without having noticed has done its work: its result is kept. One that had not begun
    never does.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    result: concurrent.futures.Future[object] = concurrent.futures.Future()

    def work() -> object:
        if not result.set_running_or_notify_cancel():
            return None
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
            raise
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)
        return result.result()

    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except asyncio.CancelledError:  # noqa: ASYNC103 - who stopped this run was cancelled too: it ends, and loses no result
        stopping.is_set = True
        if result.cancel():  # the thread had not come to it
            raise
        try:
            async with asyncio.timeout(THREAD_GRACE_SECONDS):
                await ended.wait()
        except TimeoutError:
            if not result.done():  # it may have ended in the very moment in which the time was over
                stopping.left_behind = True
                raise asyncio.CancelledError(STILL_RUNNING) from None  # noqa: ASYNC104 - the same cancel, with what is known now
        if stopping.noticed:
            raise
        return result.result()  # noqa: ASYNC104
