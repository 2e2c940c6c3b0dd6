"""Real Pyodide in node, with JupyterLite's own Python kernel: all stories of a notebook without threads. ``make pyodide``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.pyodide.stories import STORIES

ENVIRONMENT = ROOT / ".venvs" / "pyodide"
SECONDS = 300
"""A busy machine takes half a minute, most of it for importing."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not (ENVIRONMENT / "site").exists():
        pytest.fail(".venvs/pyodide is missing: run make pyodide-env", pytrace=False)
    path: Path = tmp_path_factory.mktemp("pyodide") / "report.json"
    command = ["node", ROOT / "tests/pyodide/main.mjs", ENVIRONMENT, ROOT, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert path.exists(), done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.mark.timeout(SECONDS + 30)
def test_it_is_pyodide(report: dict[str, Any]) -> None:
    assert report["platform"] == "emscripten"


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("story", [told.__name__ for told in STORIES])
def test_in_pyodide(report: dict[str, Any], story: str) -> None:
    assert report["stories"][story] == ""
