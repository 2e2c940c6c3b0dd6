"""What happened in a case, judged by the same code for every system. Nothing here knows which system it was.

What is judged are notes of the scripted tools and of the scripted model, and the messages that the system sent with its first
and its last request after the stop.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from tests.compare.drivers.stage import ANSWER
from tests.validator import faults

LATE_PRESS_MS = 5.0
"""A timer is 1 or 2 ms late. A press that is later than this has waited for a loop that was blocked, and its person too."""

Kind = Literal[
    "calls and results do not pair",
    "arguments are not JSON",
    "result lost",
    "executed twice",
    "model called after the stop",
    "tool begun after the stop",
    "work after the end",
    "stop hit a later run",
    "later prompt failed",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

Told = Mapping[str, Any]


@dataclass(slots=True)
class Score:
    """The sum over many cases."""

    cases: int = 0
    found: Counter[Kind] = field(default_factory=Counter[Kind])
    latencies_ms: list[float] = field(default_factory=list[float])
    examples: dict[Kind, str] = field(default_factory=dict[Kind, str])

    def add(self, told: Told, anyway: Container[str] = ()) -> None:
        """Count one case; ``anyway`` as in ``judged``."""
        self.cases += 1
        for kind, why in judged(told, anyway).items():
            self.found[kind] += 1
            self.examples.setdefault(kind, f"{told['case']['scenario']} {told['case']['seed']}: {why}")
        if told["stop_ms"] is not None and told["is_busy"]:
            self.latencies_ms.append(told["end_ms"] - _pressed_ms(told))

    def merge(self, other: Score) -> None:
        """Count the cases of another sum too."""
        self.cases += other.cases
        self.found += other.found
        self.latencies_ms += other.latencies_ms
        self.examples = {**other.examples, **self.examples}

    def latency(self) -> tuple[float, float]:
        """Median and 95th percentile in ms, from the press to the end of the run as its caller sees it."""
        times = self.latencies_ms
        return statistics.median(times), statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]


def judged(told: Told, anyway: Container[str] = ()) -> dict[Kind, str]:
    """What went wrong in one case, and why. ``anyway``: keys whose results this system loses in this scenario without a stop."""
    found: dict[Kind, str] = {}
    for messages in (told["messages"], told["last_messages"]):
        for said in faults(plain(messages)) if messages is not None else ():
            found.setdefault("arguments are not JSON" if ": the arguments " in said else "calls and results do not pair", said)
    if missing := [key for key in lost(told) if key not in anyway]:
        found["result lost"] = ", ".join(missing)
    begun = Counter(note["key"] for note in told["notes"] if note["what"] == "tool begun")
    if twice := [key for key, times in begun.items() if times > 1]:
        found["executed twice"] = ", ".join(twice)
    if told["stop_ms"] is not None:
        for kind, what in _AFTER.items():
            late = [note for note in _own(told) if note["what"] == what and note["ms"] > told["settled_ms"]]
            if late:
                found[kind] = f"{late[0]['key']} {late[0]['ms'] - told['stop_ms']:.1f} ms after it"
        if behind := [n for n in _own(told) if n["what"] in _WORK and n["ms"] > max(told["end_ms"], told["settled_ms"])]:
            found["work after the end"] = f"{behind[0]['what']} {behind[0]['key']}"
    for phase in ("resume", "next"):
        if (trouble := _trouble(told.get(phase))) is not None:
            found.setdefault(*trouble)
    return found


def plain(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same messages in the one spelling that the validator knows.

    OpenAI's server also takes text as a list of parts, and a ``name`` beside each message.
    """
    return [_plain(message) for message in messages]


def total(scores: Iterable[Score]) -> Score:
    """The sum of sums."""
    made = Score()
    for score in scores:
        made.merge(score)
    return made


_AFTER: dict[Kind, str] = {"model called after the stop": "model call", "tool begun after the stop": "tool begun"}
_WORK = ("model call", "tool begun", "tool finished", "tool failed")


def _own(told: Told) -> list[Mapping[str, Any]]:
    """The notes of the run that was stopped, without those of the later ones."""
    return [note for note in told["notes"] if note["phase"] == "go"]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    content: Any = message.get("content")
    if isinstance(content, list) and content:
        parts = cast("list[dict[str, Any]]", content)
        if all(part.get("type") == "text" for part in parts):
            content = "\n".join(part["text"] for part in parts)
    return {**{key: value for key, value in message.items() if key != "name"}, "content": content}


def _pressed_ms(told: Told) -> float:
    """When the stop was called; when it should have been, if a tool that blocks the loop kept it from being called."""
    wanted, called = told["case"]["stop_at_ms"], told["stop_ms"]
    return called if wanted < 0 or called - wanted < LATE_PRESS_MS else wanted


def lost(told: Told) -> list[str]:
    """Tools that had finished when the run ended, and whose result the next request does not hold."""
    if told["messages"] is None:
        return []  # nothing was sent that could hold it; counted as a failed prompt
    sent = " ".join(str(message["content"]) for message in plain(told["messages"]))
    finished = [n["key"] for n in _own(told) if n["what"] == "tool finished" and n["ms"] <= told["end_ms"]]
    return [key for key in finished if key not in told["case"].get("inner", ()) and f"result-of-{key}" not in sent]


def _trouble(outcome: Mapping[str, str] | None) -> tuple[Kind, str] | None:
    """What is wrong with a later run; ``None`` if it gave the model's answer."""
    if outcome is None or ANSWER in outcome.get("text", ""):
        return None
    said = next(iter(outcome.values()))
    stopped = "error" not in outcome or "interrupted" in said
    return ("stop hit a later run" if stopped else "later prompt failed"), said
