"""The early tap: hears a card's commands when they reach the kernel's socket, whatever the kernel is doing.

It peeks and never swallows: every message goes on to whoever received before (the kernel, or another library's tap), and
the ordinary comm handler hears the same command again, so commands are handled once by their id. Every private name that it
touches is looked for first; where one is missing the ordinary handler is left, clicks may wait for the cell, and ``reason``
says why.

* ipykernel >= 7: the stream belongs to the shell channel's own thread: heard during every kind of cell.
* ipykernel 6: it belongs to the main loop: heard during awaiting cells, and while ``pump`` is called by a waiting one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

Hear = Callable[[object], None]
"""Takes the content of a custom comm message. Called on the kernel's receiving thread: hand over and return."""

MAX_LINKS = 20
"""How often a tap goes back on top of another library's: two that both insist would make the chain longer for ever."""

OWNER_SECONDS = 2.0
"""How long a cell waits until the stream's own thread has put the tap in or taken it out: microseconds, unless it hangs."""

LATE = f"the kernel's receiving thread has not answered within {OWNER_SECONDS:g} s"

_NEEDED = {
    "": ("shell_stream", "session", "io_loop"),
    "shell_stream": ("io_loop", "on_recv", "flush", "_recv_callback", "_recv_copy"),
    "session": ("feed_identities", "deserialize", "unpack"),
}
"""The names of the kernel, its stream and its session without which nothing can be heard early."""

Watch = Callable[[str, Any, Sequence[bytes]], None]
"""Takes the type, the message and the sender of each request, on the same thread. Only a comm's content is unpacked."""


class EarlyTap:
    """One tap on one kernel's shell stream."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._cards: dict[str, Hear] = {}
        self._link: _Link | None = None
        self._links_made = 0
        self._raw_socket: Any = None
        self._unread = 0
        self._process = os.getpid()
        self.reason = "it was not put in"
        """Why clicks may be late, for the person who looks for it; empty while they are heard early."""
        self.unread = ""
        """What could not be read although it was heard: those commands came by the ordinary handler."""
        self.watch: Watch | None = None

    @property
    def fits(self) -> bool:
        """Whether this kernel has what is needed: JupyterLite's has no sockets."""
        return not _missing(self._kernel)

    @property
    def must_pump(self) -> bool:
        """Whether a waiting cell has to call ``pump`` (ipykernel 6)."""
        return self._link is not None and self._is_on_main_loop and self._is_here

    def hear(self, comm_id: str, hear: Hear) -> None:
        """Tell ``hear`` of the custom messages of this comm."""
        self._cards[comm_id] = hear

    def forget(self, comm_id: str) -> None:
        """Stop telling."""
        self._cards.pop(comm_id, None)

    def reply(self, msg_type: str, content: dict[str, Any], request: Any, idents: Sequence[bytes]) -> None:
        """Answer a request on the shell socket. Only on the thread that owns it: from within ``watch``, or by ``on_owner``.

        It is queued; a flush from here, inside of the one that reads, would make that one spin for ever.
        """
        self._kernel.session.send(self._stream, msg_type, content, request, idents)

    def install(self) -> None:
        """Begin to peek, or go back on top if another library has put its own callback there since.

        Nothing if it is on top, or this kernel cannot be tapped. On the main thread it returns when it is done.
        """
        missing = _missing(self._kernel)
        if missing:
            self.reason = f"this kernel has no {missing}"
        elif self._link is None or self._stream._recv_callback is not self._link:  # noqa: SLF001 - pyzmq has no public name
            self.on_owner(self._put_on_top)

    def uninstall(self) -> None:
        """Stop peeking. If another tap sits on top of this one, it stays below as a pass-through."""
        if self._link is not None:
            self.on_owner(self._take_out)

    def pump(self) -> None:
        """Read waiting messages into the kernel's queue, on the main thread; they are peeked at and stay in order.

        What ``reply`` has queued is sent.
        """
        if self.must_pump:
            from zmq import POLLIN, POLLOUT  # noqa: PLC0415 - there is none in Pyodide, and no stream either

            self._stream.flush(POLLIN | POLLOUT)

    def on_owner(self, action: Callable[[], object]) -> None:
        """Run it on the thread that owns the stream; on the main thread this returns when it is done.

        It must not fail: if it does, ``reason`` says so, and the kernel goes on as it was. In a forked process nothing is run.
        """
        if not self._is_here:
            return
        in_cell = threading.current_thread() is threading.main_thread()
        if in_cell and self._is_on_main_loop:
            self._attempt(action)
            return
        done, before = threading.Event(), self.reason

        def act() -> None:
            if self.reason == LATE:
                self.reason = before
            self._attempt(action)
            done.set()

        self._stream.io_loop.add_callback(act)
        if in_cell and not done.wait(OWNER_SECONDS):
            self.reason = LATE

    # -- on the thread that owns the stream -------------------------------------------------------------------------

    @property
    def _stream(self) -> Any:
        return self._kernel.shell_stream

    @property
    def _is_here(self) -> bool:
        """Whether this is the kernel's process: a forked one must not touch its sockets."""
        return os.getpid() == self._process

    @property
    def _is_on_main_loop(self) -> bool:
        return self._stream.io_loop is self._kernel.io_loop

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - without a tap the kernel goes on as it was
            self.reason = f"{type(error).__name__}: {error}"

    def _put_on_top(self) -> None:
        if self._link is not None and self._stream._recv_callback is self._link:  # noqa: SLF001 - another thread was quicker
            return
        if self._links_made == MAX_LINKS:
            self.reason = f"another library has put its callback on top of this one {MAX_LINKS} times"
            return
        if self._link is not None:
            self._link.peek = None  # somebody may still call it: it passes on, and the new one hears
        link = _Link(self._stream._recv_callback, self._peek)  # noqa: SLF001
        self._stream.on_recv(link, copy=self._stream._recv_copy)  # noqa: SLF001
        self._link, self.reason = link, ""
        self._links_made += 1
        self._send_through_stream()

    def _take_out(self) -> None:
        link, self._link, self.reason = self._link, None, "it was taken out (%unload_ext)"
        if link is None:
            return
        link.peek = None
        if self._stream._recv_callback is link:  # noqa: SLF001
            self._stream.on_recv(link.below, copy=self._stream._recv_copy)  # noqa: SLF001
            self._links_made -= 1
        if self._raw_socket is not None:
            self._kernel.shell_channel_thread.manager._shell_socket = self._raw_socket  # noqa: SLF001
            self._raw_socket = None

    def _send_through_stream(self) -> None:
        """What ipykernel 7.4 does by itself: before it, a message that arrives while a reply is sent may never be read.

        7.0 to 7.3 send replies on the stream's socket, past the stream: that takes the socket's signal for what has arrived, and
        the kernel stays deaf until something else arrives (https://github.com/ipython/ipykernel/pull/1529).
        """
        manager = getattr(getattr(self._kernel, "shell_channel_thread", None), "manager", None)
        raw = getattr(manager, "_shell_socket", None)
        if manager is not None and raw is not None and raw is getattr(self._stream, "socket", None):
            self._raw_socket, manager._shell_socket = raw, self._stream  # noqa: SLF001

    def _peek(self, message: Any) -> None:
        if not self._cards and self.watch is None:
            return
        try:
            self._tell(message)
        except Exception as error:  # noqa: BLE001 - a broken peek must never cost the kernel a message
            self._unread += 1
            self.unread = f"messages that could not be read: {self._unread}, the last one: {type(error).__name__}: {error}"

    def _tell(self, message: Any) -> None:
        session, copy = self._kernel.session, isinstance(message[0], bytes)
        idents, frames = session.feed_identities(message, copy=copy)
        # content=False checks the signature without storing its digest: with it the kernel would refuse the message as a replay
        request = session.deserialize(frames, content=False, copy=copy)
        kind = str(request["header"]["msg_type"])
        if kind in ("comm_open", "comm_msg"):
            request["content"] = session.unpack(request["content"])
        if self.watch is not None:
            self.watch(kind, request, idents)
        if kind != "comm_msg":
            return
        content: dict[str, Any] = request["content"]
        hear = self._cards.get(str(content.get("comm_id")))
        data: dict[str, Any] = content.get("data") or {}
        if hear is not None and data.get("method") == "custom":
            hear(data.get("content"))


class _Link:
    """A callback in the stream's chain. Each time a new one: one that is out of use goes on passing on to what it found."""

    def __init__(self, below: Callable[[Any], Any], peek: Callable[[Any], None]) -> None:
        self.below = below
        self.peek: Callable[[Any], None] | None = peek

    def __call__(self, message: Any) -> Any:
        if self.peek is not None:
            self.peek(message)
        return self.below(message)  # ipykernel 7: a coroutine, which pyzmq schedules


def _missing(kernel: Any) -> str:
    """The first name that this kernel lacks, or that holds nothing."""
    for part, names in _NEEDED.items():
        owner = getattr(kernel, part) if part else kernel
        for name in names:
            if getattr(owner, name, None) is None:
                return f"{part}.{name}".lstrip(".")
    return ""
