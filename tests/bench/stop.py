"""How long a press of Stop or ■ takes: from sending it to the cancel of the agent's task, in real kernels.

The time is taken by one clock (``time.monotonic``, the same for all processes of a machine): before the client sends, and
inside the model when its ``CancelledError`` arrives. It holds the client's sending and the socket too, so it is an upper
bound of what the kernel takes.
"""

from __future__ import annotations

import ast
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.kernel.fakefront import Front
from tests.kernel.page import Page

SETUP = """
import asyncio, time
import agent_widgets as aw
cut = []

class Endless:
    "Says one word, then nothing until it is cancelled."
    name = "endless"
    async def stream(self, request):
        from agent_widgets.backends import TextPiece
        yield TextPiece("word")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cut.append(time.monotonic())
            raise

agent = aw.Agent(Endless())
"""
CELLS = {
    "awaiting cell": "run = aw.chat(agent, 'go'); await run",
    "sync cell": "run = aw.chat(agent, 'go'); run.wait()",
    "background": "run = aw.chat(agent, 'go')",
}


def latencies(python: Path, cell: str, presses: int, *, interrupts: bool = False) -> list[float]:
    """Milliseconds of each press, in order: of the card's Stop, or of ■."""
    with Front(python) as front:
        front.run(SETUP)
        sent: list[float] = []
        for _ in range(presses):
            page = Page(front)
            busy = front.execute(cell)
            page.wait_for_text()
            time.sleep(0.01)  # presses are not in step with the kernel
            sent.append(time.monotonic())
            if interrupts:
                front.interrupt()
            else:
                page.stop()
            page.wait_for_state("interrupted")
            front.wait(busy)
        cut: list[float] = ast.literal_eval(front.run("print(cut)"))
        if len(cut) != presses:
            raise RuntimeError(f"{presses} presses, {len(cut)} cancels")
        return [(end - begin) * 1000 for begin, end in zip(sent, cut, strict=True)]


def report(kernels: dict[str, Path], presses: int = 200) -> Iterator[str]:
    """The table, as lines."""
    yield f"{f'{presses} presses of Stop and of ■, ms from sending to cancel':<62}{'median':>8}{'p95':>8}{'max':>8}"
    for name, python in kernels.items():
        for kind, cell in CELLS.items():
            for button in ("Stop", "■"):
                if button == "■" and kind == "background":
                    continue  # ■ leaves it alone
                times = latencies(python, cell, presses, interrupts=button == "■")
                p95 = statistics.quantiles(times, n=20)[-1]
                yield f"{f'{name}, {kind}, {button}':<62}{statistics.median(times):>8.1f}{p95:>8.1f}{max(times):>8.1f}"


if __name__ == "__main__":
    for line in report({"this ipykernel": Path(sys.executable)}, int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        sys.stdout.write(f"{line}\n")
