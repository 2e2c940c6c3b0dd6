"""Asking for a reply and reading its events: by one reader, who may be slow, be cancelled, or walk away.

``EventStream`` is not an async generator: of one that is dropped in the middle, the loop would learn a turn later, when its
clean-up is scheduled; until then nobody knows that nobody reads.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

from agent_widgets.events import Event
from agent_widgets.runs import Run
from agent_widgets.waiting import CLEAN_UP_SECONDS

Begin = Callable[[Callable[[Event], None]], Awaitable[Run | None]]
"""Starts a run that gives its events to the function; ``None``: there was nothing to start, and those given are all."""


class EventStream(AsyncIterator[Event]):
    """The events of one reply, as they happen. It begins with the first ``anext``; dropped before its end, it stops the reply.

    A reader that is cancelled while it waits here gets the closing events, then its ``CancelledError``.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._run: Run | None = None
        self._has_begun = self._is_over = False
        self._cancelled: asyncio.CancelledError | None = None

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        if not self._has_begun:
            await self._start()
        event = await self._next()
        if event is not None:
            return event
        self._is_over = True
        if self._cancelled is not None:
            raise self._cancelled
        if self._run is not None:
            self._run.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop the reply if it has not ended, and wait until it has.

        Raises:
            asyncio.CancelledError: the reader was cancelled before, and closes the stream on one of the closing events.
        """
        if self._is_over:
            return
        self._is_over = True
        if self._run is not None and not self._run.is_over:
            self._run.abandon()
            await asyncio.wait([asyncio.wrap_future(self._run.ended)], timeout=CLEAN_UP_SECONDS)
        if self._cancelled is not None:
            raise self._cancelled

    def __del__(self) -> None:
        if not self._is_over and self._run is not None:
            self._run.abandon()

    async def _start(self) -> None:
        self._has_begun = self._is_over = True  # over, unless it begins
        put = self._queue.put_nowait  # not a method of this object: a listener would keep a dropped stream alive
        self._run = await self._begin(put)
        self._is_over = False
        if self._run is None:
            put(None)
        else:
            self._run.ended.add_done_callback(lambda _: put(None))

    async def _next(self) -> Event | None:
        try:
            return await self._queue.get()
        except asyncio.CancelledError as error:  # noqa: ASYNC103 - raised above, after the closing events were given
            if self._cancelled is not None or self._run is None:
                raise
            self._cancelled = error
            self._run.stop(reason="the reader was cancelled")
        return await self._queue.get()  # noqa: ASYNC120 - the run is bounded, and a second cancel is raised


class Asked:
    """A reply that somebody has asked for. ``stopped`` is the reason of a stop that came before it began; ``None``: none."""

    __slots__ = ("__weakref__", "stopped")

    def __init__(self) -> None:
        self.stopped: str | None = None


class Unbegun:
    """The replies that were asked for and have not begun. One that is dropped unawaited is forgotten. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: weakref.WeakSet[Asked] = weakref.WeakSet()

    def add(self) -> Asked:
        """One more was asked for."""
        asked = Asked()
        with self._lock:
            self._waiting.add(asked)
        return asked

    def begin(self, asked: Asked) -> str | None:
        """It is about to begin; gives the reason of its stop, if there was one."""
        with self._lock:
            self._waiting.discard(asked)
            return asked.stopped

    def stop(self, reason: str) -> None:
        """None of them is to begin."""
        with self._lock:
            for asked in self._waiting:
                asked.stopped = reason
