"""``chat(loop="kernel")``: the kernel's own loop carries the run, on each supported kernel, and the contract holds."""

from __future__ import annotations

import time

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, SOON, Page
from tests.kernel.test_interrupt import ended, press

CHAT = "run = aw.chat(agent, 'tell me', loop='kernel'); "
CELLS = {
    "awaiting": CHAT + "await run; order.append('run')",
    "background": CHAT + "order.append('run')",
    "sync": CHAT + "run.wait(); order.append('run')",
    "sync in an awaiting cell": "await asyncio.sleep(0)\n" + CHAT + "run.wait(); order.append('run')",
}
"""The sync ones need the extra ``nest``."""

WHERE = "print(run.loop is asyncio.get_running_loop())"
UNTOUCHED = "print(hasattr(asyncio, '_nest_patched'), asyncio.Task.__module__, asyncio.run.__module__)"


@pytest.fixture
def page(front: Front) -> Page:
    front.run(SETUP)
    front.run("agent = aw.Agent(slow('went on', 'and on'))")
    return Page(front)


@pytest.mark.parametrize("kind", CELLS)
def test_a_stop_click_stops_the_run_at_once_and_queued_cells_keep_their_order(front: Front, page: Page, kind: str) -> None:
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
    assert front.run(WHERE) == "True\n"
    assert front.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")  # the session stays on its loop
    assert front.run("print(agent.state.check(), aw.sessions()[-1].loop is asyncio.get_running_loop())") == "() True\n"
    assert front.run(UNTOUCHED) == "False _asyncio asyncio.runners\n"


@pytest.mark.parametrize("kind", [kind for kind in CELLS if kind != "background"])
def test_the_kernels_interrupt_stops_the_run_and_run_all(front: Front, page: Page, kind: str) -> None:
    front.run("agent = aw.Agent(slow('went on', 'and on', model=InWaitingCell))")
    cell = front.execute(CELLS[kind])
    after = front.execute("order.append('must not run')")
    page.wait_for_text()
    pressed = press(front)
    raised, at = ended(front, cell)
    assert raised == "AgentStopped"
    assert at - pressed < SOON
    assert front.wait(after)["status"] in ("aborted", "error")
    assert (
        front.run("print(order, run.status, run.reply.metadata['source'], agent.state.check())") == "[] interrupted kernel ()\n"
    )
    assert front.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")


STUBBORN = """
class Stubborn:
    "A foreign agent that swallows every cancel for eight seconds."
    name = "stubborn"
    async def run(self, inputs, emit):
        await the_cell_waits()
        print("the cell", "waits")
        end = time.monotonic() + 8
        while time.monotonic() < end:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass
    def stop_after_step(self): return False
    def dump(self): return {}
    def load(self, saved): pass
"""


@pytest.mark.parametrize("kind", ["awaiting", "sync"])
def test_a_second_press_frees_the_cell_before_the_run_has_ended(front: Front, kind: str) -> None:
    front.run(SETUP + STUBBORN + "agent = Stubborn()")
    page = Page(front)
    cell = front.execute(CELLS[kind])
    front.wait_for(lambda message: message.content.get("text") == "the cell waits\n")
    front.interrupt()
    page.wait_for_state("stopping")
    time.sleep(0.4)
    front.interrupt()
    freed = front.wait_for(lambda message: message.channel == "shell" and message.parent_id == cell, 20)
    assert freed.content["ename"] == "AgentStopped"
    assert page.wait_for_state("interrupted", 20).time > freed.time
    assert front.run("print(run.status)") == "interrupted\n"
    assert front.run(UNTOUCHED) == "False _asyncio asyncio.runners\n"


@pytest.mark.parametrize("kind", ["awaiting", "sync"])
def test_calls_are_approved_and_denied(front: Front, kind: str) -> None:
    front.run(SETUP)
    front.run("""
model = ScriptedModel([[call("delete_rows", {"table": "a"})], [call("delete_rows", {"table": "b"})], [say("done")]])
agent = aw.Agent(model, tools=[delete_rows])
""")
    page = Page(front)
    cell = front.execute(CELLS[kind])
    page.decide("approve")
    page.wait_for_state("running")
    front.wait_until(lambda: page.states().count("paused") == 2)
    page.decide("deny", "not b")
    assert front.wait(cell)["status"] == "ok"
    assert front.run("print([m['content'] for m in model.requests[-1].messages if m['role'] == 'tool'][0])") == "3\n"
    assert "not b" in front.run("print([m['content'] for m in model.requests[-1].messages if m['role'] == 'tool'][1])")


def test_runs_follow_each_other_and_the_second_one_says_that_it_waits(front: Front, page: Page) -> None:
    front.run(CHAT + "second = aw.chat(agent, 'then', loop='kernel')")
    page.wait_for_text()
    assert front.run("print(second.status, second.ahead)") == "queued 1\n"
    assert front.run("run.stop(); print((await second).text)") == "went on\n"
    assert front.run("print(run.status, second.status)") == "interrupted completed\n"


def test_a_run_is_shown_once_more_in_a_later_cell(front: Front, page: Page) -> None:
    front.run(CELLS["background"])
    page.wait_for_text()
    again = Page(front)
    front.run("same = aw.chat(agent); print(same is run)")
    assert again.card.comm_id != page.card.comm_id
    again.stop()
    page.wait_for_state("interrupted")


def test_a_blocking_cell_stops_the_stream_and_the_stop_and_the_card_has_said_so(front: Front, page: Page) -> None:
    front.run(CELLS["background"])
    page.wait_for_text()
    assert "stand still" in front.run("print(run.note)")
    busy = front.execute("time.sleep(1)")
    front.wait_for(lambda message: message.parent_id == busy and message.type == "execute_input")
    page.stop()
    told = page.wait_for_state("interrupted").time
    idle = front.wait_idle(busy).time
    assert idle - 0.2 < told < idle + SOON  # not before the cell has ended, and at once then


def test_the_static_twin_has_the_end(front: Front) -> None:
    front.run(SETUP + "agent = aw.Agent(ScriptedModel(['the answer']))")
    cell = front.execute(CHAT + "await run")
    front.wait(cell)
    front.wait_for(lambda m: m.type == "update_display_data" and "the answer" in m.content["data"].get("text/plain", ""))


def test_the_loop_is_changed_between_runs_and_not_during_one(front: Front, page: Page) -> None:
    front.run(CELLS["background"])
    page.wait_for_text()
    cell = front.execute("aw.chat(agent, 'x', loop='own')")
    reply = front.wait(cell)
    assert reply["ename"] == "InputError"
    assert "a run that is running" in reply["evalue"]
    front.run("run.stop(); await run")
    assert front.run("own = aw.chat(agent, 'x', loop='own'); print((await own).text, own.loop is run.loop)").endswith("False\n")
    assert front.run("back = aw.chat(agent, 'y', loop='kernel'); print((await back).text, back.loop is run.loop)").endswith(
        "True\n"
    )


def test_an_agent_that_is_bound_to_the_kernels_loop_works_there_and_gets_a_hint_elsewhere(front: Front) -> None:
    front.run(SETUP)
    front.run("""
import threading
lock, tried = asyncio.Lock(), threading.Event()

@aw.tool
async def guarded() -> str:
    "Work under the notebook's lock."
    tried.set()
    async with lock:
        return "inside"

async def hold():
    async with lock:
        while not tried.is_set():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)

held = asyncio.create_task(hold())  # contended here, so bound to this loop
await asyncio.sleep(0)
tried.set()
async with lock:
    pass
def agent(): return aw.Agent(ScriptedModel([[call("guarded")], [say("done")]]), tools=[guarded])
def results(agent): return [m["content"] for m in agent.model.requests[-1].messages if m["role"] == "tool"]
""")
    cell = """
tried.clear(); held = asyncio.create_task(hold()); await asyncio.sleep(0)
tied = agent(); await aw.chat(tied, "go"{})
print(results(tied))
"""
    assert front.run(cell.format(", loop='kernel'")).endswith("['inside']\n")
    elsewhere = front.run(cell.format(""))
    assert "is bound to a different event loop" in elsewhere
    assert 'chat(…, loop="kernel")' in elsewhere


NO_NEST = "import sys; sys.modules['nest_asyncio2'] = None\n"


def test_a_sync_wait_without_the_extra_says_both_ways_out_and_the_run_goes_on(front: Front, page: Page) -> None:
    cell = front.execute(NO_NEST + CHAT + "run.wait()")
    reply = front.wait(cell)
    assert reply["ename"] == "InputError"
    assert "await run" in reply["evalue"]
    assert 'pip install "agent-widgets[nest]"' in reply["evalue"]
    page.wait_for_text()
    page.stop()
    page.wait_for_state("interrupted")


def test_reply_sync_answers_on_the_kernels_loop(front: Front) -> None:
    front.run(SETUP + "agent = aw.Agent(ScriptedModel(['one', 'two']))\nawait aw.chat(agent, 'go', loop='kernel')")
    cell = front.execute("print(agent.reply_sync('and').text)")
    queued = front.execute("order.append(1)")
    assert front.wait(cell)["status"] == "ok"
    assert front.text(cell) == "two\n"
    assert front.wait(queued)["status"] == "ok"
    assert front.run("print(order)") == "[1]\n"


def test_a_sync_wait_may_have_a_limit_and_the_run_goes_on(front: Front, page: Page) -> None:
    cell = front.execute(CHAT + "run.wait(0.2)")
    reply = front.wait(cell)
    assert (reply["ename"], front.run("print(run.status)")) == ("TimeoutError", "running\n")
    page.stop()
    page.wait_for_state("interrupted")


@pytest.mark.parametrize("extra", [True, False])
def test_with_nobody_there_a_run_ends_in_its_cell_if_it_can_and_else_says_so(front: Front, extra: bool) -> None:
    front.run(SETUP + "agent = aw.Agent(ScriptedModel(['the answer']))\n" + ("" if extra else NO_NEST))
    cell = front.execute(CHAT, allow_stdin=False)
    assert front.wait(cell)["status"] == "ok"
    said = front.text(cell)
    if extra:
        assert front.run("print(run.status)") == "completed\n"
        assert "nobody is there" not in said
    else:
        assert "nobody is there, and this cell ends before its run" in said
        assert "await run" in said
        assert front.run("print((await run).text)") == "the answer\n"
