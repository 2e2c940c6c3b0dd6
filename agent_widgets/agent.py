"""Our own agent: the reasoning-acting loop on a ``Model``, carried by a ``Run``.

The agent's state is a fold of what it emits, so it is right at every await: a cancel leaves what was seen, closed as
interrupted. ``reply`` and ``reply_stream`` start a ``Run`` on the caller's loop and read it; there is no second way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from typing import Any, Literal

from agent_widgets import events as ev
from agent_widgets.backends import Emit, Inputs, Model
from agent_widgets.budgets import Budget, checked_budget
from agent_widgets.compression import WHEN_REFUSED, CompressionConfig, Gauge, checked_compression
from agent_widgets.decisions import StopLevel, check_inputs, check_level
from agent_widgets.errors import AgentBusyError, AgentInterruptedError, InputError
from agent_widgets.loops import LastStep, LoopThread
from agent_widgets.memory import Memory, Recorder
from agent_widgets.messages import AssistantMsg, JsonObject, Msg, PermissionRule, TextBlock, ToolCallBlock
from agent_widgets.models import resolve
from agent_widgets.permissions import checked
from agent_widgets.reading import Asked, EventStream, SyncReply, Unbegun
from agent_widgets.reasoning import ReplyLoop
from agent_widgets.runs import Listener, Run, current_run
from agent_widgets.state import AgentState
from agent_widgets.subagents import Caller, agent_tool, tools_for
from agent_widgets.tools import Tool, by_name
from agent_widgets.transcript import Transcript
from agent_widgets.waiting import CLEAN_UP_SECONDS, surroundings
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
        permissions: Literal["ask", "allow", "deny"] | Sequence[PermissionRule] = "ask",
        compression: CompressionConfig | None = WHEN_REFUSED,
        budget: Budget | None = None,
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
            permissions: "ask": calls of a tool with ``confirm=True`` are asked about, all others run. For scripts, where nobody
                is there: "allow" or "deny" decides what would be asked, also of sub-agents. Or a list of
                ``PermissionRule(tool_name, rule_content, behavior)``, which decide before that: deny beats ask beats allow.
                ``rule_content`` is a glob on ``argument=value`` (``"table=staging_*"``), ``None`` means every call; see
                ``agent_widgets.permissions``. The rules in ``agent.state.rules`` ("always allow") count as well.
            compression: When and how older messages are summarised so that a long conversation goes on; see
                ``CompressionConfig``. By default only when the provider refuses a request as too long: what fits is sent whole,
                and what does not would end the conversation. ``None``: never.
            budget: What each reply may use before it is stopped; ``chat(budget=…)`` replaces it for one run.
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
        self.permissions = checked(permissions)
        self.compression = checked_compression(compression)
        self.budget = checked_budget(budget)
        self.max_steps = max_steps
        self.on_interrupt = on_interrupt
        self._memory = Memory()
        self._gauge = Gauge()
        self._summariser = self._resolved_summariser(base_url, api_key)
        self._reply_loop: ReplyLoop | None = None
        self._claim = threading.Lock()
        self._run: Run | None = None
        self._home: asyncio.AbstractEventLoop | None = None  # its session's loop, if that is not the loop thread's
        self._asked = Unbegun()
        self._last_step = LastStep()
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

    def record_with(self, recorder: Recorder) -> None:
        """Tell ``recorder`` of every change of the state from now on, before it has any effect.

        Raises:
            AgentBusyError: the agent is carrying a run.
        """
        with self._claimed():
            self._memory.recorder = recorder

    def forget_rule(self, rule: PermissionRule | str) -> int:
        """Take back rules of ``state.rules``, such as those of "always allow". Calls that already run are left alone.

        Any thread, any time. ``permissions`` stays as it was given.

        Args:
            rule: One of ``state.rules``, or a tool's name: all its rules.

        Returns:
            How many were taken back; 0 if there was none.
        """
        return self._memory.forget(lambda held: rule in (held, held.tool_name))

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """``state.rules``: what a person has allowed for this conversation."""
        return self._memory.rules

    def watch_rules(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call ``watcher`` whenever ``state.rules`` changes, on the thread that changes them; call the result to stop."""
        return self._memory.watch_rules(watcher)

    # -- replies ------------------------------------------------------------------------------------------------

    def reply(self, inputs: Inputs = None) -> Coroutine[Any, Any, Msg]:
        """Answer, and give the reply's message: ``await agent.reply("…")``. A stop counts from this call on.

        Args:
            inputs: Text, a message or several; the answer to a pause (``UserConfirmResultEvent``,
                ``ExternalExecutionResultEvent``, ``UserInterruptEvent``); or ``None``: go on where it stopped.

        Raises:
            AgentBusyError: it is carrying a run.
            NotWaitingError: a decision that nothing waits for, or a message while a reply waits for a decision.
            ModelError: the model failed; what came before is kept, and ``reply(None)`` tries again.
            AgentInterruptedError: it was stopped, and ``on_interrupt`` is "raise".
        """
        return self._reply(inputs, self._asked.add())

    async def _reply(self, inputs: Inputs, asked: Asked) -> Msg:
        if self._asked.begin(asked) is not None:
            return await self._interrupted(asked.stopped or "")
        if isinstance(inputs, ev.UserInterruptEvent) and not self.state.waiting():
            return AssistantMsg(self.name, ())
        await self._settled()
        run = asked.run = await self._end_pause_of_card(inputs) or self._start(inputs)
        message = await run
        if run.status == "paused":
            return replace(message, content=(TextBlock(WAITING_TEXT),))
        if run.status != "interrupted":
            return message
        return await self._interrupted(str(message.metadata.get("reason", "")))

    async def _interrupted(self, reason: str) -> Msg:
        if self.on_interrupt == "raise":
            raise AgentInterruptedError("Agent interrupted.")
        return await self.handle_interrupt(reason)

    def __call__(self, inputs: Inputs = None) -> Coroutine[Any, Any, Msg]:
        """The same as ``reply``."""
        return self.reply(inputs)

    def reply_stream(self, inputs: Inputs = None) -> EventStream:
        """Answer, and give the events as they happen: ``async for event in agent.reply_stream("…")``.

        A reader that is cancelled while it waits for an event gets the closing events, then its ``CancelledError``. One that
        leaves (``break``, an exception, a cancel in an await of its own) stops the reply, and the next one waits for its end.
        Raises as ``reply`` does, but gives an interrupted reply's events instead of raising.
        """
        return EventStream(partial(self._begin_stream, inputs, self._asked.add()))

    async def _begin_stream(self, inputs: Inputs, asked: Asked, put: Callable[[ev.Event], None]) -> Run | None:
        if self._asked.begin(asked) is not None:
            return None
        if isinstance(inputs, ev.UserInterruptEvent) and not self.state.waiting():
            return None
        if (ended := await self._end_pause_of_card(inputs)) is not None:
            for event in dropwhile(lambda event: not isinstance(event, ev.UserInterruptEvent), ended.events):
                if not isinstance(event, ev.UserInterruptEvent):
                    put(event)
            return None
        await self._settled()
        return self._start(inputs, lambda _, event: put(event) if event and event is not inputs else None)

    def reply_sync(self, inputs: Inputs = None) -> Msg:
        """``reply`` for code without ``await``, in a script or in a cell: carried on the loop thread while this one waits.

        ■ in a notebook, and Ctrl-C, stop it; the cell or the script goes on with its exception after the reply's clean-up.
        An agent whose session is carried by the kernel's own loop (``chat(agent, …, loop="kernel")``) answers there: in a cell
        this needs the extra ``nest``.

        Raises: as ``reply``.
            AgentStopped: the cell was interrupted.
            InputError: called where it would wait for itself.
        """
        if LoopThread.is_current():
            raise InputError(
                "This is the thread that carries runs, and it cannot wait for itself. Use await here: await agent.reply(…)"
            )
        loop = LoopThread.get().loop if self._home is None or self._home.is_closed() else self._home
        asked = self._asked.add()
        reply = SyncReply(self._reply(inputs, asked), asked, loop)
        try:
            surroundings.waiter().block(reply, None)
        except InputError:  # it cannot be waited for here, so it is not to begin either
            reply.stop()
            raise
        return reply.ended.result()

    async def handle_interrupt(self, reason: str) -> Msg:  # noqa: ARG002 - for overriding
        """What ``reply`` gives after a stop. Override it to say something else; it is not put into the history."""
        return replace(AssistantMsg(self.name, INTERRUPTION_TEXT), metadata={"_is_interrupted": True})

    def interrupt(self, after: StopLevel = "now", reason: str = "") -> None:
        """Stop: a running reply is cancelled (or ends after its step), a paused one is closed, an idle agent is left alone.

        A reply that was asked for and has not begun (``asyncio.create_task(agent.reply("…"))``) never begins.

        Any thread, any time; returns at once.

        Raises:
            InputError: ``after`` is neither "now" nor "step".
        """
        check_level(after)
        run = self._run
        if run is not None and not run.is_over:
            run.stop(after, reason)
            return
        self._asked.stop(reason)
        if self.state.waiting() and self._claim.acquire(blocking=False):
            try:
                self._loop_for(lambda _: None).end_pause({"source": "code", "when": "now", "reason": reason})
            finally:
                self._claim.release()

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool of another: ``Agent(tools=[researcher.as_tool()])``. Its answer's text is the tool's result.

        Each call is a fresh conversation with this agent's model, tools, instructions, permissions, budget and steps; calls may
        run side by side, and ``state`` of this object is left alone. The calling agent's run shows what it does, counts what it
        uses, and pauses when one of its calls needs a person. A stop of the run stops it too: with "step" it ends after its own
        step, so that the calling agent can. ``run.stop(call_id=…)`` stops one call alone. Either way the result keeps its text.

        ``budget`` holds for each call; its seconds without the time in which a person is waited for. Rules for its tools may
        stand at the calling agent as ``"name/tool"``; what is allowed there for always is stored so, in that agent's state.

        Args:
            name: What the calling model calls it; the agent's name if ``None``.
            description: When and how to use it, for the calling model.

        Raises:
            ToolDefinitionError: a name that no model could call, or an empty description.
        """
        return agent_tool(_Worker(self), name or self.name, description)

    def carried_by(self, run: Run) -> None:
        """This run is about to carry the agent: ``interrupt`` reaches it before its first step, and in a loaded pause."""
        run.takes_notes = True
        self._home = None if LoopThread.carries(run.loop) else run.loop
        if not self._claim.locked() and (self._run is None or not self._run.is_busy):
            self._run = run

    def paused_reply(self, inputs: Inputs) -> Transcript | None:
        """How far the paused reply has come that ``inputs`` are about; ``None`` if they begin a new one."""
        begins = isinstance(inputs, str | Msg | Sequence)
        return None if begins or not self.state.waiting() else self._memory.transcript

    async def _settled(self) -> None:
        """A run that nobody reads any more is ending: wait for it, as if its reader had."""
        run = self._run
        if run is not None and run.is_abandoned and run.is_busy:
            await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=CLEAN_UP_SECONDS)

    async def _end_pause_of_card(self, inputs: Inputs) -> Run | None:
        """End the run that waits, if the pause that ``inputs`` end is its own, and not a sub-agent's; gives that run."""
        run = self._run
        if not isinstance(inputs, ev.UserInterruptEvent) or run is None or not run.waits:
            return None
        if inputs.reply_id != run.reply.id and self._memory.holds(inputs.reply_id):
            return None
        run.stop()
        await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=CLEAN_UP_SECONDS)
        return run

    def _start(self, inputs: Inputs, listener: Listener | None = None) -> Run:
        if self._claim.locked() or (self._run is not None and self._run.is_busy):
            raise AgentBusyError(self.name)
        if self._run is not None and self._run.waits:
            raise AgentBusyError(
                self.name,
                "is in a run that waits for a decision: decide on its card, or by its approve(), deny(), answer() or stop()",
            )
        check_inputs(inputs, self.state, self.name, self.misfit)
        run = Run(
            self,
            inputs,
            loop=asyncio.get_running_loop(),
            session_id=self.state.session_id,
            keeps_pause=False,
            budget=self.budget,
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
            check_inputs(inputs, self.state, self.name, self.misfit)
            self._run = current_run() or self._run
            self._last_step = LastStep()  # of this run: an event belongs to the loop where it is waited for
            self._reply_loop = self._loop_for(emit)
            await self._reply_loop.carry(inputs)

    def stop_after_step(self) -> bool:
        """End after the running step; see ``Backend``. While it summarises none is running, and it is to be cancelled."""
        self._last_step.set()
        return self._reply_loop is None or not self._reply_loop.is_summarising

    def _resolved_summariser(self, base_url: str | None, api_key: str | None) -> Model | None:
        given = self.compression.model if self.compression else None
        return resolve(given, base_url=base_url, api_key=api_key) if isinstance(given, str) else given

    def misfit(self, call: ToolCallBlock, /) -> str:
        """Why the edited arguments of a call do not fit its tool; see ``ChecksArguments``."""
        tool = tools_for(call.id, self.state, self.tools).get(call.name)
        fault = None if tool is None else tool.misfit(call.input)
        return "" if fault is None else "\n".join(block.text for block in fault.content if isinstance(block, TextBlock))

    def _loop_for(self, emit: Emit) -> ReplyLoop:
        def say(event: ev.Event) -> None:
            run = current_run()
            event = event if run is None else run.dated(event)
            self._memory.apply(event)
            emit(event)

        memory = self._memory
        caller = Caller(say=say, say_late=memory.keep_late, last_step=self._last_step, rules=(), allow=lambda _: None)
        return self.reply_loop(memory, caller)

    def reply_loop(self, memory: Memory, caller: Caller) -> ReplyLoop:
        """What carries one leg of a reply of this agent, on its own memory or on that of one call of it as a tool."""

        def allow(given: tuple[PermissionRule, ...]) -> None:
            memory.allow(given)
            caller.allow(given)

        return ReplyLoop(
            agent_name=self.name,
            memory=memory,
            model=self.model,
            tools=self.tools,
            permissions=(*self.permissions, *caller.rules),
            instructions=self.instructions,
            compression=self.compression,
            summariser=self._summariser,
            gauge=self._gauge,
            max_steps=self.max_steps,
            say=caller.say,
            last_step=caller.last_step,
            allow=allow,
            keep_late=caller.say_late,
            is_child=memory is not self._memory,
        )

    def _claimed(self) -> _Claim:
        return _Claim(self._claim, self.name)


class _Worker:
    """The agent as it works for others: on their memory, never on its own."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        return self._agent.name

    @property
    def tools(self) -> dict[str, Tool]:
        return self._agent.tools

    @property
    def budget(self) -> Budget | None:
        return self._agent.budget

    async def work(self, inputs: Inputs, memory: Memory, caller: Caller) -> None:
        await self._agent.reply_loop(memory, caller).carry(inputs)


class _Claim:
    """One run at a time touches the state."""

    def __init__(self, lock: threading.Lock, agent_name: str) -> None:
        self._lock, self._agent_name = lock, agent_name

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise AgentBusyError(self._agent_name)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
