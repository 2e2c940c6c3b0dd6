"""One case on one system: the scripted model, the tools, the stop, and notes of what happened when.

This half runs inside the environment of the system that it drives, so it knows the standard library only and judges
nothing. It reads a case (JSON) from each line of its input and writes what happened as one line of JSON.

The model and the tools are the same for every system; a driver (``drive_….py``) only spells them in that system's way.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from importlib.metadata import version
from typing import Any, Protocol, Self, TypeVar

ANSWER = "Answered."
TURNS_TO_SETTLE = 3
"""So many turns of the loop after the stop was called, it has arrived: what begins later begins after it."""

LIMIT_S = 5.0
"""After that a run, or a prompt, has not ended: reported as an error."""

Piece = tuple[Any, ...]
"""``("text", text)``, ``("call", index, id, name)`` or ``("arguments", index, text)``."""

T = TypeVar("T")

_phase: contextvars.ContextVar[str] = contextvars.ContextVar("phase", default="go")


class Stage:
    """What the model says, what the tools do, and the notes."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.notes: list[dict[str, Any]] = []
        self.requests: dict[str, list[Any]] = {}
        self.running = 0
        self._turns: dict[str, Iterator[list[Any]]] = {
            "go": iter(case["turns"]),
            "child": iter(case.get("child", [])),
        }
        self._zero = time.perf_counter()

    @property
    def model_name(self) -> str:
        """For a real client: the server tells the cases apart by it."""
        return "-".join(str(self.case[part]) for part in ("driver", "way", "scenario", "seed"))

    def note(self, what: str, key: str = "") -> float:
        """Write down that this happens now; gives the time in ms."""
        now = round((time.perf_counter() - self._zero) * 1000, 3)
        self.notes.append({"ms": now, "what": what, "key": key, "phase": _phase.get()})
        return now

    async def until(self, ms: float) -> None:
        """Wait until this many ms after the beginning; not at all, if that was before it."""
        if ms >= 0:
            await asyncio.sleep(max(0.0, ms / 1000 - (time.perf_counter() - self._zero)))

    # -- the model ----------------------------------------------------------------------------------------------

    async def speak(self, messages: Any, spell: Callable[[Piece], T], who: str = "go") -> AsyncGenerator[T]:
        """The next answer, piece by piece, in the system's own spelling."""
        turn = self._begin(messages, who)
        try:
            for piece in turn:
                await asyncio.sleep(self.case["piece_ms"] / 1000)
                yield spell(piece)
        finally:
            self.note("stream closed")

    def speak_sync(self, messages: Any, spell: Callable[[Piece], T], who: str = "go") -> Iterator[T]:
        """The same for a system whose models block."""
        turn = self._begin(messages, who)
        try:
            for piece in turn:
                time.sleep(self.case["piece_ms"] / 1000)
                yield spell(piece)
        finally:
            self.note("stream closed")

    def _begin(self, messages: Any, who: str) -> list[Piece]:
        phase = _phase.get()
        if who == "go":
            self.requests.setdefault(phase, []).append(messages)
        self.note("model call", who)
        turn = next(self._turns[who], ["There is no more script."]) if phase == "go" or who == "child" else [ANSWER]
        return list(_pieces_of(turn))

    # -- the tools ----------------------------------------------------------------------------------------------

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """Name to ``{"ms": how long, "fails": bool, "sync": bool, "asks": bool}``."""
        return self.case["tools"]

    async def work(self, name: str, key: str) -> str:
        """What an async tool does."""
        with _Working(self, key) as working:
            await asyncio.sleep(self.tools[name]["ms"] / 1000)
            return working.end(fails=self.tools[name].get("fails", False))

    def work_sync(self, name: str, key: str) -> str:
        """What a blocking tool does, and any tool where all tools block."""
        with _Working(self, key) as working:
            time.sleep(self.tools[name]["ms"] / 1000)
            return working.end(fails=self.tools[name].get("fails", False))

    async def ask_child(self, key: str, child: Callable[[], Awaitable[str]]) -> str:
        """What a tool does whose work is another agent's; it counts as finished if the child came to its answer."""
        with _Working(self, key) as working:
            text = await child()
            return f"{working.end()}: {text}" if self.child_answer in text else text

    def ask_child_sync(self, key: str, child: Callable[[], str]) -> str:
        """The same for a system whose agents block."""
        with _Working(self, key) as working:
            text = child()
            return f"{working.end()}: {text}" if self.child_answer in text else text

    @property
    def child_answer(self) -> str:
        """The last thing that the child says."""
        return str(self.case["child"][-1][-1])


class _Working:
    """Notes when a tool begins, and that it was cut if it did not come to an end."""

    def __init__(self, stage: Stage, key: str) -> None:
        self._stage, self._key, self._over = stage, key, False

    def __enter__(self) -> Self:
        self._stage.running += 1
        self._stage.note("tool begun", self._key)
        return self

    def end(self, *, fails: bool = False) -> str:
        self._over = True
        self._stage.note("tool failed" if fails else "tool finished", self._key)
        if fails:
            raise ValueError(f"{self._key} is broken")
        return f"result-of-{self._key}"

    def __exit__(self, *_: object) -> None:
        self._stage.running -= 1
        if not self._over:
            self._stage.note("tool cut", self._key)


def _pieces_of(turn: list[Any]) -> Iterator[Piece]:
    """A text streams word by word, a call as its head and then its arguments in pieces of 6 characters."""
    index = 0
    for item in turn:
        if isinstance(item, str):
            yield from (("text", f"{word} ") for word in item.split())
        else:
            yield "call", index, item["id"], item["name"]
            arguments = json.dumps({"key": item["key"]})
            yield from (("arguments", index, arguments[at : at + 6]) for at in range(0, len(arguments), 6))
            index += 1


class Player(Protocol):
    """One system with one agent on the stage. Made as ``Player(stage)``."""

    def run(self, prompt: str) -> Coroutine[Any, Any, str]:
        """Carry one prompt to its end, as the documentation says; gives the text of the reply."""
        ...

    def go_on(self) -> Coroutine[Any, Any, str]:
        """Go on after a stop, as the documentation says; gives the text of the reply."""
        ...

    def stop(self, task: asyncio.Task[str]) -> Awaitable[object] | None:
        """The documented stop. ``task`` awaits ``run``."""
        ...


async def play(case: dict[str, Any], player_of: Callable[[Stage], Player]) -> dict[str, Any]:
    """Run, stop at the given moment, go on if the case says so, prompt again; give what happened."""
    stage = Stage(case)
    player = player_of(stage)
    stage._zero = time.perf_counter()
    told: dict[str, Any] = {"case": case, "version": version(case["package"]), "model": stage.model_name, "zero": stage._zero}
    task = _begin("go", player.run, "go")
    ends: list[float] = []
    task.add_done_callback(lambda _: ends.append(stage.note("end")))
    told["stop_ms"] = told["settled_ms"] = None
    if case.get("stop_at_ms") is not None:
        await stage.until(case["stop_at_ms"])
        told["is_paused"] = task.done() and getattr(player, "is_paused", False)
        told["is_busy"] = not task.done() or told["is_paused"]
        told["stop_ms"] = stage.note("stop")
        stopping = player.stop(task)
        if inspect.isawaitable(stopping):
            await stopping
        if told["is_paused"]:
            ends.append(stage.note("end"))
        for _ in range(TURNS_TO_SETTLE):
            await asyncio.sleep(0)
        told["settled_ms"] = stage.note("settled")
    told["go"] = await _ended(task)
    told["end_ms"] = ends[-1] if ends else stage.note("end")
    if case.get("resumes"):
        told["resume"] = await _ended(_begin("resume", player.go_on))
    if not case.get("alone"):
        told["next"] = await _ended(_begin("next", player.run, "next"))
    deadline = time.perf_counter() + 3 * max(tool["ms"] for tool in case["tools"].values()) / 1000
    while stage.running and time.perf_counter() < deadline:  # what goes on in the background shall be seen
        await asyncio.sleep(0.002)
    asked = stage.requests.get("resume", []) + stage.requests.get("next", [])
    told.update(notes=stage.notes, messages=asked[0] if asked else None, last_messages=asked[-1] if asked else None)
    return told


def _begin(phase: str, call: Callable[..., Coroutine[Any, Any, str]], *args: str) -> asyncio.Task[str]:
    """Start it in a task of its own; whatever it starts knows the phase."""
    _phase.set(phase)
    return asyncio.create_task(call(*args))


async def _ended(task: asyncio.Task[str]) -> dict[str, str]:
    done, _ = await asyncio.wait([task], timeout=LIMIT_S)
    if not done:
        task.cancel()
        return {"error": f"no end within {LIMIT_S:g} s"}
    if task.cancelled():
        return {"cancelled": "CancelledError"}
    error = task.exception()
    return {"text": task.result()} if error is None else {"error": f"{type(error).__name__}: {error}"[:300]}


def serve(player_of: Callable[[Stage], Player]) -> None:
    """Play the cases of standard input, one a line, until it ends."""
    warnings.simplefilter("ignore")  # coroutines that a stopped agent never awaited, and such
    logging.disable(logging.CRITICAL)
    out, sys.stdout = sys.stdout, sys.stderr  # what a system prints is not an answer
    for line in sys.stdin:
        told = asyncio.run(play(json.loads(line), player_of))
        out.write(json.dumps(told, default=str) + "\n")
        out.flush()
