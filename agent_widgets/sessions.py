"""Sessions: an agent with its state and its runs in this process, found again by the next cell, and on the disk if it is stored.

One run at a time touches an agent: a second one waits its turn, a paused one keeps it. Module state: the registry of
sessions by name; ``Session.close`` takes one out.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from agent_widgets.adapters import as_backend
from agent_widgets.agent import Agent
from agent_widgets.backends import Backend, Inputs
from agent_widgets.budgets import Budget, checked_budget
from agent_widgets.decisions import StopLevel
from agent_widgets.errors import AgentBusyError, AgentWidgetsError, InputError
from agent_widgets.inbox import Taken
from agent_widgets.keeping import Keeping
from agent_widgets.loops import LoopName, loop_named, on_loop
from agent_widgets.messages import Msg, PermissionRule
from agent_widgets.questions import checked_limit
from agent_widgets.runs import Run
from agent_widgets.state import AgentState
from agent_widgets.store import read_session, write_session
from agent_widgets.waiting import CLEAN_UP_SECONDS, Waiter

KEPT_RUNS = 100
"""Of the runs that have ended a session keeps the newest: each holds its log and its transcript, beside the state."""

_sessions: dict[str, Session] = {}
_registry_lock = threading.Lock()


def sessions() -> tuple[Session, ...]:
    """The sessions of this kernel, oldest first."""
    with _registry_lock:
        return tuple(_sessions.values())


def session_of(agent: object, name: str | None = None, *, loop: LoopName | asyncio.AbstractEventLoop = "own") -> Session:
    """The session of this agent: the one that exists, or a new one.

    Args:
        agent: Ours, or a foreign one that an adapter knows.
        name: Its name, if it is new; made from the agent's name if ``None``.
        loop: Where its runs are carried, if it is new.
    """
    for session in sessions():
        if session.agent is agent:
            return session
    return Session(agent, name, loop=loop)


class Session:
    """An agent and its runs. All methods: any thread, they return at once."""

    def __init__(self, agent: object, name: str | None = None, *, loop: LoopName | asyncio.AbstractEventLoop = "own") -> None:
        """Make a session; it is listed in ``sessions()`` until ``close()``.

        Args:
            agent: Ours, or a foreign one that an adapter knows.
            name: Unique in this kernel; made from the agent's name if ``None``.
            loop: Where runs are carried: "own", the loop thread, so that they go on while cells are busy; "kernel", the loop
                that runs here, for an agent that is bound to it (see ``chat``); or any loop.

        Raises:
            InputError: not an agent, the name is taken by another agent's session, or no loop runs here.
        """
        self.agent = agent
        self.backend: Backend = as_backend(agent)
        self._loop = loop_named(loop) if isinstance(loop, str) else loop
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._count = 0
        self._queue: deque[tuple[Run, bool]] = deque()
        self._current: Run | None = None
        self._keeping: Keeping | None = None
        self._is_closing = False
        self._left = threading.Event()
        with _registry_lock:
            if name in _sessions:
                raise InputError(f"There is a session called {name!r} already. Choose another name, or close that one.")
            self.name = name or _free_name(self.backend.name)
            _sessions[self.name] = self

    @property
    def runs(self) -> tuple[Run, ...]:
        """Its runs, oldest first: all that have not ended, and the newest ``KEPT_RUNS`` of those that have."""
        return tuple(self._runs)

    @property
    def current(self) -> Run | None:
        """The run that is busy or paused; ``None`` when the next one would begin at once."""
        run = self._current
        return None if run is None or run.is_over else run

    @property
    def state(self) -> AgentState | None:
        """The agent's state; ``None`` for a foreign agent, whose state is its own."""
        return self.agent.state if isinstance(self.agent, Agent) else None

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """What a person has allowed for this conversation; none for a foreign agent."""
        return self.agent.rules if isinstance(self.agent, Agent) else ()

    def forget_rule(self, rule: PermissionRule) -> int:
        """Take back one of ``rules``; gives how many there were."""
        return self.agent.forget_rule(rule) if isinstance(self.agent, Agent) else 0

    def watch_rules(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call ``watcher`` whenever ``rules`` changes, on any thread; call the result to stop."""
        return self.agent.watch_rules(watcher) if isinstance(self.agent, Agent) else lambda: None

    @property
    def path(self) -> Path | None:
        """The folder that keeps it, if ``open`` made it; else ``None``."""
        return None if self._keeping is None else self._keeping.path

    @property
    def waits(self) -> bool:
        """Whether a reply waits for its decisions and no run carries it yet: it came with a loaded state."""
        return self.current is None and self.state is not None and bool(self.state.waiting())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its runs are carried."""
        return self._loop

    def move_to(self, loop: LoopName | asyncio.AbstractEventLoop) -> None:
        """Carry its runs on another loop from now on; nothing if it is the same.

        Raises:
            InputError: a run is running, waits for a decision or for its turn: a session has one loop. Or no loop runs here.
        """
        wanted = loop_named(loop) if isinstance(loop, str) else loop
        with self._lock:
            if wanted is self._loop:
                return
            if self.current is not None:
                raise InputError(
                    f"The session {self.name!r} has a run that is {self.current.status}, on another loop than the one asked for. "
                    "A session has one loop: await that run or stop it first, or make another agent."
                )
            self._loop = wanted

    def run(
        self,
        prompt: Inputs = None,
        reset: bool = False,  # noqa: FBT001, FBT002 - agentling's and smolagents' signature
        *,
        deadline: float | None = None,
        answer_within: float | None = None,
        budget: Budget | None = None,
        waiter: Waiter | None = None,
        on_pause: Callable[[Run], None] | None = None,
        before_start: Callable[[Run], None] | None = None,
    ) -> Run:
        """Start a run, or queue it behind the one that is busy.

        Args:
            prompt: What the reply starts from; ``None``: go on where it stopped. A reply that had paused when its state was
                saved waits for its decisions again, in a run of its own, and a message waits behind it.
            reset: Begin a fresh conversation, when its turn comes.
            deadline: Seconds from its start after which the run is stopped.
            answer_within: Seconds after which a call that waits is denied, or gets an error for its outside result.
            budget: What it may use before it is stopped; ``None``: the agent's own budget, if it has one.
            waiter: How ``await run`` and ``run.wait`` wait.
            on_pause: Called on the loop when the reply pauses.
            before_start: Called with the run before anything can happen to it: a card attaches itself here.

        Raises:
            InputError: ``budget`` is not a ``Budget``, ``answer_within`` not above 0, or the session's loop has been closed.
        """
        if self._loop.is_closed():
            raise InputError(
                f"The loop that carried the session {self.name!r} has been closed. "
                "Give it another one:  chat(agent, …, loop='own')"
            )
        if self.waits and not reset and isinstance(prompt, str | Msg | Sequence):
            self.run(answer_within=answer_within, waiter=waiter, on_pause=on_pause)
        paused = self.agent.paused_reply(prompt) if isinstance(self.agent, Agent) and self.current is None else None
        run = Run(
            self.backend,
            prompt,
            loop=self._loop,
            session_id=self.state.session_id if self.state else "",
            waiter=waiter,
            on_pause=on_pause,
            deadline=deadline,
            answer_within=checked_limit(answer_within, "answer_within"),
            budget=checked_budget(budget) or (self.agent.budget if isinstance(self.agent, Agent) else None),
            transcript=paused,
            taken=self._keeping.taken_before() if self._keeping and paused else (),
            on_taken=self._takes,
        )
        run.resume_with = lambda: self.run(
            run.inputs_to_resume,
            reset and run.inputs_to_resume is not None,
            deadline=deadline,
            answer_within=answer_within,
            budget=budget,
            waiter=waiter,
            on_pause=on_pause,
            before_start=before_start,
        )
        if before_start is not None:
            before_start(run)
        if self._keeping is not None:
            run.listen(self._keeping.follow)
        with self._lock:
            self._runs = [*self._newest_runs(), run]
            self._count += 1
            self._queue.append((run, reset))
            if self._current is not None:
                run.wait_behind(len(self._queue))
        run.ended.add_done_callback(lambda _: self._next())
        self._next()
        return run

    def interrupt(self, after: StopLevel = "now", reason: str = "") -> None:
        """Stop the run that is busy or paused; nothing if there is none. Runs that wait their turn go on waiting for it."""
        run = self._current
        if run is not None:
            run.stop(after, reason)

    def save(self, path: str | Path) -> None:
        """Write a copy of the state as it is now to a file (mode 0600), whole or not at all.

        ``Session.open`` keeps a session in a folder from then on; this is a copy, made once.
        """
        write_session(Path(path), self.name, self.backend.dump())

    @classmethod
    def load(cls, path: str | Path, agent: object) -> Session:
        """Put a saved state into ``agent`` and give its session. Tools, model and instructions are the agent's own.

        Raises:
            FileNotFoundError: there is no such file.
            SavedStateError: the file is damaged or from a newer version; neither it nor the agent was changed.
        """
        name, state = read_session(Path(path))
        as_backend(agent).load(state)
        taken = any(session.name == name and session.agent is not agent for session in sessions())
        return session_of(agent, None if taken else name)

    @classmethod
    def open(cls, path: str | Path, agent: object) -> Session:
        """Keep the session of ``agent`` in a folder from now on, event by event; go on from what is there.

        ``save`` and ``load`` copy a state once, into one file. Here a kernel may die at any moment: the same line in the next one
        loses at most 100 ms of streamed text, and no decision and no result. What waited for a decision waits again: show it
        with ``chat(agent)``. What was decided and had not begun is carried out by that; what had begun is closed as interrupted
        and never run again.

        In a kernel that has it open: gives that session if it is this agent's; else closes it, and goes on with this agent. Of
        a foreign agent only the state at each pause and each end of a run is kept.

        Args:
            path: The folder, such as ``"orders.session"``; made (mode 0700, its files 0600) if it is not there.
            agent: Ours, or a foreign one that an adapter knows. What it remembers is replaced, unless the folder is new.

        Raises:
            SavedStateError: another kernel has it open, a file is damaged or from a newer version, or it is another folder. The
                files and the agent are unchanged.
            AgentBusyError: the agent is carrying a run, or one is paused.
            InputError: the agent's session is kept in another folder; ``close()`` that first.
            OSError: the folder cannot be made or written.
        """
        place = Path(path).expanduser().resolve()
        for other in sessions():
            if other.path == place and other.agent is agent and not other._is_closing:  # noqa: SLF001 - of this class
                return other
            if other.path == place:
                other.close()
                other._wait_closed()  # noqa: SLF001 - of this class
        with ExitStack() as undo:
            keeping = Keeping(place)
            undo.callback(keeping.close)
            session = session_of(agent, _free_name(keeping.name))
            session._keep(keeping)  # noqa: SLF001 - of this class
            undo.pop_all()
        return session

    def _keep(self, keeping: Keeping) -> None:
        if self._keeping is not None:
            raise InputError(
                f"The session of this agent is kept in {self.path}. Call close() on it first, or make another agent."
            )
        if self.current is not None:
            raise AgentBusyError(self.backend.name)
        keeping.begin(self.name, self.backend, lambda: self.current)
        self._keeping = keeping

    def close(self) -> None:
        """Stop what runs or waits, and leave the registry.

        A stored session does so when what runs has ended, and what waits for a decision goes on waiting in its folder.
        """
        self._is_closing = True
        if self._keeping is None or self._loop.is_closed():
            self._leave()
            self._stop_all()
        elif on_loop(self._loop):
            self._close_stored()
        else:
            self._loop.call_soon_threadsafe(self._close_stored)

    def _wait_closed(self) -> None:
        """Block until a closed session has let its folder go.

        Raises:
            InputError: it cannot be waited for on its own loop, or what runs does not end.
        """
        if not self._left.is_set() and (on_loop(self._loop) or not self._left.wait(2 * CLEAN_UP_SECONDS)):
            raise InputError(f"The session in {self.path} is still closing. Try again when its run has ended.")

    def __repr__(self) -> str:
        return f"<Session {self.name!r}: {self._count} runs, {self._current.status if self._current else 'idle'}>"

    def _newest_runs(self) -> list[Run]:
        ended = [run for run in self._runs if run.is_over]
        dropped = set(ended[: max(0, len(ended) - KEPT_RUNS)])
        return [run for run in self._runs if run not in dropped]

    def _next(self) -> None:
        """Start the run whose turn it is, and tell the others their place. Any thread."""
        started, reset = None, False
        with self._lock:
            self._queue = deque((run, fresh) for run, fresh in self._queue if not run.is_over)
            if self._current is None or self._current.is_over:
                started, reset = self._queue.popleft() if self._queue else (None, False)
                self._current = started
            for place, (waiting, _) in enumerate(self._queue, 1):
                if waiting.ahead != place:
                    waiting.wait_behind(place)
        if started is None:
            return
        try:
            if reset:
                self.backend.load({})
        except AgentWidgetsError as error:  # the agent is carrying a reply that is not this session's
            started.stop(reason=str(error), raises=error)
        else:
            if isinstance(self.agent, Agent):
                self.agent.carried_by(started)
            started.start()

    def _stop_all(self) -> None:
        with self._lock:
            waiting = [run for run, _ in self._queue]
        for run in [*waiting, self._current]:
            if run is not None:
                run.stop(reason="the session was closed")

    def _leave(self) -> None:
        if self._keeping is not None:
            self._keeping.close()
        with _registry_lock:
            if _sessions.get(self.name) is self:
                del _sessions[self.name]
        self._left.set()

    def _close_stored(self) -> None:
        """On the loop, where decisions are taken: what is paused here cannot begin before the folder is let go."""
        run = self.current
        if run is not None and run.status == "paused" and self._keeping is not None:
            self._keeping.close()  # that this run is stopped is not written: in the folder the reply goes on waiting
        self._stop_all()
        if run is None:
            self._leave()
        else:
            run.ended.add_done_callback(lambda _: self._leave())

    def _takes(self, event: Taken) -> None:
        if self._keeping is not None:
            self._keeping.takes(event)


def _free_name(wanted: str) -> str:
    name, number = wanted, 1
    while name in _sessions:
        number += 1
        name = f"{wanted}-{number}"
    return name
