"""marimo, as an app (run) and as an editor (edit): no IPython, a comm layer of its own, each card in a shadow root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.hosts.serving import Card, Host
from tests.hosts.story import denies_and_approves, is_there_after_a_reload, streams_and_stops, write_agents

CARDS = """
    run = aw.chat(storyteller(), "Tell me a story")
    return (run,)

@app.cell
def cleaning(aw, cleaner):
    aw.chat(cleaner(), "Clean up")
    return

@app.cell
def box(aw, shared):
    aw.card(shared)
    return
"""
WAITS = """
    run = {waits}
    return (run,)

@app.cell
def next_cell(mo, run):
    mo.md(f"the next {{'cell'}} has run")
    return
"""
NOTEBOOK = """\
import marimo
app = marimo.App()

@app.cell
def agents():
    import marimo as mo
    from agents import aw, cleaner, shared, storyteller
    return aw, cleaner, mo, shared, storyteller

@app.cell
async def story(aw, storyteller):
"""


def marimo(browser: Browser, directory: Path, mode: str, cells: str) -> Host:
    """A notebook in marimo, whose cells run when it is opened."""
    write_agents(directory)
    (directory / "nb.py").write_text(NOTEBOOK + cells)
    (directory / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n")
    return Host(
        browser, ["marimo", mode, "nb.py", "--headless", "--port", "{port}", "--host", "127.0.0.1", "--no-token"], directory
    )


@pytest.mark.parametrize("mode", ["run", "edit"])
def test_marimo(browser: Browser, tmp_path: Path, measured: Callable[[str], None], mode: str) -> None:
    with marimo(browser, tmp_path, mode, CARDS) as host:
        page = host.open()
        measured(streams_and_stops(Card(page)))
        denies_and_approves(Card(page, 1))
        box = Card(page, 2)
        box.ask("Tell me a story")
        streams_and_stops(box)
        if mode == "run":
            is_there_after_a_reload(host, page, 2)
        else:
            page.reload()
            for index, text in enumerate(("Stopped by you", "drafts is empty now", "Stopped by you")):
                Card(page, index).wait_for(text)
        assert host.errors() == []
        assert host.refused == []


@pytest.mark.parametrize(
    ("mode", "waits"),
    [("run", "aw.chat(storyteller(), 'Tell me').wait()"), ("edit", "await aw.chat(storyteller(), 'Tell me')")],
)
def test_a_cell_of_marimo_that_waits(
    browser: Browser, tmp_path: Path, measured: Callable[[str], None], mode: str, waits: str
) -> None:
    with marimo(browser, tmp_path, mode, WAITS.format(waits=waits)) as host:
        page = host.open()
        measured(streams_and_stops(Card(page)))
        page.get_by_text("the next cell has run").wait_for()
