"""``make test-kernels``, or ``python -m tests.kernel.matrix --kernels 7.4.0 --pythons 3.11 --repetitions 20``.

Its environments are made by ``make matrix-env``. The exit code is 1 when a limit was missed or a test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.fakefront import ROOT, Front
from tests.kernel.matrix.presses import Presser
from tests.kernel.matrix.rows import HEADER, Row

NEWEST = "pre"
"""As a kernel: the newest pre-release that installs."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One environment."""

    python: str
    ipykernel: str
    interpreter: Path

    @property
    def name(self) -> str:
        """For headings."""
        return f"ipykernel {self.ipykernel} on Python {self.python}"

    def plots(self) -> bool:
        """Whether what its cells plot with is installed."""
        return (
            subprocess.run([self.interpreter, "-c", "import matplotlib, pandas"], capture_output=True, check=False).returncode
            == 0
        )


def main() -> int:
    """Measure, print, and say what was missed."""
    asked = _options()
    kernels = list(_kernels(asked.pythons, asked.kernels))
    missed: list[str] = []
    if asked.json is not None:
        asked.json.write_text("", encoding="utf-8")
    for number in range(1, asked.times + 1):
        for kernel in kernels:
            _say(
                f"\n{kernel.name}: {asked.repetitions} presses each, time {number} of {asked.times}, "
                f"load {os.getloadavg()[0]:.1f}"
            )
            _say(HEADER)
            for row in _rows(kernel, asked.repetitions):
                _say(row.line())
                missed += [f"{kernel.name}, {row.cell}, {row.click}, time {number}: {fault}" for fault in row.faults()]
                if asked.json is not None:
                    with asked.json.open("a", encoding="utf-8") as file:
                        file.write(row.dump(number) + "\n")
        if asked.suite:
            missed += _suite(kernels)
    _say("\n" + "\n".join(missed or ["All limits kept."]))
    return bool(missed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.matrix", description=__doc__)
    parser.add_argument("--kernels", nargs="+", required=True, help=f"versions of ipykernel; {NEWEST}: the newest pre-release")
    parser.add_argument("--pythons", nargs="+", required=True, help="such as 3.11")
    parser.add_argument("--repetitions", type=int, default=100, help="presses of each kind (2 or more)")
    parser.add_argument("--times", type=int, default=1, help="the whole of it so many times, to see flakes")
    parser.add_argument(
        "--suite", action="store_true", help="also tests/kernel, on each kernel of this Python and on one of each other"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file too, one JSON object a line")
    return parser.parse_args()


def _kernels(pythons: list[str], versions: list[str]) -> Iterator[Kernel]:
    """The environments that were asked for. A pre-release that is not newer than the others is named and left out."""
    for python in pythons:
        found: list[str] = []
        for version in versions:
            interpreter = ROOT / ".venvs" / "matrix" / f"{python}-{version}" / "bin" / "python"
            if not interpreter.exists():
                sys.exit(f"{interpreter.relative_to(ROOT)} is missing: make matrix-env PYTHONS={python} KERNELS={version}")
            say = "import importlib.metadata as m; print(m.version('ipykernel'))"
            has = subprocess.run([interpreter, "-c", say], capture_output=True, text=True, check=True).stdout.strip()
            if version == NEWEST and has in found:  # `pip install --pre` found nothing newer than the newest release
                _say(f"newest pre-release of ipykernel on Python {python}: none after {has}, which is measured below")
                continue
            found.append(has)
            yield Kernel(python, has, interpreter)


def _rows(kernel: Kernel, repetitions: int) -> Iterator[Row]:
    with Front(kernel.interpreter) as front:
        presser = Presser(front)
        for cell, click in presser.kinds():
            yield Row(kernel.ipykernel, kernel.python, cell, click, presser.press(cell, click, repetitions))


def _suite(kernels: list[Kernel]) -> Iterator[str]:
    """The tests of kernels, on each kernel of the tests' own Python and one of each other. Gives the failures.

    They need pandas and matplotlib: the own Python's kernels are lent them, of the others one has them (``SUITE_KERNEL``).
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for kernel in [kernel for kernel in kernels if kernel.python == own or kernel.plots()]:
        began = time.monotonic()
        given = [f"--kernel={kernel.ipykernel}={kernel.interpreter}", "-q", "-n", "3", "-m", "", "tests/kernel"]
        done = subprocess.run([sys.executable, "-m", "pytest", *given], cwd=ROOT, capture_output=True, text=True, check=False)
        last = done.stdout.strip().splitlines()[-1:]
        _say(f"\ntests/kernel on {kernel.name}: {''.join(last)} ({time.monotonic() - began:.0f} s)")
        if done.returncode:
            _say(done.stdout + done.stderr)
            yield f"tests/kernel on {kernel.name} failed"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
