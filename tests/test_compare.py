"""The scoring of ``make compare`` bites, and the real stage tells the truth; without any of the foreign systems."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.compare.drivers.stage import ANSWER, Stage, play
from tests.compare.scenarios import SCENARIOS, WAYS, case, does_not_apply, shares
from tests.compare.scoring import KINDS, Kind, Score, judged, plain
from tests.compare.table import HEADS, Results, report

Message = dict[str, Any]
WAY = WAYS[-1]
ASKED: Message = {"id": "call_1", "type": "function", "function": {"name": "quick", "arguments": '{"key": "key-1"}'}}
HALF: Message = {"id": "call_1", "type": "function", "function": {"name": "quick", "arguments": '{"key'}}
GIVEN: Message = {"role": "tool", "tool_call_id": "call_1", "content": "result-of-key-1"}
REMINDER: Message = {"role": "tool", "tool_call_id": "call_1", "content": "interrupted"}


def history(*middle: Message) -> list[Message]:
    return [{"role": "user", "content": "go"}, *middle, {"role": "user", "content": "next"}]


def assistant(*calls: Message) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def note(ms: float, what: str, key: str = "", phase: str = "go") -> Message:
    return {"ms": ms, "what": what, "key": key, "phase": phase}


def told(**changed: Any) -> Message:
    """A flawless case: one tool ran, then the run was stopped at 10 ms and ended at 11 ms."""
    messages = history(assistant(ASKED), GIVEN)
    facts: Message = {
        "case": {"scenario": "steps", "seed": 0, "stop_at_ms": 10.0},
        "notes": [note(1, "model call", "go"), note(3, "tool begun", "key-1"), note(5, "tool finished", "key-1")],
        "stop_ms": 10.0,
        "settled_ms": 10.2,
        "end_ms": 11.0,
        "is_busy": True,
        "next": {"text": ANSWER},
        "messages": messages,
        "last_messages": messages,
    }
    return {**facts, "notes": [*facts["notes"], *changed.pop("later", [])], **changed}


def test_a_flawless_case_has_no_fault_and_a_latency() -> None:
    score = Score()
    score.add(told())
    assert (score.cases, dict(score.found), score.latencies_ms) == (1, {}, [1.0])


FAULTS: dict[Kind, Message] = {
    "calls and results do not pair": told(messages=history(assistant(ASKED)), notes=[]),
    "arguments are not JSON": told(messages=history(assistant(HALF), GIVEN)),
    "result lost": told(messages=history(assistant(ASKED), REMINDER)),
    "executed twice": told(later=[note(30, "tool begun", "key-1", "next")]),
    "model called after the stop": told(later=[note(10.5, "model call", "go")]),
    "tool begun after the stop": told(later=[note(10.5, "tool begun", "key-2")]),
    "work after the end": told(later=[note(12, "tool finished", "key-2")]),
    "stop hit a later run": told(next={"text": "Run interrupted."}),
    "later prompt failed": told(resume={"error": "ValueError: no"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_counted_as_what_it_is_and_as_nothing_else(kind: Kind) -> None:
    assert list(judged(FAULTS[kind])) == [kind]


def test_what_looks_like_a_fault_and_is_none() -> None:
    before_it_arrived = told(later=[note(10.1, "model call", "go")])
    of_the_next_prompt = told(later=[note(20, "model call", "go", "next")])
    told_as_parts = told(messages=history(assistant(ASKED), {**GIVEN, "content": [{"type": "text", "text": "result-of-key-1"}]}))
    kept_by_the_child = told(case={"scenario": "s", "seed": 0, "stop_at_ms": 1, "inner": ["key-1"]}, messages=history())
    assert [judged(each) for each in (before_it_arrived, of_the_next_prompt, told_as_parts, kept_by_the_child)] == [{}] * 4
    assert judged(FAULTS["result lost"], anyway={"key-1"}) == {}


def test_a_stop_that_was_stale_is_told_from_a_prompt_that_failed() -> None:
    assert list(judged(told(next={"error": "AgentError: Agent interrupted."}))) == ["stop hit a later run"]
    assert list(judged(told(next={"error": "ValueError: Agent is waiting"}))) == ["later prompt failed"]


def test_a_press_that_waited_for_a_blocked_loop_counts_from_when_it_was_made() -> None:
    score = Score()
    score.add(told(case={"scenario": "s", "seed": 0, "stop_at_ms": 3.0}))
    assert score.latencies_ms == [8.0]


def test_names_and_parts_are_openais_spelling_too() -> None:
    assert plain([{"role": "user", "name": "x", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]) == [
        {"role": "user", "content": "a\nb"}
    ]


class Careless:
    """A system that forgets what it did, runs tools again when it goes on, and keeps a stop for later."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.stopped = False

    async def run(self, prompt: str) -> str:
        if self.stopped:
            self.stopped = False
            return "Run interrupted."
        text = ""
        async for kind, *rest in self.stage.speak(history(assistant(ASKED)), lambda piece: piece):
            text += rest[0] if kind == "text" else ""
        if "Answered" not in text:
            await self.stage.work("quick", "key-1")
        return text

    async def go_on(self) -> str:
        await self.stage.work("quick", "key-1")
        return await self.run("go")

    def stop(self, task: asyncio.Task[str]) -> Awaitable[object] | None:
        self.stopped = task.done()
        task.cancel()
        return None


async def test_the_stage_plays_a_careless_system_and_the_scoring_finds_it_out() -> None:
    one = {**case(WAY, SCENARIOS["steps"], "steps", 1), "turns": [["One."]]}
    late = await play({**one, "stop_at_ms": 1000.0}, Careless)
    assert set(judged(late)) == {"calls and results do not pair", "executed twice", "result lost", "stop hit a later run"}
    early = await play({**one, "stop_at_ms": 0.0, "resumes": False}, Careless)
    assert (early["go"], early["is_busy"]) == ({"cancelled": "CancelledError"}, True)
    assert set(judged(early)) == {"calls and results do not pair"}


class Endless(Careless):
    async def run(self, prompt: str) -> str:
        await asyncio.Event().wait()
        return prompt


async def test_a_prompt_that_never_ends_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.compare.drivers.stage.LIMIT_S", 0.01)
    one = {**case(WAY, SCENARIOS["text"], "text", 0), "stop_at_ms": 0.0}
    assert set(judged(await play(one, Endless))) == {"later prompt failed"}


def test_all_systems_are_stopped_at_the_same_places() -> None:
    assert shares("steps", 50) == shares("steps", 50) != shares("text", 50)
    assert any(share > 1 for share in shares("steps", 50))
    assert not any(does_not_apply(WAYS[0], name) for name in SCENARIOS)


def test_the_table_has_a_column_for_each_fault_and_says_where_a_cell_does_not_apply() -> None:
    assert tuple(HEADS) == KINDS
    result = Results(WAYS[2], "1.0")
    result.stopped["steps"].add(FAULTS["executed twice"])
    for name in ("long tool", "long blocking tool"):
        result.long[name].add(told())
    lines = list(report([result], 1))
    assert "| agentscope 1.0: await agent.interrupt() | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 1.0 | 1.0 |" in lines
    assert "| agentscope 1.0: await agent.interrupt() | 1.0 | 1.0 | 0 of 0 | 0 of 0 | n/a | n/a |" in lines
    assert "agentscope 1.0: await agent.interrupt(): pause: n/a, it has no approvals" in lines
    assert any("twice: steps 1; such as steps 0: key-1" in line for line in lines)
