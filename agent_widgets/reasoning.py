"""The reasoning-acting loop of one reply.

Everything that happens is said twice in one breath: to the memory, then to the run's log, and both are one fold. Whatever
ends the loop (a result, a pause, a cancel, an error), what is open is closed before the coroutine returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets.answers import Answer
from agent_widgets.backends import (
    Emit,
    Inputs,
    Model,
    ModelRequest,
    messages_of,
)
from agent_widgets.loops import together
from agent_widgets.memory import Memory
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
from agent_widgets.state import INTERRUPTED_TEXT, valid_arguments
from agent_widgets.tools import STILL_RUNNING, Tool, failed, output_sink
from agent_widgets.transcript import closing

DENIED_TEXT = '<system-reminder>The execution of tool "{name}" is denied by user!</system-reminder>'
"""What the model reads for a denied call: AgentScope 2's text. A reason follows, word for word."""

TOOL_CLEAN_UP_SECONDS = 2.0
"""How long cancelled tools may take for their own clean-up before they are left behind."""


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
        _raise_if_cancelled()
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
        answer = Answer(self._say, self._reply_id, taken)
        async for piece in self._model.stream(request):
            answer.add(piece)
        answer.end()
        _raise_if_cancelled()
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
        """Remember first, tell second: who saves the state when told of an event finds it there."""
        if not self._over:
            self._memory.apply(event)
            self._emit(event)

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


def _raise_if_cancelled() -> None:
    """Go on with a cancel that a model has swallowed, or that no await has met yet: nothing more runs after a stop."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
