"""A kernel in which an agent runs again and again keeps what it says it keeps, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_widgets.cardcode import LIVE_CARDS
from agent_widgets.sessions import KEPT_RUNS
from tests.bench.growth import STORIES, Story, measure
from tests.kernel.fakefront import Front
from tests.kernel.page import Page

WARM = KEPT_RUNS + 25
"""Runs after which nothing grows any more."""

A_RUN_BYTES = 2_500
"""What a run may leave: a line in IPython's history, its prompt and result in ``In`` and ``Out``, the time of its cell."""

GROWTH_BYTES = 15e6
"""Of the process within 75 runs: what Python's allocator and the threads' arenas may take and keep."""


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name.replace(" ", "-"))
def test_two_hundred_runs_leave_nothing_that_a_hundred_did_not(kernel_python: Path, story: Story) -> None:
    found = measure(kernel_python, story, (WARM, WARM + 75))
    before, after = found[WARM], found[WARM + 75]
    assert after["cards"] <= LIVE_CARDS + 1
    assert after["runs"] <= KEPT_RUNS + 1
    for what in (
        "tasks",
        "timers",
        "threads",
        "comms",
        "widgets",
        "tapped",
        "sessions",
        "hooks",
        "handlers",
        "runs",
        "cards",
        "logs",
    ):
        assert (what, after[what]) == (what, before[what])
    assert after["files"] <= before["files"] + 2  # ipykernel's own come and go
    assert after["rss"] - before["rss"] < GROWTH_BYTES
    assert (after["traced"] - before["traced"]) / 75 < A_RUN_BYTES
    assert after["list ms"] < 100


def test_an_old_card_is_closed_and_its_static_twin_is_up_to_date(front: Front) -> None:
    front.run("import agent_widgets as aw\nfrom agent_widgets.models.scripted import ScriptedModel, say")
    page = Page(front)
    front.run("run = aw.chat(aw.Agent(ScriptedModel([[say('The first answer.')]])), 'go'); run.wait()")
    page.settle()
    card = page.card
    front.run(f"for n in range({LIVE_CARDS}): aw.chat(aw.Agent(ScriptedModel([[say('Another.')]])), 'go').wait()", timeout=60)
    front.wait_for(lambda message: message.type == "comm_close" and message.content["comm_id"] == card.comm_id)
    twins = [m.content["data"]["text/html"] for m in front.messages if m.type == "update_display_data"]
    assert "The first answer." in twins[0]
    assert sum(comm.closed for comm in front.comms.values()) == 1
    assert front.run("print(run.status, run.text)").strip() == "completed The first answer."


def test_a_card_in_which_something_goes_on_stays_open_however_old_it_is(front: Front) -> None:
    front.run(
        "import agent_widgets as aw\nfrom agent_widgets.models.scripted import ScriptedModel, call, say\n"
        "@aw.tool(confirm=True)\ndef delete() -> str:\n    'Delete all the rows of the table.'\n    return 'deleted'"
    )
    page = Page(front)
    front.run("run = aw.chat(aw.Agent(ScriptedModel([[call('delete')], [say('Done.')]]), tools=[delete]), 'go')")
    page.wait_for_state("paused")
    others = f"for n in range({LIVE_CARDS + 1}): aw.chat(aw.Agent(ScriptedModel([[say('Another.')]])), 'go').wait()"
    front.run(others, timeout=60)
    front.wait_for(lambda message: message.type == "comm_close")
    assert not page.card.closed
    page.decide("approve")
    assert page.settle()["message"]["finished_reason"] == "completed"
