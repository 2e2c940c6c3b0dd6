"""The early tap: hears a card's commands when they reach the kernel's socket, whatever the kernel is doing.

It peeks and never swallows: every message goes on to whoever received before (the kernel, or another library's tap), and
the ordinary comm handler hears the same command again, so commands are handled once by their id. Everything private that
it touches is looked for first; what is missing costs latency and nothing else.

* ipykernel >= 7: the callback runs on the shell channel's own thread, during every kind of cell.
* ipykernel 6: it runs on the main loop: during awaiting cells, and while ``pump`` is called by a waiting one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

Hear = Callable[[object], None]
"""Takes the content of a custom comm message. Called on the kernel's receiving thread: hand over and return."""

Watch = Callable[[str, Any, Sequence[bytes]], None]
"""Takes the type, the message with its content still packed, and the sender of each request. On the same thread."""


class EarlyTap:
    """One tap on one kernel's shell stream."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._stream: Any = getattr(kernel, "shell_stream", None)
        channel_thread = getattr(kernel, "shell_channel_thread", None)
        self._channel_loop: Any = getattr(channel_thread, "io_loop", None)
        self._cards: dict[str, Hear] = {}
        self.watch: Watch | None = None
        self._before: Any = None
        self._copy = False
        self._active = False
        self._callback = self._received  # one object: whether it is still on top is asked by identity
        self.failures = 0

    @property
    def must_pump(self) -> bool:
        """Whether a waiting cell has to call ``pump`` (ipykernel 6)."""
        return self._active and self._channel_loop is None

    def hear(self, comm_id: str, hear: Hear) -> None:
        """Tell ``hear`` of the custom messages of this comm."""
        self._cards[comm_id] = hear

    def forget(self, comm_id: str) -> None:
        """Stop telling."""
        self._cards.pop(comm_id, None)

    def reply(self, msg_type: str, content: dict[str, Any], request: Any, idents: Sequence[bytes]) -> None:
        """Answer a request on the shell socket. Only from within ``watch``, on the thread that owns the socket.

        It is queued; a flush from here, inside of the one that reads, would make that one spin for ever.
        """
        self._kernel.session.send(self._stream, msg_type, content, request, idents)

    def install(self) -> None:
        """Begin to peek; nothing if this kernel cannot be tapped, or is."""
        if not self._active and getattr(self._stream, "_recv_callback", None) is not None:
            self._on_stream(self._install)

    def uninstall(self) -> None:
        """Stop peeking. If another tap sits on top of this one, it stays below as a pass-through."""
        if self._active:
            self._on_stream(self._uninstall)

    def pump(self) -> None:
        """Read waiting messages into the kernel's queue, on the main thread; they are peeked at and stay in order.

        What ``reply`` has queued is sent.
        """
        if self.must_pump:
            self._stream.flush(zmq.POLLIN | zmq.POLLOUT)

    def look(self) -> None:
        """Have the receiving thread look at its socket (ipykernel >= 7). Any thread.

        zmq signals a socket once: a signal that is taken while a reply is sent would leave the kernel deaf until it is asked.
        """
        if self._active and self._channel_loop is not None:
            self._channel_loop.add_callback(self._look)

    def _look(self) -> None:
        if self._active:
            self._stream.flush(zmq.POLLIN)

    def _on_stream(self, action: Callable[[], None]) -> None:
        """Do it on the thread that owns the stream."""
        if self._channel_loop is None:
            action()
            return
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._channel_loop.add_callback(act)
        done.wait(2)

    def _install(self) -> None:
        self._before = self._stream._recv_callback  # noqa: SLF001 - pyzmq has no public name for it
        self._copy = bool(getattr(self._stream, "_recv_copy", False))
        self._active = True
        self._stream.on_recv(self._callback, copy=self._copy)

    def _uninstall(self) -> None:
        self._active = False
        if self._stream._recv_callback is self._callback:  # noqa: SLF001
            self._stream.on_recv(self._before, copy=self._copy)

    def _received(self, message: Any) -> Any:
        if self._active and self._cards:
            try:
                self._peek(message)
            except Exception:  # noqa: BLE001 - a broken peek must never cost the kernel a message
                self.failures += 1
        return self._before(message)  # ipykernel 7: a coroutine, which pyzmq schedules

    def _peek(self, message: Any) -> None:
        session = self._kernel.session
        idents, frames = session.feed_identities(message, copy=self._copy)
        # content=False checks the signature without storing its digest: with it the kernel would refuse the message as a replay
        request = session.deserialize(frames, content=False, copy=self._copy)
        kind = str(request["header"]["msg_type"])
        if self.watch is not None:
            self.watch(kind, request, idents)
        if kind != "comm_msg":
            return
        content: dict[str, Any] = session.unpack(request["content"])
        hear = self._cards.get(str(content.get("comm_id")))
        data: dict[str, Any] = content.get("data") or {}
        if hear is not None and data.get("method") == "custom":
            hear(data.get("content"))
