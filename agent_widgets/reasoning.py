"""The reasoning-acting loop of one reply.

Everything that happens is said twice in one breath: to the memory, then to the run's log, and both are one fold. Whatever
ends the loop (a result, a pause, a cancel, an error), what is open is closed before the coroutine returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.answers import Answer
from agent_widgets.backends import (
    Emit,
    Inputs,
    Model,
    ModelRequest,
    messages_of,
)
from agent_widgets.errors import ModelError
from agent_widgets.loops import together
from agent_widgets.memory import Memory
from agent_widgets.messages import (
    ErrorInfo,
    FinishedReason,
    JsonObject,
    Msg,
    PermissionRule,
    ToolCallBlock,
    ToolResultBlock,
    new_id,
)
from agent_widgets.permissions import Verdict, suggested, told, verdict
from agent_widgets.runs import current_run
from agent_widgets.tools import STILL_RUNNING, Tool, failed, output_sink, succeeded
from agent_widgets.transcript import closing

MAX_RETRIES = 2
"""How often a model call that fails for a while (429, 5xx, no connection) is tried again before the reply ends with the error."""

MAX_BACK_OFF_SECONDS = 60.0
"""The longest wait before a retry, whatever the server asks for: the person may stop it, or try again later."""

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
        permissions: tuple[PermissionRule, ...] = (),
        instructions: str = "",
        max_steps: int,
        emit: Emit,
        ends_after_step: Callable[[], bool],
    ) -> None:
        self._agent_name = agent_name
        self._memory = memory
        self._model = model
        self._tools = tools
        self._permissions = permissions
        self._instructions = instructions
        self._max_steps = max_steps
        self._emit = emit
        self._ends_after_step = ends_after_step
        self._reply_id = memory.state.reply_id
        self._leg: asyncio.Task[object] | None = None
        self._cancels = 0
        self._over = False

    async def carry(self, inputs: Inputs) -> None:
        """Until the reply ends or pauses. Cancelled or failing, it closes what is open, then raises."""
        self._leg = asyncio.current_task()
        # The task of a run is its own: a cancel that came before is a stop. A foreign task may have its history.
        self._cancels = self._leg.cancelling() if self._leg and current_run() is None else 0
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

    def _give_way(self) -> None:
        """Raise a cancel that no await has met yet (a budget's, or one that a model swallowed): nothing may begin after it."""
        if self._leg is not None and self._leg.cancelling() > self._cancels:
            raise asyncio.CancelledError

    def _pauses_or_ends(self) -> bool:
        self._give_way()
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
        self._give_way()
        taken = {block.id for message in request.context for block in message.content if isinstance(block, ToolCallBlock)}
        answer = Answer(self._say, self._reply_id, taken)
        await self._ask(request, answer)
        answer.end()
        self._give_way()
        calls = {b.id: b for b in self._memory.transcript.message.content if isinstance(b, ToolCallBlock)}
        # What is executed is what the model wrote: arguments that were mended for the history are refused by the tool.
        return tuple(replace(calls[call_id], input=arguments or "{}") for call_id, arguments in answer.calls.items())

    async def _ask(self, request: ModelRequest, answer: Answer) -> None:
        """Stream one answer. A call that fails for a while, before it has said anything, is tried again."""
        for attempt in range(MAX_RETRIES + 1):
            try:
                async for piece in self._model.stream(request):
                    answer.add(piece)
            except ModelError as error:
                if answer.has_begun or not error.is_temporary or attempt == MAX_RETRIES:
                    raise
                wait = min(2.0**attempt if error.retry_after_s is None else error.retry_after_s, MAX_BACK_OFF_SECONDS)
                text = f"{error.problem} Trying again in {wait:g} s ({attempt + 1} of {MAX_RETRIES})."
                self._say(ev.CustomEvent(name=ev.NOTICE, value={"text": text}))
                await asyncio.sleep(wait)  # a stop cuts it like everything else
            else:
                return

    # -- acting -------------------------------------------------------------------------------------------------

    async def _act(self, calls: Sequence[ToolCallBlock]) -> None:
        """Refuse the calls that a rule denies, ask about those that need a person, and run the others meanwhile."""
        verdicts = self._judged(calls)
        asked = tuple(
            replace(call, state="asking", suggested_rules=suggested(call, verdicts[call.id][1]))
            for call in calls
            if verdicts[call.id][0] == "ask"
        )
        if asked:
            self._say(ev.RequireUserConfirmEvent(reply_id=self._reply_id, tool_calls=asked))
        await self._execute([call for call in calls if verdicts[call.id][0] == "allow"])

    def _judged(self, calls: Sequence[ToolCallBlock]) -> dict[str, tuple[Verdict, PermissionRule | None]]:
        """What the rules say about each call, by id. The results of the denied ones are said here."""
        rules = (*self._permissions, *self._memory.state.rules)
        verdicts = {call.id: verdict(call, self._tools.get(call.name), rules) for call in calls}
        for call in calls:
            decided, rule = verdicts[call.id]
            if decided == "deny" and rule is not None:
                self._say(*results.denied_by_rule(self._reply_id, call, told(rule)))
        return verdicts

    async def _act_on(self, decisions: ev.UserConfirmResultEvent) -> None:
        """Refuse what was denied, run what was approved, and go on unless other calls still wait.

        A rule that denies also beats an approval: the arguments may have been edited, or the rule may be new.
        """
        self._memory.apply(decisions)
        for result in decisions.confirm_results:
            if not result.confirmed:
                self._say(*results.denied(self._reply_id, result.tool_call, result.reason))
            elif result.rules:
                self._memory.allow(result.rules)
        approved = [result.tool_call for result in decisions.confirm_results if result.confirmed]
        verdicts = self._judged(approved)
        await self._execute([call for call in approved if verdicts[call.id][0] != "deny"])
        if not self._pauses_or_ends():
            await self._steps()

    async def _take(self, given: tuple[ToolResultBlock, ...]) -> None:
        """Results from outside; they have been begun where the call was handed out."""
        begun = {block.id for block in self._memory.transcript.message.content if isinstance(block, ToolResultBlock)}
        for result in given:
            if result.id not in begun:
                self._say(results.started(self._reply_id, ToolCallBlock(id=result.id, name=result.name)))
            state = result.state if result.state != "running" else "success"
            content = succeeded(result.output or "").content  # cut when it is huge, as a tool's own
            self._say(*results.given(self._reply_id, result.id, state, content, result.metadata))
        if not self._pauses_or_ends():
            await self._steps()

    async def _execute(self, calls: Sequence[ToolCallBlock]) -> None:
        """Hand out the calls that are done outside, and run the others meanwhile."""
        outside = [call for call in calls if self._is_done_outside(call)]
        for call in outside:
            self._say(results.started(self._reply_id, call))
            self._give_way()
            handed_out = (replace(call, state="submitted"),)
            self._say(ev.RequireExternalExecutionEvent(reply_id=self._reply_id, tool_calls=handed_out))
        await self._run([call for call in calls if call not in outside])

    def _is_done_outside(self, call: ToolCallBlock) -> bool:
        """Not if its arguments do not fit: then trying to run it tells the model."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.external and tool.misfit(call.input) is None

    async def _run(self, calls: Sequence[ToolCallBlock]) -> None:
        await together(
            {call.id: self._call(call) for call in calls},
            patience=TOOL_CLEAN_UP_SECONDS,
            left_behind=lambda call_id: self._say(*results.interrupted(self._reply_id, call_id, still_running=True)),
        )

    async def _call(self, call: ToolCallBlock) -> None:
        """Run one tool. A stop says what is known of it, and goes on up."""
        self._say(results.started(self._reply_id, call))
        tool = self._tools.get(call.name)
        if tool is None:
            outcome = failed(f"There is no tool called {call.name!r}. There are: {', '.join(self._tools) or 'none'}.")
        else:
            output_sink.set(self._sink_for(call.id))
            try:
                self._give_way()
                outcome = await tool.execute(call.input)
            except asyncio.CancelledError as error:
                self._say(*results.interrupted(self._reply_id, call.id, still_running=STILL_RUNNING in error.args))
                raise
        self._say(*results.given(self._reply_id, call.id, outcome.state, outcome.content, outcome.metadata))

    def _sink_for(self, call_id: str) -> Callable[[str, JsonObject], None]:
        """Takes what the tool prints, from any thread."""
        loop = asyncio.get_running_loop()

        def sink(name: str, value: JsonObject) -> None:
            event = ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": call_id, "name": name, **value})
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._say, event)

        return sink

    # -- saying -------------------------------------------------------------------------------------------------

    def _say(self, *events: ev.Event) -> None:
        """Remember first, tell second: who saves the state when told of an event finds it there."""
        for event in events:
            if not self._over:
                self._memory.apply(event)
                self._emit(event)

    def _close(self, reason: FinishedReason, error: ErrorInfo | None = None, metadata: JsonObject | None = None) -> None:
        """End what is open, then the reply; nothing if no reply is open."""
        if not self._memory.state.reply_id:
            return
        session_id = self._memory.session_id
        closed = closing(self._memory.transcript, session_id=session_id, finished_reason=reason, error=error, metadata=metadata)
        self._say(*closed)
