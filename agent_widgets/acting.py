"""What becomes of the calls that a model asked for: refused, asked about, handed out, or run.

They run side by side; a sequential one runs alone. One that a stop has kept from beginning never begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.calling import Calling
from agent_widgets.loops import together
from agent_widgets.memory import Memory
from agent_widgets.messages import PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.outcomes import succeeded
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
        say_late: Callable[[ev.CustomEvent], None],
        give_way: Callable[[], None],
    ) -> None:
        """Prepare to act.

        Args:
            reply_id: Whose calls these are.
            memory: What the agent remembers.
            tools: By name.
            permissions: The agent's own rules; those of the state are looked up for each call.
            say: Remembers events, then emits them.
            say_late: Takes a late result, at any time; any thread.
            give_way: Raises a stop that no await has met yet: nothing may begin after it.
        """
        self._reply_id = reply_id
        self._memory = memory
        self._tools = tools
        self._permissions = permissions
        self._say = say
        self._say_late = say_late
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
        asked = [block.id for block in self._memory.transcript.message.content if isinstance(block, ToolCallBlock)]
        approved = [result.tool_call for result in decisions.confirm_results if result.confirmed]
        approved.sort(key=lambda call: asked.index(call.id))  # they run in the model's order, not in the clicks'
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
        """In the order in which they were asked for: neighbours side by side, a sequential one alone."""
        for group in self._groups(calls):
            callings = {call.id: Calling(self._reply_id, call, say=self._say, say_late=self._say_late) for call in group}
            known = ", ".join(self._tools)
            await together(
                {call.id: callings[call.id].carry(self._tools.get(call.name), known, self._give_way) for call in group},
                patience=TOOL_CLEAN_UP_SECONDS,
                left_behind=lambda call_id, callings=callings: callings[call_id].leave_behind(),
            )

    def _groups(self, calls: Sequence[ToolCallBlock]) -> Iterator[list[ToolCallBlock]]:
        beside: list[ToolCallBlock] = []
        for call in calls:
            tool = self._tools.get(call.name)
            if tool is None or not tool.sequential:
                beside.append(call)
                continue
            yield beside
            yield [call]
            beside = []
        yield beside
