"""The notebook about restarts, with nobody there: what a killed kernel has left goes on in this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.test_quickstart import ROOT, executed, outputs, printed, twin


@pytest.mark.timeout(180)
def test_what_a_killed_kernel_has_left_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the processes that it starts
    notebook = executed(ROOT / "examples_notebooks" / "04_resume_after_a_restart.ipynb", tmp_path)
    assert "2 messages in orders.session" in printed(notebook, 1)
    assert "the child says: waits" in printed(notebook, 2)
    assert "ended with -9" in printed(notebook, 2)
    assert 'waits for a decision: delete_rows {"table": "orders"' in printed(notebook, 3)
    assert "Nobody is there to ask" in twin(notebook, 4)
    assert "it was denied" in outputs(notebook, 5)[0]["data"]["text/plain"]
    assert "heard 400 characters" in printed(notebook, 6)
    assert "marked as interrupted\nthe same words: True" in printed(notebook, 6)
    assert "problems in the history: ()" in printed(notebook, 6)
    assert "I go on from there" in printed(notebook, 7)
    assert "What is this?" in printed(notebook, 8)
    assert "So far you asked: “What is this?”" in twin(notebook, 9)
    assert {path.name for path in tmp_path.iterdir()} == {"orders.session", "killed.session", "story.session"}
    for output in (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs):
        assert output["output_type"] != "error"
