"""A run: one reply being carried out, as everybody but its own loop sees it.

Law of this room: what is here may be used from any thread, returns at once, and does nothing when there is nothing to do.
What a run does, it does on its loop: that is ``carriage``.
"""

from __future__ import annotations

import asyncio
import contextvars
import textwrap
import time
from collections.abc import Callable, Generator, Iterable

import pydantic_core

from agent_widgets import events as ev
from agent_widgets.backends import Backend, Inputs, prompt_of
from agent_widgets.budgets import Budget
from agent_widgets.carriage import Carriage, RunStatus
from agent_widgets.decisions import Decision, StopLevel, StopRequest, StopSource, check_level
from agent_widgets.errors import AgentWidgetsError, InputError
from agent_widgets.inbox import Note, Taken
from agent_widgets.loops import on_loop
from agent_widgets.messages import JsonObject, Msg, PermissionRule
from agent_widgets.state import valid_arguments
from agent_widgets.transcript import Transcript
from agent_widgets.waiting import Waiter, surroundings
from agent_widgets.wire import RunView

Listener = Callable[["Run", ev.Event | None], None]
"""Told of each event after it is logged, and with ``None`` of each change of status; on the run's loop."""

_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("agent_widgets_run", default=None)


def current_run() -> Run | None:
    """The run whose task is running here, or ``None``."""
    return _current.get()


class Run(Carriage):
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
        answer_within: float | None = None,
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
            waiter: How ``await run`` and ``wait`` wait; as the cell does that makes it, or plainly, if ``None``.
            on_pause: Called on the loop when the reply pauses: a policy may decide here.
            deadline: Seconds from its start after which the run is stopped, whatever it waits for; ``None``: no limit.
            answer_within: Seconds after which a call that waits is denied, or its outside result is an error; ``None``: no limit.
            budget: What it may use before it is stopped; see ``Budget``.
            keeps_pause: Whether a pause leaves the run alive (a card decides) or ends it (``reply()`` returns).
            transcript: How far the reply had come before this run, if it goes on with a paused one.
            taken: Decisions and results for that reply that were taken before this run.
            on_taken: Told of each decision and each outside result on the loop, before it has any effect.
        """
        super().__init__(
            backend,
            inputs,
            loop=loop,
            session_id=session_id,
            keeps_pause=keeps_pause,
            deadline=deadline,
            answer_within=answer_within,
            budget=budget,
            transcript=transcript,
            taken=taken,
            on_taken=on_taken,
        )
        self.prompt = prompt_of(inputs)
        self.is_abandoned = False
        self.note = ""
        self.card: object | None = None
        self.resume_with: Callable[[], Run] | None = None
        self._waiter: Waiter = waiter or surroundings.waiter()
        self._on_pause = on_pause
        self._listeners: list[Listener] = []
        self._context.run(_current.set, self)

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
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that carries it."""
        return self._loop

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

    def _display_(self) -> object:
        """The same in marimo, where the last line takes the place of what the cell has shown so far."""
        return self.card or repr(self)

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

    def _tell(self, event: ev.Event | None) -> None:
        """Tell the listeners. One that fails is reported to the loop's exception handler: a page must not end a run."""
        for listener in tuple(self._listeners):
            try:
                listener(self, event)
            except Exception as error:  # noqa: BLE001 - see above
                self._loop.call_exception_handler({"message": f"a listener of run {self.run_id} failed", "exception": error})

    def _ask(self) -> None:
        if self._on_pause is not None:
            self._on_pause(self)
