"""The story that is killed: everything that a stored session must keep, in about half a second.

The child says on ``acks.jsonl`` what it has acknowledged, in the moment in which a person would see it. A line there, like a
line in ``effects.txt``, survives the death of the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent_widgets.store
from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.decisions import Decision
from agent_widgets.messages import ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, call, say, think
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.tools import Tool, tool

REASON = "Not on a friday: “the rows are still needed” ☕"
ANSWER = "The person says 42."
PROMPTS = ("first", "second", "third")
STEP = 200
"""Tokens are numbered ``w0 w1 …``; each text begins at a multiple of this."""


@dataclass(frozen=True)
class Case:
    """One kill: at a moment, or when so many bytes have been written to the store, in the middle of a write."""

    seed: int
    seconds: float | None
    written: int | None

    @classmethod
    def of(cls, seed: int) -> Case:
        chance = random.Random(seed)
        if seed % 2:
            return cls(seed, None, chance.randrange(1, 24_000))
        return cls(seed, chance.uniform(0.0, 1.3), None)


def append(path: Path, text: str) -> None:
    """One line, in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def tools_for(folder: Path) -> list[Tool]:
    """Each notes its work before it does anything else."""
    effects = folder / "effects.txt"

    @tool
    async def look(key: str, seconds: float) -> str:
        """Look at something for some seconds."""
        append(effects, key)
        await asyncio.sleep(seconds)
        return f"<result of {key}>"

    @tool
    def count(key: str) -> str:
        """Count something in a thread."""
        append(effects, key)
        time.sleep(0.01)
        return f"<result of {key}>"

    @tool(confirm=True)
    async def delete(key: str, edited: int = 0) -> str:
        """Delete something, if a person allows it."""
        append(effects, key)
        await asyncio.sleep(0.005)
        return f"<result of {key}>"

    @tool(confirm=True)
    async def write(key: str) -> str:
        """Write something, if a person allows it."""
        append(effects, key)
        return f"<result of {key}>"

    @tool(external=True)
    async def ask_person(key: str) -> str:
        """Ask a person who is somewhere else."""
        raise NotImplementedError

    return [look, count, delete, write, ask_person]


def words(first: int, count: int) -> list[str]:
    """Numbered tokens."""
    return [f"w{number} " for number in range(first, first + count)]


def model_for(chance: random.Random) -> ScriptedModel:
    """The same turns each time; only the pace differs."""
    parallel = [
        *(call("look", {"key": "a", "seconds": round(chance.uniform(0, 0.03), 3)}, "a"), call("count", {"key": "b"}, "b")),
        call("delete", {"key": "c"}, "c"),
        call("delete", {"key": "d"}, "d"),
        call("ask_person", {"key": "e"}, "e"),
        call("look", {"key": "f", "seconds": 0.03}, "f"),
    ]
    script: list[Any] = [
        [think(words(0, 20)), say(words(STEP, 20)), *parallel],
        [say(words(2 * STEP, 10)), call("write", {"key": "g"}, "g"), call("look", {"key": "h", "seconds": 0.002}, "h")],
        [call("write", {"key": "i"}, "i"), say(words(3 * STEP, 10))],
        [say(words(4 * STEP, 20))],
        [say(words(5 * STEP, 10)), call("delete", {"key": "j"}, "j")],
        [say(words(6 * STEP, 150))],
        [say(words(7 * STEP, 30))],
    ]
    return ScriptedModel(script, tokens_per_second=chance.choice([200, 1000, None]))


class Teller:
    """Decides as a person would, and says what was acknowledged."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._acks = folder / "acks.jsonl"
        self._chance = chance
        self._asked: set[str] = set()

    def say(self, **facts: object) -> None:
        append(self._acks, json.dumps({"at": time.monotonic(), **facts}))

    def follow(self, run: Run, event: ev.Event | None) -> None:
        """A listener: on the loop, after the event was remembered."""
        match event:
            case ev.ReplyStartEvent():
                self.say(prompt=run.prompt)
            case ev.TextBlockDeltaEvent() | ev.ThinkingBlockDeltaEvent():
                self.say(token=event.delta)
                if event.delta == f"w{6 * STEP + 80} ":
                    run.stop(reason="that is enough")
            case ev.RequireUserConfirmEvent() | ev.RequireExternalExecutionEvent():
                for asked in event.tool_calls:
                    self._decide_later(run, asked.id)
            case ev.ToolResultEndEvent():
                block = next(b for b in run.reply.content if isinstance(b, ToolResultBlock) and b.id == event.tool_call_id)
                self.say(result=block.id, state=block.state, text=block.text())
            case ev.ReplyEndEvent():
                self.say(ended=run.prompt, reason=event.finished_reason)
            case _:
                pass

    def _decide_later(self, run: Run, call_id: str) -> None:
        """Soon: while other tools run, or when the reply has parked."""
        if call_id not in self._asked:
            self._asked.add(call_id)
            asyncio.get_running_loop().call_later(self._chance.choice([0, 0.01, 0.08]), self._decide, run, call_id)

    def _decide(self, run: Run, call_id: str) -> None:
        if call_id == "e":
            run.take_answer(call_id, ANSWER)
            self.say(answered=call_id)
        elif call_id in ("d", "j"):
            assert not run.decide(call_id, Decision(confirmed=False, reason=REASON))
            self.say(denied=call_id)
        else:
            arguments = '{"key": "c", "edited": 1}' if call_id == "c" and self._chance.random() < 0.3 else None
            assert not run.decide(call_id, Decision(confirmed=True, always=call_id == "g", arguments=arguments))
            self.say(approved=call_id)


def live(folder: Path, case: Case) -> None:
    """The child's whole life. It is killed in it, or at its end."""
    chance = random.Random(case.seed)
    if case.written is not None:
        die_after(case.written)
    teller = Teller(folder, chance)
    agent = Agent(model_for(chance), tools=tools_for(folder))
    session = Session.open(folder / "it.session", agent)

    def listen(run: Run) -> None:
        run.listen(teller.follow)

    for prompt in PROMPTS:
        session.run(prompt, before_start=listen).wait(30)
    teller.say(finished=True)
    threading.Event().wait()


def die_after(count: int) -> None:
    """A real SIGKILL inside the write that brings the store to ``count`` bytes."""
    left = count
    real = os.write

    def write(descriptor: int, data: bytes | memoryview) -> int:
        nonlocal left
        if len(data) >= left:
            real(descriptor, bytes(data)[:left])
            os.kill(os.getpid(), signal.SIGKILL)
        left -= len(data)
        return real(descriptor, data)

    class Dying:
        """``os`` as the store sees it."""

        def __getattr__(self, name: str) -> Any:
            return write if name == "write" else getattr(os, name)

    agent_widgets.store.os = Dying()  # pyright: ignore[reportAttributeAccessIssue]
