"""The ``openai`` clients of one model: one for each event loop, closed when that loop shuts down."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CLOSE_SECONDS = 1.0
"""How long closing a connection may take."""


class ClientPerLoop:
    """One client for each event loop: a connection that was opened on one fails on another.

    Each client is held by an async generator that closes it. The loop itself ends that generator when it shuts down, and
    also when nobody holds it any more, which is when this object is gone.
    """

    def __init__(self, make: Callable[[], AsyncOpenAI]) -> None:
        self._make = make
        self._lock = threading.Lock()  # loops of several threads come here
        self._open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[AsyncOpenAI, None]]]
        self._open = weakref.WeakKeyDictionary()
        # Without this hold on it a client is collected together with the model, and its sockets before it has closed them.
        weakref.finalize(self, self._open.clear).atexit = False

    async def get(self) -> AsyncOpenAI:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for old in [other for other in self._open if other.is_closed()]:
                del self._open[old]
            found = self._open.get(loop)
        if found is not None and not found[0].is_closed():
            return found[0]
        life = _life(self._make())
        client = await anext(life)
        with self._lock:
            self._open[loop] = (client, life)
        return client

    async def aclose(self) -> None:
        """Close the client of the running loop before this returns, those of others soon."""
        loop = asyncio.get_running_loop()
        with self._lock:
            mine = self._open.pop(loop, None)
            self._open.clear()
        if mine is not None:
            await mine[1].aclose()


async def _life(client: AsyncOpenAI) -> AsyncGenerator[AsyncOpenAI, None]:
    try:
        yield client
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await client.close()
