"""Sub-agents: an agent as a tool of another. Each call of it is a conversation of its own.

What a sub-agent says goes through the agent that called it, with the call's id put before its path: so it is in that agent's
memory, in every one above, and in the run's log. It is carried inside the task of its call, so what cancels the call cancels
it. When it waits for a person the task ends; the pause is in the memory, and an answer goes down to it in the next leg.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent_widgets import events as ev
from agent_widgets.backends import Inputs
from agent_widgets.budgets import Budget, Meter
from agent_widgets.decisions import StopRequest
from agent_widgets.errors import ConfirmationRequiredError, ToolDefinitionError
from agent_widgets.loops import LastStep
from agent_widgets.memory import Memory
from agent_widgets.messages import Msg, PermissionRule, TextBlock, ToolCallBlock, ToolResultBlock
from agent_widgets.outcomes import ToolOutcome, failed, succeeded
from agent_widgets.permissions import EVERY
from agent_widgets.results import interruption
from agent_widgets.schemas import arguments_of
from agent_widgets.state import AgentState
from agent_widgets.tools import Tool

Rules = tuple[PermissionRule, ...]

DESCRIPTION = "Hand a task over to {name}, an agent that works on its own and answers with text. It does not see this \
conversation, so the task must say all that it needs to know."
"""What a calling model reads where ``as_tool`` was given no description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a sub-agent works for: ``say`` takes its events, ``last_step`` is set when it is to end after its step.

    ``say_late`` takes what comes of its tools when it has ended; any thread.

    ``rules`` are the caller's rules for the sub-agent's tools; ``allow`` takes what a person allows there for always.
    """

    say: Callable[[ev.Event], None]
    say_late: Callable[[ev.CustomEvent], None]
    last_step: LastStep
    rules: Rules
    allow: Callable[[Rules], None]


class SubAgent(Protocol):
    """An agent that can work for another."""

    @property
    def name(self) -> str:
        """Whose answers they are."""
        ...

    @property
    def tools(self) -> dict[str, Tool]:
        """Its own tools, by name."""
        ...

    @property
    def budget(self) -> Budget | None:
        """What each call of it may use."""
        ...

    async def work(self, inputs: Inputs, memory: Memory, caller: Caller) -> None:
        """Carry one leg of a reply on this memory, not on the agent's own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool(Tool):
    """A tool whose work is done by ``agent``."""

    agent: SubAgent


def agent_tool(agent: SubAgent, name: str, description: str | None) -> AgentTool:
    """An agent as a tool; see ``Agent.as_tool``.

    Raises:
        ToolDefinitionError: a name that no model could call, or an empty description.
    """
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        raise ToolDefinitionError(name, 'a model could not call it so. Give as_tool(name="…"): letters, digits, _ and -.')
    if description is not None and not description.strip():
        raise ToolDefinitionError(name, "its description is empty, so a model cannot know when to use it.")

    async def hand_over(task: str) -> str:
        memory = Memory()
        caller = Caller(say=memory.apply, say_late=lambda _: None, last_step=LastStep(), rules=(), allow=lambda _: None)
        await agent.work(task, memory, caller)
        if waiting := memory.transcript.waiting:
            raise ConfirmationRequiredError(tuple(call.name for call in waiting))
        return answer_of(memory.state.context[-1])

    return AgentTool(
        name=name,
        description=description or DESCRIPTION.format(name=name),
        function=hand_over,
        arguments=arguments_of(hand_over, name),
        agent=agent,
    )


class Delegation:
    """One call whose work is another agent's, for one leg."""

    def __init__(self, agent: SubAgent, call_id: str, caller: Caller, stop: Callable[[StopRequest], object]) -> None:
        """Prepare.

        Args:
            agent: Whose work it is.
            call_id: For which call.
            caller: Who asked for it.
            stop: Stops this call alone.
        """
        self._agent = agent
        self._call_id = call_id
        self._caller = caller
        self._stop = stop
        self._last_step = caller.last_step.below()
        self._why: StopRequest | None = None
        self._is_left = self._is_beyond = False
        self._meter: Meter | None = None

    def end_after_step(self, request: StopRequest) -> None:
        """The step in which the sub-agent is shall be its last."""
        self._why = request
        self._last_step.set()

    def leave(self) -> None:
        """It has not ended in time: what it says from now on is not heard."""
        self._is_left = True

    async def carry(self, inputs: Inputs, memory: Memory) -> ToolOutcome | None:
        """From the task, or from an answer to a pause. Gives what the caller's model reads, or ``None``: it waits."""
        agent, budget = self._agent, self._agent.budget
        self._meter = None if budget is None else Meter(budget, memory.transcript)
        alarm = None
        if budget is not None and budget.seconds is not None:
            reason = f"the budget of {budget.seconds:g} s is used up"
            alarm = asyncio.get_running_loop().call_later(budget.seconds, self._stop_for_budget, reason)
        try:
            await agent.work(inputs, memory, replace(self._caller, say=self._say, last_step=self._last_step))
        # Whatever a sub-agent fails with is a result that the caller's model reads, as with any tool.
        except Exception as error:  # noqa: BLE001
            said = _text_of(memory)
            return failed(f"{said}\n{agent.name} failed: {error}".lstrip())
        finally:
            if alarm is not None:
                alarm.cancel()
        return None if memory.transcript.waiting else self._outcome(memory.state.context[-1])

    def _say(self, event: ev.Event) -> None:
        if self._is_left:
            return
        self._caller.say(ev.under(self._call_id, event))
        if self._meter is not None and not self._is_beyond:
            reason = self._meter.exceeded(event)
            if reason:
                self._stop_for_budget(reason)

    def _stop_for_budget(self, reason: str) -> None:
        self._is_beyond = True
        self._stop(StopRequest(source="budget", when="now", reason=reason, at=time.monotonic()))

    def _outcome(self, message: Msg) -> ToolOutcome:
        name = self._agent.name
        match message.finished_reason:
            case "completed":
                return succeeded(answer_of(message) or f"({name} gave no answer)")
            case "exceed_max_iters":
                return failed(f"{message.text}\n{name} has used all its steps and has not finished.".lstrip())
            case _:  # after its step
                facts = self._why.facts() if self._why else {}
                content = (TextBlock(f"{message.text}\n{interruption(facts)}".lstrip()),)
                return ToolOutcome(state="interrupted", content=content, metadata=facts)


def answer_of(message: Msg) -> str:
    """What an agent says at the end: its text after the last result."""
    last = max((at for at, block in enumerate(message.content) if isinstance(block, ToolResultBlock)), default=-1)
    return "\n".join(block.text for block in message.content[last + 1 :] if isinstance(block, TextBlock))


def part_for(child: AgentState, inputs: Inputs) -> Inputs:
    """What of an answer to a pause is for this sub-agent or those below it; ``None`` if nothing is."""
    match inputs:
        case ev.UserConfirmResultEvent():
            decided = tuple(result for result in inputs.confirm_results if _has_call(child, result.tool_call.id))
            return replace(inputs, reply_id=child.reply_id, confirm_results=decided) if decided else None
        case ev.ExternalExecutionResultEvent():
            given = tuple(result for result in inputs.execution_results if _has_call(child, result.id))
            return replace(inputs, reply_id=child.reply_id, execution_results=given) if given else None
        case ev.UserInterruptEvent():
            return inputs if _has_reply(child, inputs.reply_id) else None
        case _:
            return None


def tools_for(call_id: str, state: AgentState, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """The tools that this call may be of: the agent's own, or those of the sub-agent that made it."""
    for child in state.children:
        if _has_call(child.state, call_id):
            calls = {block.id: block.name for block in state.context[-1].content if isinstance(block, ToolCallBlock)}
            tool = tools.get(calls.get(child.call_id, ""))
            return tools_for(call_id, child.state, tool.agent.tools if isinstance(tool, AgentTool) else {})
    return tools


def rules_inside(tool_name: str, rules: Iterable[PermissionRule]) -> Rules:
    """The rules for a sub-agent's tools among those of its caller: ``"researcher/delete"`` is about its ``delete``.

    The caller's policy holds for it too, unless it has one of its own.
    """
    start = f"{tool_name}/"
    return tuple(
        replace(rule, tool_name=rule.tool_name.removeprefix(start))
        for rule in rules
        if rule.tool_name.startswith(start) or rule.tool_name == EVERY
    )


def rules_outside(tool_name: str, rules: Iterable[PermissionRule]) -> Rules:
    """The other way: a sub-agent's rules as its caller keeps them."""
    return tuple(replace(rule, tool_name=f"{tool_name}/{rule.tool_name}") for rule in rules)


def _has_call(state: AgentState, call_id: str) -> bool:
    if not state.reply_id:
        return False
    own = any(isinstance(block, ToolCallBlock) and block.id == call_id for block in state.context[-1].content)
    return own or any(_has_call(child.state, call_id) for child in state.children)


def _has_reply(state: AgentState, reply_id: str) -> bool:
    return bool(state.reply_id) and (
        state.reply_id == reply_id or any(_has_reply(child.state, reply_id) for child in state.children)
    )


def _text_of(memory: Memory) -> str:
    context = memory.state.context
    return context[-1].text if context and context[-1].role == "assistant" else ""
