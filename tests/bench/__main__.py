"""``make bench``: what streaming costs and how long a stop takes, in one run on one machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tests.bench import stop, wire
from tests.kernel.fakefront import ROOT


def report() -> Iterator[str]:
    """All lines."""
    here = f"ipykernel {version('ipykernel')}"
    yield f"Python {platform.python_version()}, {here}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    yield ""
    yield from wire.report()
    yield ""
    kernels = {here: Path(sys.executable)}
    for name, environment in (("ipykernel 7.0.1", "k70"), ("ipykernel 6.31.0", "k6")):
        python = ROOT / ".venvs" / environment / "bin" / "python"
        if python.exists():
            kernels[name] = python
        else:
            yield f"{name}: not measured, {python.relative_to(ROOT)} is missing (make kernels)"
    yield from stop.report(kernels)


for line in report():
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
