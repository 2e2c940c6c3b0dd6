"""What a person or a program asks of a run: to stop, or to decide about a waiting call. Values,
and the check that a decision fits what waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from agent_widgets import events as ev
from agent_widgets.backends import Inputs, messages_of
from agent_widgets.errors import InputError, NotWaitingError
from agent_widgets.messages import JsonObject, PermissionRule, ToolCallBlock, ToolCallState
from agent_widgets.state import AgentState, valid_arguments

OnConfirm = Literal["ask", "deny", "allow", "raise"]
"""Who decides about a call that needs confirmation: a person, or a policy."""

StopLevel = Literal["now", "step"]
StopSource = Literal["user", "code", "kernel", "deadline", "budget"]


def check_level(after: str) -> None:
    """Refuse a level of stopping that does not exist.

    Raises:
        InputError: it is neither "now" nor "step".
    """
    if after not in get_args(StopLevel):
        raise InputError(f"after is {after!r}; it must be 'now' or 'step'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """Who asked for a stop, how hard, why, and when (``time.monotonic()``)."""

    source: StopSource
    when: StopLevel
    reason: str
    at: float
    raises: Exception | None = None

    def facts(self) -> JsonObject:
        """What ``REPLY_END`` and the card say about it."""
        return {"source": self.source, "when": self.when, "reason": self.reason}

    def milliseconds(self) -> float:
        """From the request to now."""
        return round((time.monotonic() - self.at) * 1000, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person or a program decided about a waiting call.

    ``always`` is a rule to store with an approval; ``True`` stands for the first that was suggested. ``seen`` is the fingerprint
    of what was shown, if anything was.
    """

    confirmed: bool
    reason: str = ""
    arguments: str | None = None
    always: bool | PermissionRule = False
    seen: str | None = None

    @classmethod
    def of(cls, result: ev.ConfirmResult) -> Decision:
        """The decision behind a result that ``result_for`` has made: with one rule at most."""
        always = result.rules[0] if result.rules else False
        return cls(confirmed=result.confirmed, reason=result.reason, arguments=result.tool_call.input, always=always)

    def result_for(self, call: ToolCallBlock) -> ev.ConfirmResult:
        """The decision as the agent takes it."""
        if self.arguments is not None:
            call = replace(call, input=self.arguments)
        rules = (self.always,) if isinstance(self.always, PermissionRule) else call.suggested_rules[:1] if self.always else None
        return ev.ConfirmResult(confirmed=self.confirmed, tool_call=call, rules=rules, reason=self.reason)


_NOTHING = "Nothing was executed."


def check_inputs(inputs: Inputs, state: AgentState, agent_name: str, misfit: Callable[[ToolCallBlock], str]) -> None:
    """Refuse what does not fit the state, before anything is changed. ``misfit`` says why an edited call cannot run.

    Raises:
        NotWaitingError: a decision that nothing waits for, or a message while a reply waits.
        InputError: not an input.
    """
    match inputs:
        case ev.UserInterruptEvent():
            pass
        case ev.UserConfirmResultEvent():
            calls = [result.tool_call for result in inputs.confirm_results]
            asked = _asked(state, agent_name, inputs.reply_id, [call.id for call in calls], "asking")
            for result, call in zip(inputs.confirm_results, calls, strict=True):
                if call.name != asked[call.id].name:
                    raise InputError(f"The call {call.id!r} asks for {asked[call.id].name!r}, not for {call.name!r}. {_NOTHING}")
                if result.confirmed and valid_arguments(call.input) != call.input:
                    raise InputError(f"The arguments {call.input!r:.80} are not a JSON object. {_NOTHING}")
                edited = result.confirmed and call.input != asked[call.id].input
                if edited and (fault := misfit(call)):
                    raise InputError(f"{fault}. {_NOTHING}")
        case ev.ExternalExecutionResultEvent():
            _asked(state, agent_name, inputs.reply_id, [result.id for result in inputs.execution_results], "submitted")
        case _:
            if waiting := state.waiting():
                names = ", ".join(call.name for call in waiting)
                if all(call.state == "submitted" for call in waiting):
                    raise NotWaitingError(
                        f"{agent_name} waits for the result of {names} from outside. "
                        "Give it first (run.answer(…) or ExternalExecutionResultEvent), or end the reply with interrupt()."
                    )
                raise NotWaitingError(
                    f"{agent_name} waits for a decision about {names}. "
                    "Approve or deny first (UserConfirmResultEvent), or end the reply with interrupt()."
                )
            if inputs is not None:
                messages_of(inputs)


def _asked(
    state: AgentState, agent_name: str, reply_id: str, call_ids: list[str], needed: ToolCallState
) -> dict[str, ToolCallBlock]:
    """The calls that an answer is about, by id.

    Raises:
        NotWaitingError: the answer is for another reply, or for a call that does not wait for one.
        InputError: two answers for one call.
    """
    if reply_id != state.reply_id:
        here = repr(state.reply_id) if state.reply_id else "no reply"
        raise NotWaitingError(f"This decision is for reply {reply_id!r}; {agent_name} waits in {here}. {_NOTHING}")
    waiting = {call.id: call for call in state.waiting() if call.state == needed}
    for call_id in call_ids:
        if call_id not in waiting:
            what = "a decision" if needed == "asking" else "an outside result"
            raise NotWaitingError(f"The call {call_id!r} does not wait for {what}. {_NOTHING}")
        if call_ids.count(call_id) > 1:
            raise InputError(f"There are {call_ids.count(call_id)} answers for the call {call_id!r}; give one. {_NOTHING}")
    return waiting
