"""What a page's main thread did: Chromium's own trace, read for tasks, scripts and idle time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from playwright.sync_api import Browser, Page

LONG_MS = 50.0
"""What the web's own metrics call a long task: a key pressed meanwhile is felt."""

CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the main thread. Times in milliseconds, ``at`` from the beginning of the trace."""

    at: float
    duration: float
    cpu: float
    """What the thread itself used of it: on a busy machine the rest is other programs' time."""

    ours: float
    """How long scripts of ours ran in it."""

    parts: str
    """The longest things in it, for the person who has to mend it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A main thread between two moments."""

    seconds: float
    busy: float
    """Share of the time in tasks, 0 to 1."""

    cpu: float
    """Share of the time that the thread itself used, 0 to 1."""

    tasks: tuple[Task, ...]
    """The long ones."""


class Tracing:
    """``with Tracing(browser, page) as tracing: ...`` and then ``tracing.read()``."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._browser = browser
        self._page = page
        self._raw = b""

    def __enter__(self) -> Self:
        self._browser.start_tracing(page=self._page, categories=CATEGORIES)
        return self

    def __exit__(self, *_: object) -> None:
        self._raw = self._browser.stop_tracing()

    def read(self) -> Trace:
        """What the busiest renderer's main thread did: Playwright's own page is another, idle one."""
        events: list[dict[str, Any]] = json.loads(self._raw)["traceEvents"]
        mains = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"}
        return max((_thread(events, main) for main in mains), key=lambda trace: trace.cpu)


def _thread(events: list[dict[str, Any]], main: tuple[int, int]) -> Trace:
    complete = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == main]
    tasks = sorted((e for e in complete if e["name"].endswith("RunTask")), key=lambda e: (e["ts"], -e["dur"]))
    begun = min((e["ts"] for e in events if e.get("ts")), default=0)
    ended = max((e["ts"] for e in events if e.get("ts")), default=1)
    outer: list[dict[str, Any]] = []
    until = 0.0
    for task in tasks:  # the same task is traced by two categories, one in the other
        if task["ts"] >= until:
            outer.append(task)
            until = task["ts"] + task["dur"]
    long = [task for task in outer if task["dur"] / 1000 > LONG_MS]
    found = tuple(_task(complete, task, begun) for task in long)
    busy, cpu = sum(task["dur"] for task in outer), sum(task.get("tdur", 0) for task in outer)
    return Trace((ended - begun) / 1e6, busy / (ended - begun), cpu / (ended - begun), found)


def _task(events: list[dict[str, Any]], task: dict[str, Any], begun: float) -> Task:
    inside = _inside(events, task["ts"], task["ts"] + task["dur"])
    return Task((task["ts"] - begun) / 1000, task["dur"] / 1000, task.get("tdur", 0) / 1000, *inside)


def _inside(events: list[dict[str, Any]], begin: float, end: float) -> tuple[float, str]:
    within = [e for e in events if begin <= e["ts"] and e["ts"] + e["dur"] <= end and not e["name"].endswith("RunTask")]
    ours, until = 0.0, 0.0
    for event in sorted(within, key=lambda e: e["ts"]):
        if event["ts"] >= until and "blob:" in _where(event):
            ours += event["dur"] / 1000
            until = event["ts"] + event["dur"]
    longest = sorted(within, key=lambda e: -e["dur"])[:6]
    return ours, ", ".join(_told(longest))


def _where(event: dict[str, Any]) -> str:
    data: dict[str, Any] = event.get("args", {}).get("data") or {}
    return str(data.get("url", ""))


def _told(events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        where = "ours" if "blob:" in _where(event) else _where(event).rpartition("/")[2][:30]
        data: dict[str, Any] = event.get("args", {}).get("data") or {}
        yield f"{event['name']} {event['dur'] / 1000:.0f} ms {where} {data.get('functionName', '')}".strip()
