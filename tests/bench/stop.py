"""How long a press of Stop and of ■ takes. ``make test-kernels`` has every kernel, cell and click; these are its presses."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.kernel.fakefront import Front
from tests.kernel.matrix.presses import Presser

PRESSES = (("awaiting", "comm"), ("awaiting", "■"), ("sync", "comm"), ("sync", "■"), ("background", "comm"))


def report(kernels: dict[str, Path], presses: int = 200) -> Iterator[str]:
    """The table, as lines."""
    yield f"{f'{presses} presses of Stop and of ■, ms from sending to cancel':<62}{'median':>8}{'p95':>8}{'max':>8}"
    for name, python in kernels.items():
        with Front(python) as front:
            presser = Presser(front)
            for cell, click in PRESSES:
                times = presser.press(cell, click, presses).milliseconds
                p95 = statistics.quantiles(times, n=20)[-1]
                yield f"{f'{name}, {cell}, {click}':<62}{statistics.median(times):>8.1f}{p95:>8.1f}{max(times):>8.1f}"
