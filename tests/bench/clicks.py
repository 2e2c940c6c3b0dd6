"""How long a person waits after a click: in JupyterLab and Notebook 7, from the event to the change, by the page's clock."""

from __future__ import annotations

import os
import random
import re
import statistics
from collections.abc import Iterator
from typing import Any, Literal

from playwright.sync_api import Browser, expect

from tests.browser.jlab import Lab, Notebook, chromium

SETUP = """
import asyncio
import agent_widgets as aw
from agent_widgets.backends import TextPiece

class Endless:
    "Says one word, then nothing until it is cancelled."
    name = "endless"
    async def stream(self, request):
        yield TextPiece("word")
        await asyncio.sleep(3600)

agent = aw.Agent(Endless())
"""
CELLS = {
    "awaiting": "run = aw.chat(agent, 'go'); await run",
    "sync": "run = aw.chat(agent, 'go'); run.wait()",
    "background": "run = aw.chat(agent, 'go')",
}
SOON_MS = 150
"""From a click to the changed page, of 95 in 100 clicks."""

STOP = ".aw-stop"
INTERRUPT = '[data-command="notebook:interrupt-kernel"]'

ARM = r"""([cell, selector]) => {
  const output = document.querySelectorAll(".jp-Notebook .jp-Cell")[cell];
  const chip = output.querySelector(".aw-card .aw-chip");
  const prompt = output.querySelector(".jp-InputPrompt");
  const seen = { clicked: undefined, stopped: undefined, ended: undefined };
  const look = () => {
    const now = performance.now();
    if (seen.stopped === undefined && chip.textContent === "stopped") seen.stopped = now;
    if (seen.ended === undefined && /\d/.test(prompt.textContent)) seen.ended = now;
  };
  look();
  window.seen = seen;
  const listen = (event) => {
    if (event.target.closest(selector)) {
      seen.clicked = event.timeStamp;
      document.removeEventListener("click", listen, true);
    }
  };
  document.addEventListener("click", listen, true);
  new MutationObserver(look).observe(output, { subtree: true, childList: true, characterData: true });
}"""


def presses(notebook: Notebook, cell: int, selector: str, count: int) -> list[dict[str, float]]:
    """Run the cell, wait until its agent streams, click; so many times. Milliseconds until ``stopped``, and to the cell's end."""
    found: list[dict[str, float]] = []
    for _ in range(count):
        notebook.run_cell(cell)
        shown = notebook.cell(cell).locator(".aw-card")
        expect(shown.locator(".aw-chip")).to_have_text("running")
        expect(shown.locator(".aw-md")).to_have_text("word")
        notebook.page.wait_for_timeout(random.uniform(100, 400))  # clicks are not in step with the kernel
        notebook.page.evaluate(ARM, [cell, selector])
        where = shown if selector == STOP else notebook.page.locator(".jp-NotebookPanel-toolbar")
        where.locator(selector).click()
        expect(shown.locator(".aw-chip")).to_have_text("stopped")
        expect(notebook.cell(cell).locator(".jp-InputPrompt")).to_have_text(re.compile(r"\d"))
        seen: dict[str, Any] = notebook.page.evaluate("window.seen")
        found.append({what: seen[what] - seen["clicked"] for what in ("stopped", "ended")})
    return found


def measure(browser: Browser, app: Literal["lab", "notebook"], count: int) -> Iterator[tuple[str, list[float]]]:
    """What was clicked in which cell, and the milliseconds."""
    with Lab(browser, app) as lab:
        lab.write("clicks.ipynb", [SETUP, *CELLS.values()])
        notebook = lab.open("clicks.ipynb")
        notebook.run_cell(0)
        notebook.wait_done(0)
        for cell, kind in enumerate(CELLS, 1):
            yield f"Stop, {kind}: stopped", [press["stopped"] for press in presses(notebook, cell, STOP, count)]
        for cell, kind in enumerate(CELLS, 1):
            if kind != "background":  # there ■ has nothing to interrupt
                found = presses(notebook, cell, INTERRUPT, count)
                yield f"■, {kind}: stopped", [press["stopped"] for press in found]
                yield f"■, {kind}: end of the cell", [press["ended"] for press in found]
        if errors := lab.errors():
            raise RuntimeError("\n".join(errors))
        notebook.close()


def report(count: int = 30) -> Iterator[str]:
    """The table, as lines."""
    head = f"{count} clicks, ms from the event to the changed page (load {os.getloadavg()[0]:.1f})"
    yield f"{head:<70}{'median':>8}{'p95':>8}{'max':>8}"
    with chromium() as browser:
        hosts: tuple[tuple[Literal["lab", "notebook"], str], ...] = (("lab", "JupyterLab"), ("notebook", "Notebook 7"))
        for app, name in hosts:
            for what, times in measure(browser, app, count):
                p95 = statistics.quantiles(times, n=20, method="inclusive")[-1]
                yield f"{f'{name}, {what}':<70}{statistics.median(times):>8.0f}{p95:>8.0f}{max(times):>8.0f}"
                if p95 > SOON_MS:
                    yield f"missed: {name}, {what}: 95 % within {p95:.0f} ms, and not {SOON_MS}"
