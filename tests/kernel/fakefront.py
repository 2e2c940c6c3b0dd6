"""A small Jupyter front-end without a server and without a browser: it drives one real kernel and keeps what it says.

``Front`` starts a kernel with any interpreter, executes cells, opens comms, clicks (on a subshell if asked) and interrupts.
Every message from the kernel is recorded with the time of its arrival. Waiting is for a message, never for a time: all
waiting methods return as soon as it is there and raise ``TimeoutError``, with the kernel's own output, if it never comes.

All sockets live on one thread of the client (``jupyter_client``'s); any thread may call the methods of ``Front``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.threaded import ThreadedKernelClient, ThreadedZMQSocketChannel

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 60.0
"""Seconds until a kernel must have answered. A cold start on a busy machine takes up to ten."""

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = range(10_000, 30_000)[WORKER % 16 :: 16]
"""Where a kernel's ports are; processes that test at the same time have each their own, so that none is taken twice.

jupyter_client takes those that the system gives to clients too, and then a connection of somebody else may hold a port before
the kernel binds it: "Address already in use", once in some hundred starts.
"""

JsonDict = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message from the kernel. ``time`` is that of its arrival, in seconds of ``time.monotonic()``."""

    time: float
    channel: str  # "iopub", "shell", "control" or "stdin"
    type: str
    content: JsonDict
    parent_id: str
    size: int
    """Bytes of the content as JSON, without the envelope."""
    buffers: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Comm:
    """What a widget manager knows of a comm: the data it was opened with, its state by now, what was sent on it."""

    comm_id: str
    target: str
    open_data: JsonDict
    state: JsonDict = field(default_factory=dict[str, Any])
    custom: list[JsonDict] = field(default_factory=list[JsonDict])
    """The contents of the custom messages from the kernel, in order."""
    closed: bool = False


class Front:
    """A front-end with one kernel of its own. A context manager: the kernel ends with the block."""

    def __init__(self, python: str | Path = sys.executable, *, env: Mapping[str, str] | None = None) -> None:
        self.messages: list[Message] = []
        self.comms: dict[str, Comm] = {}
        self.has_subshells = False  # ipykernel 7 and newer
        self._arrived = threading.Condition()
        self._directory = tempfile.TemporaryDirectory(prefix="front-", ignore_cleanup_errors=True)
        self._log = Path(self._directory.name) / "kernel.log"
        self._manager = KernelManager(kernel_name="under-test", kernel_spec_manager=_OneSpec(python), **_free_ports())
        self._client = _RecordingClient(self._record)
        try:
            self._start(dict(env or {}))
        except Exception:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the kernel and wait until it is gone."""
        if self._manager.has_kernel:
            self._manager.shutdown_kernel(now=True)
        if self._client.ioloop_thread is not None:
            self._client.stop_channels()
        self._manager.cleanup_resources()
        self._directory.cleanup()

    # -- cells ----------------------------------------------------------------------------------------------------------

    def execute(self, code: str, *, subshell: str | None = None, stop_on_error: bool = True, allow_stdin: bool = True) -> str:
        """Send a cell and return at once. The id of the request is what ``wait`` and ``text`` want.

        ``allow_stdin`` is what JupyterLab sends; nbclient and papermill send False.
        """
        content: JsonDict = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": stop_on_error,
        }
        return self._send("shell", "execute_request", content, subshell)

    def wait_until(self, is_so: Callable[[], bool], timeout: float = 10) -> None:
        """Until something holds that follows from the messages: it is asked now, and whenever there are new ones."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while not is_so():
                if not self._arrived.wait(max(deadline - time.monotonic(), 0)) and time.monotonic() >= deadline:
                    raise TimeoutError(f"It was not so within {timeout} s. The kernel's own output:\n{self.kernel_log()}")

    def wait(self, msg_id: str, timeout: float = 30) -> JsonDict:
        """Wait until a cell has replied and is idle, and return the content of its reply.

        Both, because the reply may overtake the cell's last output.
        """
        reply = self.wait_for(lambda m: m.channel == "shell" and m.parent_id == msg_id, timeout)
        self.wait_idle(msg_id, timeout)
        return reply.content

    def wait_idle(self, msg_id: str, timeout: float = 10) -> Message:
        """Wait until the kernel has handled a request. A ``comm_msg`` has no reply, this is its only end."""
        return self.wait_for(lambda m: m.parent_id == msg_id and m.content.get("execution_state") == "idle", timeout)

    def run(self, code: str, timeout: float = 30) -> str:
        """Execute a cell, wait until it is done and return what it said."""
        msg_id = self.execute(code)
        self.wait(msg_id, timeout)
        return self.text(msg_id)

    def text(self, msg_id: str) -> str:
        """What a cell has printed, displayed and raised so far, as plain text."""
        return "".join(_plain_text(message) for message in self.of(msg_id))

    def of(self, msg_id: str) -> list[Message]:
        """The messages that belong to one request, in order."""
        return [message for message in self._snapshot() if message.parent_id == msg_id]

    def wait_for(self, wanted: Callable[[Message], bool], timeout: float = 10) -> Message:
        """The first recorded message that ``wanted`` accepts: one that is there already, or the next one to come."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._arrived:
            while True:
                for message in self.messages[seen:]:
                    if wanted(message):
                        return message
                seen = len(self.messages)
                if not self._arrived.wait(max(deadline - time.monotonic(), 0)) and time.monotonic() >= deadline:
                    raise TimeoutError(f"No such message within {timeout} s. The kernel's own output:\n{self.kernel_log()}")

    def forget(self) -> None:
        """Let go of all messages and comms so far: waiting looks through them, and a kernel may carry a thousand runs."""
        with self._arrived:
            self.messages.clear()
            self.comms.clear()

    def answer(self, text: str) -> None:
        """Type an answer into the box that ``input()`` shows."""
        self._client.stdin_channel.send(self._client.session.msg("input_reply", {"value": text}))

    # -- comms ----------------------------------------------------------------------------------------------------------

    def comm_open(self, target: str, data: JsonDict | None = None, metadata: JsonDict | None = None) -> str:
        """Open a comm from the page's side and return its id."""
        comm_id = uuid.uuid4().hex
        content = {"comm_id": comm_id, "target_name": target, "data": data or {}}
        self._send("shell", "comm_open", content, metadata=metadata)
        return comm_id

    def comm_msg(self, comm_id: str, data: JsonDict, *, subshell: str | None = None) -> str:
        """Send data on a comm, as a widget's model does. Returns the id of the request."""
        return self._send("shell", "comm_msg", {"comm_id": comm_id, "data": data}, subshell)

    def custom(self, comm_id: str, content: JsonDict, *, subshell: str | None = None) -> str:
        """Send a custom message on a widget's comm: what ``model.send`` does in a page."""
        return self.comm_msg(comm_id, {"method": "custom", "content": content}, subshell=subshell)

    def wait_for_comm(self, wanted: Callable[[Comm], bool], timeout: float = 10) -> Comm:
        """The first comm that ``wanted`` accepts, now or after one of the next messages."""
        found: list[Comm] = []

        def look() -> bool:
            found.extend(comm for comm in self.comms.values() if wanted(comm))
            return bool(found)

        self.wait_until(look, timeout)
        return found[0]

    def ask_info(self) -> str:
        """Ask for the kernel's info, as a page does when it appears, and return the id of the request."""
        return self._send("shell", "kernel_info_request", {})

    # -- control ----------------------------------------------------------------------------------------------------------

    def control(self, msg_type: str, content: JsonDict | None = None, timeout: float = 10) -> JsonDict:
        """Ask on the control channel and return the content of the reply."""
        msg_id = self._send("control", msg_type, content or {})
        return self.wait_for(lambda m: m.channel == "control" and m.parent_id == msg_id, timeout).content

    def create_subshell(self) -> str:
        """A new subshell's id.

        Raises:
            LookupError: the kernel has none, see ``has_subshells``.
        """
        if not self.has_subshells:
            raise LookupError("This kernel has no subshells: they came with ipykernel 7.")
        self.wait_idle(self.ask_info())  # before its main thread runs, ipykernel fails on the request and never answers
        return str(self.control("create_subshell_request")["subshell_id"])

    def interrupt(self) -> None:
        """Press ■: SIGINT, as Jupyter's servers send it."""
        self._manager.interrupt_kernel()

    def wait_dead(self, timeout: float = 10) -> None:
        """Wait until the kernel's process has ended: then the folders that it held are free.

        Raises:
            TimeoutError: it lives on.
        """
        deadline = time.monotonic() + timeout
        while self._manager.is_alive():
            if time.monotonic() > deadline:
                raise TimeoutError(f"The kernel is alive after {timeout} s.")
            time.sleep(0.02)

    def kernel_log(self) -> str:
        """What the kernel's process wrote to its own stdout and stderr."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _start(self, env: dict[str, str]) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        isolated = {
            "IPYTHONDIR": self._directory.name,
            "JUPYTER_RUNTIME_DIR": self._directory.name,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        with self._log.open("w") as log:
            self._manager.start_kernel(cwd=self._directory.name, env={**os.environ, **isolated, **env}, stdout=log, stderr=log)
        self._client.load_connection_info(self._manager.get_connection_info())
        self._client.start_channels(hb=False)
        self._wait_until_heard()

    def _wait_until_heard(self) -> None:
        """Ask until an answer comes on iopub too: what is published before the subscription is lost.

        On the control channel: many requests on the shell channel make ipykernel 7.0 to 7.3 deaf now and then (ipykernel#1529).
        """
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            msg_id = self._send("control", "kernel_info_request", {})
            try:
                self.wait_idle(msg_id, timeout=0.2)
            except TimeoutError:
                if time.monotonic() > deadline or not self._manager.is_alive():
                    raise
            else:
                info = self.wait_for(lambda m: m.type == "kernel_info_reply").content
                self.has_subshells = "kernel subshells" in info.get("supported_features", [])
                return

    def _send(
        self,
        channel: str,
        msg_type: str,
        content: JsonDict,
        subshell: str | None = None,
        metadata: JsonDict | None = None,
    ) -> str:
        if msg_type == "execute_request":
            metadata = {"cellId": uuid.uuid4().hex}  # pages tell it; without it this would be a console
        message = self._client.session.msg(msg_type, content, metadata=metadata)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        sender = self._client.control_channel if channel == "control" else self._client.shell_channel
        sender.send(message)
        return str(message["header"]["msg_id"])

    def _snapshot(self) -> list[Message]:
        with self._arrived:
            return list(self.messages)

    def _record(self, channel: str, raw: JsonDict) -> None:
        """Called on the client's thread for each message that arrives."""
        content = raw["content"]
        message = Message(
            time=time.monotonic(),
            channel=channel,
            type=raw["header"]["msg_type"],
            content=content,
            parent_id=raw["parent_header"].get("msg_id", ""),
            size=len(self._client.session.pack(content)),
            buffers=tuple(bytes(buffer) for buffer in raw["buffers"]),
        )
        with self._arrived:
            self._follow_comm(message)
            self.messages.append(message)
            self._arrived.notify_all()

    def _follow_comm(self, message: Message) -> None:
        content = message.content
        match message.type:
            case "comm_open":
                comm = Comm(content["comm_id"], content["target_name"], content["data"])
                comm.state.update(comm.open_data.get("state", {}))
                self.comms[comm.comm_id] = comm
            case "comm_msg" if comm := self.comms.get(content["comm_id"]):
                data: JsonDict = content["data"]
                if data.get("method") == "update":
                    comm.state.update(data["state"])
                elif data.get("method") == "custom":
                    comm.custom.append(data["content"])
            case "comm_close" if comm := self.comms.get(content["comm_id"]):
                comm.closed = True
            case _:
                pass


class _OneSpec(KernelSpecManager):
    """The kernel under test, by any name: jupyter_client would replace a spec that is called python3."""

    def __init__(self, python: str | Path) -> None:
        super().__init__()
        argv = [str(python), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._spec = KernelSpec(argv=argv, display_name="under test", language="python", interrupt_mode="signal")

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return self._spec


def free_port() -> int:
    """A port on loopback that nobody has taken, of those of this process."""
    while True:
        port = secrets.choice(PORTS)  # not from `random`: two test processes may have seeded it alike
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def _free_ports() -> dict[str, Any]:
    """Arguments of a ``KernelManager``: five ports that nobody has."""
    free: set[int] = set()
    while len(free) < 5:
        free.add(free_port())
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    return {"cache_ports": False, **dict(zip(names, free, strict=True))}


class OwnPorts(AsyncKernelManager):
    """The manager of a kernel that nbclient, papermill or nbconvert starts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**_free_ports(), **options})


class _RecordingClient(ThreadedKernelClient):
    """A client whose channels hand every message to one function, on the client's thread."""

    def __init__(self, record: Callable[[str, JsonDict], None]) -> None:
        super().__init__()
        for name in ("iopub", "shell", "control", "stdin"):
            setattr(self, f"{name}_channel_class", _channel_class(name, record))


def _channel_class(name: str, record: Callable[[str, JsonDict], None]) -> type[ThreadedZMQSocketChannel]:
    class RecordingChannel(ThreadedZMQSocketChannel):
        def call_handlers(self, msg: JsonDict) -> None:
            record(name, msg)

    return RecordingChannel


def _plain_text(message: Message) -> str:
    match message.type:
        case "stream":
            return str(message.content["text"])
        case "execute_result" | "display_data":
            return str(message.content["data"].get("text/plain", ""))
        case "error" if message.channel == "iopub":
            return f"{message.content['ename']}: {message.content['evalue']}"
        case _:
            return ""
