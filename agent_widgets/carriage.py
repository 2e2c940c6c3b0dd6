"""How a run is carried: its task, its log and its one outcome, all of it on one loop.

Law of this room: everything here happens on the run's loop, except ``_call``, which hands over to it. The log is written
first, whoever listens is told second. Who stopped is decided by what was asked (``StopRequest``), never by which exception
came back: some agents swallow a cancel.

A run is carried in *legs*: a task each, from a start or a decision to an end or a pause. While a run is paused there is
no task at all, only its state.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from agent_widgets import events as ev
from agent_widgets.backends import Backend, Inputs
from agent_widgets.budgets import Budget, Meter
from agent_widgets.decisions import Decision, StopRequest, StopSource
from agent_widgets.endings import closing
from agent_widgets.eventlog import EventLog
from agent_widgets.inbox import Inbox, Note, Taken
from agent_widgets.messages import ErrorInfo, FinishedReason, new_id
from agent_widgets.questions import AnswerClock, dated, unanswered
from agent_widgets.transcript import Transcript, TranscriptBuilder
from agent_widgets.waiting import CLEAN_UP_SECONDS

RunStatus = Literal["queued", "running", "stopping", "paused", "completed", "interrupted", "exceed_max_iters", "error"]


class Carriage(ABC):
    """The part of a run that lives on its loop; ``runs.Run`` is the part that everybody else uses."""

    def __init__(
        self,
        backend: Backend,
        inputs: Inputs,
        *,
        loop: asyncio.AbstractEventLoop,
        session_id: str,
        keeps_pause: bool,
        deadline: float | None,
        answer_within: float | None,
        budget: Budget | None,
        transcript: Transcript | None,
        taken: Iterable[Taken],
        on_taken: Callable[[Taken], None] | None,
    ) -> None:
        """Prepare; the arguments are those of ``Run``."""
        self.run_id = new_id()[:12]
        self.backend = backend
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended.set_running_or_notify_cancel()  # a waiter that is cancelled must not cancel what others wait for
        self.ahead = 0
        self.takes_notes = False  # the backend says that it asks for them, or asks
        self.running_calls: dict[str, Callable[[StopRequest], bool]] = {}  # how to stop one alone; False: it has ended
        self._inputs = inputs
        self._loop = loop
        self._context = contextvars.copy_context()
        self._session_id = session_id
        self._keeps_pause = keeps_pause
        self._deadline = deadline
        self._answer_within = answer_within
        self._answer_clock = AnswerClock(loop, self._give_up)
        self._budget = budget
        self._meter = None if budget is None else Meter(budget, transcript)
        self._alarms: list[asyncio.TimerHandle] = []
        self._log = EventLog()
        self._builder = TranscriptBuilder(transcript)
        self._status: RunStatus = "queued"
        self._leg: asyncio.Task[None] | None = None
        self._begun = self._closed = self._ends_pause = False
        self._stop: StopRequest | None = None
        self._stop_ms: float | None = None
        self._call_stops: dict[str, StopRequest] = {}
        self._inbox = Inbox(backend, self._builder.freeze().message.id, taken, on_taken)
        self._unlogged: ev.Event | None = None
        self._error: BaseException | None = None
        self._started_at = self._ended_at = 0.0

    @abstractmethod
    def _tell(self, event: ev.Event | None) -> None:
        """Something was logged, or the status has changed (``None``)."""

    @abstractmethod
    def _ask(self) -> None:
        """The reply waits, and no decision that was taken before goes on with it."""

    @property
    def is_over(self) -> bool:
        """Whether the outcome is known and final."""
        return self.ended.done()

    @property
    def transcript(self) -> Transcript:
        """The fold of the events. Any thread."""
        return self._builder.freeze()

    # -- what others ask for --------------------------------------------------------------------------------------

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

    def _give_up(self, call_ids: set[str]) -> None:
        """Nobody has answered in time: deny these calls, or say that their outside results did not come."""
        for call in self.transcript.waiting:
            if call.id in call_ids:
                self._inbox.give_up(self.transcript, call, unanswered(call))
        self._go_on()

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

    def dated(self, event: ev.Event) -> ev.Event:
        """A question with the end of the time in which it can be answered: a backend that remembers it calls this first."""
        return dated(event, self._answer_within)

    # -- its life -------------------------------------------------------------------------------------------------

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
        self._answer_clock.clear()
        self._begun = False
        self._ends_pause = isinstance(inputs, ev.UserInterruptEvent) and inputs.reply_id == self.transcript.message.id
        self._set_status("stopping" if self._ends_pause else "running")
        self._leg = self._loop.create_task(self._carry(inputs), name=f"agent-widgets run {self.run_id}", context=self._context)
        self._leg.add_done_callback(self._leg_done)

    async def _carry(self, inputs: Inputs) -> None:
        self._begun = True
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
                self._start_leg(ev.UserInterruptEvent(reply_id=self.transcript.message.id))
            case "completed" | "interrupted" | "exceed_max_iters" | "error":
                pass

    def _cancel(self) -> None:
        """Cut the leg. One that has not begun looks at ``_stop`` itself: cut, it would leave its pause or its decision behind."""
        if self._leg is not None and self._begun:
            self._leg.cancel("agent_widgets: stopped")
            self._alarms.append(self._loop.call_later(CLEAN_UP_SECONDS, self._tell_deaf))

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
        if self._status == "paused":
            self._answer_clock.set(self.transcript.waiting)
            self._ask()

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
        event = self.dated(event)
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

    def _tell_deaf(self) -> None:
        """It swallows its cancel. Its state stays its own until it ends, so that whoever comes next must know why it waits."""
        if not self._closed:
            text = (
                f"{self.backend.name} has not ended {CLEAN_UP_SECONDS:g} s after its stop. The next prompt waits until it does."
            )
            self._record(ev.CustomEvent(name=ev.NOTICE, value={"text": text}))

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
