"""A notebook whose cell is busy, reloaded: how long until its card and a Stop that can be pressed are back.

For the tests and for the bench. The page itself takes the times, from the beginning of the reload.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.jlab import ROOT, Lab, Notebook

KERNELS = {"ipykernel-7.4": None, "ipykernel-7.0": "k70", "ipykernel-6.31": "k6"}
"""As in ``tests/kernel``: kernels by their environment, ``None`` for the one that the tests run in."""

SETUP = """\
import base64, time
import ipywidgets
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say

def story(words=6000):
    "An agent whose answer takes two minutes."
    return aw.Agent(ScriptedModel([[say([f"word{n} " for n in range(words)])]], tokens_per_second=50))

def finished(number):
    return aw.Agent(ScriptedModel([[say(f"answer {number}")]]))

teller = story()
%load_ext agent_widgets
"""
OTHERS = """\
clicks = 0
def count(_):
    global clicks
    clicks += 1
    button.description = f"clicked {clicks}"

button = ipywidgets.Button(description="click me")
button.on_click(count)
slider = ipywidgets.IntSlider(value=7)
told = ipywidgets.Label("")
slider.observe(lambda change: setattr(told, "value", f"slid to {change.new}"), "value")
dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
image = ipywidgets.Image(value=base64.b64decode(dot), format="png", width=40)
display(button, slider, told, image)"""
BUSY = {
    "awaiting": "run = aw.chat(story(), 'Tell me', deadline={seconds}); await run",
    "sync": "run = aw.chat(story(), 'Tell me', deadline={seconds}); run.wait()",
    "foreign": "run = aw.chat(story(), 'Tell me'); end = time.time() + {seconds}\nwhile time.time() < end: time.sleep(0.1)",
}
ALSO_BUSY = {
    "%%agent": "%%agent teller\nTell me",
    "sync in an awaiting cell": "import asyncio; await asyncio.sleep(0)\nrun = aw.chat(story(), 'Tell me'); run.wait()",
    "in an Output": "out = ipywidgets.Output(); display(out)\nwith out: run = aw.chat(story(), 'Tell me'); await run",
}
"""More kinds of cells, until their run is stopped."""

UNHEARD = ("ipykernel-6.31", "foreign")
"""Nothing of ours can run on the thread that could hear the page: it is told the text when the cell ends."""

CLOCK = """
(() => {
  const look = () => {
    const stop = [...document.querySelectorAll(".aw-card .aw-stop")].some(
      (button) => !button.disabled && getComputedStyle(button).visibility === "visible" && button.getClientRects().length > 0);
    if (document.querySelector(".jp-Notebook .jp-Cell")) globalThis.notebookAt ??= performance.now();
    if (document.querySelector(".aw-card .aw-chip")) globalThis.cardAt ??= performance.now();
    if (stop) globalThis.stopAt ??= performance.now();
    if (!stop) requestAnimationFrame(look);
  };
  look();
})()
"""


@dataclass(frozen=True, slots=True)
class Back:
    """Seconds from the reload until the page showed the notebook's cells, a card, and a Stop that can be pressed."""

    notebook: float
    card: float
    stop: float


def lab_of_all_kernels(browser: Browser, app: str) -> Lab:
    """A server with one kernelspec for each supported generation of ipykernel."""
    kernels: dict[str, str | Path] = {
        name: sys.executable if place is None else ROOT / ".venvs" / place / "bin" / "python" for name, place in KERNELS.items()
    }
    return Lab(browser, app, kernels=kernels)  # pyright: ignore[reportArgumentType]


def busy_notebook(lab: Lab, kernel: str, kind: str, *, cards: int = 0, more: str = "", seconds: int = 60) -> Notebook:
    """A saved notebook: cell 1 holds other people's widgets, cells 1 and 2 ``cards`` finished cards, cell 3 is busy with a run.

    Two cells, since JupyterLab shows the first 50 outputs of one only, and a card has two.
    """
    name = f"{kernel}-{re.sub('[^a-z]+', '-', kind)}-{cards}-{abs(hash(more)) % 1000}.ipynb"
    first, second = (
        f"for number in range({begin}, {end}): await aw.chat(finished(number), 'What?')"
        for begin, end in ((0, cards // 2), (cards // 2, cards))
    )
    cells = [SETUP, f"{OTHERS}\n{first}", f"{second}\n{more or 'pass'}", {**BUSY, **ALSO_BUSY}[kind].format(seconds=seconds)]
    lab.write(name, cells, kernel=kernel)
    notebook = lab.open(name)
    notebook.page.add_init_script(CLOCK)
    for cell in range(3):
        notebook.run_cell(cell)
        notebook.wait_done(cell)
    notebook.run_cell(3)
    if (kernel, kind) == UNHEARD:
        expect(notebook.cell(3).locator(".aw-card .aw-chip")).to_be_visible(timeout=20_000)
    else:
        expect(notebook.cell(3).locator(".aw-card")).to_contain_text("word5 ", timeout=20_000)
    notebook.save()
    return notebook


def reload(notebook: Notebook, *, until: str = "stopAt", timeout: float = 90) -> Back:
    """Reload the page, and wait until a Stop is there, or ``until="cardAt"`` a card."""
    notebook.reload(wait=False)
    notebook.page.wait_for_function(f"globalThis.{until} !== undefined", timeout=timeout * 1000)
    times = notebook.page.evaluate("[globalThis.notebookAt, globalThis.cardAt, globalThis.stopAt ?? NaN]")
    return Back(*(time / 1000 for time in times))
