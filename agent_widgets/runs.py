"""A run: one reply being carried out. It owns the task, the log and the one outcome.

Law of this room: everything that changes a run happens on its loop; public methods may be called from any thread, return
at once, and do nothing when there is nothing to do. The log is written first, listeners are told second. Who stopped is
decided by what was asked (``StopRequest``), never by which exception came back: some agents swallow a cancel.

A run is carried in *legs*: a task each, from a start or a decision to an end or a pause. While a run is paused there is
no task at all, only its state.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Literal

import pydantic_core

from agent_widgets import events as ev
from agent_widgets.backends import Backend, Inputs, prompt_of
from agent_widgets.budgets import Budget, Meter
from agent_widgets.decisions import Decision, StopLevel, StopRequest, StopSource, check_level
from agent_widgets.errors import AgentWidgetsError, InputError
from agent_widgets.eventlog import EventLog
from agent_widgets.inbox import Inbox, Note, Taken
from agent_widgets.loops import on_loop
from agent_widgets.messages import ErrorInfo, FinishedReason, JsonObject, Msg, PermissionRule, new_id
from agent_widgets.state import valid_arguments
from agent_widgets.transcript import Transcript, TranscriptBuilder, closing
from agent_widgets.waiting import PlainWaiter, Waiter
from agent_widgets.wire import RunView

RunStatus = Literal["queued", "running", "stopping", "paused", "completed", "interrupted", "exceed_max_iters", "error"]
Listener = Callable[["Run", ev.Event | None], None]
"""Told of each event after it is logged, and with ``None`` of each change of status; on the run's loop."""

_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("agent_widgets_run", default=None)


def current_run() -> Run | None:
    """The run whose task is running here, or ``None``."""
    return _current.get()


class Run:
    """One reply being carried out: await it for the reply, read ``status``, ``events`` and ``text`` at any time."""

    def __init__(
        self,
        backend: Backend,
        inputs: Inputs,
        *,
        loop: asyncio.AbstractEventLoop,
        session_id: str = "",
        waiter: Waiter | None = None,
        on_pause: Callable[[Run], None] | None = None,
        keeps_pause: bool = True,
        deadline: float | None = None,
        budget: Budget | None = None,
        transcript: Transcript | None = None,
        taken: Iterable[Taken] = (),
        on_taken: Callable[[Taken], None] | None = None,
    ) -> None:
        """Prepare a run; ``start()`` begins it.

        Args:
            backend: What to drive.
            inputs: What the reply starts from.
            loop: Where its task lives. It must run; it may run in another thread.
            session_id: Put into the events that the run itself adds.
            waiter: How ``await run`` and ``wait`` wait.
            on_pause: Called on the loop when the reply pauses: a policy may decide here.
            deadline: Seconds from its start after which the run is stopped, whatever it waits for; ``None``: no limit.
            budget: What it may use before it is stopped; see ``Budget``.
            keeps_pause: Whether a pause leaves the run alive (a card decides) or ends it (``reply()`` returns).
            transcript: How far the reply had come before this run, if it goes on with a paused one.
            taken: Decisions and results for that reply that were taken before this run.
            on_taken: Told of each decision and each outside result on the loop, before it has any effect.
        """
        self.run_id = new_id()[:12]
        self.backend = backend
        self.prompt = prompt_of(inputs)
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended.set_running_or_notify_cancel()  # a waiter that is cancelled must not cancel what others wait for
        self.ahead = 0
        self.is_abandoned = False
        self.note = ""
        self.takes_notes = False  # the backend says that it asks for them, or asks
        self.resume_with: Callable[[], Run] | None = None
        self._inputs = inputs
        self._loop = loop
        self._context = contextvars.copy_context()
        self._session_id = session_id
        self._waiter: Waiter = waiter or PlainWaiter()
        self._on_pause = on_pause
        self._keeps_pause = keeps_pause
        self._deadline = deadline
        self._budget = budget
        self._meter = None if budget is None else Meter(budget, transcript)
        self._alarms: list[asyncio.TimerHandle] = []
        self._log = EventLog()
        self._builder = TranscriptBuilder(transcript)
        self._listeners: list[Listener] = []
        self._status: RunStatus = "queued"
        self._leg: asyncio.Task[None] | None = None
        self._begun = self._closed = self._ends_pause = False
        self._stop: StopRequest | None = None
        self._stop_ms: float | None = None
        self.running_calls: dict[str, Callable[[StopRequest], bool]] = {}  # how to stop one alone; False: it has ended
        self._call_stops: dict[str, StopRequest] = {}
        self._inbox = Inbox(backend, self.reply.id, taken, on_taken)
        self._unlogged: ev.Event | None = None
        self._error: BaseException | None = None
        self._started_at = self._ended_at = 0.0

    # -- read, from any thread ----------------------------------------------------------------------------------

    @property
    def status(self) -> RunStatus:
        """queued, running, stopping, paused, or the outcome: completed, interrupted, exceed_max_iters, error."""
        return self._status

    @property
    def events(self) -> tuple[ev.Event, ...]:
        """What has happened so far; the deltas of one block are joined into one."""
        return self._log.events()

    @property
    def transcript(self) -> Transcript:
        """The fold of the events."""
        return self._builder.freeze()

    @property
    def reply(self) -> Msg:
        """The reply's message, as far as it has come."""
        return self.transcript.message

    @property
    def text(self) -> str:
        """The text of the answer, as far as it has come."""
        return self.reply.get_text_content() or ""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What ``steer`` was given and the model has not read: it waits for the next step, or the run ended before."""
        return self._inbox.notes

    @property
    def error(self) -> BaseException | None:
        """The exception behind the outcome ``error``."""
        return self._error

    @property
    def inputs_to_resume(self) -> Inputs:
        """What a run that goes on from this one starts from: ``None``, or its inputs if it was stopped before it took them."""
        taken = any(isinstance(event, ev.ReplyStartEvent) and not ev.agent_path(event) for event in self.events)
        return None if taken else self._inputs

    @property
    def elapsed(self) -> float:
        """Seconds since it was started, until it ended."""
        return (self._ended_at or time.monotonic()) - self._started_at if self._started_at else 0.0

    @property
    def is_over(self) -> bool:
        """Whether the outcome is known and final."""
        return self.ended.done()

    @property
    def is_carried_here(self) -> bool:
        """Whether the caller is on the run's loop."""
        return on_loop(self._loop)

    @property
    def is_busy(self) -> bool:
        """Whether it is about to start, or its reply has not ended, on a loop that can still carry it."""
        return self._status in ("queued", "running", "stopping") and not self._closed and not self._loop.is_closed()

    @property
    def waits(self) -> bool:
        """Whether it is paused, and will go on by itself when the decision comes."""
        return self._status == "paused" and not self.is_over and not self._loop.is_closed()

    def status_facts(self) -> JsonObject:
        """The status as a page gets it."""
        facts: JsonObject = {"state": self._status, "elapsed": round(self.elapsed, 2)}
        if self._status == "queued":
            facts["ahead"] = self.ahead
        if self._stop is not None:
            stop = self._stop.facts()
            facts["stop"] = stop if self._stop_ms is None else {**stop, "stop_ms": self._stop_ms}
        if self.note:
            facts["note"] = self.note
        if self.takes_notes:
            facts["steerable"] = True
        if notes := self._inbox.notes:
            facts["steering"] = [note.facts() for note in notes]
        return facts

    def view(self) -> RunView:
        """The run as a page sees it."""
        return RunView(run_id=self.run_id, prompt=self.prompt, status=self.status_facts(), transcript=self.transcript)

    def __repr__(self) -> str:
        usage = self.reply.usage
        tokens = f", {usage.input_tokens} + {usage.output_tokens} tokens" if usage else ""
        return f"<Run {self._status} in {self.elapsed:.1f} s{tokens}: {textwrap.shorten(self.text, 60, placeholder='…')}>"

    # -- control, from any thread -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. Before that the run is queued, and ``stop`` takes it out."""
        self._call(self._start)

    def wait_behind(self, ahead: int) -> None:
        """Say how many runs are before this one in its queue."""
        self.ahead = ahead
        self._call(self._tell_place)

    def stop(
        self,
        after: StopLevel = "now",
        reason: str = "",
        *,
        call_id: str | None = None,
        source: StopSource = "code",
        raises: Exception | None = None,
    ) -> None:
        """End the run: at once, or after the running step. A paused run is ended, an ended one left alone.

        With ``call_id``, stop only what this call runs: a tool or a sub-agent, also one that waits for a person. The model reads
        an interrupted result with the reason, and what a sub-agent had said; the run goes on.

        Args:
            after: "now" cuts what runs; "step" lets the running step finish: of one call, the sub-agent's own step.
            reason: Recorded, and shown on the card.
            call_id: Which call; ``None``: the whole run. A call that has not begun, or has ended, is left alone.
            source: Who asks.
            raises: What ``await run`` shall raise, if this stop is what ends it.

        Raises:
            InputError: ``after`` is neither "now" nor "step".
        """
        check_level(after)
        request = StopRequest(source=source, when=after, reason=reason, at=time.monotonic(), raises=raises)
        if call_id is None:
            self._call(self._stop_on_loop, request)
        else:
            self._call(self._stop_call, call_id, request)

    def abandon(self) -> None:
        """Nobody reads it any more: end it. Any thread."""
        self.is_abandoned = True
        self.stop(reason="the reader walked away")

    def approve(
        self,
        call_id: str | None = None,
        *,
        arguments: JsonObject | str | None = None,
        always: bool | PermissionRule = False,
    ) -> None:
        """Let a waiting call run, or all that wait. ``arguments`` replaces what the model asked for.

        Args:
            call_id: Which call; ``None``: all that wait.
            arguments: New arguments, as a dict or JSON text.
            always: Also allow this tool from now on in this conversation: a rule in ``agent.state.rules``, which
                ``agent.forget_rule`` takes back. A rule of your own narrows it: ``PermissionRule("delete_rows", "table=tmp_*")``.
                Nothing where a rule of ``permissions`` asks, because that one wins.

        Raises:
            InputError: ``arguments`` is not a JSON object, or does not fit the tool. The call still waits.
        """
        text = arguments if isinstance(arguments, str) or arguments is None else pydantic_core.to_json(arguments).decode()
        if text is not None and valid_arguments(text) != text:
            raise InputError(
                f"approve(arguments={text!r:.80}): it must be a JSON object, such as {{'name': value}}. Nothing was executed."
            )
        if text is not None and (fault := self._inbox.misfit(self.transcript.waiting, call_id, text)):
            raise InputError(f"approve(arguments={text!r:.80}): {fault}")
        self._call(self.decide, call_id, Decision(confirmed=True, arguments=text, always=always))

    def deny(self, call_id: str | None = None, reason: str = "", *, stop: bool = False) -> None:
        """Refuse a waiting call, or all that wait. The model reads ``reason`` word for word and goes on, unless ``stop``."""
        decision = Decision(confirmed=False, reason=reason)
        if stop:
            self._call(self.then_stop, lambda: self.decide(call_id, decision), reason)
        else:
            self._call(self.decide, call_id, decision)

    def answer(self, call_id: str, result: str) -> None:
        """Give the result of a call that waits for an outside one."""
        self._call(self.take_answer, call_id, result)

    def steer(self, text: str) -> str:
        """Add something while the agent works: the model reads it at its next step, as a message of the user.

        Until then ``withdraw`` takes it back. An answer that would have been the last one is followed by another step, which
        counts as every step does; a run that waits for a decision goes on waiting. What the model has not read when the run
        ends stays in ``notes``, and the card says so.

        Returns:
            The note's id.

        Raises:
            InputError: there is no text.
            AgentWidgetsError: this run has ended.
        """
        note = Note(text=text)
        if self.is_over:
            raise AgentWidgetsError(f"steer(): this run is {self._status}. Ask in the next one: chat(agent, …).")
        self._call(self.add_note, note)
        return note.id

    def withdraw(self, steer_id: str | None = None) -> None:
        """Take back a note that the model has not read, or all of them."""
        self._call(self.take_back, steer_id)

    def notice(self, text: str) -> None:
        """Say something to the person who watches; nothing once the reply has ended."""
        event = ev.CustomEvent(name=ev.NOTICE, value={"text": text})
        if self.is_carried_here:
            self._emit(event)
        else:
            self._call(self._emit, event)

    def resume(self) -> Run:
        """Go on after an interrupted or failed run without a new message. Gives the run that does.

        Raises:
            AgentWidgetsError: this run has not ended, or belongs to no session.
        """
        if not self.is_over or self.resume_with is None:
            raise AgentWidgetsError(
                f"resume(): this run is {self._status}; only a run of a session that has ended can be resumed."
            )
        return self.resume_with()

    def wait(self, timeout: float | None = None) -> Run:
        """Block until the run has ended, at most ``timeout`` seconds; gives the run itself.

        Raises:
            TimeoutError: it has not ended in time. It goes on.
        """
        if not self._waiter.block(self, timeout):
            raise TimeoutError(f"The run is still {self._status} after {timeout} s. It goes on; stop it with run.stop().")
        return self

    def _ipython_display_(self) -> None:
        """As the last line of a cell: the card shows it already."""

    def __await__(self) -> Generator[object, None, Msg]:
        return self._wait_for_reply().__await__()

    async def _wait_for_reply(self) -> Msg:
        await self._waiter.wait(self)
        return self.result()

    def result(self) -> Msg:
        """The reply of a run that ended.

        Raises:
            Exception: what made the run fail, if it did.
        """
        if self._error is not None:
            raise self._error
        return self.reply

    # -- on the loop --------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell ``listener`` of everything from now on; call the result to stop. On the loop, or before ``start``."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def decide(self, call_id: str | None, decision: Decision) -> str:
        """Take a decision; it counts when the reply has parked. Gives ``""``, or a sentence that says why it does not count."""
        return self._take(lambda transcript: self._inbox.decide(transcript, call_id, decision))

    def decide_all(self, seen: Mapping[str, str], decision: Decision) -> str:
        """``decide`` about the calls that a person saw together: fingerprints by id."""
        return self._take(lambda transcript: self._inbox.decide_all(transcript, seen, decision))

    def take_answer(self, call_id: str, result: str) -> str:
        """``answer``, on the loop. Gives ``""``, or a sentence that says why it does not count."""
        return self._take(lambda transcript: self._inbox.answer(transcript, call_id, result))

    def then_stop(self, decide: Callable[[], str], reason: str) -> str:
        """A decision and a stop in one breath, so that nothing begins between them. Gives what ``decide`` gives."""
        why_not = decide()
        self._stop_for("user", reason)
        return why_not

    def _take(self, put: Callable[[Transcript], str]) -> str:
        if self.is_over:
            return "This run has already ended; nothing was executed."
        why_not = put(self.transcript)
        if not why_not:
            self._go_on()
        return why_not

    def _go_on(self) -> None:
        """Start a leg with the decisions that wait; while a leg runs they wait for its end."""
        if self._status != "paused":
            return
        inputs = self._next_call_stop() or self._inbox.ready(self.transcript)
        if inputs is not None:
            self._start_leg(inputs)

    def add_note(self, note: Note) -> None:
        """``steer``, on the loop."""
        self._inbox.notes = (*self._inbox.notes, note)
        self._tell(None)

    def take_back(self, note_id: str | None) -> str:
        """``withdraw``, on the loop. Gives ``""``, or a sentence that says why nothing was taken back."""
        if not self._inbox.withdraw(note_id):
            return "The model has read this already; it cannot be taken back."
        self._tell(None)
        return ""

    def take_notes(self) -> tuple[Note, ...]:
        """What the model is to read now: an agent that can be steered asks at each step, and says it with ``HintBlockEvent``."""
        notes = self._inbox.take_notes()
        if notes or not self.takes_notes:
            self.takes_notes = True
            self._tell(None)
        return notes

    def _next_call_stop(self) -> ev.UserInterruptEvent | None:
        """The end of a sub-agent that waits and is to be stopped alone, one for each leg."""
        while self._call_stops:
            call_id, request = self._call_stops.popitem()
            if below := self.transcript.working_for(call_id):
                return ev.UserInterruptEvent(reply_id=below.message.id, metadata=request.facts())
        return None

    def _stop_call(self, call_id: str, request: StopRequest) -> None:
        if not self.is_over and self._stop is None and not self.running_calls.get(call_id, lambda _: False)(request):
            self._call_stops[call_id] = request  # its sub-agent may wait: it is ended when the reply has parked
            self._go_on()

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Hand over to the loop, in the context of the cell that made the run (ipykernel 7 finds the cell in it)."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args, context=self._context)

    def _tell_place(self) -> None:
        if self._status == "queued":  # it may have begun or been stopped since
            self._set_status("queued")

    def _start(self) -> None:
        if self._status == "queued" and self._leg is None:
            self._started_at = time.monotonic()
            self._set_alarm(self._deadline, "deadline", "{:g} s are over")
            self._set_alarm(self._budget.seconds if self._budget else None, "budget", "the budget of {:g} s is used up")
            if self._inputs is None and self._builder.freeze().waiting:
                self._park()  # a pause is data: it came with the state, and waits for the same decisions
            else:
                self._start_leg(self._inputs)

    def _set_alarm(self, seconds: float | None, source: StopSource, reason: str) -> None:
        if seconds is not None:
            self._alarms.append(self._loop.call_later(seconds, self._stop_for, source, reason.format(seconds)))

    def _stop_for(self, source: StopSource, reason: str) -> None:
        self._stop_on_loop(StopRequest(source=source, when="now", reason=reason, at=time.monotonic()))

    def _start_leg(self, inputs: Inputs) -> None:
        self._begun = False
        self._ends_pause = isinstance(inputs, ev.UserInterruptEvent) and inputs.reply_id == self.reply.id
        self._set_status("stopping" if self._ends_pause else "running")
        self._leg = self._loop.create_task(self._carry(inputs), name=f"agent-widgets run {self.run_id}", context=self._context)
        self._leg.add_done_callback(self._leg_done)

    async def _carry(self, inputs: Inputs) -> None:
        self._begun = True
        _current.set(self)
        if isinstance(inputs, ev.UserConfirmResultEvent | ev.ExternalExecutionResultEvent | ev.UserInterruptEvent):
            self._unlogged = inputs
            if self._stop is not None and not self._ends_pause:
                self._cancel()  # the decision is recorded, and nothing that it allows begins
        elif self._stop is not None:
            return  # stopped between start() and this first step
        try:
            await self.backend.run(inputs, self._emit)
        finally:
            self._log_answer()

    def _stop_on_loop(self, request: StopRequest) -> None:
        if self.is_over:  # also a paused run that keeps no pause: the pause is the state's, and not this run's any more
            return
        match self._status:
            case "queued":
                self._stop = request
                self._started_at = self._started_at or time.monotonic()
                self._end("interrupted")
            case "running":
                self._stop = request
                if self._begun and (request.when == "now" or not self.backend.stop_after_step()):
                    self._cancel()
                self._set_status("stopping")
            case "stopping":
                if self._stop is not None and self._stop.when == "step" and request.when == "now":
                    self._stop = request
                    self._cancel()
                    self._set_status("stopping")
            case "paused":
                self._stop = request
                self._start_leg(ev.UserInterruptEvent(reply_id=self.reply.id))
            case "completed" | "interrupted" | "exceed_max_iters" | "error":
                pass

    def _cancel(self) -> None:
        """Cut the leg. One that has not begun looks at ``_stop`` itself: cut, it would leave its pause or its decision behind."""
        if self._leg is not None and self._begun:
            self._leg.cancel("agent_widgets: stopped")

    def _leg_done(self, leg: asyncio.Task[None]) -> None:
        self._leg = None
        error = None if leg.cancelled() else leg.exception()
        transcript = self._builder.freeze()
        ended = transcript.message.finished_reason
        if ended is not None:
            self._error = error if ended == "error" else None
            self._finish(ended)
        elif transcript.waiting and error is None and not leg.cancelled() and self._stop is None:
            self._park()
        elif transcript.waiting and self._stop is not None and error is None and not leg.cancelled() and not self._ends_pause:
            self._start_leg(ev.UserInterruptEvent(reply_id=transcript.message.id))  # it parked while it was being stopped
        elif self._stop is not None or leg.cancelled():
            self._end("interrupted")
        elif error is not None:
            self._error = error
            self._end("error", ErrorInfo.of(error))
        else:
            self._end("completed")

    def _park(self) -> None:
        self._set_status("paused")
        if not self._keeps_pause:
            self._finish("paused")
            return
        self._go_on()
        if self._status == "paused" and self._on_pause is not None:
            self._on_pause(self)

    def _end(self, outcome: FinishedReason, error: ErrorInfo | None = None) -> None:
        """Close what the backend left open, then finish."""
        for event in closing(self._builder.freeze(), session_id=self._session_id, finished_reason=outcome, error=error):
            self._emit(event)
        self._finish(outcome)

    def _finish(self, outcome: RunStatus) -> None:
        if outcome == "interrupted" and self._stop is not None:
            self._error = self._stop.raises
        for alarm in self._alarms:
            alarm.cancel()
        self._ended_at = time.monotonic()
        self._set_status(outcome)
        self.ended.set_result(None)

    def _emit(self, event: ev.Event) -> None:
        """Log first, tell second. Nothing is logged after the end, and nothing before the answer that it follows from."""
        if event is not self._unlogged:
            self._log_answer()
        self._unlogged = None
        if self._closed:
            return
        if isinstance(event, ev.ReplyEndEvent) and not ev.agent_path(event):
            self._tell_unread()
            self._closed = True
            if self._stop is not None and event.finished_reason == "interrupted":
                self._stop_ms = self._stop.milliseconds()
                event = replace(event, metadata={**event.metadata, **self._stop.facts(), "stop_ms": self._stop_ms})
        self._record(event)
        if self._meter is not None and self._leg is not None and not self._leg.cancelling():  # what closes it uses nothing
            reason = self._meter.exceeded(event)
            if reason:
                self._stop_for("budget", reason)

    def _log_answer(self) -> None:
        """The answer to a pause that began this leg, unless the backend has said it: one that remembers it first may."""
        if self._unlogged is not None:
            self._emit(self._unlogged)

    def _tell_unread(self) -> None:
        """Notes that have not entered do not vanish."""
        for note in self._inbox.notes:
            why = "the run had no further step" if self.takes_notes else f"{self.backend.name} takes nothing in while it works"
            self._record(ev.CustomEvent(name=ev.NOTICE, value={"text": f"Not sent: “{note.text}” ({why})"}))

    def _record(self, event: ev.Event) -> None:
        self._log.append(event)
        self._builder.apply(event)
        self._tell(event)

    def _set_status(self, status: RunStatus) -> None:
        self._status = status
        self._tell(None)

    def _tell(self, event: ev.Event | None) -> None:
        """Tell the listeners. One that fails is reported to the loop's exception handler: a page must not end a run."""
        for listener in tuple(self._listeners):
            try:
                listener(self, event)
            except Exception as error:  # noqa: BLE001 - see above
                self._loop.call_exception_handler({"message": f"a listener of run {self.run_id} failed", "exception": error})
