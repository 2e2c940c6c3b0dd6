"""How a caller waits for a run. A notebook has a way of its own (``cells.CellWaiter``): this one is everybody else's.

Law of this room: a caller who is interrupted or cancelled stops the run, waits for its clean-up within a limit, and goes on with
its own exception. Module state: ``surroundings``, set once by the room that knows what a notebook is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, Protocol

from agent_widgets.decisions import StopSource
from agent_widgets.errors import InputError
from agent_widgets.mainthread import MainThread

CLEAN_UP_SECONDS = 5.0
"""How long a caller who was cancelled waits for the run's own clean-up before the cancel goes on."""


class Waitable(Protocol):
    """What a waiter needs of a run."""

    @property
    def ended(self) -> concurrent.futures.Future[Any]:
        """Done when it has ended."""
        ...

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

    def abandon(self) -> None:
        """Nobody waits for it any more: end it."""
        ...


class Waiter(Protocol):
    """How a caller waits for a run: a notebook cell must also hear ■ and keep clicks flowing."""

    async def wait(self, run: Waitable) -> None:
        """Return when the run has ended."""
        ...

    async def until(self, arrived: asyncio.Future[None], run: Waitable) -> None:
        """Return when something of the run has arrived."""
        ...

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough."""
        ...


class Surroundings:
    """How callers wait who were given no waiter: as the cell does that they are in, or plainly."""

    def __init__(self) -> None:
        self.notebook: Callable[[], Waiter | None] = lambda: None
        """The waiter of the notebook around this process, if there is one; ``kernel`` says so when it is imported."""

    def waiter(self) -> Waiter:
        """The one to wait with here."""
        return self.notebook() or PlainWaiter()


surroundings = Surroundings()


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
            if not run.is_over:
                run.abandon()
            raise

    async def until(self, arrived: asyncio.Future[None], run: Waitable) -> None:  # noqa: ARG002 - a notebook's waiter stops it
        """Return when something of the run has arrived."""
        await arrived

    def block(self, run: Waitable, timeout: float | None) -> bool:
        """Block this thread until the run has ended; ``False`` when ``timeout`` seconds were not enough.

        Ctrl-C stops the run and goes on after its clean-up, a second one at once.

        Raises:
            InputError: called on the loop that carries the run, where it would wait for itself.
        """
        if not run.is_over and run.is_carried_here:
            raise InputError("run.wait() here would block the loop that carries the run, for ever. Use  await run")
        try:
            return MainThread.get().wait_for(run.ended, timeout)
        except KeyboardInterrupt:
            run.stop(reason="interrupted by Ctrl-C", source="user")
            concurrent.futures.wait([run.ended], CLEAN_UP_SECONDS)
            raise
