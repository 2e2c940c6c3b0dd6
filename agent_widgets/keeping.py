"""What ties a session to its folder: the journal of its agent, what was taken before a restart, and what a person is to hear.

Made on any thread; everything else happens on the session's loop, where decisions are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Backend
from agent_widgets.inbox import Taken
from agent_widgets.journal import Journal, read_back
from agent_widgets.runs import Run, current_run
from agent_widgets.store import Store


class Keeping:
    """A folder that keeps a session."""

    def __init__(self, path: Path) -> None:
        """Open the folder and read what is there; nothing is changed yet.

        Raises:
            SavedStateError: another kernel has it open, or it cannot be read.
            OSError: it cannot be made.
        """
        self.path = path
        self._untold = ""
        self._taken: tuple[Taken, ...] = ()
        self._run_now: Callable[[], Run | None] = current_run
        self._store = Store(path)
        with ExitStack() as undo:
            undo.callback(self._store.close)
            self._found = read_back(self._store)
            undo.pop_all()
        self.name = self._found[0] if self._found else path.stem
        self._journal: Journal | None = None

    def begin(self, name: str, backend: Backend, run_now: Callable[[], Run | None]) -> None:
        """Put what was found into the agent, and write every change from now on.

        Raises:
            SavedStateError: it is another agent's state. The files are unchanged, and so is the agent.
            AgentBusyError: the agent is carrying a run.
            OSError: it cannot be written.
        """
        if self._found is not None:
            _, state, self._taken = self._found
            backend.load(state)
        journal = Journal(self._store, name, backend.dump, self._tell)
        if isinstance(backend, Agent):
            backend.record_with(journal)
        journal.begin(self._taken)
        self._journal, self._run_now = journal, run_now

    def close(self) -> None:
        """Let the folder go; what happens after this is not written."""
        if self._journal is None:
            self._store.close()
        else:
            self._journal.close()

    def taken_before(self) -> tuple[Taken, ...]:
        """Decisions and results that a kernel before this one had taken, for the run that goes on with that reply. Once."""
        taken, self._taken = self._taken, ()
        return taken

    def takes(self, event: Taken) -> None:
        """A run has taken a decision or a result, which has no effect yet."""
        if self._journal is not None:
            self._journal.taken(event)

    def follow(self, run: Run, event: ev.Event | None) -> None:
        """A listener: says what nobody could hear, and keeps a foreign agent's state, which is no fold of its events."""
        if event is not None or self._journal is None:
            return
        if self._untold:
            text, self._untold = self._untold, ""
            run.notice(text)
        if not isinstance(run.backend, Agent) and run.status not in ("queued", "running", "stopping"):
            self._journal.replaced()

    def _tell(self, text: str) -> None:
        """Say it on the card that is there, or on the next one."""
        run = current_run() or self._run_now()
        if run is None:
            self._untold = text
        else:
            run.notice(text)
