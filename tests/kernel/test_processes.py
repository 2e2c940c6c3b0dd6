"""A tool with ``isolate="process"`` whose function is defined in a cell, in a real kernel."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page

CELL = """
import os, subprocess
from dataclasses import dataclass

factor = 7

@dataclass
class Row:
    number: int

def times(row):
    return row.number * factor

@aw.tool(isolate="process")
def multiply(row: Row) -> dict:
    "Multiply a row's number, in a process."
    print("in", os.getpid())
    subprocess.run(["echo", "from a child"])
    return {"product": times(row), "here": os.getpid() == KERNEL, "row": Row(row.number + 1)}

@aw.tool(isolate="process")
def breaks() -> None:
    "Fail at once."
    raise ValueError("no such row")

@aw.tool(isolate="process")
def waits() -> None:
    "Wait for ever."
    print(os.getpid(), flush=True)
    while True:
        time.sleep(10)

KERNEL = os.getpid()
"""


def printed(page: Page) -> str:
    return "".join(output["text"] for output in page.transcript()["outputs"])


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists()


def test_functions_of_cells_run_in_a_process_print_on_their_card_and_are_killed(front: Front) -> None:
    assert front.run(SETUP) == ""
    page = Page(front)
    assert front.run(CELL) == ""
    script = "[[call('multiply', {'row': {'number': 6}}), call('breaks')], [say('ok')], [call('waits')], [say('fine')]]"
    front.run(f"agent = aw.Agent(ScriptedModel({script}), tools=[multiply, breaks, waits])")
    said = front.run(
        "await aw.chat(agent, 'go')\nprint(*[m['content'] for m in agent.model.requests[-1].messages[-2:]], sep='|')"
    )
    assert said.endswith('{"product":42,"here":false,"row":{"number":7}}|ValueError: no such row\n')
    assert "in " in printed(page)
    assert "from a child" in printed(page)
    results = [block for block in page.transcript()["message"]["content"] if block["type"] == "tool_result"]
    assert '    raise ValueError("no such row")\n' in results[1]["metadata"]["traceback"]
    cell = front.execute("run = aw.chat(agent, 'wait'); await run")
    page.wait_for_state("running")
    told = front.wait_for(lambda m: "stdout" in str(m.content) and "call_3" in str(m.content) and m.type == "comm_msg", 20)
    (pid,) = map(int, re.findall(r"'text': '(\d+)", str(told.content)))
    assert not is_gone(pid)
    front.interrupt()  # goes to the kernel's whole group; the process is in none of it, and is killed by the stop
    assert front.wait(cell)["ename"] == "AgentStopped"
    assert front.run("print(run.status)") == "interrupted\n"
    assert is_gone(pid)
