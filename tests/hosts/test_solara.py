"""Solara: each page is a kernel of its own in the server's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser

from tests.hosts.serving import Card, Host
from tests.hosts.story import denies_and_approves, is_there_after_a_reload, streams_and_stops, write_agents

APP = """
import solara
from agents import aw, cleaner, shared

@solara.component
def Page():
    for card in solara.use_memo(lambda: (aw.card(shared), aw.card(cleaner(), "Clean up")), []):
        solara.display(card)
"""


def test_solara(browser: Browser, tmp_path: Path, measured: Callable[[str], None]) -> None:
    write_agents(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    command = ["solara", "run", "app.py", "--no-open", "--port", "{port}", "--host", "127.0.0.1", "--production"]
    with Host(browser, command, tmp_path, env={"SOLARA_ASSETS_FONTAWESOME_ENABLED": "false"}) as host:
        page = host.open()
        story = Card(page)
        story.ask("Tell me a story")
        measured(streams_and_stops(story))
        denies_and_approves(Card(page, 1))
        is_there_after_a_reload(host, page)
        assert host.errors() == []
        assert host.refused == []
