"""The notebook of the four ways shows what it says, with nobody there and no foreign package."""

from __future__ import annotations

import pytest

from tests.notebooks.test_quickstart import ROOT, executed, printed, twin

REMINDER = "<system-reminder>The tool call has been interrupted by the user.</system-reminder>"


@pytest.mark.timeout(180)
def test_the_four_ways_end_as_they_say_and_every_history_is_valid() -> None:
    notebook = executed(ROOT / "examples_notebooks" / "02_four_ways_to_interrupt.ipynb")
    told = [printed(notebook, index).splitlines() for index in range(10)]
    assert [lines.count("problems: ()") for lines in told] == [0, 1, 1, 1, 1, 1, 1, 0, 1, 0]

    cut = told[1][1]
    assert cut.startswith("assistant interrupted: There are forty boats ")
    assert "stopped from code" in twin(notebook, 1)
    assert [line.split(":")[0].strip() for line in told[2][:-1]] == [
        "user says",
        "assistant interrupted",
        "user says",
        "assistant completed",
    ]
    assert told[2][1] == cut

    assert told[3][:2] == [
        "I'm waiting for your permission or the external execution to finish.",
        """waits: ['sink({"boat": "Albatross"})']""",
    ]
    assert told[3][2:6] == ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "REPLY_END"]
    assert told[3][-2] == f"     tool interrupted: {REMINDER}"

    assert told[4][0] == "I hear you: lunch is ready. {'_is_interrupted': True}"
    assert not any("lunch" in line for line in told[4][1:])

    assert told[5][-2] == "     tool success: 40 boats"
    assert told[6][:2] == ["There are forty.", "messages of the user: 1"]
    assert told[6][-2] == "assistant completed: There are forty."
    assert told[7] == ["Still here."]

    assert told[8][0] == "AgentInterruptedError: Agent interrupted."
    assert told[9] == ["Forty gulls."]
    for output in (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs):
        assert output["output_type"] != "error"
