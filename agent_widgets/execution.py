"""How a tool is executed: on the loop, in a thread, or in a process; at once, or piece by piece.

An async function runs on the run's loop and is cancelled there; a sync one runs in a worker thread (``threads``), on the main
thread (``mainthread``), or in a process of its own (``processes``). What a generator yields is told at once. Whatever a function
raises is an outcome; only a cancel from outside goes on up.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from agent_widgets.events import Event
from agent_widgets.loops import on_loop, within
from agent_widgets.mainthread import MainThread
from agent_widgets.messages import DataBlock, JsonObject, TextBlock
from agent_widgets.outcomes import RAISED_BY_TOOLS, Pieces, ToolOutcome, failed, failed_with, succeeded
from agent_widgets.processes import KILL_SECONDS, in_process
from agent_widgets.state import INTERRUPTED_TEXT
from agent_widgets.threads import StopSignal, in_thread, in_worker, stopping

TIMEOUT_GRACE_SECONDS = 2.0
"""How long a tool that has exceeded its timeout may take for its clean-up, before it is left behind."""

CLOSE_SECONDS = 1.0
"""How long the ``finally`` of a stopped async generator may take."""

STILL_RUNNING_TEXT = "It could not be ended and is still running: its effects may still happen."

Sink = Callable[[str, JsonObject], None]
"""Takes what a tool prints (``"stdout"`` or ``"stderr"``, ``{"text": str}``) or displays (``"display"``, ``{"data": {...}}``);
all that it takes is in ``outputs.Outputs``. Any thread may call it."""

output_sink: contextvars.ContextVar[Sink | None] = contextvars.ContextVar("agent_widgets_sink", default=None)
"""Where this tool's printing goes. A context variable: worker threads that copy their context inherit it."""

at_end: list[Callable[[Sink], None]] = []
"""Called with a tool's sink when its function has returned, in its context and thread; ``capture`` puts in what shows figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """Where an execution says what happens. Called on the loop.

    Attributes:
        emit: Takes each piece of the result when it is there, and any event that belongs into the run's log.
        late: Takes what an execution gives that was left behind; called in its thread if the loop has been closed.
    """

    emit: Callable[[TextBlock | DataBlock | Event], None]
    late: Callable[[ToolOutcome], None]


class Execution:
    """One execution of a function with its arguments."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        given: dict[str, Any],
        outlet: Outlet,
        *,
        where: Literal["process", "main"] | None = None,
    ) -> None:
        """``where`` a sync function runs: in a process, on the main thread, or in a worker thread."""
        self._name = name
        self._function = function
        self._given = given
        self._outlet = outlet
        self._where = where
        self._stop = StopSignal(KILL_SECONDS if where == "process" else None)
        self._loop = asyncio.get_running_loop()

    async def perform(self) -> ToolOutcome:
        """Run it. A failure is an outcome, not an exception; a cancel is raised."""
        stopping.set(self._stop)
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            return await self._carry()
        except RAISED_BY_TOOLS as error:  # noqa: ASYNC103 - a tool's own cancel, when nobody has cancelled this task
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancels:
                raise
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C: it is not the tool's
            return failed_with(error, self._name)  # noqa: ASYNC104

    async def perform_within(self, seconds: float) -> ToolOutcome:
        """The same, for at most ``seconds``."""
        task, late = await within(self.perform(), seconds=seconds, patience=TIMEOUT_GRACE_SECONDS)
        if not late:
            return task.result()
        text = f"{self._name} exceeded its timeout of {seconds:g} s."
        if not task.done():
            task.add_done_callback(lambda done: None if done.cancelled() else self._late(done.result()))
        if self._stop.left_behind or not task.done():
            return failed(f"{text} {STILL_RUNNING_TEXT}", still_running=True)
        if task.cancelled():
            return failed(text)
        outcome = task.result()  # what it did is done: the model is to know
        if outcome.state == "error":
            return failed(f"{text} It ended with {outcome.text}", **outcome.metadata)
        return failed(f"{text} It gave, too late: {outcome.text}")

    async def _carry(self) -> ToolOutcome:
        if self._where == "process":
            return await in_thread(self._in_process, self._stop, self._late)
        if inspect.iscoroutinefunction(self._function):
            try:
                result = await cast("Callable[..., Awaitable[object]]", self._function)(**self._given)
            finally:
                _ended()
        elif inspect.isasyncgenfunction(self._function):
            result: object = self._function(**self._given)
        else:
            carrier = partial(MainThread.get().carry, waits=_waits) if self._where == "main" else in_worker
            result = await in_thread(self._in_thread, self._stop, self._late, carrier)
        if inspect.isawaitable(result):  # a wrapper around an async function
            result = await result
        if inspect.isasyncgen(result):
            return await self._stream(result)
        return result if isinstance(result, ToolOutcome) else succeeded(result)

    async def _stream(self, source: AsyncGenerator[object, Any]) -> ToolOutcome:
        """Tell what it yields. One that swallows its cancel is closed at its next piece."""
        pieces = Pieces(self._outlet.emit)
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            async for piece in source:
                pieces.add(piece)
                await asyncio.sleep(0)  # one that never waits must not hold the loop
                if task is not None and task.cancelling() > cancels:
                    raise asyncio.CancelledError
            return pieces.outcome()
        finally:
            pieces.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await source.aclose()
            _ended()

    # -- in a worker thread -------------------------------------------------------------------------------------

    def _in_thread(self) -> object:
        """Call it. Only what is to be awaited is given as it is."""
        try:
            with MainThread.get().interruptible():
                result = self._function(**self._given)
                if inspect.isgenerator(result):
                    result = self._drain(cast("Generator[object, None, object]", result))
            if isinstance(result, ToolOutcome) or inspect.isawaitable(result) or inspect.isasyncgen(result):
                return result
            return succeeded(result)
        except RAISED_BY_TOOLS as error:
            if isinstance(error, KeyboardInterrupt) and MainThread.get().is_here:  # ■
                self._stop.noticed = True
                return ToolOutcome(state="interrupted", content=(TextBlock(INTERRUPTED_TEXT),))
            return failed_with(error, self._name)
        finally:
            _ended()

    def _drain(self, source: Generator[object, None, object]) -> ToolOutcome:
        """Tell what it yields. A stop closes it at its next piece."""
        pieces = Pieces(self._emit)
        with contextlib.closing(pieces), contextlib.closing(source):
            while True:
                try:
                    piece = next(source)
                except StopIteration as end:
                    return pieces.outcome(end.value)
                pieces.add(piece)
                if self._stop.is_set:
                    self._stop.noticed = True
                    return pieces.outcome()

    def _in_process(self) -> ToolOutcome:
        sink = output_sink.get()

        def printed(kind: str, text: str) -> None:
            _ = getattr(sys, kind).write(text) if sink is None else sink(kind, {"text": text})

        return in_process(self._name, self._function, self._given, pieces=Pieces(self._emit), printed=printed, stop=self._stop)

    def _emit(self, piece: TextBlock | DataBlock) -> None:
        if on_loop(self._loop):  # no thread could be started
            self._outlet.emit(piece)
            return
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody listens
            self._loop.call_soon_threadsafe(self._outlet.emit, piece)

    def _late(self, result: object) -> None:
        """What came after it was left behind. Who has noticed the stop was interrupted, whatever he gives."""
        if inspect.iscoroutine(result):
            result.close()
        outcome = result if isinstance(result, ToolOutcome) else ToolOutcome(state="interrupted", content=())
        self._outlet.late(replace(outcome, state="interrupted") if self._stop.noticed else outcome)


def _waits(text: str) -> None:
    """Say what a call waits for; ``""`` when it goes on."""
    sink = output_sink.get()
    if sink is not None:
        sink("waits", {"text": text})


def _ended() -> None:
    """A function has returned: what it has left open is shown."""
    sink = output_sink.get()
    if sink is not None:
        for show in at_end:
            show(sink)
