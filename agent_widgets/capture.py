"""What a tool prints or displays goes to its own card, whichever thread it runs in, while other cells print as ever.

A context variable (``execution.output_sink``) says whose output it is. The kernel's two streams get a class of their own, with
another ``write``. The objects stay the same, so it does not matter who has kept them (the handlers of ``logging``), who wraps
them, or what ``redirect_stdout`` and ``%%capture`` put in their place for a while. IPython's display publisher gets another
``publish``.

While a cell redirects ``sys.stdout`` for the whole process, what tools print goes there too.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from agent_widgets import execution, outputs
from agent_widgets.execution import Sink, output_sink
from agent_widgets.figures import Figures
from agent_widgets.inheriting import Inheritance
from agent_widgets.stdin import Stdin

REMEMBERED_DISPLAYS = 1_000
"""So many display ids are known as a tool's: an update of an older one goes to the cell that runs."""


class OutputCapture:
    """What is installed in one IPython shell, so that tools print and display on their cards."""

    def __init__(self, shell: Any, is_busy: Callable[[], bool]) -> None:
        """``is_busy``: whether a cell is executed that waits for no run."""
        self._shell = shell
        self._streams: list[Any] = []
        self._displays: _Displays | None = None
        self._figures = Figures(shell, is_busy)
        self._threads = Inheritance()
        self._stdin = Stdin(getattr(shell, "kernel", None))
        self._is_installed = False

    def install(self) -> None:
        """Put it in place; what is there already stays. In a terminal tools print where they are.

        A cell below ``%%capture`` has other streams and another publisher: what is missing then is put in by the next cell.
        """
        self._stdin.install()
        if getattr(self._shell, "kernel", None) is None:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _is_a_kernels(stream) and not isinstance(stream, _Captured):
                _capture(stream, name)
                self._streams.append(stream)
        publisher = self._shell.display_pub
        if not hasattr(publisher, "outputs") and (self._displays is None or self._displays.publisher is not publisher):
            if self._displays is not None:
                self._displays.uninstall()  # or there would be two of them when that publisher comes back
            self._displays = _Displays(publisher)
        if not self._is_installed:
            self._is_installed = True
            self._figures.keep_apart()
            self._threads.install()
            execution.at_end.append(self._figures.show_open)

    def uninstall(self) -> None:
        """Take it out, where nobody has put something on top."""
        self._stdin.uninstall()
        for stream in self._streams:
            if isinstance(stream, _Captured):
                stream.__class__ = type(stream).__mro__[1]
        self._streams.clear()
        if self._displays is not None:
            self._displays.uninstall()
            self._displays = None
        if self._is_installed:
            self._is_installed = False
            self._threads.uninstall()
            self._figures.uninstall()
            execution.at_end.remove(self._figures.show_open)


def _is_a_kernels(stream: Any) -> bool:
    """Whether it sends to pages: ipykernel's has a parent, JupyterLite's a callback, and a redirected one neither."""
    return hasattr(stream, "set_parent") or hasattr(stream, "publish_stream_callback")


class _Captured:
    """Marks the streams whose class is ours."""


class _Write:
    """A stream's ``write`` as everybody sees it: to the card of the tool that calls it, else to the one below."""

    def __init__(self, stream: Any, name: str, below: Callable[[str], int]) -> None:
        self.stream = stream
        self.name = name
        self.below = below

    def __call__(self, text: str) -> int:
        sink = output_sink.get() if isinstance(self.stream, _Captured) else None  # somebody may have kept this
        if sink is None or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the stream says what is wrong
            return self.below(text)
        sink(self.name, {"text": text})
        return len(text)


def _capture(stream: Any, name: str) -> None:
    """Give ``stream`` a class of its own.

    ``write`` is a property. IPython 9 puts its own ``write`` on the stream in each cell, and the one that it found there back
    after it: both go below ours, so that it neither takes ours out nor calls itself for ever.
    """
    kind = cast("Any", type(stream))

    def get_write(self: Any) -> _Write:
        return _Write(self, name, self.__dict__.get("write") or functools.partial(kind.write, self))

    def set_write(self: Any, write: Any) -> None:
        self.__dict__["write"] = write.below if isinstance(write, _Write) else write

    def delete_write(self: Any) -> None:
        self.__dict__.pop("write", None)

    def flush(self: Any) -> None:
        if output_sink.get() is None:  # a tool's printing need not wait for the kernel's sockets
            kind.flush(self)

    members = {"write": property(get_write, set_write, delete_write), "flush": flush, "__module__": kind.__module__}
    stream.__class__ = type(kind.__name__, (kind, _Captured), members)


class _Displays:
    """``display``, ``update_display`` and ``clear_output``: to the tool that calls them, or that made the display."""

    def __init__(self, publisher: Any) -> None:
        self.publisher = publisher
        self._publish, self._clear = publisher.publish, publisher.clear_output
        self._owners: OrderedDict[str, Sink] = OrderedDict()
        self._mine: dict[str, Any] = {"publish": self._publish_or_capture, "clear_output": self._clear_or_capture}
        self._attributes = cast("dict[str, Any]", vars(publisher))
        self._attributes.update(self._mine)
        self._passes = False

    def uninstall(self) -> None:
        self._passes = True  # for those who have kept ours
        for name, mine in self._mine.items():
            if self._attributes.get(name) is mine:
                delattr(self.publisher, name)

    def _publish_or_capture(self, data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> Any:
        transient: dict[str, Any] = kwargs.get("transient") or {}
        display_id = str(transient.get("display_id", ""))
        update = bool(kwargs.get("update"))
        sink = self._owners.get(display_id) if update else output_sink.get()
        if sink is None or self._passes:
            return self._publish(data, metadata, *args, **kwargs)
        if display_id and not update:
            self._owners[display_id] = sink
            if len(self._owners) > REMEMBERED_DISPLAYS:
                self._owners.popitem(last=False)
        details = {"metadata": metadata, "display_id": display_id, "update": update}
        sink("display", {"data": outputs.shown(data), **{name: value for name, value in details.items() if value}})
        return None

    def _clear_or_capture(self, wait: bool = False) -> Any:  # noqa: FBT001, FBT002 - IPython's signature
        sink = output_sink.get()
        return self._clear(wait) if sink is None or self._passes else sink("clear", {"wait": wait})
