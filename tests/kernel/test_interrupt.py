"""■ in every kind of cell that waits, on each supported kernel: one press stops, a second one frees, nothing else is touched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_widgets.mainthread import DOUBLE_CLICK_SECONDS
from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, SOON, Page

AGENT = """
from comm import create_comm
told, cleaned, seen = create_comm(target_name="told"), [], []

@aw.tool
async def work(clean_up: float, in_background: bool = False) -> str:
    "Work for a minute; when it is stopped, take a while to clean up."
    if not in_background:
        await the_cell_waits()
    told.send({"begun": True})
    try:
        await asyncio.sleep(60)
    finally:
        told.send({"stopping": True})
        await asyncio.sleep(clean_up)
        cleaned.append(time.monotonic())
    return "done"

def worker(clean_up, name="worker", **more):
    answers = [call("work", {"clean_up": clean_up, **more})], [say("went on")], [say("and on")]
    return aw.Agent(ScriptedModel([*answers]), tools=[work], name=name)

%load_ext agent_widgets
"""
WAITS = {
    "await run": "run = aw.chat(agent, 'go'); await run",
    "run.wait()": "run = aw.chat(agent, 'go'); run.wait()",
    "run.wait() in an async cell": "await asyncio.sleep(0)\nrun = aw.chat(agent, 'go'); run.wait()",
    "%%agent": "%%agent agent\ngo",
    "await agent.reply()": "await agent.reply('go')",
    "agent.reply_sync()": "agent.reply_sync('go')",
    "agent.reply_sync() in an async cell": "await asyncio.sleep(0)\nagent.reply_sync('go')",
    "agent.reply_stream()": "async for event in agent.reply_stream('go'): seen.append(event)",
    "session.run()": "await aw.Session(agent).run('go')",
    "a loop of cards": "for prompt in ('go', 'more', 'again'): await aw.chat(agent, prompt)",
    "two by gather": "await asyncio.gather(aw.chat(agent, 'go'), aw.chat(other, 'go'))",
}


def begin(front: Front, cell: str) -> str:
    """Execute a cell and wait until the tools of its agents are at work. Gives the id of the request."""
    begun = told(front, "begun") + (2 if "gather" in cell else 1)
    msg_id = front.execute(cell)
    front.wait_until(lambda: told(front, "begun") >= begun)
    return msg_id


def told(front: Front, what: str) -> int:
    """How often the agents have said that they are so far."""
    return sum(message.type == "comm_msg" and what in message.content["data"] for message in list(front.messages))


def press_and_wait(front: Front) -> None:
    """Press ■, wait until it has been heard, and until another press is no double click any more."""
    stopping = told(front, "stopping")
    front.interrupt()
    front.wait_until(lambda: told(front, "stopping") > stopping)
    time.sleep(DOUBLE_CLICK_SECONDS + 0.1)


def press(front: Front) -> float:
    """Press ■, and give the time."""
    pressed = time.monotonic()
    front.interrupt()
    return pressed


def is_freed_by_a_second_press(front: Front, cell: str, soon: float = 0.3) -> None:
    """Press, and again once the first press has been heard: only the second one frees the cell, within ``soon`` seconds."""
    press_and_wait(front)
    assert not is_freed(front, cell)
    pressed = press(front)
    raised, at = ended(front, cell)
    assert raised == "AgentStopped"
    assert at - pressed < soon


def ended(front: Front, cell: str) -> tuple[str, float]:
    """What the cell raised, and when its reply came."""
    raised = front.wait(cell)["ename"]
    return raised, next(message.time for message in front.of(cell) if message.channel == "shell")


def is_freed(front: Front, cell: str) -> bool:
    return any(message.channel == "shell" for message in front.of(cell))


@pytest.fixture(scope="module")
def front(kernel_python: Path) -> Iterator[Front]:
    """One kernel for all of them: it must survive every press."""
    with Front(kernel_python) as front:
        assert front.run(SETUP + AGENT) == ""
        yield front


@pytest.fixture(autouse=True)
def fresh(front: Front) -> None:
    front.run("order.clear(); cleaned.clear(); seen.clear()")


@pytest.mark.parametrize("kind", WAITS)
def test_one_press_stops_after_the_clean_up_and_a_second_one_frees_the_cell_at_once(front: Front, kind: str) -> None:
    front.run("agent, other = worker(0.5), worker(0.5, 'other')")
    cell = begin(front, WAITS[kind])
    after = front.execute("order.append('must not run')")
    pressed = press(front)
    raised, at = ended(front, cell)
    assert raised == "AgentStopped"
    assert 0.45 < at - pressed < 0.5 + SOON
    assert "its state is kept" in front.text(cell)
    assert front.wait(after)["status"] in ("aborted", "error")
    assert front.run("print(len(cleaned), order, agent.state.check(), agent.state.context[-1].finished_reason)") == (
        f"{2 if 'gather' in kind else 1} [] () interrupted\n"
    )
    assert front.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")

    front.run("agent, other = worker(1.8), worker(1.5, 'other'); cleaned.clear(); order.append('still here')")
    cell = begin(front, WAITS[kind])
    is_freed_by_a_second_press(front, cell)
    if "stream" not in kind and "gather" not in kind:
        assert "goes on without this cell" in front.text(cell)
    went_on = front.execute(
        "agent.reply_sync('go on')"
        if "sync" in kind
        else "await agent.reply('go on')"
        if "reply" in kind
        else "await aw.chat(agent, 'go on')"
    )
    assert front.wait(went_on)["status"] == "ok"
    assert front.run("print(order, agent.state.context[-1].text, agent.state.check(), len(cleaned))").endswith(
        f"['still here'] went on () {2 if 'gather' in kind else 1}\n"
    )
    stopped = "next(b for m in agent.state.context for b in m.content if b.type == 'tool_result')"
    assert front.run(f"print({stopped}.state, {stopped}.metadata)") == "interrupted {}\n"


def test_a_double_click_is_one_press_and_a_third_press_hits_an_idle_kernel(front: Front) -> None:
    front.run("agent = worker(1)")
    for cell in (WAITS["await run"], WAITS["run.wait()"]):
        front.run("cleaned.clear()")
        waiting = begin(front, cell)
        pressed = press(front)
        front.interrupt()
        raised, at = ended(front, waiting)
        assert raised == "AgentStopped"
        assert at - pressed > 0.95  # its clean-up was waited for
        front.interrupt()
        assert front.run("print(len(cleaned), run.status)") == "1 interrupted\n"
        front.run("agent = worker(1)")
    waiting = begin(front, WAITS["await run"])
    for _ in range(3):
        front.interrupt()
        time.sleep(0.4)
    assert front.wait(waiting)["ename"] == "AgentStopped"
    assert front.run("print((await aw.chat(agent, 'go on')).text, agent.state.check())").endswith("went on ()\n")


STUBBORN = """
class Stubborn:
    "A foreign agent that swallows every cancel until it is let go."
    name = "stubborn"
    def __init__(self): self.may_end, self.runs = threading.Event(), 0
    async def run(self, inputs, emit):
        self.runs += 1
        if self.runs == 1:
            await the_cell_waits()
        told.send({"begun": True})
        while not self.may_end.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                told.send({"stopping": True})
    def stop_after_step(self): return False
    def dump(self): return {}
    def load(self, saved): pass

import threading
agent = Stubborn()
"""


@pytest.mark.parametrize("kind", ["await run", "run.wait()"])
def test_an_agent_that_swallows_every_cancel_is_left_behind_and_the_next_run_waits_for_its_end(front: Front, kind: str) -> None:
    front.run(STUBBORN)
    page = Page(front)
    cell = begin(front, WAITS[kind])
    is_freed_by_a_second_press(front, cell)
    assert front.run("print(run.status)") == "stopping\n"
    page.wait_for_messages("events")
    other = Page(front)
    front.run("second = aw.chat(agent, 'again')")
    assert other.wait_for_state("queued").content["data"]["content"]["status"]["ahead"] == 1
    assert front.run("print(second.status, agent.runs)") == "queued 1\n"
    front.run("agent.may_end.set()")
    other.wait_for_state("completed")
    assert front.run("print(run.status, second.status, agent.runs)") == "interrupted completed 2\n"


BACKGROUND = {
    "a run": "other = worker(0, 'other', in_background=True); background = aw.chat(other, 'go')",
    "a task that waits for a run": """
other = worker(0, 'other', in_background=True); background = aw.chat(other, 'go')
async def follow():
    await background
following = asyncio.create_task(follow())
await asyncio.sleep(0.1)
""",
}


SLEEPS = """
try:
    told.send({{"begun": True}})
    {}
finally:
    seen.append(time.monotonic())
"""


@pytest.mark.parametrize("background", BACKGROUND)
def test_what_runs_in_the_background_is_never_touched(front: Front, background: str) -> None:
    begin(front, BACKGROUND[background])
    front.run("agent = worker(0)")
    for cell, raised in (
        (SLEEPS.format("time.sleep(5)"), "KeyboardInterrupt"),
        (SLEEPS.format("await asyncio.sleep(5)"), "CancelledError"),
        (WAITS["await run"], "AgentStopped"),
        (WAITS["await agent.reply()"], "AgentStopped"),
        (WAITS["agent.reply_sync()"], "AgentStopped"),
        (WAITS["agent.reply_stream()"], "AgentStopped"),
    ):
        front.run("agent = worker(0)")
        busy = begin(front, cell)
        pressed = press(front)
        found, at = ended(front, busy)
        assert found == raised
        if "sleep" in cell:
            at = float(front.run("print(seen.pop())"))  # before the traceback was drawn, which takes its time
        assert at - pressed < 0.6, cell
        front.interrupt()  # idle
        assert front.run("print(background.status)") == "running\n", cell
    front.run("background.stop(); background.wait()")
    if "task" in background:
        assert front.run("await following; print(background.status)") == "interrupted\n"


def test_what_a_cell_leaves_behind_is_not_stopped_by_the_next_one(front: Front) -> None:
    """asyncio.gather ends with the first that raises; the other goes on, and the next cell is fresh."""
    front.run("agent = worker(0); slow = worker(1.2, 'slow'); third = worker(0.5, 'third')")
    cell = begin(front, "await asyncio.gather(aw.chat(agent, 'go'), aw.chat(slow, 'go'))")
    front.interrupt()
    assert front.wait(cell)["ename"] == "AgentStopped"
    time.sleep(0.3)
    cell = begin(front, "await aw.chat(third, 'go')")
    pressed = press(front)
    raised, at = ended(front, cell)
    assert raised == "AgentStopped"
    assert at - pressed > 0.45  # graceful: a first press, and no second one
    assert front.run("await aw.chat(slow, 'go on'); print(len(cleaned))").endswith("3\n")


OWN_HANDLER = """
import signal
before, heard = signal.getsignal(signal.SIGINT), []
def mine(*_): heard.append(1)
signal.signal(signal.SIGINT, mine)
try:
    {wait}
finally:
    order.append((signal.getsignal(signal.SIGINT) is mine, len(heard)))
    signal.signal(signal.SIGINT, before)
"""


@pytest.mark.parametrize("wait", ["await aw.chat(agent, 'go')", "aw.chat(agent, 'go').wait()", "agent.reply_sync('go')"])
def test_a_handler_of_the_users_own_is_put_back_on_every_path(front: Front, wait: str) -> None:
    cell = OWN_HANDLER.format(wait=wait)
    front.run("agent = aw.Agent(ScriptedModel([[say('done')]]))")
    front.run(cell)  # completed
    front.run("agent = worker(0.5)")
    busy = begin(front, cell)
    front.interrupt()
    assert front.wait(busy)["ename"] == "AgentStopped"
    front.run("agent = worker(1.8)")
    is_freed_by_a_second_press(front, begin(front, cell))
    assert front.run("print(order)") == "[(True, 0), (True, 0), (True, 0)]\n"
