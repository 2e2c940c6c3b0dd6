"""What becomes of the calls that a model asked for: refused, asked about, handed out, or run side by side.

A result is begun before its tool is, and every begun result is ended here, unless it is handed out. A stop says what is
known of each tool, and goes on up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.execution import STILL_RUNNING, output_sink
from agent_widgets.loops import together
from agent_widgets.memory import Memory
from agent_widgets.messages import JsonObject, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.outcomes import failed, succeeded
from agent_widgets.permissions import Verdict, suggested, told, verdict
from agent_widgets.tools import Tool

TOOL_CLEAN_UP_SECONDS = 2.0
"""How long cancelled tools may take for their own clean-up before they are left behind."""


class Acting:
    """Acts on the calls of one reply."""

    def __init__(
        self,
        *,
        reply_id: str,
        memory: Memory,
        tools: dict[str, Tool],
        permissions: tuple[PermissionRule, ...],
        say: Callable[..., None],
        give_way: Callable[[], None],
    ) -> None:
        """Prepare to act.

        Args:
            reply_id: Whose calls these are.
            memory: What the agent remembers.
            tools: By name.
            permissions: The agent's own rules; those of the state are looked up for each call.
            say: Remembers events, then emits them.
            give_way: Raises a stop that no await has met yet: nothing may begin after it.
        """
        self._reply_id = reply_id
        self._memory = memory
        self._tools = tools
        self._permissions = permissions
        self._say = say
        self._give_way = give_way

    async def begin(self, calls: Sequence[ToolCallBlock]) -> None:
        """Refuse the calls that a rule denies, ask about those that need a person, and run the others meanwhile."""
        verdicts = self._judged(calls)
        asked = tuple(
            replace(call, state="asking", suggested_rules=suggested(call, self._tools.get(call.name), verdicts[call.id][1]))
            for call in calls
            if verdicts[call.id][0] == "ask"
        )
        if asked:
            self._say(ev.RequireUserConfirmEvent(reply_id=self._reply_id, tool_calls=asked))
        await self._execute([call for call in calls if verdicts[call.id][0] == "allow"])

    async def decided(self, decisions: ev.UserConfirmResultEvent) -> None:
        """Refuse what was denied, run what was approved.

        A rule that denies also beats an approval: the arguments may have been edited, or the rule may be new.
        """
        for result in decisions.confirm_results:
            if not result.confirmed:
                self._say(*results.denied(self._reply_id, result.tool_call, result.reason))
            elif result.rules:
                self._memory.allow(result.rules)
        approved = [result.tool_call for result in decisions.confirm_results if result.confirmed]
        verdicts = self._judged(approved)
        await self._execute([call for call in approved if verdicts[call.id][0] != "deny"])

    def take(self, given: tuple[ToolResultBlock, ...]) -> None:
        """Results from outside; they have been begun where the call was handed out."""
        begun = {block.id for block in self._memory.transcript.message.content if isinstance(block, ToolResultBlock)}
        for result in given:
            if result.id not in begun:
                self._say(results.started(self._reply_id, ToolCallBlock(id=result.id, name=result.name)))
            state = result.state if result.state != "running" else "success"
            content = succeeded(result.output or "").content  # cut when it is huge, as a tool's own
            self._say(*results.given(self._reply_id, result.id, state, content, result.metadata))

    def _judged(self, calls: Sequence[ToolCallBlock]) -> dict[str, tuple[Verdict, PermissionRule | None]]:
        """What the rules say about each call, by id. The results of the denied ones are said here."""
        rules = (*self._permissions, *self._memory.state.rules)
        verdicts = {call.id: verdict(call, self._tools.get(call.name), rules) for call in calls}
        for call in calls:
            decided, rule = verdicts[call.id]
            if decided == "deny" and rule is not None:
                self._say(*results.denied_by_rule(self._reply_id, call, f"rule: {told(rule)}"))
        return verdicts

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
