"""Presses of Stop in one real kernel, many in a row: how long each takes, and what it does to the cells around it.

The time is taken by one clock (``time.monotonic``, the same for all processes of a machine): before the client sends, and
inside the model when its ``CancelledError`` arrives. It holds the client's sending and the socket too, so it is an upper
bound of what the kernel takes.
"""

from __future__ import annotations

import ast
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page

CELLS = {
    "awaiting": "await run",
    "sync": "run.wait()",
    "sync in an awaiting cell": "await asyncio.sleep(0); run.wait()",
    "background": "",
    "background, time.sleep": "",
}
"""The kinds of cells, and what each does with its run. The last one: an unrelated cell blocks the kernel meanwhile."""

CLICKS = ("comm", "comm, subshell", "■")

SLEEP_SECONDS = 0.1
"""How long the unrelated cell blocks: longer than any click may take."""

OUT_OF_STEP_SECONDS = 0.04
"""A press comes up to this late after its cell has begun to wait: as long as ipykernel 6 takes between two looks."""

ENDLESS = """
from agent_widgets.backends import TextPiece
cut, stopped, slept = [], [], []

class Endless:
    "Says one word when its cell waits (or at once, if it does not), then nothing until it is cancelled."
    name = "endless"
    def __init__(self, cell_waits):
        self.cell_waits = cell_waits
    async def stream(self, request):
        if self.cell_waits:
            await the_cell_waits()
        yield TextPiece("word")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cut.append(time.monotonic())
            raise

stop = aw.Run.stop
def counted(run, *args, **given):
    stopped.append(given.get("source"))
    stop(run, *args, **given)
aw.Run.stop = counted
"""


@dataclass(frozen=True, slots=True)
class Presses:
    """What some presses of one kind did."""

    milliseconds: tuple[float, ...]
    """From sending to the cancel of the agent's task, each."""
    after_cell: tuple[float, ...]
    """From the end of the unrelated cell to the cancel, each; empty without such a cell. Below 0: heard during the cell."""
    in_order: bool
    """Whether all cells ran in the order in which they were sent; with ■, whether those behind were all aborted."""
    once: bool
    """Whether each press was handled, and once."""


class Presser:
    """Presses Stop in one kernel."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._random = random.Random(1)
        self._subshell = front.create_subshell() if front.has_subshells else None
        if said := front.run(SETUP + ENDLESS):
            raise RuntimeError(said)

    def kinds(self) -> Iterator[tuple[str, str]]:
        """The cells, and the ways of clicking that this kernel has. ■ is for cells that wait: a run in the background goes on."""
        for cell, waits in CELLS.items():
            for click in CLICKS:
                if (waits or click != "■") and (self._subshell or click != "comm, subshell"):
                    yield cell, click

    def press(self, cell: str, click: str, times: int) -> Presses:
        """Press so many times, a run each."""
        self._front.run("cut.clear(); stopped.clear(); order.clear(); slept.clear()")
        sent = [self._press_once(cell, click, number) for number in range(times)]
        cut, stopped, order, slept = (self._read(name) for name in ("cut", "stopped", "order", "slept"))
        return Presses(
            milliseconds=tuple((end - begin) * 1000 for begin, end in zip(sent, cut, strict=False)),
            after_cell=tuple((end - begin) * 1000 for begin, end in zip(slept, cut, strict=False)),
            in_order=order == [step for number in range(times) for step in _expected(cell, click, number)],
            once=len(cut) == times and stopped == ["kernel" if click == "■" else "user"] * times,
        )

    def _press_once(self, cell: str, click: str, number: int) -> float:
        front, page, waits = self._front, Page(self._front), CELLS[cell]
        cells = [
            front.execute(f"run = aw.chat(aw.Agent(Endless({bool(waits)})), 'go'); {waits}\norder.append(({number}, 'run'))")
        ]
        behind = [f"order.append(({number}, 'behind'))"] * 2
        if click == "■":  # queued before it, so that they are in the kernel when it comes
            cells += [front.execute(code) for code in behind]
        page.wait_for_text()
        if not waits:
            front.wait(cells[0])
        if cell == "background, time.sleep":
            busy = f"time.sleep({SLEEP_SECONDS}); slept.append(time.monotonic())\norder.append(({number}, 'slept'))"
            cells.append(front.execute(busy))
            front.wait_for(lambda m: m.parent_id == cells[-1] and m.type == "status")
        time.sleep(self._random.uniform(0, OUT_OF_STEP_SECONDS if "sync" in cell else OUT_OF_STEP_SECONDS / 4))
        sent = time.monotonic()
        if click == "■":
            front.interrupt()
        else:
            page.stop(subshell=self._subshell if click == "comm, subshell" else None)
            cells += [front.execute(code) for code in behind]
        page.wait_for_state("interrupted")
        for msg_id in cells:
            front.wait(msg_id)
        front.forget()
        return sent

    def _read(self, name: str) -> list[Any]:
        read: list[Any] = ast.literal_eval(self._front.run(f"print({name})"))
        return read


def _expected(cell: str, click: str, number: int) -> list[tuple[int, str]]:
    """The order of the cells around one press: ■ ends its own cell and those behind it."""
    if click == "■":
        return []
    steps = ["run", *(["slept"] if cell == "background, time.sleep" else []), "behind", "behind"]
    return [(number, step) for step in steps]
