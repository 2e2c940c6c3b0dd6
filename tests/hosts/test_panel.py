"""Panel: each page is a document of the server, which ipywidgets_bokeh gives a comm layer of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser

from tests.hosts.serving import Card, Host, bin_directory
from tests.hosts.story import denies_and_approves, is_there_after_a_reload, streams_and_stops, write_agents

APP = """
import panel as pn
from agents import aw, cleaner, shared

pn.extension("ipywidgets")
for card in (aw.card(shared), aw.card(cleaner(), "Clean up")):
    pn.pane.IPyWidget(card, sizing_mode="stretch_width").servable()
"""
UNPKG = "https://unpkg.com/anywidget"
"""From where ipywidgets_bokeh takes anywidget's JavaScript. The package brings the same file."""
NOISE = ("Failed to load resource",)
"""Panel asks two CDNs for fonts."""


def test_panel(browser: Browser, tmp_path: Path, measured: Callable[[str], None]) -> None:
    write_agents(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    command = ["panel", "serve", "app.py", "--port", "{port}", "--address", "127.0.0.1"]
    anywidget = bin_directory().parent / "share/jupyter/nbextensions/anywidget/index.js"
    with Host(browser, command, tmp_path, path="/app", files={UNPKG: anywidget}) as host:
        page = host.open()
        story = Card(page)
        story.ask("Tell me a story")
        measured(streams_and_stops(story))
        denies_and_approves(Card(page, 1))
        is_there_after_a_reload(host, page)
        assert host.errors(noise=NOISE) == []
        assert not [url for url in host.refused if "font-awesome" not in url]
