"""What is played: the systems and their ways to stop, the scripts, and the seeded moments.

The moment of a stop is a share of the time that the same script takes undisturbed on the same system, so that every system
is stopped at the same places of the story, however fast it is. A share above 1 is a press after the run has ended.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).resolve().parent / "drivers"
Case = dict[str, Any]

LATEST_SHARE = 1.12
STREAMED_WORDS = "The answer has many words, and a person who has read enough of them may want to stop it right here."
TOOLS: dict[str, dict[str, Any]] = {
    "quick": {"ms": 2},
    "slow": {"ms": 12},
    "failing": {"ms": 5, "fails": True},
    "blocking": {"ms": 8, "sync": True},
}


@dataclass(frozen=True, slots=True)
class Way:
    """One system, stopped in one way."""

    system: str
    stop: str
    """What is called, as the table says it."""
    mode: str
    """The same, as the driver knows it."""
    driver: str
    environment: str
    package: str
    approvals: bool = False

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return ROOT / self.environment / "bin" / "python"


AS2 = ("agentscope2", ".venvs/agentscope", "agentscope")
AS1 = ("agentscope1", ".venvs/compare-agentscope1", "agentscope")
LING = ("agentling", ".venvs/compare-agentling", "agentling")
SMOL = ("smolagents", ".venvs/compare-smolagents", "smolagents")
OURS = ("ours", ".venv", "agent-widgets")
WAYS = (
    Way("agentscope", "task.cancel(), UserInterruptEvent", "pump", *AS2, approvals=True),
    Way("agentscope", "the same, the consumer awaits", "naive", *AS2, approvals=True),
    Way("agentscope", "await agent.interrupt()", "interrupt", *AS1),
    Way("agentling", "session.interrupt()", "interrupt", *LING),
    Way("agentling", "task.cancel()", "cancel", *LING),
    Way("smolagents", "agent.interrupt()", "interrupt", *SMOL),
    Way("agent-widgets", "run.stop(), agent.interrupt()", "now", *OURS, approvals=True),
    Way("agent-widgets", 'the same, after="step"', "step", *OURS, approvals=True),
    Way("agent-widgets", "task.cancel(), the consumer awaits", "naive", *OURS, approvals=True),
)


def call(number: int, name: str) -> dict[str, str]:
    """A tool call; its key tells it from all others."""
    return {"id": f"call_{number}", "name": name, "key": f"key-{number}"}


END = ["That is all."]
SCENARIOS: dict[str, Case] = {
    "text": {"turns": [[STREAMED_WORDS]]},
    "steps": {"turns": [["One.", call(1, "quick")], ["Two.", call(2, "slow")], ["Three.", call(3, "quick")], END]},
    "parallel": {"turns": [["All three.", call(1, "quick"), call(2, "slow"), call(3, "failing")], END]},
    "sequential": {"turns": [["One by one.", call(1, "quick"), call(2, "slow"), call(3, "quick")], END], "sequential": True},
    "blocking": {"turns": [["Both.", call(1, "blocking"), call(2, "quick")], ["Again.", call(3, "blocking")], END]},
    "sub-agent": {
        "turns": [["I ask.", call(1, "ask")], END],
        "child": [["I look.", call(2, "slow")], ["The child has found it."]],
        "tools": {**TOOLS, "ask": {"ms": 0}},
        "inner": ["key-2"],
    },
    "pause": {
        "turns": [["May I?", call(1, "guarded"), call(2, "slow")], END],
        "tools": {**TOOLS, "guarded": {"ms": 3, "asks": True}},
    },
}
"""Stopped at many moments. ``pause`` is for systems with approvals: half of its presses come while the reply waits."""

APPROVAL: Case = {
    "turns": [["May I?", call(1, "guarded"), call(2, "slow")], END],
    "tools": {**TOOLS, "guarded": {"ms": 3, "asks": True}},
}
"""Not stopped: approved so many ms after the question, while the call beside it may still run."""

LONG: dict[str, Case] = {
    "long tool": {"turns": [[call(1, "long")], END], "tools": {"long": {"ms": 500}}},
    "long blocking tool": {"turns": [[call(1, "long")], END], "tools": {"long": {"ms": 500, "sync": True}}},
}
"""Stopped in the middle of a tool, to see how long a person waits."""


def shares(name: str, count: int) -> list[float]:
    """When to stop one scenario, in shares of the time that it takes undisturbed; a pause is as long again."""
    chance = random.Random(name)
    longest = 2.0 if name == "pause" else LATEST_SHARE
    return [chance.uniform(0, longest) for _ in range(count)]


def early_cases(way: Way, count: int) -> list[Case]:
    """Presses between the call and the first turn of the loop."""
    return [{**case(way, SCENARIOS["steps"], "early", seed), "stop_at_ms": -1.0} for seed in range(count)]


def long_cases(way: Way, name: str, count: int) -> list[Case]:
    """Stops in the middle of the long tool."""
    chance = random.Random(name)
    return [{**case(way, LONG[name], name, seed), "stop_at_ms": chance.uniform(50, 450)} for seed in range(count)]


def http_cases(way: Way, url: str, count: int) -> list[Case]:
    """Stops in an answer of 1.2 s that the system's own OpenAI client reads from a server."""
    chance = random.Random("http")
    one: Case = {"turns": [], "tools": {"quick": TOOLS["quick"]}, "base_url": url}
    made = [{**case(way, one, "http", seed), "resumes": False, "alone": True} for seed in range(count)]
    return [{**each, "stop_at_ms": chance.uniform(500, 1000)} for each in made]


def approvals(way: Way, count: int) -> list[Case]:
    """Approvals that come while the call beside still runs, or after it."""
    chance = random.Random("approval")
    return [{**case(way, APPROVAL, "approval", seed), "approve_after_ms": chance.uniform(0, 16)} for seed in range(count)]


def case(way: Way, scenario: Case, name: str, seed: int) -> Case:
    """One case as a driver reads it; every second one goes on after the stop, before the next prompt."""
    facts = {"scenario": name, "seed": seed, "way": way.mode, "package": way.package, "driver": way.driver}
    facts |= {"piece_ms": 1, "resumes": seed % 2 == 1}
    return {"tools": TOOLS, **scenario, **facts}


def does_not_apply(way: Way, name: str) -> str:
    """Why this system cannot play the scenario; ``""`` if it can."""
    return "it has no approvals" if name == "pause" and not way.approvals else ""
