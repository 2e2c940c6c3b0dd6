"""Every kind of cell on each supported kernel: cards stream and stop there, queued cells and other widgets keep their order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.fakefront import Comm, Front, Message
from tests.kernel.page import SETUP, SOON, Page

WIDGETS = """
%load_ext agent_widgets
import ipywidgets
"""
CHAT_IN_THREAD = """
import threading

def chat_in_thread():
    thread = threading.Thread(target=aw.chat, args=(agent, 'go'))
    thread.start()
    thread.join()
"""
CELLS = {
    "in the background": "aw.chat(agent, 'go')",
    "in a thread of the cell": "chat_in_thread()",
    "await": "await aw.chat(agent, 'go')",
    "sync": "aw.chat(agent, 'go').wait()",
    "sync in an async cell": "await asyncio.sleep(0)\naw.chat(agent, 'go').wait()",
    "%%agent": "%%agent agent\ngo",
    "%%agent without waiting": "%%agent agent --no-wait\ngo",
    "%%agent below %%time": "%%time\n%%agent agent\ngo",
    "%%agent below %%capture": "%%capture cap\n%%agent agent\ngo",
    "sync below %%capture": "%%capture cap\naw.chat(agent, 'go').wait()",
    "await in an Output": "out = ipywidgets.Output()\nwith out:\n    await aw.chat(agent, 'go')",
    "sync in an Output": "out = ipywidgets.Output()\nwith out:\n    aw.chat(agent, 'go').wait()",
}


@pytest.fixture(scope="module")
def front(kernel_python: Path) -> Iterator[Front]:
    """One kernel for all of them."""
    with Front(kernel_python) as front:
        assert front.run(SETUP + WIDGETS + CHAT_IN_THREAD) == ""
        yield front


@pytest.fixture
def page(front: Front) -> Page:
    front.run("order.clear(); agent = aw.Agent(slow('went on', 'and on', 'and on'))")
    return Page(front)


def shows(message: Message, card: Comm) -> bool:
    """Whether it puts this card on the screen."""
    view = "application/vnd.jupyter.widget-view+json"
    return message.type == "display_data" and message.content["data"].get(view, {}).get("model_id") == card.comm_id


@pytest.mark.parametrize("kind", CELLS)
def test_a_card_streams_and_stops_and_queued_cells_keep_their_order(front: Front, page: Page, kind: str) -> None:
    cell = front.execute(CELLS[kind])
    queued = [front.execute(f"order.append({number})") for number in (1, 2)]
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop()
    assert page.wait_for_state("interrupted").time - pressed < SOON
    assert [front.wait(msg_id)["status"] for msg_id in (cell, *queued)] == ["ok", "ok", "ok"]
    assert front.run("print(order, agent.state.check(), agent.state.context[0].text)") == "[1, 2] () go\n"
    assert front.run("await aw.chat(agent, 'go on'); print(agent.state.context[-1].text)").endswith("went on\n")


def test_the_first_use_in_a_thread_of_its_own_shows_its_card_or_says_what_to_do(kernel_python: Path) -> None:
    with Front(kernel_python) as front:
        front.run(f"{SETUP}\n{CHAT_IN_THREAD}\nagent = aw.Agent(ScriptedModel([[say('one')]]))")
        page = Page(front)
        fault = front.run("chat_in_thread()")
        if front.run("import ipykernel; print(ipykernel.__version__)").startswith("7.0"):
            assert "Run  %load_ext agent_widgets  in a cell first." in fault
            front.run("%load_ext agent_widgets")
            fault = front.run("chat_in_thread()")
        assert "InputError" not in fault
        page.wait_for_state("completed")


def test_a_thread_of_ones_own_gets_nothing_of_the_cell_but_its_place(front: Front, page: Page) -> None:
    said = front.run(
        "import decimal, contextvars; mine = contextvars.ContextVar('mine'); mine.set(1); decimal.getcontext().prec = 5\n"
        "def look(): aw.chat(agent, 'go'); order.extend((decimal.getcontext().prec, mine in contextvars.copy_context()))\n"
        "thread = threading.Thread(target=look); thread.start(); thread.join(); print(order)"
    )
    assert said.endswith("[28, False]\n")
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")


def test_autoawait_can_be_off(front: Front, page: Page) -> None:
    front.run("agent = aw.Agent(slow('went on', model=InWaitingCell))\n%autoawait off")
    try:
        cell = front.execute("%%agent agent\ngo")
        page.wait_for_text()
        front.interrupt()
        assert front.wait(cell)["ename"] == "AgentStopped"
        assert front.run("order.append(agent.reply_sync('go on').text); print(order)") == "['went on']\n"
    finally:
        front.run("%autoawait on")


@pytest.mark.parametrize("kind", ["await in an Output", "sync in an Output"])
def test_a_card_lands_in_the_output_that_it_was_asked_into(front: Front, page: Page, kind: str) -> None:
    cell = front.execute(CELLS[kind])
    page.wait_for_text()
    (output,) = [comm for comm in front.comms.values() if comm.state.get("_model_name") == "OutputModel" and comm.state["msg_id"]]
    assert output.state["msg_id"] == cell  # the page puts what belongs to this cell into the Output, from here
    told = [m for m in front.of(cell) if m.content.get("comm_id") == output.comm_id or shows(m, page.card)]
    assert [m.type for m in told] == ["comm_open", "comm_msg", "display_data"]  # ... and the card came after that
    page.stop()
    front.wait(cell)
    assert output.state["msg_id"] == ""


def test_a_captured_card_is_shown_later_and_is_alive(front: Front, page: Page) -> None:
    cell = front.execute("%%capture cap\nrun = aw.chat(agent, 'go')")
    front.wait(cell)
    page.wait_for_text()
    assert not [message for message in front.of(cell) if message.type == "display_data"]
    shown = front.execute("cap.show()")
    front.wait(shown)
    assert [shows(message, page.card) for message in front.of(shown) if message.type == "display_data"] == [True, False]
    page.send("hello", have=-1, page="the first to see it")
    page.wait_for_messages("full")
    page.stop()
    page.wait_for_state("interrupted")


def test_in_a_loop_of_cards_stop_ends_one_and_the_loop_goes_on(front: Front, page: Page) -> None:
    cell = front.execute("for number in range(3): order.append((await aw.chat(agent, f'go {number}')).text[-7:].strip())")
    queued = front.execute("order.append('queued')")
    page.wait_for_text()
    page.stop()
    front.wait(cell)
    front.wait(queued)
    assert front.run("print(order[1:], len(aw.sessions()[-1].runs))") == "['went on', 'and on', 'queued'] 3\n"


def test_a_cell_that_is_executed_again_waits_its_turn_and_the_old_card_still_answers(front: Front, page: Page) -> None:
    """The history has one order: a run that nobody stopped is not thrown away because its card is gone."""
    code = "run = aw.chat(agent, 'go')"
    front.run(code)
    page.wait_for_text()
    again = Page(front)
    front.run(code)
    assert again.wait_for_state("queued").content["data"]["content"]["status"]["ahead"] == 1
    page.stop()
    page.wait_for_state("interrupted")
    again.wait_for_state("completed")
    front.run("run.wait()")
    assert (
        front.run("print([m.text for m in agent.state.context][::2], agent.state.check(), run.text)")
        == "['go', 'go'] () went on\n"
    )
    third = Page(front)
    front.run("agent.model = slow(); run = aw.chat(agent, 'once more')")
    third.wait_for_text()
    fourth = Page(front)
    front.run("again = aw.chat(agent, 'never')")
    fourth.wait_for_state("queued")
    fourth.stop()  # the one that waits its turn is taken out, the one before it goes on
    fourth.wait_for_state("interrupted")
    assert front.run("print(run.status, again.status)") == "running interrupted\n"
    third.stop()
    third.wait_for_state("interrupted")


@pytest.mark.parametrize("waits", ["", "await asyncio.gather(*runs)", "[run.wait() for run in runs]"])
def test_several_sessions_in_one_cell_and_in_several_are_stopped_alone(front: Front, page: Page, waits: str) -> None:
    front.run("agents = [aw.Agent(slow(), name=f'several {n}') for n in range(3)]")
    pages = [page, Page(front), Page(front)]
    known = set(front.comms)
    cell = front.execute(f"runs = [aw.chat(agent, 'go') for agent in agents]; {waits}")
    cards: list[Comm] = []
    for seen in pages:
        cards.append(front.wait_for_comm(lambda c: c.comm_id not in known and "snapshot" in c.state and c not in cards))
        seen._known = known | {card.comm_id for card in cards[:-1]}
        seen.wait_for_text()
    pages[1].stop()
    pages[1].wait_for_state("interrupted")
    assert [seen.states()[-1] for seen in (pages[0], pages[2])] == ["running", "running"]
    pages[0].stop()
    pages[2].stop()
    front.wait(cell)
    for seen in pages:
        seen.wait_for_state("interrupted")
    assert front.run("print([run.status for run in runs], [a.state.check() for a in agents])") == (
        "['interrupted', 'interrupted', 'interrupted'] [(), (), ()]\n"
    )


OTHERS = """
slider, button, moved, clicked = ipywidgets.IntSlider(), ipywidgets.Button(), [], []
slider.observe(lambda change: moved.append(change["new"]), "value")
button.on_click(lambda _: clicked.append(len(moved)))
display(slider, button)
"""


@pytest.mark.parametrize("kind", ["in the background", "await", "sync", "sync in an async cell", "%%agent"])
def test_other_widgets_lose_nothing_and_are_heard_once_and_in_order(front: Front, page: Page, kind: str) -> None:
    known = set(front.comms)
    front.run(OTHERS)
    fresh = [comm for comm in front.comms.values() if comm.comm_id not in known]
    slider = next(comm for comm in fresh if comm.state.get("_model_name") == "IntSliderModel")
    button = next(comm for comm in fresh if comm.state.get("_model_name") == "ButtonModel")
    page = Page(front)
    cell = front.execute(CELLS[kind])
    page.wait_for_text()
    for value in range(1, 21):
        front.comm_msg(slider.comm_id, {"method": "update", "state": {"value": value}, "buffer_paths": []})
        front.custom(button.comm_id, {"event": "click"})
    pressed = time.monotonic()
    page.stop()
    queued = front.execute("order.append(len(moved))")
    assert page.wait_for_state("interrupted").time - pressed < 0.6
    assert front.wait(cell)["status"] == "ok"
    front.wait(queued)
    assert front.run("print(moved == list(range(1, 21)), clicked == list(range(1, 21)), order)") == "True True [20]\n"
