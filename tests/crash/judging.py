"""What must hold after a kill: the store opens, the history is valid, nothing happened twice, nothing acknowledged is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece
from agent_widgets.messages import TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.state import AgentState
from tests.crash.story import ANSWER, REASON, tools_for
from tests.validator import faults

PROMISED_SECONDS = 0.1
"""Streamed text that is older when the child shows its last sign of life must be there."""


class Judge:
    """A model that looks at each request as a strict server would."""

    name = "judge"

    def __init__(self) -> None:
        self.refused: list[str] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        self.refused += faults(request.messages)
        yield TextPiece("All is well.")


@dataclass
class Verdict:
    """What was found, and how the child stood when it died."""

    faults: list[str] = field(default_factory=list[str])
    stood: str = ""
    died: str = ""


def judge(folder: Path) -> Verdict:
    """Open what the dead child has left, go on with it, and compare it with what the child had acknowledged."""
    verdict = Verdict()
    if (folder / "failed.txt").exists():
        verdict.faults.append((folder / "failed.txt").read_text())
        return verdict
    acks = [json.loads(line) for line in _lines(folder / "acks.jsonl")]
    before = Counter(_lines(folder / "effects.txt"))
    model = Judge()
    agent = Agent(model, tools=tools_for(folder))
    session = Session.open(folder / "it.session", agent)
    try:
        verdict.faults += (f"after the load: {fault}" for fault in agent.state.check())
        verdict.faults += _prompts_and_text(acks, agent.state)
        waiting = [call.id for call in agent.state.waiting()]
        verdict.stood = "paused" if waiting else _stood(agent.state)
        if waiting:
            run = session.run(on_pause=_decide)
            run.wait(10)
            verdict.faults += [] if run.status == "completed" else [f"the paused reply: {run.status} {run.error!r}"]
        answer = session.run("next").wait(10)
        verdict.faults += [] if answer.text == "All is well." else [f"the next prompt: {answer!r}"]
        verdict.faults += model.refused
        verdict.faults += agent.state.check()
        after = Counter(_lines(folder / "effects.txt"))
        verdict.faults += (f"{key} happened {times} times" for key, times in after.items() if times > 1)
        verdict.faults += _results(acks, agent.state, before, after)
        if waiting and after != before:
            verdict.stood = "approved, not begun"
    finally:
        session.close()
        session._left.wait(5)
    return verdict


def _decide(run: Run) -> None:
    """What still waits was not decided before: deny, and answer."""
    for call in run.transcript.waiting:
        if call.state == "submitted":
            run.answer(call.id, "answered after the restart")
        else:
            run.deny(call.id, "decided after the restart")


def _stood(state: AgentState) -> str:
    return f"{state.context[-1].finished_reason or 'asked'}" if state.context else "nothing yet"


def _prompts_and_text(acks: list[dict[str, Any]], state: AgentState) -> Iterator[str]:
    prompts = [message.text for message in state.context if message.role == "user"]
    yield from (f"the prompt {ack['prompt']!r} is lost" for ack in acks if "prompt" in ack and ack["prompt"] not in prompts)
    blocks = [block for message in state.context for block in message.content]
    text = " ".join(
        b.text if isinstance(b, TextBlock) else b.thinking for b in blocks if isinstance(b, TextBlock | ThinkingBlock)
    )
    kept = set(text.split())
    last = acks[-1]["at"] if acks else 0.0
    old = [ack["token"].strip() for ack in acks if "token" in ack and ack["at"] <= last - PROMISED_SECONDS]
    yield from (f"the text {token!r} is lost" for token in old if token not in kept)


def _results(acks: list[dict[str, Any]], state: AgentState, before: Counter[str], after: Counter[str]) -> Iterator[str]:
    content = [block for message in state.context for block in message.content]
    results = {block.id: block for block in content if isinstance(block, ToolResultBlock)}
    calls = {block.id: block for block in content if isinstance(block, ToolCallBlock)}
    for call_id, block in results.items():
        if block.state == "success" and call_id != "e" and not after[call_id]:
            yield f"{call_id} has a result and did nothing"
    for ack in acks:
        match ack:
            case {"result": str(call_id), "state": state_, "text": text}:
                found = results.get(call_id)
                if found is None or (found.state, found.text()) != (state_, text):
                    yield f"the result of {call_id} is lost: it was {state_} {text!r}, and is {found}"
            case {"approved": str(call_id)}:
                if results[call_id].state not in ("success", "interrupted", "error"):
                    yield f"the approval of {call_id} is lost: {results[call_id]}"
                if results[call_id].state == "interrupted" and not before[call_id] and after[call_id]:
                    yield f"{call_id} is said to be interrupted, and was carried out after the restart"
                if call_id == "g" and results["g"].state == "success" and not any(r.tool_name == "write" for r in state.rules):
                    yield "the rule is lost"
            case {"denied": str(call_id)}:
                if results[call_id].state != "denied" or REASON not in results[call_id].text() or after[call_id]:
                    yield f"the denial of {call_id} is lost: {results[call_id]}"
            case {"answered": str(call_id)}:
                if results[call_id].text() != ANSWER:
                    yield f"the answer for {call_id} is lost: {results[call_id]}"
            case _:
                pass
    yield from (f"{call_id} has no call" for call_id in results if call_id not in calls)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
