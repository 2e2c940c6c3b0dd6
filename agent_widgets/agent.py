"""Our own agent: the reasoning-acting loop on a ``Model``, carried by a ``Run``.

The agent's state is a fold of what it emits, so it is right at every await: a cancel leaves what was seen, closed as
interrupted. ``reply`` and ``reply_stream`` start a ``Run`` on the caller's loop and read it; there is no second way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from agent_widgets import events as ev
from agent_widgets.backends import Emit, Inputs, Model, messages_of
from agent_widgets.decisions import StopLevel, check_level
from agent_widgets.errors import AgentBusyError, AgentInterruptedError, InputError, NotWaitingError
from agent_widgets.loops import LoopThread
from agent_widgets.memory import Memory
from agent_widgets.messages import AssistantMsg, JsonObject, Msg, TextBlock, ToolCallBlock, ToolCallState
from agent_widgets.models import resolve
from agent_widgets.reasoning import ReplyLoop
from agent_widgets.runs import Listener, Run, current_run
from agent_widgets.state import AgentState, valid_arguments
from agent_widgets.tools import Tool, by_name
from agent_widgets.transcript import Transcript
from agent_widgets.waiting import CLEAN_UP_SECONDS
from agent_widgets.wire import dump_state, load_state

INTERRUPTION_TEXT = "I notice the interruption. How can I help you?"
WAITING_TEXT = "I'm waiting for your permission or the external execution to finish."
"""What ``reply`` gives for a reply that was interrupted, and for one that paused: AgentScope 2's texts."""


class Agent:
    """A model with tools and instructions, and the state of one conversation.

    ``await agent.reply("…")`` gives the reply's ``Msg``; ``agent.reply_stream("…")`` its events; ``agent.interrupt()``
    stops from any thread. ``chat(agent, "…")`` puts it into a notebook cell.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        name: str = "assistant",
        instructions: str = "",
        tools: Sequence[Tool | Callable[..., Any]] = (),
        state: AgentState | None = None,
        max_steps: int = 20,
        on_interrupt: Literal["reply", "raise"] = "reply",
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        """Make an agent; nothing is loaded or connected before the first reply.

        Args:
            model: A model's name at an OpenAI-compatible server; "demo" (no key, no network); "local" (a small real model,
                no key); or a ``Model``. ``None``: OpenAI if OPENAI_API_KEY is set, else "demo", and the card says so.
            name: Whose replies they are.
            instructions: The system message.
            tools: Functions, or functions with ``@tool``.
            state: Go on from this state.
            max_steps: Model calls in one reply, at most.
            on_interrupt: What ``reply`` does when it was stopped: "reply" gives a message with ``_is_interrupted``,
                "raise" raises ``AgentInterruptedError``. The state is the same.
            base_url: The address of an OpenAI-compatible server, such as ``http://127.0.0.1:8080/v1``.
            api_key: Its key; the environment's OPENAI_API_KEY if ``None``.

        Raises:
            InputError: an argument that cannot work; the message says what to give.
        """
        if on_interrupt not in ("reply", "raise"):
            raise InputError(f"on_interrupt is {on_interrupt!r}; it must be 'reply' or 'raise'.")
        if not isinstance(max_steps, int) or max_steps < 1:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers exist
            raise InputError(f"max_steps is {max_steps!r}; it must be a whole number, at least 1.")
        if state is not None and not isinstance(state, AgentState):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"state is {state!r:.80}; it must be an AgentState. For a dumped one use agent.load(…).")
        self.name = name
        self.instructions = instructions
        self.model = resolve(model, base_url=base_url, api_key=api_key)
        self.tools = by_name(tools)
        self.max_steps = max_steps
        self.on_interrupt = on_interrupt
        self._memory = Memory()
        self._claim = threading.Lock()
        self._run: Run | None = None
        self._stop_after_step = False
        if state is not None:
            self._memory.load(state)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """What it remembers now: a value, readable from any thread at any time."""
        return self._memory.state

    def dump(self) -> JsonObject:
        """The state as JSON, at any moment."""
        return dump_state(self.state)

    def load(self, saved: JsonObject, /) -> None:
        """Go on from a dumped state; what a crash left open in it is closed as interrupted.

        Raises:
            SavedStateError: this is not a state that can be read. The agent is unchanged.
            AgentBusyError: the agent is carrying a run.
        """
        state = load_state(saved)
        with self._claimed():
            self._memory.load(state)

    # -- replies ------------------------------------------------------------------------------------------------

    async def reply(self, inputs: Inputs = None) -> Msg:
        """Answer, and give the reply's message.

        Args:
            inputs: Text, a message or several; the answer to a pause (``UserConfirmResultEvent``,
                ``ExternalExecutionResultEvent``, ``UserInterruptEvent``); or ``None``: go on where it stopped.

        Raises:
            AgentBusyError: it is carrying a run.
            NotWaitingError: a decision that nothing waits for, or a message while a reply waits for a decision.
            ModelError: the model failed; what came before is kept, and ``reply(None)`` tries again.
            AgentInterruptedError: it was stopped, and ``on_interrupt`` is "raise".
        """
        if isinstance(inputs, ev.UserInterruptEvent) and not self.state.waiting():
            return AssistantMsg(self.name, ())
        run = self._start(inputs)
        message = await run
        if run.status == "paused":
            return replace(message, content=(TextBlock(WAITING_TEXT),))
        if run.status != "interrupted":
            return message
        if self.on_interrupt == "raise":
            raise AgentInterruptedError("Agent interrupted.")
        return await self.handle_interrupt(str(message.metadata.get("reason", "")))

    async def __call__(self, inputs: Inputs = None) -> Msg:
        """The same as ``reply``."""
        return await self.reply(inputs)

    async def reply_stream(self, inputs: Inputs = None) -> AsyncGenerator[ev.Event, None]:
        """Answer, and give the events as they happen.

        A cancelled reader gets the closing events, then its ``CancelledError``. A reader that walks away stops the reply.
        Raises as ``reply`` does, but gives an interrupted reply's events instead of raising.
        """
        if isinstance(inputs, ev.UserInterruptEvent) and not self.state.waiting():
            return
        queue: asyncio.Queue[ev.Event | None] = asyncio.Queue()
        run = self._start(inputs, lambda _, event: queue.put_nowait(event) if event and event is not inputs else None)
        run.ended.add_done_callback(lambda _: queue.put_nowait(None))
        cancelled: asyncio.CancelledError | None = None
        try:
            while True:
                try:
                    event = await queue.get()
                except asyncio.CancelledError as error:  # noqa: ASYNC103 - raised below, after the closing events were given
                    if cancelled is not None:
                        raise
                    cancelled = error
                    run.stop(reason="the reader was cancelled")
                    continue  # noqa: ASYNC104
                if event is None:
                    break
                yield event
        finally:
            if not run.is_over:
                run.stop(reason="the reader walked away")
                await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=CLEAN_UP_SECONDS)
            if cancelled is not None:  # also when the reader closes the stream on one of the closing events
                raise cancelled
        run.result()

    def reply_sync(self, inputs: Inputs = None) -> Msg:
        """``reply`` for code without ``await``, in a script or in a cell: carried on the loop thread while this one waits.

        Raises: as ``reply``.
        """
        return LoopThread.get().run_sync(self.reply(inputs))

    async def handle_interrupt(self, reason: str) -> Msg:  # noqa: ARG002 - for overriding
        """What ``reply`` gives after a stop. Override it to say something else; it is not put into the history."""
        return replace(AssistantMsg(self.name, INTERRUPTION_TEXT), metadata={"_is_interrupted": True})

    def interrupt(self, after: StopLevel = "now", reason: str = "") -> None:
        """Stop: a running reply is cancelled (or ends after its step), a paused one is closed, an idle agent is left alone.

        Any thread, any time; returns at once.

        Raises:
            InputError: ``after`` is neither "now" nor "step".
        """
        check_level(after)
        run = self._run
        if run is not None and not run.is_over:
            run.stop(after, reason)
        elif self.state.waiting() and self._claim.acquire(blocking=False):
            try:
                self._loop_for(lambda _: None).end_pause({"source": "code", "when": "now", "reason": reason})
            finally:
                self._claim.release()

    def carried_by(self, run: Run) -> None:
        """This run is about to carry the agent: ``interrupt`` reaches it before its first step, and in a loaded pause."""
        if not self._claim.locked() and (self._run is None or not self._run.is_busy):
            self._run = run

    def paused_reply(self, inputs: Inputs) -> Transcript | None:
        """How far the paused reply has come that ``inputs`` are about; ``None`` if they begin a new one."""
        begins = isinstance(inputs, str | Msg | Sequence)
        return None if begins or not self.state.waiting() else self._memory.transcript

    def _start(self, inputs: Inputs, listener: Listener | None = None) -> Run:
        if self._claim.locked() or (self._run is not None and self._run.is_busy):
            raise AgentBusyError(self.name)
        self._check_inputs(inputs)
        run = Run(
            self,
            inputs,
            loop=asyncio.get_running_loop(),
            session_id=self.state.session_id,
            keeps_pause=False,
            transcript=self.paused_reply(inputs),
        )
        if listener is not None:
            run.listen(listener)
        self._run = run
        run.start()
        return run

    # -- Backend ------------------------------------------------------------------------------------------------

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        """Carry one reply until it ends or pauses; see ``Backend``."""
        with self._claimed():
            self._check_inputs(inputs)
            self._run = current_run() or self._run
            self._stop_after_step = False
            await self._loop_for(emit).carry(inputs)

    def stop_after_step(self) -> bool:
        """End after the running step; see ``Backend``."""
        self._stop_after_step = True
        return True

    def _loop_for(self, emit: Emit) -> ReplyLoop:
        return ReplyLoop(
            agent_name=self.name,
            memory=self._memory,
            model=self.model,
            tools=self.tools,
            instructions=self.instructions,
            max_steps=self.max_steps,
            emit=emit,
            ends_after_step=lambda: self._stop_after_step,
        )

    def _claimed(self) -> _Claim:
        return _Claim(self._claim, self.name)

    def _check_inputs(self, inputs: Inputs) -> None:
        """Refuse what does not fit the state, before anything is changed.

        Raises:
            NotWaitingError: a decision that nothing waits for, or a message while a reply waits.
            InputError: not an input.
        """
        state = self.state
        match inputs:
            case ev.UserInterruptEvent():
                pass
            case ev.UserConfirmResultEvent():
                calls = [result.tool_call for result in inputs.confirm_results]
                asked = self._asked(state, inputs.reply_id, [call.id for call in calls], "asking")
                for result, call in zip(inputs.confirm_results, calls, strict=True):
                    if call.name != asked[call.id].name:
                        raise InputError(
                            f"The call {call.id!r} asks for {asked[call.id].name!r}, not for {call.name!r}. {_NOTHING}"
                        )
                    if result.confirmed and valid_arguments(call.input) != call.input:
                        raise InputError(f"The arguments {call.input!r:.80} are not a JSON object. {_NOTHING}")
            case ev.ExternalExecutionResultEvent():
                self._asked(state, inputs.reply_id, [result.id for result in inputs.execution_results], "submitted")
            case _:
                if waiting := state.waiting():
                    names = ", ".join(call.name for call in waiting)
                    raise NotWaitingError(
                        f"{self.name} waits for a decision about {names}. "
                        "Approve or deny first (UserConfirmResultEvent), or end the reply with interrupt()."
                    )
                if inputs is not None:
                    messages_of(inputs)

    def _asked(self, state: AgentState, reply_id: str, call_ids: list[str], needed: ToolCallState) -> dict[str, ToolCallBlock]:
        """The calls that an answer is about, by id.

        Raises:
            NotWaitingError: the answer is for another reply, or for a call that does not wait for one.
            InputError: two answers for one call.
        """
        if reply_id != state.reply_id:
            here = repr(state.reply_id) if state.reply_id else "no reply"
            raise NotWaitingError(f"This decision is for reply {reply_id!r}; {self.name} waits in {here}. {_NOTHING}")
        waiting = {call.id: call for call in state.waiting() if call.state == needed}
        for call_id in call_ids:
            if call_id not in waiting:
                what = "a decision" if needed == "asking" else "an outside result"
                raise NotWaitingError(f"The call {call_id!r} does not wait for {what}. {_NOTHING}")
            if call_ids.count(call_id) > 1:
                raise InputError(f"There are {call_ids.count(call_id)} answers for the call {call_id!r}; give one. {_NOTHING}")
        return waiting


_NOTHING = "Nothing was executed."


class _Claim:
    """One run at a time touches the state."""

    def __init__(self, lock: threading.Lock, agent_name: str) -> None:
        self._lock, self._agent_name = lock, agent_name

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise AgentBusyError(self._agent_name)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
