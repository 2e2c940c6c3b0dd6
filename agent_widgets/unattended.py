"""Where nobody is there (nbclient, papermill, nbconvert): a run ends inside the cell that has started it.

Those who execute notebooks keep only what belongs to the cell that runs. So the end of a cell waits for the runs that it has
started; and what a card of an earlier cell came to (its run waited for a result that a later cell has brought) is said once
more, as that later cell's. Everything here happens on the main thread, except ``settled``.
"""

from __future__ import annotations

import asyncio
import queue
import sys
from collections.abc import Callable

from agent_widgets.errors import AgentStopped, InputError
from agent_widgets.loops import result_of
from agent_widgets.runs import Run
from agent_widgets.sessions import sessions
from agent_widgets.waiting import Waiter

LOOK_SECONDS = 0.2
"""How often the end of a cell looks whether its run waits for results that only a later cell can bring."""


class Unattended:
    """What goes on in a kernel where nobody is there."""

    def __init__(self) -> None:
        self.cell = 0  # counts those that have ended
        self._runs: list[Run] = []
        self._untold: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def watch(self, run: Run) -> None:
        """Wait for this run at the end of the cell."""
        self._runs.append(run)

    def settled(self, cell: int, say_again: Callable[[], None]) -> None:
        """A card that was made in ``cell`` has come to something: say it again if that cell has ended. Any thread."""
        if cell != self.cell:
            self._untold.put(say_again)

    def end_cell(self, waiter: Waiter) -> None:
        """Wait for what can end now. A run that waits for an outside result goes on waiting: only a later cell can bring it."""
        for run in self._runs:
            _wait(run, waiter)
        self._runs = [run for run in self._runs if not run.is_over]
        while not self._untold.empty():
            self._untold.get()()
        self.cell += 1


def _wait(run: Run, waiter: Waiter) -> None:
    try:
        if not run.is_carried_here:
            result_of(asyncio.sleep(0), run.loop)  # an answer that the cell has just given counts from here on
        while not run.is_abandoned and not waiter.block(run, LOOK_SECONDS) and not _waits_for_outside(run):
            pass
    except (AgentStopped, KeyboardInterrupt):  # ■: the card says so, and the cell has ended well
        run.stop(reason="interrupted in the notebook", source="kernel")
    except InputError as error:  # it is on the kernel's own loop, which goes on with the next cells
        sys.stderr.write(f"agent-widgets: nobody is there, and this cell ends before its run. {error}\n")


def _waits_for_outside(run: Run) -> bool:
    """Whether nothing happens in it before an outside result: its own, or of the run that it is queued behind."""
    if run.status == "queued":
        ahead = [session.current for session in sessions() if run in session.runs]
        return any(other is not None and other is not run and _waits_for_outside(other) for other in ahead)
    return run.status == "paused" and all(call.state == "submitted" for call in run.transcript.waiting)
