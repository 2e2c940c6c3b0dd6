"""Tools with ``thread="main"``: in every kind of cell, on each supported kernel, in a terminal and in a script."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page
from tests.kernel.test_terminal import (
    PROMPT,
    spawned,
    terminal,  # noqa: F401 # pyright: ignore[reportUnusedImport] - a fixture
)

TOOLS = """
import sqlite3, sys, threading
database = sqlite3.connect(":memory:")
database.execute("create table orders (price)")
begun = threading.Event()
done = []

def where():
    return threading.current_thread() is threading.main_thread()

@aw.tool(thread="main")
def insert(price: int) -> str:
    "Insert an order, and say where."
    print("inserting", price)
    database.execute("insert into orders values (?)", [price])
    done.append(price)
    return f"{where()} {database.execute('select count(*) from orders').fetchone()[0]}"

@aw.tool(thread="main")
def works() -> str:
    "Work for ten seconds."
    begun.set()
    print("working", flush=True)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.01)
    done.append("worked")
    return "worked"

@aw.tool(thread="main")
def tidies() -> str:
    "Work, and tidy up."
    print("working", flush=True)
    try:
        time.sleep(10)
    finally:
        time.sleep(0.6)
        done.append("tidied")

@aw.tool(thread="main")
def steps() -> str:
    "Say where, piece by piece."
    for n in range(3):
        yield f"{where()} {n};"

@aw.tool(thread="main")
def delegates() -> str:
    "Have another agent insert an order, and wait for it here."
    inner = aw.Agent(ScriptedModel([[call("insert", {"price": 7})], [say("inner done")]]), tools=[insert])
    return f"{where()} {inner.reply_sync('insert').text}"

tools = [insert, works, tidies, steps, delegates]

def agent_for(*calls):
    return aw.Agent(ScriptedModel([[*calls], [say("done")], [say("went on")]]), tools=tools)
"""
RESULTS = "print([b.output for m in agent.state.context for b in m.content if b.type == 'tool_result'])"
CELLS = {
    "idle": "run = aw.chat(agent, 'insert')",
    "awaiting": "run = aw.chat(agent, 'insert'); await run",
    "sync": "run = aw.chat(agent, 'insert'); run.wait()",
    "sync in an awaiting cell": "await asyncio.sleep(0)\nrun = aw.chat(agent, 'insert'); run.wait()",
    "reply_sync": "agent.reply_sync('insert')",
    "an awaiting cell": "run = aw.chat(agent, 'insert')\nwhile not run.is_over: await asyncio.sleep(0.05)",
}


@pytest.fixture
def page(front: Front) -> Page:
    assert front.run(SETUP + TOOLS) == ""
    return Page(front)


def words(page: Page) -> list[str]:
    """What the card said that calls wait for, in order."""
    events = [event for m in list(page.card.custom) if m["kind"] == "events" for event in m["events"]]
    return [event["value"]["text"] for event in events if event.get("value", {}).get("name") == "waits"]


@pytest.mark.parametrize("kind", CELLS)
def test_it_runs_on_the_main_thread_whatever_the_cell_does(front: Front, page: Page, kind: str) -> None:
    front.run("agent = agent_for(call('insert', {'price': 1}), call('insert', {'price': 2}), call('steps'))")
    cell = front.execute(CELLS[kind])
    assert front.wait(cell)["status"] == "ok"
    if kind != "reply_sync":
        outputs = page.settle()["outputs"]
        assert sorted(output["text"] for output in outputs) == ["inserting 1\n", "inserting 2\n"]
        assert "inserting" not in front.text(cell)
    assert front.run(RESULTS) == "['True 1', 'True 2', 'True 0;True 1;True 2;']\n"


def test_while_another_cell_is_busy_it_waits_and_says_so(front: Front, page: Page) -> None:
    front.run("agent = agent_for(call('insert', {'price': 1}))")
    busy = front.execute("run = aw.chat(agent, 'insert'); time.sleep(1.5); print(done)")
    front.wait_until(lambda: words(page) != [])
    assert words(page) == ["for the main thread, which is busy"]
    front.wait(busy)
    assert front.text(busy).endswith("[]\n")
    assert [output["name"] for output in page.settle()["outputs"]] == ["stdout"]
    assert words(page)[-1] == ""
    assert front.run(RESULTS) == "['True 1']\n"


def test_a_stop_while_it_waits_takes_it_back_and_it_is_never_executed(front: Front, page: Page) -> None:
    front.run("agent = agent_for(call('insert', {'price': 1}))")
    lines = [
        "run = aw.chat(agent, 'insert')",
        "end = time.monotonic() + 20",
        "while time.monotonic() < end and not run.is_over: time.sleep(0.01)",
        "print(run.status, done)",
    ]
    if not front.has_subshells:  # ipykernel 6 hears no click while a foreign cell is busy
        lines.insert(1, "threading.Timer(1, run.stop).start()")
    busy = front.execute("\n".join(lines))
    front.wait_until(lambda: words(page) != [])
    if front.has_subshells:
        page.stop()
    front.wait(busy)
    assert front.text(busy).endswith("interrupted []\n")
    assert front.run("print(done, agent.state.check())") == "[] ()\n"
    result = next(block for block in page.settle()["message"]["content"] if block["type"] == "tool_result")
    assert result["state"] == "interrupted"
    assert "still_running" not in result.get("metadata", {})
    assert front.run("print((await aw.chat(agent, 'go on')).text, done)").endswith("done []\n")


@pytest.mark.parametrize("kind", ["awaiting", "sync", "idle"])
def test_the_kernels_interrupt_ends_the_function_itself(front: Front, page: Page, kind: str) -> None:
    front.run("agent = agent_for(call('works'))")
    cell = front.execute(CELLS[kind])
    front.wait_for(lambda m: m.type == "comm_msg" and "'text': 'working" in str(m.content), 20)
    pressed = time.monotonic()
    front.interrupt()
    reply = front.wait(cell)
    told = page.settle()
    assert time.monotonic() - pressed < 3
    assert reply["status"] == ("ok" if kind == "idle" else "error")
    assert reply.get("ename", "") == ("" if kind == "idle" else "AgentStopped")
    result = next(block for block in told["message"]["content"] if block["type"] == "tool_result")
    assert (result["state"], result.get("metadata", {})) == ("interrupted", {})
    assert front.run("import signal; print(done, run.status, signal.getsignal(signal.SIGINT) is signal.default_int_handler)") == (
        f"[] {'completed' if kind == 'idle' else 'interrupted'} True\n"
    )
    assert front.run("agent = agent_for(call('insert', {'price': 1})); print((await aw.chat(agent, 'go on')).text)").endswith(
        "done\n"
    )


@pytest.mark.parametrize("kind", ["awaiting", "sync"])
def test_a_double_click_leaves_the_function_its_clean_up(front: Front, page: Page, kind: str) -> None:
    front.run("agent = agent_for(call('tidies'))")
    cell = front.execute(CELLS[kind])
    front.wait_for(lambda m: m.type == "comm_msg" and "'text': 'working" in str(m.content), 20)
    front.interrupt()
    time.sleep(0.1)
    front.interrupt()
    assert front.wait(cell)["ename"] == "AgentStopped"
    page.settle()
    assert front.run("print(done, run.status)") == "['tidied'] interrupted\n"


def test_a_stop_cannot_end_it_once_it_has_begun_and_its_result_says_so(front: Front, page: Page) -> None:
    front.run("agent = agent_for(call('works'))")
    stops = "threading.Thread(target=lambda: begun.wait() and run.stop()).start()"
    cell = front.execute(f"run = aw.chat(agent, 'work'); {stops}; run.wait()")
    page.wait_for_state("interrupted")
    front.interrupt()  # the function still holds the cell
    front.wait(cell)
    result = next(block for block in page.settle()["message"]["content"] if block["type"] == "tool_result")
    assert (result["state"], result["metadata"]["still_running"]) == ("interrupted", True)
    assert front.run("print(run.status, done)") == "interrupted []\n"


@pytest.mark.parametrize("kind", ["awaiting", "sync", "idle"])
def test_one_that_waits_for_another_run_carries_out_the_calls_of_that_run(front: Front, page: Page, kind: str) -> None:
    front.run("agent = agent_for(call('delegates'))")
    assert front.wait(front.execute(CELLS[kind]))["status"] == "ok"
    page.settle()
    assert front.run(RESULTS + "; print(done)") == "['True inner done']\n[7]\n"


def test_a_timeout_counts_the_waiting(front: Front, page: Page) -> None:
    front.run("slow = aw.tool(thread='main', timeout=0.5)(insert.function)")
    front.run("agent = aw.Agent(ScriptedModel([[call('insert', {'price': 1})], [say('done')]]), tools=[slow])")
    front.run("run = aw.chat(agent, 'insert'); time.sleep(1.5)")
    page.settle()
    assert front.run(RESULTS + "; print(done)") == "['insert exceeded its timeout of 0.5 s.']\n[]\n"


@pytest.mark.parametrize("waits", ["await run", "run.wait()", "agent.reply_sync('insert')", "pass"])
def test_in_a_terminal_whoever_waits_carries_it_out(terminal: Any, waits: str) -> None:  # noqa: F811
    terminal_lines(terminal)
    terminal.sendline(f"run = aw.chat(agent, 'insert'); {waits}" if "sync" not in waits else waits)
    terminal.expect("on main: True")
    terminal.expect(PROMPT)


def terminal_lines(child: Any) -> None:
    for line in TERMINAL.splitlines():
        child.sendline(line)
    child.expect("tools" + " made")
    child.expect(PROMPT)


TERMINAL = """\
import threading
@aw.tool(thread="main")
def insert() -> str:
    "Say where this runs."
    print("on main:", threading.current_thread() is threading.main_thread())
    return "inserted"

agent = aw.Agent(ScriptedModel([[call("insert", {})], [say("ended after all")]]), tools=[insert])
print("tools" + " made")
"""
SCRIPT = """
import asyncio, sys, threading, time
import agent_widgets as aw
from agent_widgets import mainthread
from agent_widgets.models.scripted import ScriptedModel, call, say
mainthread.UNATTENDED_SECONDS = 0.5

@aw.tool(thread="main")
def insert() -> bool:
    "Say where this runs."
    return threading.current_thread() is threading.main_thread()

agent = aw.Agent(ScriptedModel([[call("insert", {})], [say("done")]]), tools=[insert])

async def waits(run):
    await run

async def replies():
    await agent.reply("insert")

match sys.argv[1]:
    case "run.wait()": aw.chat(agent, "insert").wait()
    case "reply_sync": agent.reply_sync("insert")
    case "asyncio.run, await run": asyncio.run(waits(aw.chat(agent, "insert")))
    case "asyncio.run, agent.reply": asyncio.run(replies())
    case "nobody waits":
        run = aw.chat(agent, "insert")
        while not run.is_over: time.sleep(0.05)
print([b.output for m in agent.state.context for b in m.content if b.type == "tool_result"])
"""


@pytest.mark.parametrize(
    "how", ["run.wait()", "reply_sync", "asyncio.run, await run", "asyncio.run, agent.reply", "nobody waits"]
)
def test_in_a_script_whoever_waits_carries_it_out_and_else_it_is_an_error(tmp_path: Any, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = spawned([str(script), how], {})
    child.expect("for 0.5 s nothing there has waited for it" if how == "nobody waits" else r"\['true'\]")
    child.close(force=True)
