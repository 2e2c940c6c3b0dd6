"""What a tool prints or displays goes to its own card, whichever thread it runs in, while other cells print as ever.

``sys.stdout``, ``sys.stderr`` and IPython's display publisher are wrapped by proxies that ask a context variable
(``execution.output_sink``) and pass everything on when it is not set.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any

from agent_widgets.execution import Sink, output_sink
from agent_widgets.messages import JsonObject


class _Proxy:
    """Stands in for ``sys.stdout`` or ``sys.stderr``: all but writing is the original's (``set_parent``, ``fileno``, ...).

    IPython 9 assigns ``stream.write`` in each cell: that must stay on the proxy, or the original would call itself for ever.
    """

    def __init__(self, original: Any, name: str) -> None:
        self.__dict__.update(_original=original, _name=name)

    def write(self, text: str) -> int:
        sink = output_sink.get()
        if sink is None:
            return self._original.write(text)
        sink(self._name, {"text": text})
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if output_sink.get() is None:
            self._original.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("write", "flush"):
            self.__dict__[name] = value
        else:
            setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        if name in ("write", "flush"):
            self.__dict__.pop(name, None)
        else:
            delattr(self._original, name)

    def __iter__(self) -> Any:
        return iter(self._original)


class OutputCapture:
    """The installed proxies of one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self._publisher: Any = shell.display_pub
        self._stdout, self._stderr = _Proxy(sys.stdout, "stdout"), _Proxy(sys.stderr, "stderr")
        self._installed = False

    def install(self) -> None:
        """Put the proxies in place."""
        if self._installed:
            return
        publish, clear = self._publisher.publish, self._publisher.clear_output

        def publish_or_capture(data: Any, metadata: Any = None, **kwargs: Any) -> Any:
            sink = output_sink.get()
            return publish(data, metadata, **kwargs) if sink is None else _capture(sink, data)

        def clear_or_ignore(wait: bool = False) -> Any:  # noqa: FBT001, FBT002 - IPython's signature
            return clear(wait) if output_sink.get() is None else None

        self._publisher.publish, self._publisher.clear_output = publish_or_capture, clear_or_ignore
        sys.stdout, sys.stderr = self._stdout, self._stderr
        self._installed = True

    def uninstall(self) -> None:
        """Take them out, where nobody has put something on top."""
        if not self._installed:
            return
        if sys.stdout is self._stdout:
            sys.stdout = self._stdout.__dict__["_original"]
        if sys.stderr is self._stderr:
            sys.stderr = self._stderr.__dict__["_original"]
        for name in ("publish", "clear_output"):
            with contextlib.suppress(AttributeError):
                delattr(self._publisher, name)
        self._installed = False


def _capture(sink: Sink, data: dict[str, Any]) -> None:
    shown: JsonObject = {
        mime: value
        for mime, value in data.items()
        if isinstance(value, str) and not mime.startswith("application/vnd.jupyter.widget")
    }
    if shown:
        sink("display", {"data": shown})
