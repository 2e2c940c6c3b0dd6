"""A notebook that has applied nest_asyncio: it is said what that does to the kernel, and everything of ours works."""

from __future__ import annotations

import time

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page
from tests.kernel.test_interrupt import AGENT, WAITS, begin, ended, is_freed_by_a_second_press, press
from tests.kernel.test_stop import CELLS

SOON = 1.0
"""Seconds from a press to what it does, where loops nest, on a machine that is busy with other tests."""

NESTS = ["nest_asyncio", "nest_asyncio2"]


@pytest.fixture(params=NESTS)
def nest(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["before the import", "after it"])
def nested(request: pytest.FixtureRequest, front: Front, nest: str) -> Front:
    """A kernel whose notebook has applied one of the two, before or after it has imported the package."""
    apply = f"import {nest}; {nest}.apply()"
    for code in (apply, SETUP) if request.param == "before the import" else (SETUP, apply):
        assert "Error" not in front.run(code)
    front.run("agent = aw.Agent(slow('went on', 'and on'))")
    return front


def loses_cells(front: Front, nest: str) -> bool:
    version = front.run("import ipykernel; print(*ipykernel.version_info[:2])").split()
    return nest == "nest_asyncio" and (int(version[0]), int(version[1])) >= (7, 1)


@pytest.mark.parametrize("kind", CELLS)
def test_a_stop_click_and_the_next_cell_work_in_every_kind_of_cell(nested: Front, kind: str) -> None:
    page = Page(nested)
    cell = nested.execute(CELLS[kind])
    page.wait_for_text()
    pressed = time.monotonic()
    page.stop()
    queued = [nested.execute(f"order.append({number})") for number in (1, 2)]
    assert page.wait_for_state("interrupted").time - pressed < SOON
    assert nested.wait(cell)["status"] == "ok"
    for msg_id in queued:
        assert nested.wait(msg_id)["status"] == "ok"
    assert nested.run("print(order, run.status, agent.state.check())") == "['run', 1, 2] interrupted ()\n"
    assert nested.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")


@pytest.mark.parametrize("kind", ["awaiting", "sync", "sync in an awaiting cell"])
def test_the_kernels_interrupt_stops_the_run_and_run_all(nested: Front, kind: str) -> None:
    nested.run("agent = aw.Agent(slow('went on', 'and on', model=InWaitingCell))")
    page = Page(nested)
    cell = nested.execute(CELLS[kind])
    behind = nested.execute("order.append('not this one')")
    page.wait_for_text()
    pressed = press(nested)
    raised, at = ended(nested, cell)
    assert raised == "AgentStopped"
    assert at - pressed < SOON
    assert nested.wait(behind)["status"] in ("aborted", "error")
    assert nested.run("print(order, run.status)") == "[] interrupted\n"
    assert nested.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")


TOOL = """
import threading

@aw.tool(confirm=True, thread="main")
def where() -> str:
    "Say on which thread this is."
    print("printed in a tool")
    return str(threading.current_thread() is threading.main_thread())

agent = aw.Agent(ScriptedModel([[call("where")], [say("done")]]), tools=[where])
"""


@pytest.mark.parametrize("kind", CELLS)
def test_a_decision_a_main_thread_tool_and_what_it_prints_work_in_every_kind_of_cell(nested: Front, kind: str) -> None:
    nested.run(TOOL)
    page = Page(nested)
    cell = nested.execute(CELLS[kind])
    page.decide("approve")
    transcript = page.settle()
    assert nested.wait(cell)["status"] == "ok"
    results = [block["output"] for block in transcript["message"]["content"] if block["type"] == "tool_result"]
    assert (results, [output["text"] for output in transcript["outputs"]]) == (["True"], ["printed in a tool\n"])
    assert nested.run("print(run.status, run.text)") == "completed done\n"


@pytest.mark.parametrize("kind", ["await run", "run.wait()", "run.wait() in an async cell"])
def test_a_second_press_frees_the_cell(nested: Front, kind: str) -> None:
    nested.run(AGENT)
    nested.run("agent = worker(1.8)")
    cell = begin(nested, WAITS[kind])
    is_freed_by_a_second_press(nested, cell, SOON)
    assert nested.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")


def test_reply_sync_works_in_plain_and_in_awaiting_cells(nested: Front) -> None:
    nested.run("agent = aw.Agent(ScriptedModel([[say('one')], [say('two')]]))")
    assert nested.run("print(agent.reply_sync('a').text)") == "one\n"
    assert nested.run("await asyncio.sleep(0)\nprint(agent.reply_sync('b').text)") == "two\n"


def test_a_click_while_a_nested_loop_runs_stops_the_run_and_a_queued_cell_is_lost_where_it_is_said(
    nested: Front, nest: str
) -> None:
    page = Page(nested)
    nested.run(CELLS["background"])
    page.wait_for_text()
    busy = nested.execute("asyncio.get_event_loop().run_until_complete(asyncio.sleep(3))")
    nested.wait_for(lambda m: m.type == "execute_input" and m.parent_id == busy)
    nested.execute("order.append('queued')")
    time.sleep(0.2)
    pressed = time.monotonic()
    page.stop()
    assert page.wait_for_state("interrupted").time - pressed < SOON
    nested.wait(busy)
    order = (
        "['run']" if loses_cells(nested, nest) else "['run', 'queued']"
    )  # one that comes after the nested loop runs on every kernel
    assert nested.run("print(run.status, order)") == f"interrupted {order}\n"


def test_it_is_said_once_and_only_where_cells_get_lost(nested: Front, nest: str) -> None:
    loses = loses_cells(nested, nest)
    nested.run("agent = aw.Agent(ScriptedModel([[say('one')], [say('two')]]))")
    notes = [nested.run(f"run = aw.chat(agent, {prompt!r}); run.wait(); print(run.note)") for prompt in ("a", "b")]
    assert ("this kernel loses the cells that are queued" in notes[0]) is loses
    assert ("nest_asyncio2" in notes[0]) is loses
    assert "nest_asyncio" not in notes[1]
