"""How long a page that is reloaded while a cell runs waits for its card.

From the beginning of the reload, by the page's own clock, in real JupyterLab and Notebook 7. The cell is busy for 12 s;
without the early answers most cards come back when it ends. One reload for each figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tests.browser.jlab import Lab, chromium
from tests.browser.reviving import BUSY, KERNELS, UNHEARD, busy_notebook, lab_of_all_kernels, reload

OFF = "%config AgentWidgets.early_answers = False"
HEAD = f"{'seconds from the reload to':<40}{'notebook':>10}{'card: off':>12}{'on':>8}{'Stop: on':>12}"


def row(lab: Lab, kernel: str, kind: str, seconds: int, cards: int = 0) -> str:
    """One line of the table."""
    figures: list[float] = []
    for more in (OFF, "pass"):
        notebook = busy_notebook(lab, kernel, kind, cards=cards, more=more, seconds=seconds)
        back = reload(notebook, until="cardAt" if more == OFF or (kernel, kind) == UNHEARD else "stopAt")
        figures += [back.notebook, back.card, back.stop]
        notebook.command("notebook:shutdown-kernel")
        notebook.close()
    _, off, _, notebook_at, on, stop = figures
    name = f"{lab.app}, {kernel}, {kind}{f', {cards} cards' if cards else ''}"
    return f"{name:<40}{notebook_at:>10.1f}{off:>12.1f}{on:>8.1f}{stop:>12.1f}"


def report(seconds: int = 12) -> Iterator[str]:
    """The table, as lines. ``nan``: the run had ended before its card came back."""
    yield f"A cell that is busy for {seconds} s, load {os.getloadavg()[0]:.1f}"
    yield HEAD
    with chromium() as browser:
        for app in ("lab", "notebook"):
            with lab_of_all_kernels(browser, app) as lab:
                for kernel in KERNELS:
                    for kind in BUSY:
                        yield row(lab, kernel, kind, seconds)
                yield row(lab, "ipykernel-7.4", "sync", seconds, cards=30)
