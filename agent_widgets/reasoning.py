"""The reasoning-acting loop of one reply, and the memory that it fills.

Everything that happens is said twice in one breath: to the run's log, then to the memory, which is a fold of it. Whatever
ends the loop (a result, a pause, a cancel, an error), what is open is closed before the coroutine returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from agent_widgets import events as ev
from agent_widgets.backends import (
    Emit,
    Inputs,
    Model,
    ModelDelta,
    ModelRequest,
    TextPiece,
    ThinkingPiece,
    ToolCallPiece,
    UsageReport,
    messages_of,
)
from agent_widgets.messages import (
    Base64Source,
    DataBlock,
    ErrorInfo,
    FinishedReason,
    JsonObject,
    Msg,
    PermissionRule,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    new_id,
)
from agent_widgets.runs import together
from agent_widgets.state import INTERRUPTED_TEXT, AgentState, valid_arguments
from agent_widgets.tools import STILL_RUNNING, Tool, failed, output_sink
from agent_widgets.transcript import Transcript, TranscriptBuilder, closing

DENIED_TEXT = '<system-reminder>The execution of tool "{name}" is denied by user!</system-reminder>'
"""What the model reads for a denied call: AgentScope 2's text. A reason follows, word for word."""

TOOL_CLEAN_UP_SECONDS = 2.0
"""How long cancelled tools may take for their own clean-up before they are left behind."""


@dataclass(frozen=True, slots=True)
class _Held:
    done: tuple[Msg, ...] = ()
    open: TranscriptBuilder | None = None
    cur_iter: int = 0
    rules: tuple[PermissionRule, ...] = ()


class Memory:
    """What an agent remembers, always swapped in one step: a reader in another thread never sees half a change."""

    def __init__(self) -> None:
        self._held = _Held()
        self.session_id = new_id()

    @property
    def state(self) -> AgentState:
        """A value; the unfinished message of an open reply is the last of its context."""
        held = self._held
        opened = None if held.open is None else held.open.freeze().message
        return AgentState(
            session_id=self.session_id,
            context=held.done if opened is None else (*held.done, opened),
            reply_id="" if opened is None else opened.id,
            cur_iter=held.cur_iter,
            rules=held.rules,
        )

    def load(self, state: AgentState) -> None:
        """Take over a state, repaired."""
        state = state.repair()
        self.session_id = state.session_id
        if state.reply_id:
            opened = TranscriptBuilder(Transcript(message=state.context[-1]))
            self._held = _Held(state.context[:-1], opened, state.cur_iter, state.rules)
        else:
            self._held = _Held(state.context, None, 0, state.rules)

    @property
    def transcript(self) -> Transcript:
        """The open reply; an empty one when there is none."""
        return Transcript(message=Msg("", (), "assistant")) if self._held.open is None else self._held.open.freeze()

    @property
    def steps(self) -> int:
        """Steps of the open reply."""
        return self._held.cur_iter

    def begin(self, messages: Iterable[Msg]) -> None:
        """Add what was asked, and open a reply."""
        self._held = replace(self._held, done=(*self._held.done, *messages), open=TranscriptBuilder(), cur_iter=0)

    def count_step(self) -> None:
        """One more step of the open reply."""
        self._held = replace(self._held, cur_iter=self._held.cur_iter + 1)

    def allow(self, rules: Iterable[PermissionRule]) -> None:
        """Remember rules that a person gave with an approval."""
        self._held = replace(self._held, rules=(*self._held.rules, *rules))

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the open reply; ``REPLY_END`` closes it."""
        held = self._held
        if held.open is None:
            return
        held.open.apply(event)
        if isinstance(event, ev.ReplyEndEvent):
            self._held = replace(held, done=(*held.done, held.open.freeze().message), open=None, cur_iter=0)


class ReplyLoop:
    """Carries one leg of a reply, from its inputs to an end or a pause."""

    def __init__(
        self,
        *,
        agent_name: str,
        memory: Memory,
        model: Model,
        tools: dict[str, Tool],
        instructions: str = "",
        max_steps: int,
        emit: Emit,
        ends_after_step: Callable[[], bool],
    ) -> None:
        self._agent_name = agent_name
        self._memory = memory
        self._model = model
        self._tools = tools
        self._instructions = instructions
        self._max_steps = max_steps
        self._emit = emit
        self._ends_after_step = ends_after_step
        self._reply_id = memory.state.reply_id
        self._over = False

    async def carry(self, inputs: Inputs) -> None:
        """Until the reply ends or pauses. Cancelled or failing, it closes what is open, then raises."""
        try:
            match inputs:
                case ev.UserInterruptEvent():
                    self._close("interrupted")
                case ev.UserConfirmResultEvent():
                    await self._act_on(inputs)
                case ev.ExternalExecutionResultEvent():
                    await self._take(inputs.execution_results)
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

    async def _steps(self) -> None:
        while self._memory.steps < self._max_steps:
            self._memory.count_step()
            calls = await self._reason()
            if not calls:
                self._close("completed")
                return
            await self._act(calls)
            if self._pauses_or_ends():
                return
        self._close("exceed_max_iters")

    def _pauses_or_ends(self) -> bool:
        if self._memory.transcript.waiting:
            return True
        if self._ends_after_step():
            self._close("interrupted")
            return True
        return False

    # -- reasoning ----------------------------------------------------------------------------------------------

    async def _reason(self) -> tuple[ToolCallBlock, ...]:
        """One model call; gives the calls that it asked for."""
        request = ModelRequest(
            context=self._memory.state.context,
            instructions=self._instructions,
            tools=tuple(tool.spec for tool in self._tools.values()),
        )
        self._say(ev.ModelCallStartEvent(reply_id=self._reply_id, model_name=self._model.name))
        taken = {block.id for message in request.context for block in message.content if isinstance(block, ToolCallBlock)}
        answer = _Answer(self._say, self._reply_id, taken)
        async for piece in self._model.stream(request):
            answer.add(piece)
        answer.end()
        calls = {b.id: b for b in self._memory.transcript.message.content if isinstance(b, ToolCallBlock)}
        # What is executed is what the model wrote: arguments that were mended for the history are refused by the tool.
        return tuple(replace(calls[call_id], input=arguments or "{}") for call_id, arguments in answer.calls.items())

    # -- acting -------------------------------------------------------------------------------------------------

    async def _act(self, calls: Sequence[ToolCallBlock]) -> None:
        """Ask about the calls that need a person, and run the others meanwhile."""
        asking = [call for call in calls if self._must_ask(call)]
        if asking:
            asked = tuple(replace(call, state="asking", suggested_rules=(PermissionRule(call.name),)) for call in asking)
            self._say(ev.RequireUserConfirmEvent(reply_id=self._reply_id, tool_calls=asked))
        await self._run([call for call in calls if call not in asking])

    def _must_ask(self, call: ToolCallBlock) -> bool:
        tool = self._tools.get(call.name)
        if tool is None or not tool.confirm or valid_arguments(call.input) != call.input:
            return False
        rules = self._memory.state.rules
        return not any(r.tool_name == call.name and r.rule_content is None and r.behavior == "allow" for r in rules)

    async def _act_on(self, decisions: ev.UserConfirmResultEvent) -> None:
        """Refuse what was denied, run what was approved, and go on unless other calls still wait."""
        self._memory.apply(decisions)
        for result in decisions.confirm_results:
            if not result.confirmed:
                text = DENIED_TEXT.format(name=result.tool_call.name) + (f"\nReason: {result.reason}" if result.reason else "")
                self._say_result(result.tool_call, "denied", text, {"reason": result.reason} if result.reason else {})
            elif result.rules:
                self._memory.allow(result.rules)
        await self._run([result.tool_call for result in decisions.confirm_results if result.confirmed])
        if not self._pauses_or_ends():
            await self._steps()

    async def _take(self, results: tuple[ToolResultBlock, ...]) -> None:
        """Results from outside."""
        for result in results:
            call = ToolCallBlock(id=result.id, name=result.name)
            self._say_result(call, result.state if result.state != "running" else "success", result.text(), {})
        if not self._pauses_or_ends():
            await self._steps()

    async def _run(self, calls: Sequence[ToolCallBlock]) -> None:
        by_id = {call.id: call for call in calls}
        await together(
            {call.id: self._call(call) for call in calls},
            patience=TOOL_CLEAN_UP_SECONDS,
            left_behind=lambda call_id: self._say_interrupted(by_id[call_id], still_running=True),
        )

    async def _call(self, call: ToolCallBlock) -> None:
        """Run one tool. A stop says what is known of it, and goes on up."""
        self._say(ev.ToolResultStartEvent(reply_id=self._reply_id, tool_call_id=call.id, tool_call_name=call.name))
        tool = self._tools.get(call.name)
        if tool is None:
            outcome = failed(f"There is no tool called {call.name!r}. There are: {', '.join(self._tools) or 'none'}.")
        else:
            output_sink.set(self._sink_for(call.id))
            try:
                outcome = await tool.execute(call.input)
            except asyncio.CancelledError as error:
                self._say_interrupted(call, still_running=STILL_RUNNING in error.args)
                raise
        for block in outcome.content:
            self._say_block(call.id, block)
        self._say(
            ev.ToolResultEndEvent(reply_id=self._reply_id, tool_call_id=call.id, state=outcome.state, metadata=outcome.metadata)
        )

    def _sink_for(self, call_id: str) -> Callable[[str, JsonObject], None]:
        """Takes what the tool prints, from any thread."""
        loop = asyncio.get_running_loop()

        def sink(name: str, value: JsonObject) -> None:
            event = ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": call_id, "name": name, **value})
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._say, event)

        return sink

    # -- saying -------------------------------------------------------------------------------------------------

    def _say(self, event: ev.Event) -> None:
        """Log first, remember second."""
        if not self._over:
            self._emit(event)
            self._memory.apply(event)

    def _say_block(self, call_id: str, block: TextBlock | DataBlock) -> None:
        if isinstance(block, TextBlock):
            self._say(ev.ToolResultTextDeltaEvent(reply_id=self._reply_id, tool_call_id=call_id, delta=block.text))
            return
        source = block.source
        data, url = (source.data, None) if isinstance(source, Base64Source) else (None, source.url)
        self._say(
            ev.ToolResultDataDeltaEvent(
                reply_id=self._reply_id, tool_call_id=call_id, block_id=block.id, media_type=source.media_type, data=data, url=url
            )
        )

    def _say_result(self, call: ToolCallBlock, state: ToolResultState, text: str, metadata: JsonObject) -> None:
        reply_id = self._reply_id
        self._say(ev.ToolResultStartEvent(reply_id=reply_id, tool_call_id=call.id, tool_call_name=call.name))
        self._say(ev.ToolResultTextDeltaEvent(reply_id=reply_id, tool_call_id=call.id, delta=text))
        self._say(ev.ToolResultEndEvent(reply_id=reply_id, tool_call_id=call.id, state=state, metadata=metadata))

    def _say_interrupted(self, call: ToolCallBlock, *, still_running: bool) -> None:
        text = INTERRUPTED_TEXT + (
            "\nIt could not be ended and is still running: its effects may still happen." if still_running else ""
        )
        self._say(ev.ToolResultTextDeltaEvent(reply_id=self._reply_id, tool_call_id=call.id, delta=text))
        metadata: JsonObject = {"still_running": True} if still_running else {}
        self._say(ev.ToolResultEndEvent(reply_id=self._reply_id, tool_call_id=call.id, state="interrupted", metadata=metadata))

    def _close(self, reason: FinishedReason, error: ErrorInfo | None = None, metadata: JsonObject | None = None) -> None:
        """End what is open, then the reply; nothing if no reply is open."""
        if not self._memory.state.reply_id:
            return
        session_id = self._memory.session_id
        for event in closing(
            self._memory.transcript, session_id=session_id, finished_reason=reason, error=error, metadata=metadata
        ):
            self._say(event)


class _Answer:
    """Turns the pieces of one model answer into events: one block open at a time, and calls that may interleave."""

    def __init__(self, say: Callable[[ev.Event], None], reply_id: str, taken: set[str]) -> None:
        self._say = say
        self._reply_id = reply_id
        self._taken = taken
        self._block: tuple[str, str] | None = None
        self._calls: dict[int, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._usage: UsageReport | None = None

    @property
    def calls(self) -> dict[str, str]:
        """The ids of the calls asked for, in order, with their arguments as the model wrote them."""
        return {call_id: "".join(self._arguments[call_id]) for call_id in self._calls.values()}

    def add(self, piece: ModelDelta) -> None:
        """One piece more."""
        match piece:
            case TextPiece(text=text) if text:
                block_id = self._open("text")
                self._say(ev.TextBlockDeltaEvent(reply_id=self._reply_id, block_id=block_id, delta=text))
            case ThinkingPiece(text=text) if text:
                block_id = self._open("thinking")
                self._say(ev.ThinkingBlockDeltaEvent(reply_id=self._reply_id, block_id=block_id, delta=text))
            case ToolCallPiece():
                self._add_call(piece)
            case UsageReport():
                self._usage = piece
            case TextPiece() | ThinkingPiece():
                pass

    def end(self) -> None:
        """The answer is complete: end its blocks, then the model call."""
        self._end_block()
        for call_id, text in self.calls.items():
            whole = valid_arguments(text)  # some servers send no arguments at all, some models half of them
            metadata: JsonObject = {} if whole == text else {"input": whole}
            self._say(ev.ToolCallEndEvent(reply_id=self._reply_id, tool_call_id=call_id, metadata=metadata))
        usage = self._usage or UsageReport(input_tokens=0, output_tokens=0)
        self._say(
            ev.ModelCallEndEvent(
                reply_id=self._reply_id,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_input_tokens=usage.cache_input_tokens,
                metadata={} if self._usage else {"usage": "unknown"},
            )
        )

    def _add_call(self, piece: ToolCallPiece) -> None:
        call_id = self._calls.get(piece.index)
        if call_id is None:
            self._end_block()
            call_id = piece.call_id if piece.call_id and piece.call_id not in self._taken else f"call_{new_id()}"
            self._taken.add(call_id)
            self._calls[piece.index] = call_id
            self._arguments[call_id] = []
            self._say(ev.ToolCallStartEvent(reply_id=self._reply_id, tool_call_id=call_id, tool_call_name=piece.name))
        if piece.arguments:
            self._arguments[call_id].append(piece.arguments)
            self._say(ev.ToolCallDeltaEvent(reply_id=self._reply_id, tool_call_id=call_id, delta=piece.arguments))

    def _open(self, kind: str) -> str:
        if self._block is not None and self._block[0] == kind:
            return self._block[1]
        self._end_block()
        block_id = new_id()[:8]
        self._block = (kind, block_id)
        start = ev.TextBlockStartEvent if kind == "text" else ev.ThinkingBlockStartEvent
        self._say(start(reply_id=self._reply_id, block_id=block_id))
        return block_id

    def _end_block(self) -> None:
        if self._block is not None:
            kind, block_id = self._block
            end = ev.TextBlockEndEvent if kind == "text" else ev.ThinkingBlockEndEvent
            self._say(end(reply_id=self._reply_id, block_id=block_id))
            self._block = None
