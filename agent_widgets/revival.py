"""A page that is reloaded while a cell runs gets its widgets back at once, and not when the cell ends.

JupyterLab and Notebook 7 restore widgets in this order: ``kernel_info_request`` (given up after 3 s), then a comm
``jupyter.widget.control`` with ``request_states`` (given up after 4 s), else one request for each widget. All of them wait in
the main shell behind the running cell. The early tap sees them arrive, so the first two are answered from here while an
``execute_request`` runs. Nothing is swallowed: the kernel answers again when the cell has ended, and by then the page has
closed what the second answer is for.

Between two cells the main thread answers by itself, unless the next cell had arrived before the question did: requests are
handled in the order of their arrival. Such a question is answered when that cell begins.

Law: all or nothing. A page takes ``update_states`` for the whole truth, so an answer that lacked one widget would leave it
"model not found". A widget of anybody's that cannot give its state leaves the question to the main thread. A value that the
cell changes in the milliseconds in which the answer is built may be shown as it was until it changes again.

Threads, as read in ipykernel 6.31, 7.0 and 7.4. The shell socket belongs to one thread (>= 7: the shell channel's; 6: the
main one), and that is the one on which the tap hears, so the reply is sent there (``EarlyTap.reply``). The iopub socket hands
over to a thread of its own and may be used from any. The states are built on a thread for this answer alone: a foreign widget
that blocks in ``get_state`` (behind a lock of the running cell, say) must stop neither the runs nor the kernel.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from agent_widgets.settings import AgentWidgets
from agent_widgets.tap import EarlyTap

CONTROL_TARGET = "jupyter.widget.control"
REMEMBERED_COMMS = 100
REMEMBERED_REQUESTS = 1_000
"""Cells that wait for their turn, and questions among them. More wait in no notebook; beyond it the oldest are forgotten."""

_NOTHING: dict[str, Any] = {}

Answer = Callable[[Any], None]
"""Answers a question while this cell (its request) runs."""

TURN_SECONDS = 2.0
"""How long the answer to one page waits until that to another one was built. The page gives up after 4 s."""

LEFT = "agent-widgets: the answer to a reloaded page is left to the main thread"
logger = logging.getLogger("agent_widgets")


class Reviver:
    """Answers a reloaded page for a kernel whose main thread is busy. ``AgentWidgets.early_answers`` switches it."""

    def __init__(self, kernel: Any, tap: EarlyTap, events: Any) -> None:
        """Begin to listen.

        Args:
            kernel: ipykernel's; every name that is not public is tried, and one that is missing costs the early answer.
            tap: Tells of requests when they reach the socket.
            events: IPython's events, which say when a cell begins and ends.
        """
        self._kernel = kernel
        self._tap = tap
        self._events = events
        self._cell: Any = None
        self._depth = 0
        self.context: contextvars.Context = contextvars.copy_context()
        """Of the newest cell on the main thread."""
        self._control: dict[str, None] = {}
        self._queue: deque[tuple[str, Answer | None]] = deque(maxlen=REMEMBERED_REQUESTS)
        """What has arrived and has, as far as is known, not begun: a cell's id, or a question's with its answer."""
        self._ordering = threading.Lock()
        self._building = threading.Lock()
        events.register("pre_execute", self._begins)
        events.register("post_execute", self._ends)
        tap.watch = self._see
        self._begins()  # what made this kernel known is most often a cell that runs now

    def close(self) -> None:
        """Stop listening."""
        self._tap.watch = None
        self._events.unregister("pre_execute", self._begins)
        self._events.unregister("post_execute", self._ends)

    # -- on the main thread: which cell runs ----------------------------------------------------------------------

    def _begins(self) -> None:
        cell = self._main_cell()
        if cell is None:
            return
        nested = self._cell is not None and self._cell["header"]["msg_id"] == cell["header"]["msg_id"]
        self._depth = self._depth + 1 if nested else 1
        self.context = contextvars.copy_context()  # ipykernel 7.0: what is sent outside of a cell's context fails
        with self._ordering:
            self._cell = cell
            answers = self._asked_behind(cell["header"]["msg_id"])
        if answers:
            self._tap.on_owner(lambda: [self._give(answer, cell) for answer in answers])
            self._tap.pump()

    def _asked_behind(self, cell_id: str) -> list[Answer]:
        """What was asked after this cell had arrived. What arrived before it has been handled, or was aborted."""
        if not any(request_id == cell_id for request_id, _ in self._queue):
            return []  # it runs inside another one, or came before the tap did
        while self._queue.popleft()[0] != cell_id:
            pass
        answers = [answer for _, answer in self._queue if answer is not None]
        cells = [entry for entry in self._queue if entry[1] is None]
        self._queue.clear()
        self._queue.extend(cells)
        return answers

    def _ends(self) -> None:
        ended: Any = getattr(getattr(self._kernel, "shell", None), "last_execution_result", None)
        if self._main_cell() is not None and not is_blank(ended):
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self._cell = None

    def _main_cell(self) -> Any:
        """The request of the cell that fired an event. IPython fires them around comm messages and in subshells too."""
        get_parent = getattr(self._kernel, "get_parent", None)
        if get_parent is None or threading.current_thread() is not threading.main_thread():
            return None
        parent: dict[str, Any] = get_parent("shell") or {}
        return parent if parent.get("header", _NOTHING).get("msg_type") == "execute_request" else None

    # -- on the thread that owns the shell socket: what a page asks --------------------------------------------------

    def _see(self, kind: str, request: Any, idents: Sequence[bytes]) -> None:
        if kind == "execute_request":
            with self._ordering:
                self._queue.append((request["header"]["msg_id"], None))
        elif kind == "kernel_info_request":
            self._answer(request, partial(self._tell_info, request, idents))
        elif kind in ("comm_open", "comm_msg"):
            self._see_comm(kind, request["content"], request)

    def _see_comm(self, kind: str, content: dict[str, Any], request: Any) -> None:
        comm_id, data = str(content.get("comm_id")), content.get("data") or _NOTHING
        if kind == "comm_open":
            if content.get("target_name") == CONTROL_TARGET:
                self._control[comm_id] = None
                if len(self._control) > REMEMBERED_COMMS:
                    del self._control[next(iter(self._control))]
        elif comm_id in self._control and data.get("method") == "request_states":
            self._answer(request, partial(self._begin_states, comm_id, request))

    def _answer(self, request: Any, answer: Answer) -> None:
        """Now if a cell runs; else when it is known which one runs before it."""
        if not AgentWidgets.get().early_answers:
            return
        with self._ordering:
            cell = self._cell
            if cell is None:
                self._queue.append((request["header"]["msg_id"], answer))
        if cell is not None:
            self._give(answer, cell)

    def _give(self, answer: Answer, cell: Any) -> None:
        try:
            answer(cell)
        except Exception:
            logger.debug(LEFT, exc_info=True)

    def _begin_states(self, comm_id: str, request: Any, _cell: Any) -> None:
        run, name = self.context.copy().run, "agent-widgets-revival"
        threading.Thread(target=run, args=(self._tell_states, comm_id, request), name=name, daemon=True).start()

    def _tell_info(self, request: Any, idents: Sequence[bytes], cell: Any) -> None:
        info = {"status": "ok", **self._kernel.kernel_info}
        self._publish_status("busy", request)
        self._tap.reply("kernel_info_reply", info, request, idents)
        self._publish_status("idle", request)
        self._publish_status("busy", cell)  # the last word about the kernel: it is still busy

    def _publish_status(self, state: str, parent: Any) -> None:
        kernel = self._kernel
        topic = kernel._topic("status")  # noqa: SLF001 - ipykernel has no public name for it
        kernel.session.send(kernel.iopub_socket, "status", {"execution_state": state}, parent=parent, ident=topic)

    # -- on a thread for this answer alone -----------------------------------------------------------------------------

    def _tell_states(self, comm_id: str, request: Any) -> None:
        if not self._building.acquire(timeout=TURN_SECONDS):
            return  # somebody's widget keeps the answer before this one: the main thread will do
        try:
            content, buffers = _states(comm_id)
            kernel, topic = self._kernel, f"comm-{comm_id}".encode()
            kernel.session.send(kernel.iopub_socket, "comm_msg", content, parent=request, ident=topic, buffers=buffers)
        except Exception:
            logger.debug(LEFT, exc_info=True)
        finally:
            self._building.release()


def is_blank(result: Any) -> bool:
    """Whether what IPython says to have ended was an empty cell, in another one (``%run`` of a notebook): none has begun."""
    return str(getattr(getattr(result, "info", None), "raw_cell", "-")).strip() == ""


def _states(comm_id: str) -> tuple[dict[str, Any], list[Any]]:
    """What ipywidgets' own ``_handle_control_comm_msg`` answers, in the same words."""
    widgets: Any = import_module("ipywidgets.widgets.widget")
    states: dict[str, Any] = {
        model_id: {
            "model_name": widget._model_name,  # noqa: SLF001 - traits with a leading underscore
            "model_module": widget._model_module,  # noqa: SLF001
            "model_module_version": widget._model_module_version,  # noqa: SLF001
            "state": widget.get_state(drop_defaults=False),
        }
        for model_id, widget in list(widgets._instances.items())  # noqa: SLF001 - Widget.widgets is deprecated
    }
    states, buffer_paths, buffers = widgets._remove_buffers(states)  # noqa: SLF001
    data = {"method": "update_states", "states": states, "buffer_paths": buffer_paths}
    content: Any = import_module("ipykernel.jsonutil").json_clean({"data": data, "comm_id": comm_id})
    return content, buffers
