"""asyncio, twice: the loop that carries runs, and tasks side by side.

Runs are carried by the loop thread, which goes on while cells are busy; by the kernel's own loop if that is asked for; and by
the one loop that there is where no thread can be started (Pyodide).

Module state with a documented life: made when first needed, ended by ``LoopThread.close()`` (tests) or with the process.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

from agent_widgets.errors import InputError
from agent_widgets.mainthread import MainThread

Result = TypeVar("Result")

LoopName = Literal["own", "kernel"]
"""Which loop carries a session's runs: the loop thread's, or the one that the kernel itself runs on."""


@cache
def threads_can_start() -> bool:
    """Whether this Python can start threads. Pyodide cannot."""
    probe = threading.Thread(target=int, name="agent-widgets probe", daemon=True)
    try:
        probe.start()
    except RuntimeError:
        return False
    probe.join()
    return True


def loop_named(name: LoopName) -> asyncio.AbstractEventLoop:
    """The loop of this name. "kernel" is the loop that runs here, and so is "own" where no thread can be started.

    Raises:
        InputError: no loop runs here, or there is no such name.
    """
    if name not in ("own", "kernel"):
        raise InputError(f"loop is {name!r}; it must be 'own' or 'kernel'.")
    if name == "own" and threads_can_start():
        return LoopThread.get().loop
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InputError(
            "loop='kernel': no event loop runs here. Call it in a notebook's cell, or where `await` works; "
            "leave loop out, and the run has a thread of its own."
        ) from None


def result_of(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run ``coroutine`` on a loop of another thread and wait for it here. An interrupt of this thread cancels it, and goes on."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        MainThread.get().wait_for(future)
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


class LoopThread:
    """An asyncio loop that runs in a thread of its own."""

    _one: ClassVar[LoopThread | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        if not threads_can_start():  # before there is another loop: in Pyodide a new one takes the place of the one that runs
            raise InputError(
                "This Python cannot start threads (Pyodide, as in JupyterLite), so nothing can be waited for here without await: "
                "await agent.reply(…), await run."
            )
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._carry, name="agent-widgets loop", daemon=True)
        self._thread.start()

    @classmethod
    def get(cls) -> LoopThread:
        """The one of this process.

        Raises:
            InputError: no thread can be started.
        """
        with cls._making:
            if cls._one is None or not cls._one.is_alive:
                cls._one = cls()
            return cls._one

    @classmethod
    def is_current(cls) -> bool:
        """Whether the caller is on the loop thread. Makes none."""
        return cls._one is not None and cls._one.is_here

    @classmethod
    def carries(cls, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is its loop. Makes none."""
        return cls._one is not None and cls._one.loop is loop

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Cancel what runs, end the thread."""
        if self.is_alive:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result(5)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5)
            self.loop.close()

    def _carry(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


def on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is on this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=2)


class LastStep(asyncio.Event):
    """Set when a reply is to end after its step, and so are those below it: what sub-agents do is part of the step."""

    def __init__(self) -> None:
        super().__init__()
        self._below: weakref.WeakSet[LastStep] = weakref.WeakSet()

    def below(self) -> LastStep:
        """One that is set with this one, or alone."""
        made = LastStep()
        self._below.add(made)
        if self.is_set():
            made.set()
        return made

    def set(self) -> None:
        """The step in which it is shall be its last."""
        super().set()
        for below in self._below:
            below.set()


class SideBySide:
    """Coroutines that run side by side, each in a task of its own.

    Not a ``TaskGroup``: that waits for ever for one that swallows its cancel, and one that is cancelled alone ends the others.
    """

    def __init__(self, *, patience: float, left_behind: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            patience: Seconds that a cancelled one may take for its clean-up.
            left_behind: Told the name of one that has not ended then. Nobody waits for it any more.
        """
        self._patience = patience
        self._left_behind = left_behind
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waits: dict[str, asyncio.Future[None]] = {}

    async def run(self, work: Mapping[str, Coroutine[object, object, None]]) -> None:
        """Until all have ended. When cancelled, cancel them all. One that raises makes this raise, when all have ended."""
        if not work:
            return
        loop = asyncio.get_running_loop()
        for name, coroutine in work.items():
            task = self._tasks[name] = asyncio.create_task(coroutine, name=name)
            self._waits[name] = loop.create_future()
            task.add_done_callback(lambda _, name=name: self._let_go(name))
        try:
            await asyncio.wait(self._waits.values())
        except asyncio.CancelledError:
            still = {name: self._tasks[name] for name, wait in self._waits.items() if not wait.done()}
            for task in still.values():
                task.cancel()
            if still:
                await asyncio.wait(still.values(), timeout=self._patience)
            for name, task in still.items():
                if not task.done():
                    self._left_behind(name)
                self._let_go(name)
            raise
        for task in self._tasks.values():
            if task.done() and not task.cancelled():
                task.result()

    def is_running(self, name: str) -> bool:
        """Whether it has not ended, and is not left behind."""
        return name in self._waits and not self._waits[name].done()

    def stop(self, name: str) -> None:
        """Cancel one of them and let the others go on."""
        task = self._tasks[name]
        if not task.cancelling():  # a second press is no second cancel: it would cut the clean-up
            task.cancel()
            asyncio.get_running_loop().call_later(self._patience, self._give_up, name)

    def _give_up(self, name: str) -> None:
        if not self._waits[name].done() and not self._tasks[name].done():
            self._left_behind(name)
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        if not self._waits[name].done():
            self._waits[name].set_result(None)


async def within(work: Coroutine[Any, Any, Result], *, seconds: float, patience: float) -> tuple[asyncio.Task[Result], bool]:
    """Run ``work`` as a task for at most ``seconds``, then cancel it and wait ``patience`` seconds for its clean-up.

    Not ``asyncio.timeout``: that waits for ever for one that swallows its cancel. Gives the task, and whether its time was up;
    one that is not done was left behind. A cancel of the caller goes to ``work``, and what ``work`` makes of it is in the task,
    as if it had been awaited here.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # left behind, nobody may look at it
    late = False
    try:
        late = not (await asyncio.wait([task], timeout=seconds))[0]
        if late:
            task.cancel()
            await asyncio.wait([task], timeout=patience)
    except asyncio.CancelledError:  # noqa: ASYNC103 - it is in the task, unless the work swallowed it, as when awaited
        if not late:
            task.cancel()
        await asyncio.wait([task])  # as patient as the caller's caller
        if task.cancelled():
            task.result()
    return task, late
