"""The example notebooks do what they say, with nobody there: executed by nbclient, which no person answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples_notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped


def executed(path: Path, folder: Path = ROOT) -> Any:
    """The notebook with its outputs, run in this folder."""
    notebook = read(path)
    client = nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def outputs(notebook: Any, index: int) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"][index].outputs


def twin(notebook: Any, index: int) -> str:
    """The static transcript of a cell, as HTML."""
    return next(o["data"]["text/html"] for o in outputs(notebook, index) if "aw-static" in o.get("data", {}).get("text/html", ""))


def printed(notebook: Any, index: int) -> str:
    return "".join(output.get("text", "") for output in outputs(notebook, index) if output["output_type"] == "stream")


def test_every_example_is_saved_without_outputs() -> None:
    for path in NOTEBOOKS:
        notebook = read(path)
        assert all(not cell.get("outputs") for cell in notebook.cells), path


@pytest.mark.timeout(180)
def test_the_quickstart_streams_stops_denies_and_resumes() -> None:
    notebook = executed(ROOT / "examples_notebooks" / "01_quickstart.ipynb")
    assert "scripted demo" in twin(notebook, 1)
    assert "stopped at its deadline" in twin(notebook, 2)
    assert "problems in the history: ()" in printed(notebook, 3)
    assert "<Run interrupted in 15." in printed(notebook, 3)
    assert "waits for a decision" not in twin(notebook, 4)
    assert "Nobody is there to ask" in twin(notebook, 4)
    assert "Nobody is there to ask" in outputs(notebook, 5)[0]["data"]["text/plain"]
    assert [line.rpartition(" ")[2] for line in printed(notebook, 6).splitlines() if line.startswith("assistant")] == [
        "completed",
        "interrupted",
        "interrupted",
        "completed",
    ]
    assert "Thank you" in twin(notebook, 8)
    for output in (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs):
        assert output["output_type"] != "error"
        assert "running" not in output.get("data", {}).get("text/plain", "")
