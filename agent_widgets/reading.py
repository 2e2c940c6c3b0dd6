"""Asking for a reply and reading its events: by one reader, who may be slow, be cancelled, or walk away.

``EventStream`` is not an async generator: of one that is dropped in the middle, the loop would learn a turn later, when its
clean-up is scheduled; until then nobody knows that nobody reads.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from agent_widgets.decisions import StopSource
from agent_widgets.errors import AgentStopped
from agent_widgets.events import Event
from agent_widgets.loops import on_loop
from agent_widgets.messages import Msg
from agent_widgets.runs import Run
from agent_widgets.waiting import CLEAN_UP_SECONDS, surroundings

Begin = Callable[[Callable[[Event], None]], Awaitable[Run | None]]
"""Starts a run that gives its events to the function; ``None``: there was nothing to start, and those given are all."""


class EventStream(AsyncIterator[Event]):
    """The events of one reply, as they happen. It begins with the first ``anext``; dropped before its end, it stops the reply.

    A reader that is cancelled while it waits here gets the closing events, then its ``CancelledError``; in a cell that was
    interrupted, ``AgentStopped``. A second time it is raised at once.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._events = _Arrivals()
        self._run: Run | None = None
        self._has_begun = self._is_over = False
        self._cut_by: BaseException | None = None

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
        if self._cut_by is not None:
            raise self._cut_by
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
        if self._cut_by is not None:
            raise self._cut_by

    def __del__(self) -> None:
        if not self._is_over and self._run is not None:
            self._run.abandon()

    async def _start(self) -> None:
        self._has_begun = self._is_over = True  # over, unless it begins
        put = self._events.put  # not a method of this object: a listener would keep a dropped stream alive
        self._run = await self._begin(put)
        self._is_over = False
        if self._run is None:
            put(None)
        else:
            self._run.ended.add_done_callback(lambda _: put(None))

    async def _next(self) -> Event | None:
        while not self._events.waiting:
            try:
                await self._events.arrive(self._run)
            except (asyncio.CancelledError, AgentStopped) as error:  # noqa: ASYNC103 - raised above, after the closing events
                if self._run is None:
                    raise
                if self._cut_by is not None:
                    self._run.abandon()
                    raise
                self._cut_by = error
                self._run.stop(reason="the reader was cancelled")
        return self._events.waiting.popleft()


class _Arrivals:
    """Events on their way to the reader. ``None`` is the last one."""

    def __init__(self) -> None:
        self.waiting: deque[Event | None] = deque()
        self._waiter = surroundings.waiter()
        self._arrived: asyncio.Future[None] | None = None

    def put(self, event: Event | None) -> None:
        self.waiting.append(event)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def arrive(self, run: Run | None) -> None:
        """Return when there is one."""
        self._arrived = asyncio.get_running_loop().create_future()
        if run is None:
            await self._arrived
        else:
            await self._waiter.until(self._arrived, run)


class Asked:
    """A reply that somebody has asked for. ``stopped`` is the reason of a stop that came before it began; ``None``: none."""

    __slots__ = ("__weakref__", "run", "stopped")

    def __init__(self) -> None:
        self.stopped: str | None = None
        self.run: Run | None = None


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


class SyncReply:
    """A reply on a loop that somebody waits for without ``await``: a ``Waitable``, also before its run is made."""

    def __init__(self, reply: Coroutine[Any, Any, Msg], asked: Asked, loop: asyncio.AbstractEventLoop) -> None:
        self._asked = asked
        self._loop = loop
        self.ended = asyncio.run_coroutine_threadsafe(reply, self._loop)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ended.done()

    @property
    def is_carried_here(self) -> bool:
        """Whether the caller is on its loop."""
        return on_loop(self._loop)

    def stop(self, *, reason: str = "", source: StopSource = "code") -> None:
        """End it. Any thread."""
        self._loop.call_soon_threadsafe(self._stop, reason, source)

    def abandon(self) -> None:
        """Nobody waits for it any more: end it. Any thread."""
        if self._asked.run is not None:
            self._asked.run.abandon()
        self.stop(reason="the caller walked away")

    def _stop(self, reason: str, source: StopSource) -> None:
        if self._asked.run is None:
            self.ended.cancel()  # it waits for the end of an earlier one
        else:
            self._asked.run.stop(reason=reason, source=source)
