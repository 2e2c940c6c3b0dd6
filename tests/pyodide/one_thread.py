"""CPython with what Pyodide lacks taken away, so that a mode without threads can be tested in seconds.

Imported first, before anything of ours. What it takes away is what was seen in Pyodide 0.29 and 314: threads, other loops, zmq
and the packages that need it, in older ones ``multiprocessing``. ``fcntl`` is an empty module in JupyterLite's kernel.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import signal
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Coroutine
from typing import Any, cast

GONE = ("zmq", "ipykernel", "tornado", "jupyter_client", "nest_asyncio2", "multiprocessing")


class _Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.partition(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


class OneLoop(asyncio.SelectorEventLoop):
    """The loop of the browser: it runs for ever, and what is to be done elsewhere is done on it."""

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread")


def no_other_loop() -> asyncio.AbstractEventLoop:
    raise AssertionError("a second loop takes the place of the one that runs, in Pyodide")


def no_signals(*_: object) -> None:
    raise ValueError("signals are not available")


def run(main: Coroutine[Any, Any, None]) -> None:
    """Take away what Pyodide lacks, and run ``main`` on the one loop that there is."""
    importlib.import_module("openai")  # its httpx2 refuses Emscripten below Python 3.12, and this is none
    for name in [name for name in sys.modules if name.partition(".")[0] in GONE]:
        del sys.modules[name]
    sysconfig.get_config_vars()  # as long as it knows its platform
    sys.meta_path.insert(0, _Gone())
    loop = OneLoop()
    threading.Thread.start = refuse
    asyncio.new_event_loop = asyncio.events.new_event_loop = no_other_loop
    signal.signal = no_signals
    sys.modules["fcntl"] = types.ModuleType("fcntl")
    sys.platform = "emscripten"
    loop.run_until_complete(main)
    loop.close()


def shell_of_a_page() -> tuple[Any, Any]:
    """A shell and a comm manager with the few lines that ``pyodide_kernel`` gives them."""
    import comm
    from comm.base_comm import BaseComm
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    class Publisher(DisplayPublisher):
        display_data_callback: Callable[..., None]
        update_display_data_callback: Callable[..., None]

        def publish(
            self, data: Any, metadata: Any = None, source: Any = None, *, transient: Any = None, update: bool = False, **_: Any
        ) -> None:
            tell = self.update_display_data_callback if update else self.display_data_callback
            tell(data, metadata, transient)

    class Shell(InteractiveShell):
        kernel = type("PyodideKernel", (), {})()

        def init_history(self) -> None:
            self.history_manager = HistoryManager(shell=self, parent=self, enabled=False)

    class Comm(BaseComm):
        def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any) -> None:
            content = dict(data=data or {}, comm_id=self.comm_id, **keys)
            shell.send_comm(msg_type, content, metadata or {}, self.topic, buffers)

    class Stream:
        publish_stream_callback = None

        def write(self, text: str) -> None:
            """There is nobody."""

        def flush(self) -> None:
            """Nothing waits."""

    sys.stdout = cast("Any", Stream())
    shell: Any = Shell.instance(display_pub_class=Publisher)
    manager = comm.get_comm_manager()
    comm.create_comm = Comm
    comm.get_comm_manager = lambda: manager
    return shell, manager
