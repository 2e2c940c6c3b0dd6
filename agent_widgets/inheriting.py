"""A thread that a tool starts belongs to the tool: what it prints is shown on the tool's card, and it hears the tool's stop.

Python gives a new thread an empty context (3.14 has an option against that). While this is installed, a thread that is started
inside a tool gets a copy of the tool's context, and so does each job that a tool gives to a pool. Threads and jobs that are
started elsewhere are left as they are; a pool's own threads never inherit: the next job may be somebody else's.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from agent_widgets.execution import output_sink

_POOLS = "concurrent.futures.thread"


class Inheritance:
    """Two patches of the standard library, and their end."""

    def __init__(self) -> None:
        self._start: Callable[..., None] = threading.Thread.start
        self._submit: Callable[..., Any] = concurrent.futures.ThreadPoolExecutor.submit
        self._is_on = False

    def install(self) -> None:
        """Put the patches in place."""
        self._start, self._submit = threading.Thread.start, concurrent.futures.ThreadPoolExecutor.submit
        self._is_on = True
        start, submit = self._start, self._submit

        def start_in_context(thread: threading.Thread) -> None:
            target: Any = getattr(thread, "_target", None)
            if self._is_on and output_sink.get() is not None and getattr(target, "__module__", "") != _POOLS:
                thread.run = partial(contextvars.copy_context().run, thread.run)
            start(thread)

        def submit_in_context(pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            if self._is_on and output_sink.get() is not None:
                return submit(pool, contextvars.copy_context().run, function, *args, **kwargs)
            return submit(pool, function, *args, **kwargs)

        self._start_in_context, self._submit_in_context = start_in_context, submit_in_context
        threading.Thread.start = start_in_context  # pyright: ignore[reportAttributeAccessIssue] - its parameter has another name
        concurrent.futures.ThreadPoolExecutor.submit = submit_in_context

    def uninstall(self) -> None:
        """Take them out; under somebody else's patch they stay and do nothing."""
        self._is_on = False
        if threading.Thread.start is self._start_in_context:
            threading.Thread.start = self._start
        if concurrent.futures.ThreadPoolExecutor.submit is self._submit_in_context:
            concurrent.futures.ThreadPoolExecutor.submit = self._submit
