"""Run All in real JupyterLab and Notebook 7: a question holds the cells behind it or not, and ■ ends it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jlab import Lab, Notebook
from tests.browser.test_card import ASKS, SETUP, button, card, ended

BEHIND = "print(run.status, [m['content'] for m in deleter.model.requests[-1].messages if m['role'] == 'tool'])"


def prompt(notebook: Notebook, index: int) -> Locator:
    return notebook.cell(index).locator(".jp-InputPrompt")


def opened(app: Lab, name: str, *cells: str) -> Notebook:
    app.write(f"{name}.ipynb", [SETUP, *cells])
    return app.open(f"{name}.ipynb")


@pytest.mark.parametrize("waits", ["await run", "run.wait()"])
@pytest.mark.parametrize(("click", "outcome"), [("Approve", "completed ['3']"), ("Deny", "completed"), ("Stop", "interrupted")])
def test_a_question_holds_the_cells_behind_it_until_it_is_answered(app: Lab, waits: str, click: str, outcome: str) -> None:
    notebook = opened(app, "held", f"{ASKS}\n{waits}", BEHIND, "print('the end')")
    notebook.run_all()
    shown = card(notebook, 1)
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you", timeout=20_000)
    expect(prompt(notebook, 2)).to_have_text("[*]:")
    notebook.page.wait_for_timeout(500)  # that nothing happens, nothing says
    assert (notebook.text(2), notebook.text(3)) == ("", "")
    if click == "Approve":
        notebook.screenshot(f"run-all-held-{app.app}")
    button(shown, click).click()
    notebook.wait_text(2, outcome)
    notebook.wait_text(3, "the end")
    ended(notebook, 1, "stopped" if click == "Stop" else "done")
    assert app.errors() == []
    notebook.close()


def test_a_question_of_a_run_in_the_background_holds_nothing(app: Lab) -> None:
    notebook = opened(app, "not-held", ASKS, "print('meanwhile')", "await run", BEHIND)
    notebook.run_all()
    notebook.wait_text(2, "meanwhile")
    shown = card(notebook, 1)
    expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    expect(prompt(notebook, 3)).to_have_text("[*]:")
    button(shown, "Approve").click()
    notebook.wait_text(4, "completed ['3']")
    assert app.errors() == []
    notebook.close()


@pytest.mark.parametrize(
    "cell", ["agent = aw.Agent(slow())\nrun = aw.chat(agent, 'Tell me a story')\nawait run", f"{ASKS}\nawait run"]
)
def test_the_kernels_stop_button_ends_the_run_and_run_all(app: Lab, cell: str) -> None:
    notebook = opened(app, "interrupt", cell, "print('must not run')")
    notebook.run_all()
    shown = card(notebook, 1)
    expect(shown).to_contain_text(re.compile("word5|I shall clean up"), timeout=20_000)
    if cell.startswith(ASKS):
        expect(shown.locator(".aw-chip")).to_have_text("waiting for you")
    notebook.interrupt()
    ended(notebook, 1, "stopped")
    notebook.wait_text(1, "AgentStopped: the run was stopped and its state is kept")
    expect(shown).to_contain_text("kernel")
    notebook.wait_kernel("connected/idle")
    expect(prompt(notebook, 2)).to_have_text("[ ]:")
    assert notebook.text(2) == ""
    notebook.screenshot(f"run-all-interrupted-{app.app}")
    notebook.close()
