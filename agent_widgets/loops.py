"""asyncio, twice: the loop thread, which carries runs while cells are busy, and tasks side by side.

Module state with a documented life: made when first needed, ended by ``LoopThread.close()`` (tests) or with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

from agent_widgets.errors import InputError

Result = TypeVar("Result")


class LoopThread:
    """An asyncio loop that runs in a thread of its own."""

    _one: ClassVar[LoopThread | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._carry, name="agent-widgets loop", daemon=True)
        self._thread.start()

    @classmethod
    def get(cls) -> LoopThread:
        """The one of this process."""
        with cls._making:
            if cls._one is None or not cls._one.is_alive:
                cls._one = cls()
            return cls._one

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def run_sync(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run ``coroutine`` on the loop and wait for it here. An interrupt of this thread cancels it, and goes on.

        Raises:
            InputError: called on the loop thread, where it would wait for itself.
        """
        if self.is_here:
            coroutine.close()
            raise InputError(
                "This is the thread that carries runs, and it cannot wait for itself. Use await here: await agent.reply(…)"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

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


async def together(
    work: Mapping[str, Coroutine[object, object, None]], *, patience: float, left_behind: Callable[[str], None]
) -> None:
    """Run coroutines side by side until all have ended. When cancelled, cancel them all and wait ``patience`` seconds.

    Not a ``TaskGroup``: that waits for ever for one that swallows its cancel. Who does not end in time is named to
    ``left_behind``.
    """
    if not work:
        return
    tasks = {asyncio.create_task(coroutine, name=name): name for name, coroutine in work.items()}
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        _, stubborn = await asyncio.wait(tasks, timeout=patience)
        for task in stubborn:
            left_behind(tasks[task])
        raise
    for task in tasks:
        task.result()


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
