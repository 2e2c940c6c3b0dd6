"""The reasoning-acting loop of one reply.

Everything that happens is said twice in one breath: to the memory, then to the run's log, and both are one fold. Whatever
ends the loop (a result, a pause, a cancel, an error), what is open is closed before the coroutine returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets.acting import Acting
from agent_widgets.answers import Answer
from agent_widgets.backends import (
    Inputs,
    Model,
    ModelDelta,
    ModelRequest,
    messages_of,
)
from agent_widgets.compression import CompressionConfig, Gauge
from agent_widgets.endings import closing
from agent_widgets.errors import ConversationTooLongError, ModelError
from agent_widgets.loops import LastStep
from agent_widgets.memory import Memory
from agent_widgets.messages import (
    ErrorInfo,
    FinishedReason,
    JsonObject,
    Msg,
    PermissionRule,
    ToolCallBlock,
    new_id,
)
from agent_widgets.runs import Run, current_run
from agent_widgets.shortening import Notes, Shortening
from agent_widgets.tools import Tool

MAX_RETRIES = 2
"""How often a model call that fails for a while (429, 5xx, no connection) is tried again before the reply ends with the error."""

MAX_BACK_OFF_SECONDS = 60.0
"""The longest wait before a retry, whatever the server asks for: the person may stop it, or try again later."""


class ReplyLoop:
    """Carries one leg of a reply, from its inputs to an end or a pause."""

    def __init__(
        self,
        *,
        agent_name: str,
        memory: Memory,
        model: Model,
        tools: dict[str, Tool],
        permissions: tuple[PermissionRule, ...] = (),
        instructions: str = "",
        compression: CompressionConfig | None = None,
        summariser: Model | None = None,
        gauge: Gauge | None = None,
        max_steps: int,
        say: Callable[[ev.Event], None],
        last_step: LastStep,
        allow: Callable[[tuple[PermissionRule, ...]], None],
        keep_late: Callable[[ev.CustomEvent], None],
        is_child: bool = False,
    ) -> None:
        """Prepare.

        Args:
            agent_name: Whose reply it is.
            memory: What the agent remembers in this conversation.
            model: What is asked.
            tools: By name.
            permissions: Rules that decide beside those of the state.
            instructions: The system message.
            compression: How to shorten what is too long; ``None``: never.
            summariser: Who writes the summary; the model if ``None``.
            gauge: What is known of the length of requests.
            max_steps: Model calls in one reply, at most.
            say: Remembers an event in ``memory``, and then emits it.
            last_step: Set when the reply is to end after this step.
            allow: Remembers rules that a person gave with an approval.
            keep_late: Takes a late result that comes when this leg is over; any thread.
            is_child: Its calls get ids of their own: an answer to a pause names calls of the whole tree by id.
        """
        self._agent_name = agent_name
        self._memory = memory
        self._model = model
        self._tools = tools
        self._permissions = permissions
        self._instructions = instructions
        self._gauge = gauge or Gauge()
        self._shortening = Shortening(
            memory=memory,
            config=compression,
            gauge=self._gauge,
            model=summariser or model,
            ask=self._ask,
            say=self._say,
            give_way=self._give_way,
        )
        self._max_steps = max_steps
        self._tell = say
        self._last_step = last_step
        self._allow = allow
        self._keep_late = keep_late
        self._is_child = is_child
        self._reply_id = memory.state.reply_id
        self._leg: asyncio.Task[object] | None = None
        self._cancels = 0
        self._over = False

    @property
    def is_summarising(self) -> bool:
        """Whether it is between two steps, with a call under way that belongs to none."""
        return self._shortening.is_asking

    async def carry(self, inputs: Inputs) -> None:
        """Until the reply ends or pauses. Cancelled or failing, it closes what is open, then raises."""
        self._leg = asyncio.current_task()
        # The task of a run is its own: a cancel that came before is a stop. A foreign task may have its history.
        self._cancels = self._leg.cancelling() if self._leg and current_run() is None else 0
        try:
            match inputs:
                case ev.UserInterruptEvent():
                    self._take(inputs)
                    if await self._acting.end_child(inputs):
                        await self._go_on()
                    else:
                        self._close("interrupted")
                case ev.UserConfirmResultEvent():
                    self._take(inputs)
                    await self._acting.decided(inputs)
                    await self._go_on()
                case ev.ExternalExecutionResultEvent():
                    self._take(inputs)
                    await self._acting.take(inputs)
                    await self._go_on()
                case _:
                    self._begin(() if inputs is None else messages_of(inputs))
                    await self._steps()
        except asyncio.CancelledError:
            self._close("interrupted")
            raise
        except Exception as error:
            self._close("error", ErrorInfo.of(error))
            raise
        finally:
            self._over = True  # a tool that was left behind says nothing more

    def end_pause(self, metadata: JsonObject) -> None:
        """End a paused reply without a run around it; nothing if none is paused."""
        self._close("interrupted", metadata=metadata)

    def _begin(self, messages: tuple[Msg, ...]) -> None:
        self._memory.begin(messages)
        self._reply_id = new_id()
        self._say(ev.ReplyStartEvent(session_id=self._memory.session_id, reply_id=self._reply_id, name=self._agent_name))

    @property
    def _acting(self) -> Acting:
        return Acting(
            reply_id=self._reply_id,
            memory=self._memory,
            tools=self._tools,
            permissions=self._permissions,
            say=self._say,
            say_late=self._say_late,
            give_way=self._give_way,
            last_step=self._last_step,
            allow=self._allow,
        )

    async def _go_on(self) -> None:
        """After an answer to a pause: the next step, unless other calls still wait."""
        if not self._pauses_or_ends():
            await self._steps()

    async def _steps(self) -> None:
        while self._memory.steps < self._max_steps:
            self._say(*self._memory.take_late())
            self._take_notes()
            calls = await self._reason()
            if calls is None:
                self._close("interrupted")
                return
            run = self._run
            if not calls and not (run and run.notes):  # a note that came meanwhile is worth another step
                self._close("completed")
                return
            await self._acting.begin(calls)
            if self._pauses_or_ends():
                return
        self._close("exceed_max_iters")

    @property
    def _run(self) -> Run | None:
        """The run whose own reply this is: notes are not for another agent that works inside it."""
        run = current_run()
        return run if run is not None and run.reply.id == self._reply_id else None

    def _take_notes(self) -> None:
        """What a person has added since the last step: the model reads it now."""
        run = self._run
        for note in run.take_notes() if run else ():
            self._say(ev.HintBlockEvent(reply_id=self._reply_id, block_id=note.id, source="user", hint=note.text))

    def _give_way(self) -> None:
        """Raise a cancel that no await has met yet (a budget's, or one that a model swallowed): nothing may begin after it."""
        if self._leg is not None and self._leg.cancelling() > self._cancels:
            raise asyncio.CancelledError

    def _pauses_or_ends(self) -> bool:
        self._give_way()
        if self._memory.transcript.waiting:
            return True
        if self._last_step.is_set():
            self._close("interrupted")
            return True
        return False

    # -- reasoning ----------------------------------------------------------------------------------------------

    async def _reason(self) -> tuple[ToolCallBlock, ...] | None:
        """One model call; gives the calls that it asked for, and ``None`` if the reply is to end before it has begun."""
        whole = ModelRequest(
            context=self._memory.state.context,
            instructions=self._instructions,
            tools=tuple(tool.spec for tool in self._tools.values()),
        )
        taken = {block.id for message in whole.context for block in message.content if isinstance(block, ToolCallBlock)}
        answer = Answer(self._say, self._reply_id, taken, keeps_ids=not self._is_child)
        request = await self._send(whole, answer)
        if request is None:
            return None
        answer.end()
        self._gauge.learn(request, answer.input_tokens)
        self._give_way()
        calls = {b.id: b for b in self._memory.transcript.message.content if isinstance(b, ToolCallBlock)}
        # What is executed is what the model wrote: arguments that were mended for the history are refused by the tool.
        return tuple(replace(calls[call_id], input=arguments or "{}") for call_id, arguments in answer.calls.items())

    async def _send(self, whole: ModelRequest, answer: Answer) -> ModelRequest | None:
        """Ask with what fits; once more, shortened, if it is refused as too long. Gives the request that was answered."""
        request = await self._shortening.before(whole)
        refusal: ConversationTooLongError | None = None
        try:
            if not await self._call(request, answer, {}):
                return None
        except ConversationTooLongError as error:
            if answer.has_begun:
                raise
            refusal = error
        if refusal is None:
            return request
        shorter = await self._shortening.after_refusal(whole, request)
        if shorter is None:
            raise refusal
        return shorter if await self._call(shorter, answer, {"purpose": "again"}) else None

    async def _call(self, request: ModelRequest, answer: Answer, metadata: JsonObject) -> bool:
        self._say(ev.ModelCallStartEvent(reply_id=self._reply_id, model_name=self._model.name, metadata=metadata))
        self._give_way()
        return await self._ask(self._model, request, answer)

    async def _ask(self, model: Model, request: ModelRequest, answer: Answer | Notes) -> bool:
        """Stream one answer. A call that fails for a while, before it has said anything, is tried again.

        Gives ``False`` if the reply was asked to end after this step while it waited to try again.
        """
        for attempt in range(MAX_RETRIES + 1):
            try:
                await self._listen(model.stream(request), answer)
            except ModelError as error:
                self._give_way()  # a model that takes its cancel for a lost connection is not asked again
                if answer.has_begun or not error.is_temporary or attempt == MAX_RETRIES:
                    raise
                wait = min(2.0**attempt if error.retry_after_s is None else error.retry_after_s, MAX_BACK_OFF_SECONDS)
                text = f"{error.problem} Trying again in {wait:g} s ({attempt + 1} of {MAX_RETRIES})."
                self._say(ev.CustomEvent(name=ev.NOTICE, value={"text": text}))
                if await self._is_told_to_end(wait):
                    return False
            else:
                break
        return True

    async def _listen(self, pieces: AsyncIterator[ModelDelta], answer: Answer | Notes) -> None:
        """Take the pieces as they come. A model that swallows its cancel is not heard any further."""
        try:
            async for piece in pieces:
                self._give_way()
                answer.add(piece)
        finally:
            if isinstance(pieces, AsyncGenerator):  # it has ended, unless it was left above: then it is at a yield
                await pieces.aclose()

    async def _is_told_to_end(self, seconds: float) -> bool:
        """Wait so long, unless the reply is to end after this step, which has not begun. A stop at once cuts it."""
        try:
            async with asyncio.timeout(seconds):
                return await self._last_step.wait()
        except TimeoutError:
            return False

    def _take(self, answer: ev.Event) -> None:
        """An answer to a pause: said once, by the agent that the run carries; the memory hands it down."""
        if not self._is_child:
            self._say(answer)

    # -- saying -------------------------------------------------------------------------------------------------

    def _say(self, *events: ev.Event) -> None:
        """Remember first, tell second: who saves the state when told of an event finds it there."""
        for event in events:
            if not self._over:
                self._tell(event)

    def _say_late(self, event: ev.CustomEvent) -> None:
        """Tell a late result, or keep it for the next step, which may be another reply's: nothing comes after an end."""
        if self._over:
            self._keep_late(event)
        else:
            self._say(event)

    def _close(self, reason: FinishedReason, error: ErrorInfo | None = None, metadata: JsonObject | None = None) -> None:
        """End what is open, then the reply; nothing if no reply is open."""
        if not self._memory.state.reply_id:
            return
        session_id = self._memory.session_id
        closed = closing(self._memory.transcript, session_id=session_id, finished_reason=reason, error=error, metadata=metadata)
        self._say(*closed)
