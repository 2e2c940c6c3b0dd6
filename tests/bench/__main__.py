"""``make bench``: what streaming costs, how long a stop and a reload take, and what runs leave behind, on one machine.

``make bench BENCH=clicks`` measures one part; several may be named. The exit code is 1 when a limit was missed.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.bench import clicks, growth, reload, stop, streams, wire
from tests.kernel.fakefront import ROOT

PARTS = ("wire", "stop", "clicks", "streams", "reload", "growth")


def report(parts: Sequence[str]) -> Iterator[str]:
    """All lines."""
    here = f"ipykernel {version('ipykernel')}"
    yield f"Python {platform.python_version()}, {here}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    kernels = {here: Path(sys.executable)}
    for name, environment in (("ipykernel 7.0.1", "k70"), ("ipykernel 6.31.0", "k6")):
        python = ROOT / ".venvs" / environment / "bin" / "python"
        if python.exists():
            kernels[name] = python
        else:
            yield f"{name}: not measured, {python.relative_to(ROOT)} is missing (make kernels)"
    for part in parts:
        yield ""
        match part:
            case "wire":
                yield from wire.report()
            case "stop":
                yield from stop.report(kernels)
            case "clicks":
                yield from clicks.report()
            case "streams":
                yield from streams.report()
            case "reload":
                yield from reload.report()
            case "growth":
                yield from growth.report(kernels)
            case _:
                raise SystemExit(f"{part}: no such part; there are {', '.join(PARTS)}")


missed = False
for line in report(sys.argv[1:] or PARTS):
    missed = missed or line.startswith("missed:")
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
sys.exit(missed)
