"""What a person or a program asks of a run: to stop, or to decide about a waiting call. Values."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal, get_args

from agent_widgets import events as ev
from agent_widgets.errors import InputError
from agent_widgets.messages import JsonObject, ToolCallBlock

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
    """What a person or a program decided about a waiting call. ``seen`` is the fingerprint of what was shown, if anything was."""

    confirmed: bool
    reason: str = ""
    arguments: str | None = None
    always: bool = False
    seen: str | None = None

    def result_for(self, call: ToolCallBlock) -> ev.ConfirmResult:
        """The decision as the agent takes it."""
        if self.arguments is not None:
            call = replace(call, input=self.arguments)
        rules = call.suggested_rules if self.always else None
        return ev.ConfirmResult(confirmed=self.confirmed, tool_call=call, rules=rules, reason=self.reason)
