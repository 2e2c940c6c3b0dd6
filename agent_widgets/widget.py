"""The card: runs on one side, a comm on the other.

Single writer: everything that is sent to pages is sent on the loop that carries the runs. What pages send may arrive on any
thread, twice (the early tap and the ordinary handler); it is handed to that loop and handled once. An error on this side
never reaches a run.
"""

# ipywidgets has no types: what comes from it is unknown to pyright, and only here.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import anywidget
import ipywidgets
import traitlets
from ipywidgets import widget_serialization

from agent_widgets.backends import Inputs
from agent_widgets.cardcode import CardCode, code_key, static_file
from agent_widgets.clicks import Clicks
from agent_widgets.errors import AgentWidgetsError, InputError
from agent_widgets.eventlog import EventLog
from agent_widgets.events import Event
from agent_widgets.export import static_bundle
from agent_widgets.hosts import current_host
from agent_widgets.kernel import NotebookKernel
from agent_widgets.loops import on_loop, threads_can_start
from agent_widgets.messages import JsonObject, new_id
from agent_widgets.pacing import Pacer
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.settings import AgentWidgets
from agent_widgets.wire import (
    ID_LIMIT,
    AnyCommand,
    AskTwin,
    Forget,
    Hello,
    Resume,
    Resync,
    RunCommand,
    events_message,
    load_command,
    notice_message,
    rules_message,
    snapshot_message,
    twin_message,
)

SNAPSHOT_LIMIT = 256_000
"""Characters in the synced snapshot; a page that asks gets everything."""

KEEP_SECONDS = 5.0
"""How long the loop that carries a run may take to say its end again."""

MESSAGES_OF_A_COMMAND = 3
"""What a kernel says about each message from a page: busy, idle, and an answer."""

MESSAGES_OF_A_NEW_CARD = 4 + MESSAGES_OF_A_COMMAND
"""Until it is on the screen: a comm, a snapshot, two outputs, and the hello of its page, for which room is left."""
logger = logging.getLogger("agent_widgets")


class AgentWidget(anywidget.AnyWidget):
    """One card: the runs of a session that belong to it, one below the other."""

    _esm = traitlets.Unicode().tag(sync=True)
    _bundle = traitlets.Instance(CardCode, allow_none=True).tag(sync=True, **widget_serialization)
    bundle_key = traitlets.Unicode().tag(sync=True)
    agent = traitlets.Unicode().tag(sync=True)
    css_id = traitlets.Unicode().tag(sync=True)
    composer = traitlets.Bool(default_value=False).tag(sync=True)
    remote_images = traitlets.Bool(default_value=False).tag(sync=True)
    session_name = traitlets.Unicode().tag(sync=True)
    stored_in = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        session: Session,
        start: Callable[[Inputs, AgentWidget], Run],
        *,
        composer: bool = False,
    ) -> None:
        """Make a card for ``session``; ``attach`` puts runs on it.

        Args:
            session: Whose runs it shows.
            start: Starts a run on this card for a typed prompt, or to go on.
            composer: Whether it has a box to type in.
        """
        defaults = AgentWidgets.get()
        self.session = session
        self._context = contextvars.copy_context()
        self._runs: list[Run] = []
        self._clicks = Clicks(session, self._runs, lambda inputs: start(inputs, self))
        self._unlisten: list[Callable[[], None]] = []
        self._seq = 0
        self._buffers: OrderedDict[str, EventLog] = OrderedDict()
        self._changed: set[str] = set()
        self._announced: set[str] = set()
        self._notebook = notebook = NotebookKernel.get()
        self._pacer = Pacer(notebook.airtime if notebook else None, frames_a_second=defaults.frames_a_second)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = float("inf")
        self._latest = snapshot_message(0, ())
        self.on_static: Callable[[dict[str, str]], None] | None = None
        # One process of marimo, Panel or Solara serves many pages, and none of them knows a widget of another one.
        shared = self._shared = CardCode.get() if notebook is not None and not notebook.is_terminal else None
        super().__init__(
            _esm=static_file("card.js" if shared is None else "loader.js"),
            _bundle=shared,
            layout=ipywidgets.Layout() if shared is None else shared.layout,
            bundle_key=code_key(),
            agent=session.backend.name,
            css_id=new_id()[:8],
            composer=composer,
            remote_images=defaults.remote_images,
            session_name=session.name,
            stored_in=_spoken(session.path),
            snapshot=self._latest,
        )
        self._unlisten.append(session.watch_rules(self._rules_changed))
        self.on_msg(lambda _widget, content, _buffers: self._receive(content))
        self._cell = notebook.unattended.cell if notebook else 0
        host = current_host()
        self._tap = host.tap if host else None
        self._pacer.count(time.monotonic(), MESSAGES_OF_A_NEW_CARD)
        if self._tap is not None and self.comm is not None:
            self._tap.hear(self.comm.comm_id, self._receive)

    def attach(self, run: Run) -> None:
        """Show a run on this card. Before it is started, or on its loop."""
        run.card = self
        self._goes_on()
        self._runs.append(run)
        self._buffers[run.run_id] = EventLog()
        self._changed.add(run.run_id)
        self._unlisten.append(run.listen(self._hear))

    def static(self) -> dict[str, str]:
        """The card's static twin as a MIME bundle."""
        return self._rendering()()

    def _rendering(self) -> Callable[[], dict[str, str]]:
        """Makes the twin as it is now, on any thread."""
        return partial(static_bundle, [run.view() for run in self._runs], self.css_id, self._seq, session=self.session.name)

    def publish(self) -> None:
        """Send the snapshot as it is now: the first thing a page sees. On the creating thread, before the run starts."""
        self._announced.update(run.run_id for run in self._runs)
        self._latest = self._snapshot()
        self.snapshot = self._latest

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - ipywidgets' signature
        """What a page gets that appears later; what has happened since, it gets in answer to its hello."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if "snapshot" in state:
            state["snapshot"] = self._latest
        return state

    def close(self) -> None:
        """Let the pages go; runs go on. On the loop, or where nothing runs."""
        self._sleep()
        self._goes_on()
        if self._tap is not None and self.comm is not None:
            self._tap.forget(self.comm.comm_id)
        for unlisten in self._unlisten:
            unlisten()
        for run in self._runs:
            if run.card is self:
                run.card = None
        super().close()

    def let_go(self) -> None:
        """Close it if nothing goes on in it, from any thread: its twin says the same, and appears where the live view was."""
        if not self.session.loop.is_closed():
            self.session.loop.call_soon_threadsafe(self._close_ended, context=self._context)

    def _goes_on(self) -> None:
        if self._shared is not None:
            self._shared.goes_on(self)

    def _close_ended(self) -> None:
        if self._has_ended:
            self.close()

    @property
    def _has_ended(self) -> bool:
        return all(run.status in _ENDED for run in self._runs)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live view; an empty ``text/html`` makes nbconvert and untrusted notebooks show the static twin only."""
        made: Any = super()._repr_mimebundle_(**kwargs)
        data, metadata = made if isinstance(made, tuple) else (made or {}, {})
        return {**data, "text/html": "", "text/plain": "[agent-widgets: live card]"}, dict(metadata)

    # -- to the pages, on the loop ------------------------------------------------------------------------------

    def _hear(self, run: Run, event: Event | None) -> None:
        """Something happened: send it with the next frame, and the end at once."""
        if event is None:
            self._changed.add(run.run_id)
        else:
            self._buffers[run.run_id].append(event)
        if event is None and run.status in _SETTLED:
            self._frame()  # before anybody who waits for the run learns of it: nbclient drops what comes after the cell
            return
        due = self._pacer.frame_due(event, time.monotonic())
        if due < self._timer_due:
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        self._sleep()
        self._timer_due = due
        delay = max(0.0, due - time.monotonic())
        self._timer = self.session.loop.call_later(delay, self._frame_due, context=self._context)

    def _sleep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, float("inf")

    def _frame_due(self) -> None:
        now = time.monotonic()
        turn = self._pacer.turn(now)
        if turn > now:
            self._wake_at(turn)
        else:
            self._frame()

    def _frame(self) -> None:
        self._sleep()
        try:
            self._send_frame()
        except Exception:  # the comm boundary: a page that cannot be reached must not stop a run
            logger.exception("agent-widgets: a card could not be updated; its run goes on")

    def _send_frame(self) -> None:
        settles, messages = False, 0
        for run in self._runs:
            events = self._buffers[run.run_id].take()
            changed = run.run_id in self._changed
            if not events and not changed:
                continue
            self._changed.discard(run.run_id)
            settles = settles or (changed and run.status in _SETTLED)
            self._seq += 1
            message = events_message(self._seq, run.run_id, events, run.status_facts() if changed else None)
            if run.run_id not in self._announced:
                self._announced.add(run.run_id)
                message["prompt"] = run.prompt
            self.send(message)
            messages += 1
        self._pacer.frame_sent(time.monotonic(), messages)
        if settles:
            self._keep()

    def _keep(self) -> None:
        """A run has ended or waits: keep the snapshot for pages that come later, and bring the static twin up to date.

        Pages that are here have had the events, so the snapshot is not sent to them. With nobody there it is, because
        nbclient stores what is sent; and so does marimo.
        """
        self._latest = self._snapshot()
        if self._notebook is None or not self._notebook.anybody_there:
            self.snapshot = self._latest
        if self._notebook is not None and not self._notebook.anybody_there:
            self._notebook.unattended.settled(self._cell, self._keep_again)
        if self.on_static is None:
            return
        if self._notebook is not None and self._notebook.anybody_there:
            self._update_static_at(self._pacer.reserve(time.monotonic()))
        else:
            self._update_static()

    def _update_static_at(self, turn: float) -> None:
        """In its turn: when ten cards end at once, a page that had ten twins to draw in one breath would hold still."""
        delay = max(0.0, turn - time.monotonic())
        self.session.loop.call_later(delay, self._update_static, context=self._context)

    def _update_static(self) -> None:
        """Rendered in a thread: the loop that carries all runs would stand still for the length of a transcript."""
        if self.on_static is None:
            return
        notebook = self._notebook
        if notebook is not None and notebook.anybody_there and threads_can_start():
            rendered = self.session.loop.run_in_executor(notebook.rendering, self._rendering())
            rendered.add_done_callback(lambda done: self._show_static(done.result), context=self._context)
        else:
            self._show_static(self._rendering())

    def _show_static(self, rendered: Callable[[], dict[str, str]]) -> None:
        if self.on_static is None:
            return
        try:
            self.on_static(rendered())
        except Exception:  # the comm boundary, as in _frame
            logger.exception("agent-widgets: a card's static twin could not be updated; its run goes on")
        if self._shared is not None and self.comm is not None and not self.composer and self._has_ended:
            self._shared.has_ended(self)  # not if it was closed before its twin had its turn

    def _keep_again(self) -> None:
        """Of an earlier cell, and with nobody there: say it as the cell that runs here, on the main thread."""

        def keep() -> None:
            self.send_state("snapshot")
            if self.on_static is not None:
                self.on_static(self.static())

        async def keep_there() -> None:
            keep()

        if on_loop(self.session.loop):
            keep()
        else:
            asyncio.run_coroutine_threadsafe(keep_there(), self.session.loop).result(KEEP_SECONDS)

    # -- from the pages -----------------------------------------------------------------------------------------

    def _receive(self, content: object) -> None:
        """Any thread: the tap's, the main one, a subshell's. Only hands over."""
        self.session.loop.call_soon_threadsafe(self._handle, content, context=self._context)

    def _handle(self, content: object) -> None:
        if not on_loop(self.session.loop):  # the session has moved to another one since
            self._receive(content)
            return
        try:
            command = load_command(content)
        except InputError as error:
            self._refuse(content, error)
            return
        if not self._clicks.is_new(command.id):
            return
        if not isinstance(command, Hello):
            self._pacer.count(time.monotonic(), MESSAGES_OF_A_COMMAND)
        try:
            notice = self._carry_out(command)
        except AgentWidgetsError as error:
            notice = str(error)
        if notice:
            self.send(notice_message(command.id, notice))
        if isinstance(command, RunCommand) and not isinstance(command, Resume):
            self._tell_ended(command.run_id)

    def _refuse(self, content: object, error: InputError) -> None:
        """Say that a press was not understood: once, if it has an id by which it is known when it comes again."""
        given: object = cast("dict[str, object]", content).get("id") if isinstance(content, dict) else None
        command_id = given[:ID_LIMIT] if isinstance(given, str) else ""
        if not command_id or self._clicks.is_new(command_id):
            self.send(notice_message(command_id, f"This click was not understood and nothing was done ({error})."))

    def _tell_ended(self, run_id: str) -> None:
        """Say once more that a run has ended, to a page that still asks something of it: the message may have been lost."""
        for run in self._runs:
            if run.run_id == run_id and run.status in _ENDED:
                self._changed.add(run_id)
                self._frame()

    def _carry_out(self, command: AnyCommand) -> str:
        match command:
            case Hello() | Resync():
                self._answer(command)
                return ""
            case AskTwin():
                self._send_frame()
                self.send(twin_message(self.static()))
                return ""
            case Forget():
                notice = self._clicks.carry_out(command)
                if notice:
                    self._send_rules()
                return notice
            case _:
                return self._clicks.carry_out(command)

    def _answer(self, command: Hello | Resync) -> None:
        """A page has appeared, or has missed something: give it everything."""
        if self._notebook is not None:
            self._notebook.page_seen = True
        self._send_frame()  # what is in the buffers is in the views too: it must not be sent again after them
        if command.have < self._seq:
            self.send(snapshot_message(self._seq, [run.view() for run in self._runs], rules=self.session.rules))
        else:
            self._send_rules()

    def _snapshot(self) -> JsonObject:
        return snapshot_message(self._seq, [run.view() for run in self._runs], SNAPSHOT_LIMIT, self.session.rules)

    def _rules_changed(self) -> None:
        """Any thread."""
        if not self.session.loop.is_closed():
            self.session.loop.call_soon_threadsafe(self._send_rules, context=self._context)

    def _send_rules(self) -> None:
        try:
            self.send(rules_message(self.session.rules))
        except Exception:  # the comm boundary, as in _frame
            logger.exception("agent-widgets: a card could not be updated; its run goes on")


_ENDED = ("completed", "interrupted", "exceed_max_iters", "error")
_SETTLED = ("paused", *_ENDED)
"""Nothing more happens to such a run until somebody does something."""


def _spoken(path: Path | None) -> str:
    """A folder as a person would write it in a cell: from here, or from home. Saved notebooks should not tell more."""
    if path is None:
        return ""
    for start, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(start):
            return prefix + path.relative_to(start).as_posix()
    return path.as_posix()
