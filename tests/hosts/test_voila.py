"""Voilà: a notebook that its server executes, and whose page people click in, although stdin is not allowed there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.jlab import notebook_json
from tests.hosts.serving import Card, Host
from tests.hosts.story import denies_and_approves, streams_and_stops, write_agents

AGENTS = "from agents import *"
CELLS = [
    f"{AGENTS}\nprint('stdin:', get_ipython().kernel._allow_stdin)",
    "run = aw.chat(storyteller(), 'Tell me a story')",
    "aw.chat(cleaner(), 'Clean up')",
    "aw.chat(shared)",
]
NOISE = (
    "Failed to load resource",  # it asks a CDN for fonts
    "jupyterlab_pyviz",  # Panel's extension of JupyterLab, which is installed beside it here
)


def voila(browser: Browser, directory: Path, *cells: str) -> Host:
    """A notebook in Voilà."""
    write_agents(directory)
    (directory / "nb.ipynb").write_text(json.dumps(notebook_json(cells, "python3")))
    return Host(browser, ["voila", "nb.ipynb", "--no-browser", "--port={port}", "--Voila.ip=127.0.0.1"], directory)


def test_voila(browser: Browser, tmp_path: Path, measured: Callable[[str], None]) -> None:
    with voila(browser, tmp_path, *CELLS) as host:
        page = host.open()
        story, cleaning, box = (Card(page, index) for index in range(3))
        measured(streams_and_stops(story))
        expect(page.get_by_text("stdin: False")).to_be_visible()
        denies_and_approves(cleaning)
        box.ask("Tell me a story")
        streams_and_stops(box)
        assert [twin.is_visible() for twin in page.locator(".aw-static").all()] == [False] * 3
        page.reload()  # a new kernel, which executes the notebook: Voilà's way
        story.wait_for("word5")
        assert "Stopped by you" not in story.text()
        assert host.errors(noise=NOISE) == []


def test_a_cell_that_waits_delays_the_page_until_its_run_is_over(browser: Browser, tmp_path: Path) -> None:
    short = "aw.Agent(ScriptedModel([[say(['and '] * 60 + ['last.'])]], tokens_per_second=20))"
    with voila(browser, tmp_path, AGENTS, f"await aw.chat({short}, 'Count')") as host:
        card = Card(host.open())
        card.element.wait_for(timeout=60_000)
        card.wait_for_outcome("done")
        assert "and " * 60 + "last." in card.text()
