"""The kernel around a run: what this process has of a notebook, and whether anybody is there to ask.

With tap, revival and stdin the only room that knows ipykernel. In a terminal IPython or a plain script the same waiting works
without a tap.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_widgets.capture import OutputCapture
from agent_widgets.cells import CellWaiter, TerminalWaiter
from agent_widgets.errors import InputError
from agent_widgets.interrupts import Heartbeat, Interrupts
from agent_widgets.mainthread import MainThread
from agent_widgets.pacing import Airtime
from agent_widgets.revival import Reviver, is_blank
from agent_widgets.runs import Run
from agent_widgets.settings import AgentWidgets, ipython_shell
from agent_widgets.tap import EarlyTap
from agent_widgets.unattended import Unattended
from agent_widgets.waiting import surroundings

LOSES_CELLS = (7, 1)
"""From this version on ipykernel loses messages while nest_asyncio runs a loop inside a cell."""

NESTING_NOTE = (
    "nest_asyncio is applied in this notebook: while a cell runs a loop inside the kernel's (asyncio.run, run_until_complete), "
    "this kernel loses the cells that are queued, and clicks on other widgets. Use await there, or nest_asyncio2 and a restart."
)

OF_A_CELL = ("parent_header", "shell_parent", "shell_parent_ident")
"""The context variables by which ipykernel 7.0 knows what is shown where."""

_PYTHONS_ID = re.compile(r".+_\d+_\d+")
"""The ids of jupyter_client's messages: session, process, count."""


class NotebookKernel:
    """What this process has of a notebook: its shell, its tap, whether a page has ever spoken.

    Module state with a documented life: made when first needed; ``close`` (``%unload_ext``) takes out what it has put in, and
    the next ``get`` puts it in again.
    """

    _one: NotebookKernel | None = None
    _making = threading.RLock()

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.kernel: Any = getattr(shell, "kernel", None)
        self.page_seen = False
        self.airtime = Airtime()
        self.rendering = ThreadPoolExecutor(1, "agent-widgets-rendering")
        """For what takes long to draw: one after the other, in the order in which it was asked for."""
        self.tap = EarlyTap(self.kernel)
        self.interrupts = Interrupts(in_cell=_executes_a_cell())
        self._waiter, self._asking = CellWaiter(self.interrupts, self.tap), TerminalWaiter(self.interrupts, self.tap)
        self._capture: OutputCapture | None = None
        self._heartbeat = Heartbeat(lambda: self.main_loop)
        self._served: asyncio.AbstractEventLoop | None = None
        self.unattended = Unattended()
        self.reviver: Reviver | None = None
        self._nesting_told = False
        self._follows_cells = False

    @classmethod
    def get(cls) -> NotebookKernel | None:
        """The one of this process, hearing clicks and what tools print; ``None`` outside IPython."""
        with cls._making:
            one = cls._of_shell()
            if one is not None:
                one.open()
            return one

    @classmethod
    def waiter_here(cls) -> CellWaiter | None:
        """How a cell waits for a reply without a card: it hears ■, and no more of this is put in. ``None`` outside IPython."""
        with cls._making:
            one = cls._of_shell()
            if one is None:
                return None
            one.follow_cells()
            return one.waiter

    @classmethod
    def _of_shell(cls) -> NotebookKernel | None:
        shell = ipython_shell()
        if shell is not None and (cls._one is None or cls._one.shell is not shell):
            cls._one = cls(shell)
            AgentWidgets.get()  # from here on %config shows it
        return None if shell is None else cls._one

    @property
    def main_loop(self) -> asyncio.AbstractEventLoop | None:
        """The kernel's own loop. There is none yet while IPython loads the extensions of its configuration."""
        return getattr(getattr(self.kernel, "io_loop", None), "asyncio_loop", None)

    @property
    def is_terminal(self) -> bool:
        """IPython in a terminal: there is no page."""
        return self.kernel is None

    @property
    def shows_text(self) -> bool:
        """Whether what runs now was typed where only text can be shown: a terminal, or a console of this kernel."""
        return self.is_terminal or self._typed_in_a_console()

    @property
    def waiter(self) -> CellWaiter:
        """How what runs now waits for a run: where there is no card, it asks about calls itself."""
        return self._asking if self.shows_text else self._waiter

    @property
    def anybody_there(self) -> bool:
        """Whether somebody could answer a question.

        Those that execute notebooks (nbclient, papermill) allow no stdin. Neither does Voilà, but there people click; and a
        page that has said hello proves that somebody is there.
        """
        if self.is_terminal or self.page_seen or getattr(self.kernel, "_allow_stdin", True):
            return not self.is_terminal
        return "VOILA_KERNEL_ID" in os.environ or os.environ.get("SERVER_SOFTWARE", "").startswith("voila")

    def _typed_in_a_console(self) -> bool:
        """Whether the request came from jupyter console, or another one written in Python (qtconsole, Spyder).

        No message says what a front-end can show, and a page's hello may be late, or never come for a card out of sight. But
        pages tell which cell they run, and write their ids otherwise than Python's client, which counts its messages; and
        those who execute notebooks with that client allow no stdin.
        """
        parent = self._parent()
        counted = _PYTHONS_ID.fullmatch(str(parent.get("header", {}).get("msg_id")))
        return bool(counted) and not parent.get("metadata") and getattr(self.kernel, "_allow_stdin", False)

    def _parent(self) -> dict[str, Any]:
        """The request that runs here; nothing in a thread of the user's own, where ipykernel 7.0 knows of none."""
        try:
            return self._asked_parent()
        except LookupError:
            return {}

    def _asked_parent(self) -> dict[str, Any]:
        get_parent: Any = getattr(self.kernel, "get_parent", None)
        try:
            return (get_parent() if get_parent else None) or {}
        except AttributeError:  # JupyterLite's gives a field that it does not have
            return {}

    def watch(self, run: Run) -> None:
        """Look after a run that a cell started: keep the kernel's loop awake, and with nobody there end it inside its cell."""
        self._heartbeat.beat_for(run)
        if not self.anybody_there:
            self.unattended.watch(run)

    def nesting_note(self) -> str:
        """What nest_asyncio, if the notebook has applied it, does to this kernel: said once. ``""``: nothing is lost.

        Both packages set ``_nest_patched``. With nest_asyncio2, and on ipykernel up to 7.0, queued cells keep their turn.
        """
        is_first = hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2")
        version: tuple[Any, ...] = getattr(sys.modules.get("ipykernel"), "version_info", ())
        if self._nesting_told or not is_first or self.is_terminal or version[:2] < LOSES_CELLS:
            return ""
        self._nesting_told = True
        return NESTING_NOTE

    def close(self) -> None:
        """Take out everything that was put in. Runs go on, and their cards hear by the ordinary handler."""
        if self.reviver is not None:
            self.reviver.close()
            self.reviver = None
        self.tap.uninstall()
        if self._served is not None:
            MainThread.get().desert(self._served)
            self._served = None
        if self._capture is not None:
            self._capture.uninstall()
            self._capture = None
        if self._follows_cells:
            self.shell.events.unregister("pre_run_cell", self._before_cell)
            self.shell.events.unregister("post_run_cell", self._after_cell)
            self._follows_cells = False

    def open(self) -> None:
        """Put in what is not there; the tap looks each time whether it still is."""
        self.tap.install()
        self.follow_cells()
        if self.reviver is None and self.tap.fits:
            self.reviver = Reviver(self.kernel, self.tap, self.shell.events)
        self._place_thread()
        if self._served is None and self.main_loop is not None:
            self._served = self.main_loop
            MainThread.get().serve(self._served)
        if self._capture is None:
            self._capture = OutputCapture(self.shell, lambda: self.interrupts.is_busy)
        self._capture.install()

    def follow_cells(self) -> None:
        """Know from now on which cell executes."""
        if not self._follows_cells:
            self.shell.events.register("pre_run_cell", self._before_cell)
            self.shell.events.register("post_run_cell", self._after_cell)
            self._follows_cells = True

    def _place_thread(self) -> None:
        """Give a thread that has no cell the newest one: from such a thread ipykernel 7.0 can show nothing.

        Of the cell's context it gets the kernel's own variables alone. Others may be bound to their thread: decimal's is.

        Raises:
            InputError: there, and no cell was followed so far.
        """
        if self._has_parent():
            return
        for variable, value in self.reviver.context.items() if self.reviver is not None else ():
            if variable.name in OF_A_CELL:
                variable.set(value)
        if not self._has_parent():
            raise InputError(
                "This kernel (ipykernel 7.0) can show nothing from a thread of your own before a cell has used chat(). "
                "Run  %load_ext agent_widgets  in a cell first."
            )

    def _has_parent(self) -> bool:
        try:
            self._asked_parent()
        except LookupError:
            return False
        return True

    def _before_cell(self, *_: object) -> None:
        self.interrupts.begin_cell()
        if self._capture is not None and not self.is_terminal:
            self._capture.install()

    def _after_cell(self, result: object = None) -> None:
        if is_blank(result):
            return
        try:
            if not self.anybody_there:
                self.unattended.end_cell(self.waiter)
        finally:
            self.interrupts.end_cell()


def _executes_a_cell() -> bool:
    """Whether this thread, the main one, is inside of a cell: not in a comm's handler, nor where extensions are loaded."""
    shell: Any = sys.modules.get("IPython.core.interactiveshell")
    if shell is None or threading.current_thread() is not threading.main_thread():
        return False
    frame, executes = inspect.currentframe(), shell.InteractiveShell.run_code.__code__
    while frame is not None and frame.f_code is not executes:
        frame = frame.f_back
    return frame is not None


surroundings.notebook = NotebookKernel.waiter_here
