"""Cards where no IPython runs the code: in a cell of marimo (here a fake one, with its two queues), and placed by an app."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agent_widgets as aw
from agent_widgets.hosts import MarimoCell
from agent_widgets.models.scripted import ScriptedModel, call, say
from agent_widgets.sessions import sessions
from agent_widgets.widget import AgentWidget

STATIC = Path(aw.__file__).parent / "static"


@aw.tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    return f"{table} is empty now"


@pytest.fixture(autouse=True)
def no_sessions_are_left() -> Iterator[None]:
    yield
    for session in sessions():
        session.close()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A cell of marimo is running: what it has put out."""
    shown: list[Any] = []
    marimo = SimpleNamespace(running_in_notebook=lambda: True, output=SimpleNamespace(append=shown.append))
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    return shown


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[Any]:
    """The queue from which marimo merges, where its kernel keeps it."""
    set_ui_element_queue: queue.Queue[Any] = queue.Queue()

    def enqueue(command: Any) -> None:
        set_ui_element_queue.put(command)

    context = SimpleNamespace(_kernel=SimpleNamespace(enqueue_control_request=enqueue))
    monkeypatch.setitem(sys.modules, "marimo._runtime.context", SimpleNamespace(get_context=lambda: context))
    return set_ui_element_queue


def storyteller() -> aw.Agent:
    return aw.Agent(ScriptedModel([[say(["word "] * 2000)], [say("And so on.")]], tokens_per_second=50), name="storyteller")


def cleaner() -> aw.Agent:
    return aw.Agent(ScriptedModel([[call("delete_rows", {"table": "orders"})], [say("Done.")]]), tools=[delete_rows])


def command(model_id: str, method: str = "custom", **content: str) -> Any:
    """What marimo makes of a page's message."""
    data = {"method": method, "content": content}
    return SimpleNamespace(model_id=model_id, into_comm_payload=lambda: {"content": {"data": data}})


def comm_id(card: Any) -> str:
    return card.comm.comm_id


def test_a_chat_in_a_cell_of_marimo_puts_its_card_below_and_is_it_as_the_last_line(shown: list[Any]) -> None:
    run = aw.chat(storyteller(), "Tell me a story")
    assert shown == [run.card]
    assert isinstance(run.card, AgentWidget)
    assert run._display_() is run.card
    run.stop()


def test_without_a_prompt_a_cell_of_marimo_gets_a_box_to_type_in(shown: list[Any]) -> None:
    assert aw.chat(storyteller()) is None
    assert [card.composer for card in shown] == [True]


def test_a_run_without_a_card_is_its_summary() -> None:
    run = aw.chat(storyteller(), "Tell me a story")
    assert run._display_() == repr(run)
    run.stop()


@pytest.mark.timeout(20)
def test_a_cell_of_marimo_that_waits_hears_its_card_and_leaves_the_rest_to_marimo(
    shown: list[Any], commands: queue.Queue[Any]
) -> None:
    run = aw.chat(storyteller(), "Tell me a story")
    model_id = comm_id(shown[0])
    commands.put(command("somebody else's", kind="stop", id="1", run_id=run.run_id))
    commands.put(SimpleNamespace(object_ids=["a slider"]))
    commands.put(command(model_id, method="update", kind="stop", id="2", run_id=run.run_id))
    assert run.status != "interrupted"
    commands.put(command(model_id, kind="stop", id="3", run_id=run.run_id))
    assert run.wait().status == "interrupted"
    assert commands.empty()


@pytest.mark.parametrize("context", [None, SimpleNamespace(), SimpleNamespace(get_context=lambda: SimpleNamespace(_kernel=None))])
def test_a_marimo_that_keeps_its_queue_otherwise_is_waited_in_all_the_same(
    shown: list[Any], monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    monkeypatch.setitem(sys.modules, "marimo._runtime.context", context)
    run = aw.chat(aw.Agent(ScriptedModel([[say("Once.")]])), "Tell me a story")
    assert run.wait().status == "completed"


def test_a_notebook_of_marimo_that_is_run_as_a_script_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda: False))
    assert MarimoCell.get() is None


@pytest.mark.timeout(20)
def test_a_card_that_is_placed_by_an_app_carries_its_code_and_asks() -> None:
    card = aw.card(cleaner(), "Clean up")
    (run,) = card.session.runs
    assert card.get_state()["_bundle"] is None
    assert card.get_state()["_esm"] == (STATIC / "card.js").read_text(encoding="utf-8")
    wait_until(lambda: run.status == "paused")
    run.approve()
    assert run.wait().text == "Done."


def test_with_on_confirm_nobody_is_asked_on_a_placed_card() -> None:
    card = aw.card(cleaner(), "Clean up", on_confirm="deny")
    assert card.session.runs[0].wait().status == "completed"


def test_a_card_shows_the_runs_so_far_and_what_is_resumed_from_it() -> None:
    endless = [say(["word "] * 2000)]
    model = ScriptedModel([endless, endless, [say("And so on.")]], tokens_per_second=50)
    agent = aw.Agent(model, name="storyteller")
    first = aw.chat(agent, "Tell me a story")
    wait_until(lambda: len(model.requests) == 1)
    first.stop()
    first.wait()
    card = aw.card(agent)
    assert [run["run_id"] for run in card.get_state()["snapshot"]["runs"]] == [first.run_id]
    second = aw.card(agent, "Go on").session.runs[-1]
    wait_until(lambda: len(model.requests) == 2)
    second.stop()
    resumed = second.wait().resume()
    assert resumed.card is second.card
    assert resumed.wait().text == "And so on."


@pytest.mark.parametrize("arguments", [{"on_confirm": "perhaps"}, {"deadline": 0}, {"budget": 3}])
def test_an_argument_of_card_that_cannot_work_is_refused_as_in_chat(arguments: dict[str, Any]) -> None:
    make: Callable[..., Any] = aw.card
    with pytest.raises(aw.InputError):
        make(storyteller(), **arguments)


def wait_until(truth: Callable[[], object]) -> None:
    """Wait for it, for ten seconds at most."""
    deadline = time.monotonic() + 10
    while not truth():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
