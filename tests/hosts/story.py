"""What is told in each host: stories that stream for two minutes, and an agent that asks twice before it deletes rows."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page

from tests.hosts.serving import Card, Host

AGENTS = """\
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say

@aw.tool(confirm=True)
async def delete_rows(table: str) -> str:
    "Delete the rows of TABLE."
    return f"{table} is empty now"

def storyteller():
    first, second = ([say([f"{what}{n} " for n in range(6000)])] for what in ("word", "line"))
    model = ScriptedModel([first, second, [say(["That was ", "all."])]], tokens_per_second=50)
    return aw.Agent(model, name="storyteller")

def cleaner():
    first, second = (call("delete_rows", {"table": table}) for table in ("orders", "drafts"))
    model = ScriptedModel([[say("I shall clean up."), first], [say("Then the other one."), second], [say("All done.")]])
    return aw.Agent(model, name="cleaner", tools=[delete_rows])

shared = storyteller()
"""


def write_agents(directory: Path) -> None:
    """Put the agents where the host's code can import them. ``shared`` is one agent for all pages of a process."""
    (directory / "agents.py").write_text(AGENTS)


def streams_and_stops(card: Card) -> str:
    """Watch a story stream, stop it, and give what was measured as one line."""
    card.wait_for("word5")
    growth = card.grows()
    assert growth.steps >= 10, growth
    assert growth.words_a_second >= 20, growth
    pressed = card.stop()
    assert told(card, "word") == [str(number) for number in range(len(told(card, "word")))]
    card.wait_for("Stopped by you")
    pace = f"{growth.words_a_second:.0f} of 50 words/s in {growth.steps / 2:.0f} steps/s"
    return f"{pace}, longest gap {growth.longest_gap_ms:.0f} ms; Stop {pressed:.0f} ms"


def denies_and_approves(card: Card) -> None:
    """Deny the first call with a reason, approve the second one."""
    card.wait_for_outcome("waiting for you")
    card.wait_for("orders")
    card.deny("Not before the back-up")
    card.wait_for("Then the other one.")
    card.wait_for("Not before the back-up")
    card.wait_for_outcome("waiting for you")
    card.press("Approve")
    card.wait_for("drafts is empty now")
    card.wait_for("All done.")
    card.wait_for_outcome("done")
    assert "orders is empty now" not in card.text()


def is_there_after_a_reload(host: Host, page: Page, index: int = 0) -> None:
    """The card of ``shared``, whose first story was stopped: reload when idle, reload in mid-run, stop from a second page."""
    page.reload()
    card = Card(page, index)
    card.wait_for("Stopped by you")
    card.ask("Another one")
    card.wait_for("line5")
    page.reload()
    card.wait_for("line5")
    assert (growth := card.grows(4)).steps >= 10, growth
    other = Card(host.open(), index)
    other.wait_for("line5")
    assert (growth := other.grows(4)).steps >= 10, growth
    other.stop()
    card.wait_for_outcome("stopped")
    seen = told(card, "line")
    assert seen == told(other, "line") == [str(number) for number in range(len(seen))]
    other.page.close()


def told(card: Card, what: str) -> list[str]:
    """The numbers of the words that the card shows."""
    return re.findall(rf"{what}(\d+)", card.text())
