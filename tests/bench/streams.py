"""Fast streams in a real page: is everything shown, how much is said, and does the page stay quick?

One card at 1,000 tokens a second, ten cards at 100 each, while somebody types into another cell and scrolls. The kernel's
messages are counted by a second client of the kernel, the page's work by Chromium's trace, the time of a key press by the
page's own event timing.
"""

from __future__ import annotations

import ast
import os
import re
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from jupyter_client.blocking.client import BlockingKernelClient
from playwright.sync_api import Browser, expect

from tests.bench.tracing import LONG_MS, Task, Trace, Tracing
from tests.browser.jlab import Lab, Notebook, chromium

SETUP = '''
import asyncio, time
import agent_widgets as aw
from agent_widgets.backends import TextPiece

def prose(number):
    """Markdown as models write it. Each token has a word of its own, ``w`` and its number."""
    match number % 60:
        case 0: return f"\\n\\n## Section w{number}\\n\\n"
        case 20: return f"\\n\\n- **w{number}** "
        case 25 | 30 | 35: return f"\\n- w{number} "
        case 40: return f"\\n\\n```python\\nw{number} = 1\\n"
        case 43 | 46: return f"w{number}\\n"
        case 49: return f"w{number}\\n```\\n\\n"
        case rest: return f"`w{number}` " if rest % 9 == 4 and not 40 <= rest < 50 else f"w{number} "

SHAPES = {
    "prose": prose,
    "paragraph": lambda number: f"w{number} " if number % 12 else f"**w{number}**. ",
    "list": lambda number: f"w{number} " if number % 8 else f"\\n- w{number} ",
    "table": lambda number: ("| a | b | c |\\n|---|---|---|\\n" if number == 0 else "")
        + f"| w{number} " + ("|\\n" if number % 3 == 2 else ""),
    "code": lambda number: ("```python\\n" if number == 0 else "") + f"w{number} " + ("\\n" if number % 8 == 7 else ""),
    "quote": lambda number: f"w{number} " if number % 8 else f"\\n> w{number} ",
}

class Fast:
    """``rate`` tokens a second for ``seconds``, caught up if the loop was late."""
    name = "fast"
    def __init__(self, rate, seconds, shape):
        self.rate, self.count, self.shape = rate, rate * seconds, SHAPES[shape]
    async def stream(self, request):
        begun = time.perf_counter()
        for number in range(self.count):
            await asyncio.sleep(max(0, begun + number / self.rate - time.perf_counter()))
            yield TextPiece(self.shape(number))

def start(cards, rate, seconds, shape):
    global runs, cpu
    agents = [aw.Agent(Fast(rate, seconds, shape), name=f"fast-{number}") for number in range(cards)]
    cpu = time.process_time()
    runs = [aw.chat(agent, "go") for agent in agents]

async def report():
    for run in runs:
        await run
    import re
    words = [len(re.findall(r"w\\d+", run.text)) for run in runs]
    print({"cpu": time.process_time() - cpu, "words": words, "status": sorted({run.status for run in runs})})
'''
MOST_MESSAGES = 100
"""Of a kernel, in any second."""

SCRATCH = 1
CARDS = 2
REPORT = 3

KEYS = """() => {
  window.keys = [];
  new PerformanceObserver((list) => {
    for (const { name, duration } of list.getEntries()) if (name === "keydown") window.keys.push(duration);
  }).observe({ type: "event", durationThreshold: 16 });
}"""
SHOWN = r"""() => [...document.querySelectorAll(".aw-card .aw-md")].map((text) => {
  const words = text.textContent.match(/w\d+/g) ?? [];
  return { count: words.length, inOrder: words.every((word, at) => word === `w${at}`) };
})"""


@dataclass(frozen=True, slots=True)
class Stream:
    """What is streamed: so many cards, so many tokens a second each. ``cards=0``: nothing, JupyterLab alone."""

    cards: int
    rate: int
    seconds: int
    shape: str = "prose"

    @property
    def name(self) -> str:
        """For a person."""
        return (
            f"{self.cards} x {self.rate}/s, {self.seconds} s, {self.shape}"
            if self.cards
            else f"JupyterLab alone, {self.seconds} s"
        )

    @property
    def cell(self) -> str:
        """That starts it."""
        return f"start({self.cards}, {self.rate}, {self.seconds}, {self.shape!r})" if self.cards else "pass"


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was seen of one stream."""

    name: str
    tokens: int
    """That the kernel's transcripts hold."""

    shown: int
    """That the page's DOM holds, in order."""

    messages: int
    """Of the kernel on iopub, all kinds."""

    most_in_a_second: int
    is_whole: bool
    """The numbers of the cards' messages have no gap, and no page asked for everything but at the beginning."""

    cpu_us: float
    """The kernel's, per token."""

    trace: Trace
    keys: tuple[float, ...]
    """Milliseconds from a key to the painted letter, for those that took 16 or more."""

    pressed: int
    heap: tuple[float, float]
    """MB of JavaScript before and after."""

    seconds: float

    @property
    def long_tasks(self) -> tuple[Task, ...]:
        """Of the page, those that used most first."""
        return tuple(sorted(self.trace.tasks, key=lambda task: -task.cpu))

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.name:<32}" + "".join(f"{figure:>{len(head) + 2}}" for head, figure in self._figures().items())
        for task in self.long_tasks[:3]:
            facts = f"{task.duration:.0f} ms, CPU {task.cpu:.0f}, ours {task.ours:.0f}"
            yield f"    at {task.at / 1000:.1f} s: {facts} ({task.parts})"

    def faults(self) -> Iterator[str]:
        """What is beyond the budget: nothing lost, at most 100 messages a second, no task above 50 ms."""
        if self.shown != self.tokens or not self.is_whole:
            yield f"{self.shown:,} of {self.tokens:,} tokens in the page{'' if self.is_whole else ', messages lost'}"
        if self.most_in_a_second > MOST_MESSAGES:
            yield f"{self.most_in_a_second} messages in a second"
        if self.long_tasks:
            longest = max(task.duration for task in self.long_tasks)
            yield f"{len(self.long_tasks)} tasks above {LONG_MS} ms, the longest {longest:.0f} ms"

    def _figures(self) -> dict[str, str]:
        long = self.long_tasks
        return {
            " tokens": f"{self.tokens:,}",
            "in page": f"{self.shown:,}",
            "gaps": "no" if self.is_whole else "YES",
            "messages": f"{self.messages:,}",
            "a second": f"{self.messages / self.seconds:.0f}",
            "at most": str(self.most_in_a_second),
            "us/token": f"{self.cpu_us:.0f}",
            "busy %": f"{self.trace.busy * 100:.0f}",
            "CPU %": f"{self.trace.cpu * 100:.0f}",
            ">50 ms": str(len(long)),
            "with ours": str(sum(task.ours > 1 for task in long)),
            "max ms": f"{max((task.duration for task in long), default=0):.0f}",
            "max CPU": f"{max((task.cpu for task in long), default=0):.0f}",
            "key p95": f"{_p95(self.keys, self.pressed):.0f}",
            "max": f"{max(self.keys, default=0):.0f}",
            "heap MB": f"{self.heap[1]:.0f}",
            "+": f"{self.heap[1] - self.heap[0]:.0f}",
        }

    @property
    def head(self) -> str:
        """Above the lines of all."""
        return " " * 32 + "".join(f"{head:>{len(head) + 2}}" for head in self._figures())


def _p95(keys: tuple[float, ...], pressed: int) -> float:
    """Of all presses; those that took less than 16 ms are not told, and count as that."""
    every = [*keys, *[16.0] * (pressed - len(keys))]
    return statistics.quantiles(every, n=20, method="inclusive")[-1] if len(every) > 1 else 0.0


class Listener:
    """A second client of the page's kernel: everything that it says on iopub, and when it said it."""

    def __init__(self, lab: Lab) -> None:
        path = max((lab.directory / "runtime").glob("kernel-*.json"), key=lambda file: file.stat().st_mtime)
        self._client = BlockingKernelClient(connection_file=str(path))
        self._client.load_connection_file()
        self._client.iopub_channel.start()
        self._over = threading.Event()
        self.heard: list[tuple[float, str, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.stop_channels()

    def _listen(self) -> None:
        socket = self._client.iopub_channel.socket
        assert socket is not None
        while not self._over.is_set():
            if socket.poll(100):
                _, parts = self._client.session.feed_identities(socket.recv_multipart())
                message = self._client.session.deserialize(parts)
                sent: datetime = message["header"]["date"]  # by the kernel's clock: on a busy machine this thread is late
                self.heard.append((sent.timestamp(), message["msg_type"], message["content"]))

    @property
    def most_in_a_second(self) -> int:
        """Messages of any kind within any second."""
        times = sorted(at for at, _, _ in self.heard)
        most = first = 0
        for last, at in enumerate(times):
            while times[first] <= at - 1:
                first += 1
            most = max(most, last - first + 1)
        return most

    def is_whole(self) -> bool:
        """Each card's messages count up by one, and nobody asked for everything but once, when the card appeared."""
        cards: dict[str, list[dict[str, Any]]] = {}
        for _, kind, content in self.heard:
            if kind == "comm_msg" and content["data"].get("method") == "custom":
                cards.setdefault(content["comm_id"], []).append(content["data"]["content"])
        for said in cards.values():
            numbers = [message["seq"] for message in said if message["kind"] == "events"]
            if numbers != list(range(1, len(numbers) + 1)) or sum(message["kind"] == "full" for message in said) > 1:
                return False
        return bool(cards)


def measure(browser: Browser, lab: Lab, stream: Stream) -> Streamed:
    """Stream in a notebook of its own, typing and scrolling meanwhile."""
    name = re.sub(r"\W+", "-", stream.name)
    lab.write(f"{name}.ipynb", [SETUP, "", stream.cell, "await report()"])
    notebook = lab.open(f"{name}.ipynb")
    notebook.run_cell(0)
    notebook.wait_done(0)
    notebook.page.evaluate(KEYS)
    before = _heap(notebook)
    with Listener(lab) as listener, Tracing(browser, notebook.page) as tracing:
        notebook.run_cell(CARDS)
        begun = time.monotonic()
        pressed = _type_and_scroll(notebook, begun + stream.seconds)
        if stream.cards:
            done = notebook.output(CARDS).locator(".aw-chip", has_text="done")
            expect(done).to_have_count(stream.cards, timeout=30_000)
        took = time.monotonic() - begun
    keys = tuple(notebook.page.evaluate("window.keys"))
    tokens, cpu = _kernels_own(notebook) if stream.cards else (0, 0.0)
    shown: list[dict[str, Any]] = notebook.page.evaluate(SHOWN)
    if os.environ.get("AW_SHOTS"):
        notebook.screenshot(name)
    streamed = Streamed(
        name=stream.name,
        tokens=tokens,
        shown=sum(card["count"] for card in shown if card["inOrder"]),
        messages=len(listener.heard),
        most_in_a_second=listener.most_in_a_second,
        is_whole=not stream.cards or listener.is_whole(),
        cpu_us=cpu / max(tokens, 1) * 1e6,
        trace=tracing.read(),
        keys=keys,
        pressed=pressed,
        heap=(before, _heap(notebook)),
        seconds=took,
    )
    notebook.close()
    return streamed


def _kernels_own(notebook: Notebook) -> tuple[int, float]:
    """How many tokens the kernel's transcripts hold, and the seconds of CPU that it used."""
    notebook.run_cell(REPORT)
    notebook.wait_text(REPORT, "status")
    facts: dict[str, Any] = ast.literal_eval(notebook.text(REPORT))
    return sum(facts["words"]), facts["cpu"]


def _type_and_scroll(notebook: Notebook, until: float) -> int:
    """A person who writes in another cell, five letters a second, and now and then turns the wheel over the card."""
    notebook.cell(SCRATCH).locator(".jp-InputArea-editor").click()
    pressed = 0
    while time.monotonic() < until:
        notebook.page.keyboard.press("abcdefghij"[pressed % 10])
        pressed += 1
        if pressed % 10 == 0:
            notebook.page.mouse.move(700, 600)
            notebook.page.mouse.wheel(0, 120 if pressed % 20 else -240)
        notebook.page.wait_for_timeout(200)
    return pressed


def _heap(notebook: Notebook) -> float:
    session: Any = notebook.page.context.new_cdp_session(notebook.page)  # untyped in Playwright
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 1e6


def report(seconds: int = 30) -> Iterator[str]:
    """The table, as lines."""
    yield f"Streams in JupyterLab, with a person who types and scrolls (load {os.getloadavg()[0]:.1f})"
    blocks = ("paragraph", "list", "table", "code", "quote")
    streams = [Stream(0, 0, seconds), Stream(1, 100, seconds), Stream(1, 1000, seconds), Stream(10, 100, seconds)]
    with chromium() as browser, Lab(browser) as lab:
        for number, stream in enumerate([*streams, *(Stream(1, 1000, seconds, shape) for shape in blocks)]):
            streamed = measure(browser, lab, stream)
            if number == 0:
                yield streamed.head
            yield from streamed.lines()
            yield from (f"missed: {streamed.name}: {fault}" for fault in streamed.faults())
