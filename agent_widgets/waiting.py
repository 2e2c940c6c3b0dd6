"""How a caller waits for a run. A notebook has a way of its own (``cells.CellWaiter``): this one is everybody else's."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Protocol

from agent_widgets.decisions import StopSource
from agent_widgets.errors import InputError
from agent_widgets.mainthread import MainThread

CLEAN_UP_SECONDS = 5.0
"""How long a caller who was cancelled waits for the run's own clean-up before the cancel goes on."""


class Waitable(Protocol):
    """What a waiter needs of a run."""

    ended: concurrent.futures.Future[None]

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def is_carried_here(self) -> bool:
        """Whether the caller is on the loop that carries it."""
        ...

    def stop(self, *, reason: str = "", source: StopSource = "code") -> None:
        """End it."""
        ...


class Waiter(Protocol):
    """How a caller waits for a run: a notebook cell must also hear ■ and keep clicks flowing."""

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended."""
        ...

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough."""
        ...


class PlainWaiter:
    """Waits without a notebook around it. A cancelled caller stops the run, and the cancel goes on after its clean-up."""

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended."""
        try:
            with MainThread.get().served_here():
                await asyncio.shield(asyncio.wrap_future(run.ended))
        except asyncio.CancelledError:
            run.stop(reason="the caller was cancelled")
            await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=CLEAN_UP_SECONDS)
            raise

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough.

        Raises:
            InputError: called on the loop that carries the run, where it would wait for itself.
        """
        if not run.is_over and run.is_carried_here:
            raise InputError("run.wait() here would block the loop that carries the run, for ever. Use  await run")
        return MainThread.get().wait_for(run.ended, timeout)
