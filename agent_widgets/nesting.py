"""Waiting without ``await`` for work on the loop that one is on: the loop is run inside itself.

The only room that knows ``nest_asyncio2`` (extra ``nest``), and it imports it only when somebody waits so. That package
changes asyncio for the whole process, and for good; here its changes end with the wait. Its predecessor ``nest_asyncio`` makes
ipykernel 7.1 and newer lose the cells that are queued meanwhile, and is never used.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from agent_widgets.errors import InputError
from agent_widgets.loops import on_loop, result_of, threads_can_start
from agent_widgets.runs import current_run

Result = TypeVar("Result")

_BLOCKS = "This would block the loop that carries the run, for ever."
_AWAIT = "Use  await run  or  await agent.reply(…)"


def run_sync(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run ``coroutine`` on ``loop`` and wait for it here, on whichever thread. An interrupt cancels it, and goes on.

    Raises:
        InputError: it is the loop that runs here, and it cannot be run inside itself.
    """
    if not on_loop(loop):
        return result_of(coroutine, loop)
    try:
        _check(loop)
        with _nested(loop):
            return _run_inside(coroutine, loop)
    finally:
        coroutine.close()  # if it could not begin; one that has ended does not mind


def _check(loop: asyncio.AbstractEventLoop) -> None:
    if current_run() is not None:
        raise InputError(f"{_BLOCKS} In a tool or a callback use  await")
    if not threads_can_start() or not isinstance(loop, asyncio.BaseEventLoop):
        raise InputError(f"{_BLOCKS} {_AWAIT}: this Python has one loop and no threads (Pyodide).")
    if _is_patched() and not hasattr(asyncio, "_nest_asyncio2"):
        raise InputError(
            f"{_BLOCKS} nest_asyncio, which this notebook has applied, would let it, and make the kernel lose the cells that "
            f"are queued meanwhile. {_AWAIT}; or apply nest_asyncio2 instead of it."
        )


def _run_inside(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    ready: deque[asyncio.Handle] = vars(loop)["_ready"]  # nest_asyncio2 lives in the loop's private parts anyway
    counted = len(ready)
    task = loop.create_task(coroutine, name="agent-widgets nested wait")
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        raise
    finally:
        # The turn of the loop that we are inside of has counted its callbacks and takes out as many. Those that have run
        # in here are missing: it would fail, and end the kernel's loop.
        while len(ready) < counted:
            loop.call_soon(int)


@contextmanager
def _nested(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Let ``loop`` be run inside itself, until the end of the block."""
    if _is_patched():  # by us, further out, or by the notebook: then it stays
        yield
        return
    try:
        nest = import_module("nest_asyncio2")
    except ImportError:
        raise InputError(f'{_BLOCKS} {_AWAIT}; or, to wait without await:  pip install "agent-widgets[nest]"') from None
    before = [(place, _names(place)) for place in _places(loop)]
    nest.apply(loop, run_close_loop=True)
    changes = [
        (place, name, was.get(name, _MISSING))
        for place, was in before
        for name, value in _names(place).items()
        if was.get(name, _MISSING) is not value and name != "FUTURES"  # tornado may still hold a future made meanwhile
    ]
    try:
        yield
    finally:
        for place, name, value in changes:
            if value is _MISSING:
                delattr(place, name)
            else:
                setattr(place, name, value)


def _places(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """The modules and classes that nest_asyncio2 changes."""
    places: list[Any] = [asyncio, asyncio.tasks, asyncio.futures, asyncio.events, type(loop)]
    if sys.version_info < (3, 14):  # later ones warn, and nest_asyncio2 leaves the policy alone
        places.append(type(asyncio.get_event_loop_policy()))  # pyright: ignore[reportDeprecated]
    if "tornado.concurrent" in sys.modules:
        places.append(sys.modules["tornado.concurrent"])
    return places


def _names(place: object) -> dict[str, Any]:
    return dict(vars(place))


def _is_patched() -> bool:
    return hasattr(asyncio, "_nest_patched")


_MISSING = object()
