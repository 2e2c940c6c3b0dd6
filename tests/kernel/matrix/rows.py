"""One line of the table: what was measured, what it must keep, and how it is written for people and for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from tests.kernel.matrix.presses import Presses

STOP_LIMIT_MS = 20.0
PUMPED_LIMIT_MS = 60.0
"""ipykernel 6 in a sync cell: the cell itself looks at the socket, every 40 ms."""
INTERRUPT_LIMIT_MS = 100.0
HEADER = (
    f"{'cell':<26}{'click':<16}{'p50':>8}{'p95':>8}{'max':>8}{'limit':>8}   "
    "order once   (ms from sending to the cancel of the run's task; the limit is for p95)"
)


@dataclass(frozen=True, slots=True)
class Row:
    """The presses of one kind on one kernel."""

    ipykernel: str
    python: str
    cell: str
    click: str
    presses: Presses

    @property
    def comes_after(self) -> bool:
        """Documented: on ipykernel 6 nothing is heard during somebody else's blocking cell, and times count from its end."""
        return self.cell == "background, time.sleep" and self.is_six

    @property
    def is_six(self) -> bool:
        """Whether the main thread reads the socket."""
        return self.ipykernel.startswith("6.")

    @property
    def limit(self) -> float:
        """Milliseconds that the 95th percentile may take."""
        if self.click == "■":
            return INTERRUPT_LIMIT_MS
        return PUMPED_LIMIT_MS if self.is_six and "sync" in self.cell else STOP_LIMIT_MS

    @property
    def milliseconds(self) -> tuple[float, ...]:
        """What the limit is for."""
        return self.presses.after_cell if self.comes_after else self.presses.milliseconds

    @property
    def p95(self) -> float:
        """Of ``milliseconds``."""
        return statistics.quantiles(self.milliseconds, n=20, method="inclusive")[-1]

    def faults(self) -> Iterator[str]:
        """What is not kept."""
        if not self.presses.once:
            yield "a press was handled twice, or not at all"
        if not self.presses.in_order:
            yield "cells did not keep their order"
        if len(self.milliseconds) < 2:
            yield "nothing was measured"
            return
        if self.p95 > self.limit:
            yield f"p95 is {self.p95:.1f} ms, the limit {self.limit:g}"
        if self.comes_after and min(self.milliseconds) < 0:
            yield "a click was heard during the cell, which is documented as impossible"

    def line(self) -> str:
        """For people."""
        times = sorted(self.milliseconds) or [0.0]
        numbers = "".join(f"{ms:>8.1f}" for ms in (statistics.median(times), self.p95 if len(times) > 1 else 0, times[-1]))
        kept = f"{'kept' if self.presses.in_order else 'LOST':<6}{'yes' if self.presses.once else 'NO':<5}"
        faults = list(self.faults())
        remarks = (["after the cell, as documented: counted from its end"] if self.comes_after else []) + [
            f"MISSED: {fault}" for fault in faults
        ]
        return f"{self.cell:<26}{self.click:<16}{numbers}{self.limit:>8g}   {kept} {'; '.join(remarks)}".rstrip()

    def dump(self, time: int) -> str:
        """For programs: one line of JSON."""
        facts = {**asdict(self), "time": time, "limit": self.limit, "after_the_cell": self.comes_after}
        return json.dumps({**facts, "faults": list(self.faults())}, ensure_ascii=False)
