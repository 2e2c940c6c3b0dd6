"""A loop whose time is a number: waiting costs nothing, every turn is counted, and threads move one at a time.

So a story plays the same way each time: what a seed did once it does again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import selectors
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio.to_thread

_workers = concurrent.futures.ThreadPoolExecutor(max_workers=32, thread_name_prefix="fuzz")


class Hang(Exception):  # noqa: N818 - what happened
    """Nothing is ready, nothing is scheduled, and the story has nothing more to do: it would wait for ever."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps over the time in which nothing happens.

    Attributes:
        on_turn: Called before each turn with its number; tells whether it did something.
        on_idle: Called when the loop would wait for ever; tells whether it did something about it.
        threads: How many sync tools have not returned.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.turn = self.threads = 0
        self.on_turn: Callable[[int], bool] = lambda _: False
        self.on_idle: Callable[[], bool] = lambda: False
        self._at_rest = threading.Event()
        self._held: set[threading.Event] = set()
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def hold(self, seconds: float) -> None:
        """Called by a sync tool in its thread: wait for ``seconds`` of the loop's time."""
        go = threading.Event()
        self._held.add(go)
        self.call_soon_threadsafe(self.call_later, seconds, self._release, go)
        self._at_rest.set()
        go.wait()

    def start_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        """Run ``work`` in a thread, and let it come to rest: it has returned, or it holds."""
        future: asyncio.Future[object] = self.create_future()
        context = contextvars.copy_context()

        def settle(value: object, error: BaseException | None) -> None:
            self.threads -= 1
            if not future.done():
                _ = future.set_result(value) if error is None else future.set_exception(error)

        def carry() -> None:
            value, failure = None, None
            try:
                value = context.run(work)
            except BaseException as error:  # noqa: ASYNC103, BLE001 - handed on
                failure = error
            self.call_soon_threadsafe(settle, value, failure)
            self._at_rest.set()

        self.threads += 1
        self._step(lambda: _workers.submit(carry))
        return future

    def let_go(self) -> None:
        """Release what still holds, before the loop is closed."""
        for go in tuple(self._held):
            self._release(go)

    def _release(self, go: threading.Event) -> None:
        self._held.discard(go)
        self._step(go.set)

    def _step(self, begin: Callable[[], object]) -> None:
        self._at_rest.clear()
        begin()
        if not self._at_rest.wait(10):
            raise Hang("a sync tool neither returned nor held")


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        loop.turn += 1
        acted = loop.on_turn(loop.turn)
        ready = super().select(0)
        if ready or acted or timeout == 0:
            return ready
        if timeout is None:
            if not loop.on_idle():
                raise Hang("nothing is ready and nothing is scheduled")
            return super().select(0)
        loop.now += timeout
        return []


async def _run_sync(func: Callable[[], object], **_: object) -> object:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(0)
    return await loop.start_thread(func)


@contextmanager
def threads_in_step() -> Generator[None]:
    """Sync tools run in threads that the loop waits for, in place of anyio's, which come back when they like."""
    real = anyio.to_thread.run_sync
    anyio.to_thread.run_sync = _run_sync
    try:
        yield
    finally:
        anyio.to_thread.run_sync = real
