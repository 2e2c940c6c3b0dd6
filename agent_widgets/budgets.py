"""Budgets: how much a run may use, and the meter that says when it is more. Values and a counter; the run does the stopping."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from agent_widgets import events as ev
from agent_widgets.errors import InputError
from agent_widgets.messages import ToolResultBlock
from agent_widgets.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a reply may use. Going beyond it stops the run as a person would, with the source "budget"; ``None`` is no limit.

    ``seconds`` are counted from the run's start, whatever it waits for. ``tokens`` are those that the provider reported, in
    and out, looked at when a model call has ended: the call that goes beyond is paid, and what it asks for does not run. A
    call without a report stops the run too, because its tokens are unknown, and unknown is not 0. ``steps`` are those begun;
    a call that summarises older messages is none, but its tokens count. ``tool_calls`` are results begun, those of denied
    calls too. A reply that is complete anyway is not stopped. After a pause, tokens, steps and tool calls go on counting where
    the reply had been. What sub-agents use counts as well.

    Raises:
        InputError: a limit that is not a number above 0, or is no whole number where things are counted.
    """

    seconds: float | None = None
    tokens: int | None = None
    steps: int | None = None
    tool_calls: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            limit: object = getattr(self, field.name)
            kinds = (int, float) if field.name == "seconds" else (int,)
            if limit is None:
                continue
            if not isinstance(limit, kinds) or isinstance(limit, bool) or not 0 < limit < math.inf:
                what = "a number of seconds" if field.name == "seconds" else "a whole number"
                raise InputError(f"Budget: {field.name} is {limit!r}; it must be {what} above 0, or None for no limit.")


def checked_budget(budget: object) -> Budget | None:
    """A budget as it was given.

    Raises:
        InputError: something else was given.
    """
    if budget is None or isinstance(budget, Budget):
        return budget
    raise InputError(f"budget is {budget!r:.80}; it must be a Budget, such as Budget(steps=5, seconds=60).")


class Meter:
    """Counts what a reply has used, event by event."""

    def __init__(self, budget: Budget, so_far: Transcript | None) -> None:
        """Begin with what the reply had used before this run, if it goes on with one."""
        self._budget = budget
        usage = so_far.message.usage if so_far else None
        self._tokens = usage.input_tokens + usage.output_tokens if usage else 0
        self._unknown = bool(usage and usage.unknown_calls)
        parts = tuple(_all_of(so_far)) if so_far else ()
        self._steps = sum(part.steps for part in parts)
        self._asks = False
        self._tool_calls = sum(isinstance(block, ToolResultBlock) for part in parts for block in part.message.content)

    def exceeded(self, event: ev.Event) -> str:
        """Count one event. Gives ``""``, or which limit it goes beyond, with the figure."""
        budget = self._budget
        is_own = not ev.agent_path(event)
        match event:
            case ev.ToolCallStartEvent() if is_own:
                self._asks = True
            case ev.ModelCallStartEvent(metadata={"purpose": "compression"}):
                self._asks = True  # the call that it is made for comes next
            case ev.ModelCallStartEvent():
                self._steps += event.begins_step
                self._asks = self._asks and not is_own
                if budget.steps is not None and self._steps > budget.steps:
                    return f"the budget of {_of(budget.steps, 'step')} is used up: this would be step {self._steps:,}"
            case ev.ToolResultStartEvent():
                self._tool_calls += 1
                limit = budget.tool_calls
                if limit is not None and self._tool_calls > limit:
                    return f"the budget of {_of(limit, 'tool call')} is used up: this would be call {self._tool_calls:,}"
            case ev.ModelCallEndEvent(finished_reason="completed"):
                self._tokens += event.input_tokens + event.output_tokens
                self._unknown = self._unknown or event.metadata.get("usage") == "unknown"
                # An answer that asks for nothing is complete; that of a sub-agent is asked for by the agent's own last one.
                return self._beyond_tokens() if self._asks else ""
            case _:
                pass
        return ""

    def _beyond_tokens(self) -> str:
        limit = self._budget.tokens
        if limit is not None and self._tokens > limit:
            return f"the budget of {_of(limit, 'token')} is used up: {self._tokens:,} so far"
        if limit is not None and self._unknown:
            return f"the budget of {_of(limit, 'token')} cannot be checked: the model reported no usage"
        return ""


def _all_of(transcript: Transcript) -> Iterator[Transcript]:
    yield transcript
    for child in transcript.children:
        yield from _all_of(child.transcript)


def _of(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
