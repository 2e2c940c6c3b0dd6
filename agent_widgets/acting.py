"""What becomes of the calls that a model asked for: refused, asked about, handed out, or run.

They run side by side; a sequential one runs alone. One that a stop has kept from beginning never begins. A stop of the run goes
on up; a stop of one call ends that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from agent_widgets import events as ev
from agent_widgets import results
from agent_widgets.backends import Inputs
from agent_widgets.calling import Calling
from agent_widgets.decisions import StopRequest
from agent_widgets.endings import cutting
from agent_widgets.execution import Outlet
from agent_widgets.loops import LastStep, SideBySide
from agent_widgets.memory import Memory, task_of
from agent_widgets.messages import JsonObject, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.outcomes import ToolOutcome, failed, succeeded
from agent_widgets.permissions import Verdict, suggested, told, verdict
from agent_widgets.runs import current_run
from agent_widgets.state import ChildState, unanswered
from agent_widgets.subagents import AgentTool, Caller, Delegation, part_for, rules_inside, rules_outside
from agent_widgets.tools import Tool

TOOL_CLEAN_UP_SECONDS = 2.0
"""How long cancelled tools may take for their own clean-up before they are left behind."""

LEVEL_SECONDS = 0.5
"""How much longer a sub-agent may take than the tools inside it: it has their results to tell."""


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
        last_step: LastStep,
        allow: Callable[[tuple[PermissionRule, ...]], None],
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
            last_step: Set when the reply is to end after this step.
            allow: Remembers rules that a person gave with an approval.
        """
        self._reply_id = reply_id
        self._memory = memory
        self._tools = tools
        self._permissions = permissions
        self._say = say
        self._say_late = say_late
        self._give_way = give_way
        self._last_step = last_step
        self._allow = allow
        self._stops: dict[str, JsonObject] = {}
        self._delegations: dict[str, Delegation] = {}
        self._callings: dict[str, Calling] = {}
        self._side = SideBySide(
            patience=TOOL_CLEAN_UP_SECONDS + LEVEL_SECONDS * levels_below(tools.values()),
            left_behind=self._leave,
        )

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
        """Refuse what was denied, run what was approved. A sub-agent goes on with what was decided about its own calls.

        A rule that denies also beats an approval: the arguments may have been edited, or the rule may be new.
        """
        mine = [result for result in decisions.confirm_results if result.tool_call.id in self._calls()]
        for result in mine:
            if not result.confirmed:
                self._say(*results.denied(self._reply_id, result.tool_call, result.reason))
            elif result.rules:
                self._allow(result.rules)
        asked = list(self._calls())
        approved = [result.tool_call for result in mine if result.confirmed]
        approved.sort(key=lambda call: asked.index(call.id))  # they run in the model's order, not in the clicks'
        verdicts = self._judged(approved)
        await self._execute([call for call in approved if verdicts[call.id][0] != "deny"], decisions)

    async def take(self, answer: ev.ExternalExecutionResultEvent) -> None:
        """Results from outside; they have been begun where the call was handed out. A sub-agent goes on with its own."""
        begun = {block.id for block in self._memory.transcript.message.content if isinstance(block, ToolResultBlock)}
        for result in answer.execution_results:
            if result.id not in self._calls():
                continue
            if result.id not in begun:
                self._say(results.started(self._reply_id, ToolCallBlock(id=result.id, name=result.name)))
            state = result.state if result.state != "running" else "success"
            content = succeeded(result.output or "").content  # cut when it is huge, as a tool's own
            self._say(*results.given(self._reply_id, result.id, state, content, result.metadata))
        await self._execute([], answer)

    async def end_child(self, interrupt: ev.UserInterruptEvent) -> bool:
        """End the sub-agent whose reply waits, and no other. ``False``: it is none of ours."""
        for child in self._waiting_children():
            if child.state.reply_id == interrupt.reply_id:
                self._stops[child.call_id] = interrupt.metadata
                self._calling(self._calls()[child.call_id], has_begun=True).cut()
                return True
        is_below = any(part_for(child.state, interrupt) for child in self._waiting_children())
        await self._execute([], interrupt)
        return is_below

    def _judged(self, calls: Sequence[ToolCallBlock]) -> dict[str, tuple[Verdict, PermissionRule | None]]:
        """What the rules say about each call, by id. The results of the denied ones are said here."""
        rules = (*self._permissions, *self._memory.state.rules)
        verdicts = {call.id: verdict(call, self._tools.get(call.name), rules) for call in calls}
        for call in calls:
            decided, rule = verdicts[call.id]
            if decided == "deny" and rule is not None:
                self._say(*results.denied_by_rule(self._reply_id, call, f"rule: {told(rule)}"))
        return verdicts

    def _calls(self) -> dict[str, ToolCallBlock]:
        return {block.id: block for block in self._memory.transcript.message.content if isinstance(block, ToolCallBlock)}

    def _waiting_children(self) -> Sequence[ChildState]:
        open_ids = unanswered(self._memory.transcript.message)
        return [child for child in self._memory.state.children if child.call_id in open_ids and child.state.reply_id]

    async def _execute(self, calls: Sequence[ToolCallBlock], answer: Inputs = None) -> None:
        """Hand out the calls that are done outside, and run the others meanwhile, with the sub-agents that ``answer`` is for."""
        outside = [call for call in calls if self._is_done_outside(call)]
        for call in outside:
            self._say(results.started(self._reply_id, call))
            self._give_way()
            handed_out = (replace(call, state="submitted"),)
            self._say(ev.RequireExternalExecutionEvent(reply_id=self._reply_id, tool_calls=handed_out))
        parts = {child.call_id: part_for(child.state, answer) for child in self._waiting_children()}
        resumed = [(self._calls()[call_id], part) for call_id, part in parts.items() if part is not None]
        await self._run([*((call, None) for call in calls if call not in outside), *resumed])

    def _is_done_outside(self, call: ToolCallBlock) -> bool:
        """Not if its arguments do not fit: then trying to run it tells the model."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.external and tool.misfit(call.input) is None

    async def _run(self, calls: Sequence[tuple[ToolCallBlock, Inputs]]) -> None:
        """In the order in which they were asked for: neighbours side by side, a sequential one alone.

        Each from its beginning, or with the answer that its sub-agent waited for.
        """
        answers = {call.id: answer for call, answer in calls}
        self._callings.update((call.id, self._calling(call, has_begun=answer is not None)) for call, answer in calls)
        run = current_run()
        running = {} if run is None else run.running_calls
        running.update((call.id, partial(self._stop, call.id)) for call, _ in calls)
        try:
            for group in self._groups([call for call, _ in calls]):
                work = {call.id: partial(self._outcome, call, answers[call.id]) for call in group}
                await self._side.run({call_id: self._callings[call_id].carry(work[call_id], self._give_way) for call_id in work})
                for call_id in work.keys() & self._stops.keys():  # one that was cut before its first step has said nothing
                    self._callings[call_id].cut()
        finally:
            for call_id in answers:
                running.pop(call_id, None)

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

    def _calling(self, call: ToolCallBlock, *, has_begun: bool) -> Calling:
        return Calling(
            self._reply_id,
            call,
            say=self._say,
            say_late=self._say_late,
            ending=lambda: cutting(self._memory.transcript, call.id, session_id=self._memory.session_id),
            why=lambda: self._stops.get(call.id),
            has_begun=has_begun,
        )

    async def _outcome(self, call: ToolCallBlock, answer: Inputs, outlet: Outlet) -> ToolOutcome | None:
        """What the tool gave; ``None`` if its sub-agent waits for a person."""
        tool = self._tools.get(call.name)
        memory = self._memory.child(call.id)
        if tool is None:
            return failed(f"There is no tool called {call.name!r}. There are: {', '.join(self._tools) or 'none'}.")
        if not isinstance(tool, AgentTool):
            return await tool.execute(call.input, outlet)
        if memory is None:
            if misfit := tool.misfit(call.input):
                return misfit
            answer = task_of(call)
            if not answer.text.strip():
                return failed(f"The task for {tool.name} is empty.")
            memory = self._memory.begin_child(call.id)
        delegation = self._delegations[call.id] = self._delegation(tool, call.id)
        return await delegation.carry(answer, memory)

    def _delegation(self, tool: AgentTool, call_id: str) -> Delegation:
        caller = Caller(
            say=self._say,
            say_late=self._say_late,
            last_step=self._last_step,
            rules=rules_inside(tool.name, (*self._permissions, *self._memory.state.rules)),
            allow=lambda rules: self._allow(rules_outside(tool.name, rules)),
        )
        return Delegation(tool.agent, call_id, caller, partial(self._stop, call_id))

    def _stop(self, call_id: str, request: StopRequest) -> bool:
        """Stop one call, and let the others and the reply go on. ``False``: it does not run."""
        if not self._side.is_running(call_id):
            return False
        if request.when == "now":
            self._stops[call_id] = request.facts()
            self._side.stop(call_id)
        elif call_id in self._delegations:
            self._delegations[call_id].end_after_step(request)
        return True

    def _leave(self, call_id: str) -> None:
        """It has not ended in time: what its sub-agent says from now on is not heard, and what it gives is late."""
        if call_id in self._delegations:
            self._delegations[call_id].leave()
        self._callings[call_id].leave_behind()


def levels_below(tools: Iterable[Tool]) -> int:
    """How many sub-agents stand one below the other at most."""
    agents = [tool.agent for tool in tools if isinstance(tool, AgentTool)]
    return max((1 + levels_below(agent.tools.values()) for agent in agents), default=0)
