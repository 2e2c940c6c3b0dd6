"""What 1,000 runs leave behind in one kernel: memory, tasks, timers, threads, files, comms, widgets, runs, cards, listeners."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.fakefront import Front

SETUP = '''
import asyncio, gc, os, threading, time, tracemalloc
from collections import Counter
import comm, ipywidgets
import agent_widgets as aw
from agent_widgets.backends import TextPiece, ToolCallPiece
from agent_widgets.kernel import NotebookKernel
from agent_widgets.loops import LoopThread

class Says:
    """1,000 characters, in 20 pieces."""
    name = "says"
    note = ""
    async def stream(self, request):
        for _ in range(20):
            yield TextPiece("ten words of text in here, in this piece of text. ")
        await asyncio.sleep(0)

class Calls(Says):
    "Asks for a tool first."
    async def stream(self, request):
        if request.messages[-1]["role"] == "tool":
            yield TextPiece("done")
        else:
            yield ToolCallPiece(index=0, call_id=f"call_{time.monotonic_ns()}", name="look", arguments="{}")

class Endless(Says):
    async def stream(self, request):
        yield TextPiece("word")
        await asyncio.sleep(3600)

@aw.tool
def look() -> str:
    "Look whether something is there."
    return "seen"

def fresh(agent):
    "Without a conversation that grows: what is measured is what the runs leave."
    agent.load({})

async def with_cards(agent, count):
    for _ in range(count):
        fresh(agent)
        await aw.chat(agent, "go")

async def without(agent, count):
    for _ in range(count):
        fresh(agent)
        await agent.reply("go")

async def stopped(agent, count):
    for number in range(count):
        fresh(agent)
        run = aw.chat(agent, "go")
        while not run.text:
            await asyncio.sleep(0.001)
        run.stop()
        await run

async def on_loop():
    loop = asyncio.get_running_loop()
    return len(asyncio.all_tasks()), len([timer for timer in loop._scheduled if not timer.cancelled()])

def facts():
    deadline = time.monotonic() + 5
    while True:  # until what the last runs have put off is done
        _, timers = asyncio.run_coroutine_threadsafe(on_loop(), LoopThread.get().loop).result()
        if not timers or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    asyncio.run_coroutine_threadsafe(on_loop(), LoopThread.get().loop).result()  # what the last timer has begun
    NotebookKernel.get().rendering.submit(int).result()  # the static twins are drawn, one after the other
    for _ in range(3):  # each is shown, and then its card may be let go
        tasks, timers = asyncio.run_coroutine_threadsafe(on_loop(), LoopThread.get().loop).result()
    for _ in range(3):
        gc.collect()
    kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
    notebook = NotebookKernel.get()
    with open("/proc/self/statm") as file:
        rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print({
        "rss": rss, "traced": tracemalloc.get_traced_memory()[0], "tasks": tasks, "timers": timers,
        "threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")),
        "comms": len(comm.get_comm_manager().comms), "widgets": len(ipywidgets.widgets.widget._instances),
        "tapped": len(notebook.tap._cards), "sessions": len(aw.sessions()),
        "hooks": sum(map(len, get_ipython().events.callbacks.values())),
        "handlers": len(agent._memory._watchers),
        "runs": kinds["Run"], "cards": kinds["AgentWidget"], "logs": kinds["EventLog"],
        "events": sum(kinds[kind] for kind in kinds if kind.endswith("Event")),
    })

tracemalloc.start(1)
'''


@dataclass(frozen=True, slots=True)
class Story:
    """One way to run an agent many times."""

    name: str
    agent: str
    cell: str
    """``{count}`` runs."""

    in_a_cell: int = 1


CARDS = Story("a cell and a card each", "aw.Agent(Says())", "await with_cards(agent, {count})")
STORIES = (
    CARDS,
    Story("agent.reply(), no card", "aw.Agent(Says())", "await without(agent, {count})", 25),
    Story("a card each, a tool in a thread", "aw.Agent(Calls(), tools=[look])", "await with_cards(agent, {count})", 25),
    Story("a card each, stopped", "aw.Agent(Endless())", "await stopped(agent, {count})", 25),
)


def measure(python: Path, story: Story, marks: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The facts after so many runs, in a kernel of its own; and the milliseconds of ``%agent list`` then (the best of three)."""
    found: dict[int, dict[str, Any]] = {}
    with Front(python) as front:
        said = front.run(f"%load_ext agent_widgets\n{SETUP}\nagent = {story.agent}")
        if said:
            raise RuntimeError(said)
        done = 0
        for mark in marks:
            while done < mark:
                count = min(story.in_a_cell, mark - done)
                said = front.run(story.cell.format(count=count), timeout=120)
                if "Error" in said:
                    raise RuntimeError(said)
                done += count
            found[mark] = ast.literal_eval(front.run("facts()", timeout=60))
            timed = "begun = time.perf_counter()\n%agent list\nprint((time.perf_counter() - begun) * 1000)"
            found[mark]["list ms"] = min(float(front.run(timed).split()[-1]) for _ in range(3))
    return found


def report(kernels: dict[str, Path], marks: Sequence[int] = (100, 500, 1000)) -> Iterator[str]:
    """The tables, as lines."""
    for name, python in kernels.items():
        for story in STORIES:
            begun = time.monotonic()
            at = [mark // 5 for mark in marks] if "stopped" in story.cell else list(marks)
            found = measure(python, story, at)
            before, last = found[at[-2]], found[at[-1]]
            each = (last["traced"] - before["traced"]) / (at[-1] - at[-2])
            took = f"in {time.monotonic() - begun:.0f} s (load {os.getloadavg()[0]:.1f})"
            yield f"{name}: {story.name}; {each:,.0f} bytes a run from {at[-2]} to {at[-1]}, {took}"
            yield "".join(f"{head:>9}" for head in ("runs made", *last))
            for mark, facts in found.items():
                yield f"{mark:>9}" + "".join(_figure(key, value) for key, value in facts.items())


def _figure(key: str, value: float) -> str:
    if key in ("rss", "traced"):
        return f"{value / 1e6:>7.1f}MB"
    return f"{value:>9.1f}" if isinstance(value, float) else f"{value:>9}"
