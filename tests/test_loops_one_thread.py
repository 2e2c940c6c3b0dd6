"""A notebook without threads, zmq and other loops, as Pyodide has it: the stories of ``tests/pyodide``, told in CPython."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from agent_widgets import loops
from agent_widgets.errors import InputError
from tests.conftest import ROOT
from tests.pyodide.stories import STORIES

PROGRAM = """
import json, sys
from tests.pyodide import one_thread

async def main():
    from tests.pyodide.host import Host
    from tests.pyodide.stories import tell
    shell, comms = one_thread.shell_of_a_page()
    found = await tell(lambda: Host(shell, comms))
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)

one_thread.run(main())
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path: Path = tmp_path_factory.mktemp("one-thread") / "report.json"
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(path)]
    env: dict[str, Any] = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(path.parent), "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert path.exists(), done.stderr[-3000:]
    assert "Traceback" not in done.stderr  # what a callback of the loop raises is only logged
    return json.loads(path.read_text())


@pytest.mark.parametrize("story", [one.__name__ for one in STORIES])
def test_in_one_thread(told: dict[str, str], story: str) -> None:
    assert told[story] == ""


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    loops.LoopThread.get().close()  # of an earlier test
    loops.threads_can_start.cache_clear()
    monkeypatch.setattr("threading.Thread.start", refuse)
    yield
    loops.threads_can_start.cache_clear()


@pytest.mark.usefixtures("no_threads")
async def test_where_no_thread_can_be_started_the_running_loop_is_used_and_no_other_one_is_made() -> None:
    import asyncio

    assert loops.loop_named("own") is loops.loop_named("kernel") is asyncio.get_running_loop()
    with pytest.raises(InputError, match=r"cannot start threads.*await agent.reply"):
        loops.LoopThread.get()


def test_what_pyodide_cannot_have_is_not_asked_for_there() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {
        requirement.name
        for requirement in map(Requirement, asked)
        if requirement.marker is None or requirement.marker.evaluate({"sys_platform": "emscripten"})
    }
    assert "ipykernel" not in names  # it needs zmq
    assert {"openai", "ipython", "anywidget"} <= names
