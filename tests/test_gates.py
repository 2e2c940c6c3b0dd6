"""Each gate of ``make lint`` bites: in a copy of the project's settings with one fault in it, its target fails and says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("Makefile", "hatch_build.py", "pyproject.toml")

pytestmark = pytest.mark.slow


class Fault(NamedTuple):
    gate: str
    says: str
    """What the gate must say: the fault must be what it fails for."""
    source: str
    path: str = "agent_widgets/errors.py"


SWALLOWED = """\
import asyncio


async def work() -> None:
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        pass
"""
TRANSLATED = SWALLOWED.replace("        pass", "        raise ValueError from None")
SUPPRESSED = """\
import asyncio
import contextlib


async def work() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1)
"""
YIELD_IN_TIMEOUT = """\
import asyncio
from collections.abc import AsyncIterator


async def work() -> AsyncIterator[int]:
    async with asyncio.timeout(1):
        yield 1
"""

FAULTS = {
    "an unused import": Fault("lint-ruff", "F401", "import os\n"),
    "a task outside runs": Fault("lint-ruff", "TID251", "import asyncio\n\nTASK = asyncio.create_task\n"),
    "an unformatted line": Fault("lint-ruff", "would be reformatted", '"""Errors."""\n\nONE = {  "a":1}\n'),
    "a swallowed cancel": Fault("lint-async", "ASYNC103", SWALLOWED),
    "a cancel turned into an error": Fault("lint-async", "ASYNC104", TRANSLATED),
    "a suppressed cancel": Fault("lint-async", "suppress(asyncio.CancelledError)", SUPPRESSED),
    "a yield inside a timeout": Fault("lint-async", "ASYNC101", YIELD_IN_TIMEOUT),
    "a wrong type": Fault("lint-types", "reportAssignmentType", 'number: int = "text"\n'),
    "an untyped parameter in a test": Fault("lint-types", "reportMissingParameterType", "def f(x): ...\n", "tests/test_it.py"),
    "an import from above": Fault("lint-rooms", "agent_widgets.errors -> agent_widgets.agent", "import agent_widgets.agent\n"),
    "a module without a place": Fault("lint-rooms", "- agent_widgets.novelty", "", "agent_widgets/novelty.py"),
    "a vendor outside its folder": Fault(
        "lint-rooms", "agent_widgets.agent -> openai", "import openai\n", "agent_widgets/agent.py"
    ),
    "Jupyter below the kernel": Fault("lint-rooms", "agent_widgets.runs -> IPython", "import IPython\n", "agent_widgets/runs.py"),
    "Jupyter in the export": Fault(
        "lint-rooms", "agent_widgets.export -> IPython", "import IPython\n", "agent_widgets/export.py"
    ),
    "sockets outside the kernel": Fault("lint-rooms", "agent_widgets.chat -> zmq", "import zmq\n", "agent_widgets/chat.py"),
    "a second widget": Fault("lint-rooms", "agent_widgets.chat -> anywidget", "import anywidget\n", "agent_widgets/chat.py"),
    "an undeclared dependency": Fault("lint-dependencies", "'requests' imported but", "import requests\n"),
    "a function that nobody calls": Fault("lint-dead", "unused function 'forgotten'", "def forgotten() -> None: ...\n"),
}
JS_FAULTS = {
    "a wrong type": Fault("js-check", "TS2322", 'export const amount: number = "text";\n', "js/src/fault.ts"),
    "a debugger statement": Fault(
        "js-check", "noDebugger", "export function stop(): void {\n  debugger;\n}\n", "js/src/fault.ts"
    ),
    "a file that nobody imports": Fault("js-check", "fault.ts", "export const amount = 1;\n", "js/src/fault.ts"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The settings, a package of two rooms, and the environment that these tests run in."""
    for name in SETTINGS:
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "tests").mkdir()
    for name in ("__init__", "agent", "errors"):
        write(tmp_path / "agent_widgets" / f"{name}.py", f'"""The room {name}."""\n')
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_gate_bites(project: Path, fault: Fault) -> None:
    write(project / fault.path, fault.source)
    status, output = run_gate(project, fault.gate)
    assert status != 0, f"{fault.gate} let it pass:\n{output}"
    assert fault.says in " ".join(output.split()), output


# Not deptry: in a package that imports nothing every dependency is one too many.
@pytest.mark.parametrize("gate", sorted({fault.gate for fault in FAULTS.values()} - {"lint-dependencies"}))
def test_a_gate_lets_clean_code_pass(project: Path, gate: str) -> None:
    status, output = run_gate(project, gate)
    assert status == 0, output


@pytest.mark.parametrize("fault", JS_FAULTS.values(), ids=JS_FAULTS)
def test_a_gate_of_the_page_bites(project: Path, fault: Fault) -> None:
    shutil.copytree(ROOT / "js", project / "js", ignore=shutil.ignore_patterns("node_modules"))
    (project / "js" / "node_modules").symlink_to(ROOT / "js" / "node_modules")
    write(project / fault.path, fault.source)
    status, output = run_gate(project, fault.gate)
    assert status != 0, f"{fault.gate} let it pass:\n{output}"
    assert fault.says in output, output


def test_the_bench_is_told_which_part_to_measure() -> None:
    status, output = run_gate(ROOT, "bench", "-n", "-o", "kernels-env", "-o", "chromium", "BENCH=clicks")
    assert (status, output.split()[-2:]) == (0, ["tests.bench", "clicks"])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run_gate(project: Path, gate: str, *more: str) -> tuple[int, str]:
    """Run a target as it stands in the Makefile; ``-o``: its environment is there, do not make it again."""
    command = ["make", "-o", "test-env", "-o", "js/node_modules/.ready", *more, gate]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    return done.returncode, re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
