"""The kernel around a run: what this process has of a notebook, and whether anybody is there to ask.

The only room that knows ipykernel. In a terminal IPython or a plain script the same waiting works without a tap.
"""

from __future__ import annotations

import os
from typing import Any

from agent_widgets.capture import OutputCapture
from agent_widgets.cells import CellWaiter, TerminalWaiter
from agent_widgets.interrupts import Heartbeat
from agent_widgets.pacing import Airtime
from agent_widgets.runs import Run
from agent_widgets.tap import EarlyTap

OUTSIDE_LOOK_SECONDS = 1.0
"""How often the end of a cell looks whether its run waits for results that only a later cell can bring."""


class NotebookKernel:
    """What this process has of a notebook: its shell, its tap, whether a page has ever spoken.

    Module state with a documented life: made when first needed, ended by ``close`` (``%unload_ext``, tests).
    """

    _one: NotebookKernel | None = None

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.kernel: Any = getattr(shell, "kernel", None)
        self.page_seen = False
        self.airtime = Airtime()
        self.tap = EarlyTap(self.kernel)
        self.waiter = CellWaiter(self.tap) if self.kernel is not None else TerminalWaiter()
        self._capture = OutputCapture(shell)
        self._capture.install()
        main_loop = getattr(getattr(self.kernel, "io_loop", None), "asyncio_loop", None)
        self._heartbeat = Heartbeat(main_loop, self.tap.look)
        self._started_in_cell: list[Run] = []
        self.tap.install()
        shell.events.register("post_run_cell", self._after_cell)

    @classmethod
    def get(cls) -> NotebookKernel | None:
        """The one of this process; ``None`` outside IPython."""
        shell = _ipython()
        if shell is None:
            return None
        one = cls._one
        if one is None or one.shell is not shell:
            one = cls._one = cls(shell)
        one.tap.install()
        return one

    @property
    def is_terminal(self) -> bool:
        """IPython in a terminal: there is no page."""
        return self.kernel is None

    @property
    def anybody_there(self) -> bool:
        """Whether somebody could answer a question.

        Those that execute notebooks (nbclient, papermill) allow no stdin. Neither does Voilà, but there people click; and a
        page that has said hello proves that somebody is there.
        """
        if self.is_terminal or self.page_seen or getattr(self.kernel, "_allow_stdin", True):
            return not self.is_terminal
        return "VOILA_KERNEL_ID" in os.environ or os.environ.get("SERVER_SOFTWARE", "").startswith("voila")

    def watch(self, run: Run) -> None:
        """Look after a run that a cell started: keep the kernel's loop awake, and with nobody there end it inside its cell."""
        self._heartbeat.beat_for(run)
        if not self.anybody_there:
            self._started_in_cell.append(run)

    def close(self) -> None:
        """Take out everything that was put in."""
        self.tap.uninstall()
        self._capture.uninstall()
        self.shell.events.unregister("post_run_cell", self._after_cell)
        NotebookKernel._one = None

    def _after_cell(self, *_: object) -> None:
        """With nobody there a run ends inside its own cell: nbclient drops updates that belong to an earlier one.

        One that waits for outside results is left waiting: only a later cell can bring them.
        """
        started, self._started_in_cell = self._started_in_cell, []
        for run in started:
            while not self.waiter.block(run, OUTSIDE_LOOK_SECONDS) and not _waits_for_outside(run):
                pass


def _waits_for_outside(run: Run) -> bool:
    return run.status == "paused" and all(call.state == "submitted" for call in run.transcript.waiting)


def _ipython() -> Any:
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - slow to import, and not needed in a script

    return get_ipython()
