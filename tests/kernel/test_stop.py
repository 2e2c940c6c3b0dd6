"""Stop and ■ in every kind of cell, on each supported kernel; queued cells keep their order and the next one goes on."""

from __future__ import annotations

import time

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, SOON, Page

CELLS = {
    "awaiting": "run = aw.chat(agent, 'tell me'); await run; order.append('run')",
    "sync": "run = aw.chat(agent, 'tell me'); run.wait(); order.append('run')",
    "sync in an awaiting cell": "await asyncio.sleep(0)\nrun = aw.chat(agent, 'tell me'); run.wait(); order.append('run')",
    "background": "run = aw.chat(agent, 'tell me'); order.append('run')",
}


@pytest.fixture
def page(front: Front) -> Page:
    front.run(SETUP)
    front.run("agent = aw.Agent(slow('went on', 'and on'))")
    return Page(front)


def is_seven(front: Front) -> bool:
    return front.run("import ipykernel; print(ipykernel.__version__)").startswith("7")


@pytest.mark.parametrize("kind", CELLS)
def test_a_stop_click_stops_the_run_at_once_and_the_next_cell_goes_on(front: Front, page: Page, kind: str) -> None:
    cell = front.execute(CELLS[kind])
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop()
    queued = [front.execute(f"order.append({number})") for number in (1, 2)]
    assert page.wait_for_state("interrupted").time - pressed < SOON
    assert front.wait(cell)["status"] == "ok"
    for msg_id in queued:
        assert front.wait(msg_id)["status"] == "ok"
    assert front.run("print(order, run.status, agent.state.check())") == "['run', 1, 2] interrupted ()\n"
    assert page.states()[-1] == "interrupted"
    assert front.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")
    assert front.run("print([m['content'] for m in agent.model.requests[-1].messages if m['role'] == 'user'])").endswith(
        "['tell me', 'go on']\n"
    )


@pytest.mark.parametrize("kind", ["awaiting", "sync", "background"])
def test_a_click_on_a_subshell_stops_the_run(front: Front, page: Page, kind: str) -> None:
    if not is_seven(front):
        features = front.run("print(get_ipython().kernel.kernel_info.get('supported_features', []))")
        assert "kernel subshells" not in features  # ipykernel 6 has none, and a page asks first
        return
    subshell = front.create_subshell()
    cell = front.execute(CELLS[kind])
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop(subshell=subshell)
    assert page.wait_for_state("interrupted").time - pressed < SOON
    assert front.wait(cell)["status"] == "ok"
    assert front.run("print(run.status)") == "interrupted\n"


def test_a_stop_click_is_heard_during_an_unrelated_blocking_cell(front: Front, page: Page) -> None:
    front.run(CELLS["background"])
    page.wait_for_text()
    seven = is_seven(front)
    busy = front.execute("time.sleep(3)")
    front.wait_for(lambda message: message.parent_id == busy and message.type == "execute_input")
    pressed = time.monotonic()
    page.stop()
    told = page.wait_for_state("interrupted").time
    idle = front.wait_idle(busy).time
    if seven:
        assert told - pressed < SOON
    else:  # under a foreign blocking cell the click waits for it (documented), and for nothing else
        assert idle - 0.2 < told < idle + SOON


def test_a_click_that_arrives_twice_is_handled_once(front: Front, page: Page) -> None:
    front.run(CELLS["background"])
    page.wait_for_text()
    presses = [page.send("stop", command_id="one-press") for _ in range(3)]
    page.wait_for_state("interrupted")
    for press in presses:
        front.wait_idle(press)
    assert page.states().count("interrupted") == 1
    assert page.notices() == []
