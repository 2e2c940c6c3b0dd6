"""A reloaded page asks for its widgets while a cell runs, on each supported kernel; without a page, as JupyterLab asks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kernel.fakefront import Front, Message
from tests.kernel.page import SETUP, Page
from tests.kernel.test_stop import is_seven

WIDGETS = """
import threading
import ipywidgets
slider = ipywidgets.IntSlider(value=7)
image = ipywidgets.Image(value=bytes(range(256)), format="raw")
"""
CELLS = {
    "awaiting": "run = aw.chat(agent, 'tell me'); await run",
    "sync": "run = aw.chat(agent, 'tell me'); run.wait()",
    "sync in an awaiting cell": "await asyncio.sleep(0)\nrun = aw.chat(agent, 'tell me'); run.wait()",
}
EARLY = 1.0
"""Seconds within which an early answer must be there, on a machine that is busy with other tests."""


@pytest.fixture
def page(front: Front) -> Page:
    front.run(SETUP + WIDGETS)
    front.run("agent = aw.Agent(slow())")
    return Page(front)


@dataclass
class Reloaded:
    """What a page asks when it comes back, and the answers so far."""

    front: Front

    def __post_init__(self) -> None:
        self.asked_at = time.monotonic()
        self.info_id = self.front.ask_info()
        self.comm_id = self.front.comm_open("jupyter.widget.control", metadata={"version": "1.0.0"})
        self.states_id = self.front.comm_msg(self.comm_id, {"method": "request_states"})

    def infos(self) -> list[Message]:
        return [message for message in self.front.of(self.info_id) if message.type == "kernel_info_reply"]

    def states(self) -> list[Message]:
        sent = [message for message in self.front.of(self.states_id) if message.type == "comm_msg"]
        return [message for message in sent if message.content["data"]["method"] == "update_states"]

    def wait(self, answers: int = 1) -> float:
        """Until both questions have been answered so often; the seconds since they were asked."""
        self.front.wait_until(lambda: len(self.infos()) >= answers and len(self.states()) >= answers, 20)
        return max(self.infos()[answers - 1].time, self.states()[answers - 1].time) - self.asked_at

    def wait_handled(self) -> None:
        """Until the kernel's main thread has handled both, and its replies are here: on 7 these go another way."""
        self.front.wait_for(lambda message: message.parent_id == self.states_id and _is_idle(message), 20)
        self.front.run("pass")


def of_status(front: Front, *requests: str) -> list[Message]:
    return [message for message in list(front.messages) if message.type == "status" and message.parent_id in requests]


def _is_idle(message: Message) -> bool:
    return message.content.get("execution_state") == "idle"


def by_name(states: Message) -> dict[str, dict[str, Any]]:
    return {state["model_name"]: state["state"] for state in states.content["data"]["states"].values()}


@pytest.mark.parametrize("kind", CELLS)
def test_a_page_that_comes_back_during_a_cell_is_answered_at_once_and_again_when_it_has_ended(
    front: Front, page: Page, kind: str
) -> None:
    cell = front.execute(CELLS[kind])
    page.wait_for_text()
    back = Reloaded(front)
    assert back.wait() < EARLY
    assert not any(map(_is_idle, front.of(cell)))
    queued = front.execute("print('next')")
    page.stop()
    assert front.wait(cell)["status"] == "ok"
    front.wait(queued)
    assert front.text(queued) == "next\n"
    back.wait(2)
    infos = [{**message.content, "banner": ""} for message in back.infos()]  # a banner ends with a tip, drawn by lot
    assert infos[0] == infos[1]
    early, late = back.states()
    assert set(early.content["data"]["states"]) == set(late.content["data"]["states"])
    assert by_name(early)["IntSliderModel"] == by_name(late)["IntSliderModel"]
    assert early.content["data"]["buffer_paths"] == late.content["data"]["buffer_paths"]
    assert early.buffers == late.buffers == (bytes(range(256)),)
    assert by_name(early)["AnyModel"]["snapshot"]["runs"][0]["run_id"] == page.run_id


def test_a_foreign_blocking_cell_beside_a_run_is_answered_where_the_tap_hears(front: Front, page: Page) -> None:
    front.run("run = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    seven = is_seven(front)
    cell = front.execute("time.sleep(3); print('slept')")
    front.wait_for(lambda message: message.parent_id == cell and message.type == "execute_input")
    back = Reloaded(front)
    took = back.wait()
    front.wait(cell)
    assert (took < EARLY) is seven, took  # ipykernel 6: nothing of ours can run (documented)
    assert front.text(cell) == "slept\n"
    page.stop()


HOOKS = {
    "after it was announced": """
def slow_hook():
    print("hook", flush=True); time.sleep(0.3)

events = get_ipython().events
events.register("pre_execute", slow_hook)
""",
    "while the cell before it ends": """
def slow_hook(result):
    print("hook", flush=True); time.sleep(0.3)

events = get_ipython().events
events.register("post_run_cell", slow_hook)
""",
}


@pytest.mark.parametrize("when", HOOKS)
def test_a_page_that_asks_shortly_before_a_cell_begins_is_answered_when_it_has_begun(front: Front, when: str) -> None:
    """Between the request and the first statement of a cell are other libraries' hooks, and the scheduler."""
    front.run(SETUP + WIDGETS + HOOKS[when])
    page = Page(front)
    front.run("run = aw.chat(aw.Agent(slow()), 'tell me')")
    page.wait_for_text()
    cells = [front.execute("print('first')"), front.execute("await asyncio.sleep(2); print('second')")]
    hooked = cells[0] if when == "while the cell before it ends" else cells[1]
    front.wait_for(lambda message: message.parent_id == hooked and "hook" in message.content.get("text", ""))
    back = Reloaded(front)
    took = back.wait()
    front.wait(cells[1])
    assert took < EARLY
    back.wait(2)
    assert [front.text(cell).replace("hook\n", "") for cell in cells] == ["first\n", "second\n"]
    page.stop()


def test_the_kernel_is_said_to_be_busy_after_the_early_answer(front: Front, page: Page) -> None:
    cell = front.execute(CELLS["awaiting"])
    page.wait_for_text()
    back = Reloaded(front)
    back.wait()
    front.wait_until(lambda: len(of_status(front, cell)) == 2)
    said = of_status(front, cell, back.info_id)[:4]
    assert [(m.parent_id == cell, m.content["execution_state"]) for m in said] == [
        (True, "busy"),
        (False, "busy"),
        (False, "idle"),
        (True, "busy"),
    ]
    page.stop()
    front.wait(cell)


def test_an_idle_kernel_answers_once_by_itself(front: Front, page: Page) -> None:
    front.run("run = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    back = Reloaded(front)
    back.wait_handled()
    assert (len(back.infos()), len(back.states())) == (1, 1)
    page.stop()


@pytest.mark.parametrize(
    "off",
    [
        "%config AgentWidgets.early_answers = False",
        "get_ipython().run_line_magic('load_ext', 'agent_widgets'); get_ipython().run_line_magic('unload_ext', 'agent_widgets')",
    ],
)
def test_switched_off_or_unloaded_the_kernel_answers_alone(front: Front, page: Page, off: str) -> None:
    front.run("run = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    assert front.run(off) == ""
    cell = front.execute("time.sleep(1)")
    front.wait_for(lambda message: message.parent_id == cell and message.type == "execute_input")
    back = Reloaded(front)
    back.wait_handled()
    assert (len(back.infos()), len(back.states())) == (1, 1)
    assert back.infos()[0].time > front.wait_idle(cell).time - 0.2
    front.run("run.stop()")


HESITANT = """
class Hesitant(ipywidgets.IntSlider):
    def get_state(self, key=None, drop_defaults=False):
        if threading.current_thread() is not threading.main_thread():
            {hesitates}
        return super().get_state(key, drop_defaults)

hesitant = Hesitant()
"""


@pytest.mark.parametrize("hesitates", ["raise RuntimeError('not here')", "gate.acquire()"])
def test_a_widget_that_cannot_tell_its_state_leaves_the_answer_to_the_main_thread_and_runs_go_on(
    front: Front, page: Page, hesitates: str
) -> None:
    assert front.run("gate = threading.Semaphore(0)" + HESITANT.format(hesitates=hesitates)) == ""
    cell = front.execute(CELLS["sync"])  # in an awaiting one ipykernel 7.4 answers by itself
    page.wait_for_text()
    backs = [Reloaded(front) for _ in range(2)]
    front.wait_until(lambda: all(back.infos() for back in backs))
    texts = len(page.texts())
    front.wait_until(lambda: len(page.texts()) > texts + 50)  # the run goes on meanwhile
    if is_later := not any(back.states() for back in backs):
        pressed = time.monotonic()
        page.stop()
        assert page.wait_for_state("interrupted").time - pressed < EARLY
    assert is_later
    front.wait(cell)
    for back in backs:
        back.wait_handled()
        assert [set(by_name(message)) >= {"AnyModel", "IntSliderModel"} for message in back.states()] == [True]
    front.run("gate.release(9)")


LACKS = """
from agent_widgets.kernel import NotebookKernel
kernel = get_ipython().kernel

class Lacks:
    def __getattr__(self, name):
        if name == {name!r}:
            raise AttributeError(name)
        return getattr(kernel, name)

notebook = NotebookKernel.get()
notebook.reviver._kernel = Lacks()
"""


@pytest.mark.parametrize("name", ["_topic", "kernel_info", "iopub_socket", "session", "get_parent"])
def test_a_kernel_without_one_of_its_names_answers_by_itself_and_clicks_are_early(front: Front, page: Page, name: str) -> None:
    assert front.run(LACKS.format(name=name)) == ""
    cell = front.execute(CELLS["sync"])
    page.wait_for_text()
    back = Reloaded(front)
    pressed = time.monotonic()
    page.stop()
    assert page.wait_for_state("interrupted").time - pressed < EARLY
    assert front.wait(cell)["status"] == "ok"
    back.wait_handled()
    assert back.infos()
    assert set(by_name(back.states()[-1])) >= {"AnyModel", "IntSliderModel"}
    assert front.run("print(repr(notebook.tap.reason))") == "''\n"


# -- the static twin of a page that was reloaded in mid-run -----------------------------------------------------------


def test_a_page_whose_twin_is_too_old_is_given_it_as_it_should_be(front: Front, page: Page) -> None:
    front.run("run = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")
    front.wait_for(lambda message: message.type == "update_display_data")
    front.wait_idle(page.send("twin"))
    page.wait_for_messages("twin")
    (data,) = [message["data"] for message in page.card.custom if message["kind"] == "twin"]
    (updated,) = [m.content["data"] for m in front.messages if m.type == "update_display_data"]
    assert data == updated
    seqs = [message["seq"] for message in page.card.custom if message["kind"] == "events"]
    assert f'aw-run-{page.card.state["css_id"]} aw-at-{seqs[-1]}"' in data["text/html"]


def test_the_magic_shows_the_whole_transcript_as_an_output_of_its_own(front: Front, page: Page) -> None:
    front.run("%load_ext agent_widgets\nrun = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    shown = front.execute("%agent show assistant")
    front.wait(shown)
    (output,) = [m.content["data"] for m in front.of(shown) if m.type == "display_data"]
    assert "before the run had ended" in output["text/html"]
    assert "word word" in output["text/html"]
    assert "display: none" not in output["text/html"]
    page.stop()


def test_pages_are_told_where_the_session_is_stored(front: Front, page: Page) -> None:
    front.run("session = aw.Session.open('orders.session', agent)\nrun = aw.chat(agent, 'tell me')")
    page.wait_for_text()
    assert (page.card.state["session_name"], page.card.state["stored_in"]) == ("orders", "orders.session")
    page.stop()
