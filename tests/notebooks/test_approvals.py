"""The notebook of approvals does what it says with nobody there: its cards are denied, and what code decides is decided."""

from __future__ import annotations

import pytest

from tests.notebooks.test_quickstart import ROOT, executed, printed, twin


@pytest.mark.timeout(180)
def test_the_approvals_are_denied_edited_kept_ruled_answered_and_steered() -> None:
    notebook = executed(ROOT / "examples_notebooks" / "03_approvals.ipynb")
    assert "Nobody is there to ask" in twin(notebook, 1)
    assert "Reason: Not before Tuesday's back-up." in printed(notebook, 2)
    assert "limit: Input should be a valid integer" in printed(notebook, 4)
    assert 'what ran: {"table":"orders","limit":1}' in printed(notebook, 4)
    assert "1 rows of orders deleted, 119 left\n<system-reminder>The user changed the arguments" in printed(notebook, 4)
    assert "times asked for two calls: 1 - the rules now: (PermissionRule(tool_name='delete_rows'" in printed(notebook, 6)
    assert "taken back: 1 - the rules now: ()" in printed(notebook, 6)
    assert "denied (rule: deny delete_rows(table=prod_*))" in twin(notebook, 7)
    assert "success - 1 rows of drafts deleted" in printed(notebook, 7)
    assert printed(notebook, 9) == "denied - Reason: I am still writing.\nsuccess - 5 rows of orders deleted, 113 left\n"
    assert "waits for a result" in twin(notebook, 10)
    assert printed(notebook, 11) == "I shall keep to that. <- After five o'clock, yes.\n"
    for line in ("deny -> denied", "allow -> success", "raise -> delete_rows needs a confirmation"):
        assert line in printed(notebook, 12)
    assert "read: ['Tell me a long story', 'And end with one sentence, please.']" in printed(notebook, 14)
    assert "problems in the history: ()" in printed(notebook, 14)
    for output in (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs):
        assert output["output_type"] != "error"
