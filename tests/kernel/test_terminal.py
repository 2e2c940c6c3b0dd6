"""A plain terminal IPython: the same calls stream text, and Ctrl-C stops. No page, no kernel, a real pseudo-terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

from tests.kernel.fakefront import ROOT

SETUP = """\
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say
story = say([f'word{n} ' for n in range(1000)])
def slow(*answers): return ScriptedModel([[story], *([say(a)] for a in answers)], tokens_per_second=50)

agent = aw.Agent(slow('I went on.'))
"""
ASKS = """\
@aw.tool(confirm=True)
def delete_rows(table: str) -> str:
    "Delete all rows of a table."
    return "deleted"

ask = call("delete_rows", {"table": "orders"})
cleaner = aw.Agent(ScriptedModel([[ask], [ask], [say("all done")]]), tools=[delete_rows])
"""
SCRIPT = """\
import asyncio

async def main():
    print("begun", flush=True)
    await agent.reply("Tell me a story")

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("stopped", agent.state.check(), len(agent.state.context))
"""
PROMPT = r"In \[\d+\]: "


def spawned(command: list[str], env: dict[str, str]) -> Any:
    """This Python in a pseudo-terminal of its own; pexpect has no types."""
    pty: Any = pexpect
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return pty.spawn(sys.executable, command, env=env, encoding="utf-8", timeout=30, dimensions=(50, 200))


@pytest.fixture
def terminal(tmp_path: Any) -> Iterator[Any]:
    command = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor"]
    child = spawned(command, {"IPYTHONDIR": str(tmp_path), "TERM": "dumb"})
    child.expect(PROMPT)
    for line in SETUP.splitlines():
        child.sendline(line)
    child.sendline("print('set' + ' up')")
    child.expect("set up")
    child.expect(PROMPT)
    yield child
    child.close(force=True)


@pytest.mark.parametrize("waits", ["await run", "run.wait()"])
def test_text_streams_and_ctrl_c_stops_the_run(terminal: Any, waits: str) -> None:
    terminal.sendline(f"run = aw.chat(agent, 'Tell me a story'); {waits}")
    terminal.expect("word0 word1 word2")
    terminal.sendintr()
    terminal.expect("AgentStopped: the run was stopped and its state is kept")
    terminal.expect(PROMPT)
    terminal.sendline("print(run.status, run.reply.metadata['source'], agent.state.check())")
    terminal.expect(r"interrupted kernel \(\)")
    terminal.expect(PROMPT)
    terminal.sendline("print((await aw.chat(agent, 'Go on')).text.upper())")
    terminal.expect("I WENT ON.")


@pytest.mark.parametrize("waits", ["await run", "pass"])
def test_a_call_that_needs_a_person_is_asked_about_in_the_terminal(terminal: Any, waits: str) -> None:
    for line in ASKS.splitlines():
        terminal.sendline(line)
    terminal.sendline(f"run = aw.chat(cleaner, 'Clean up'); {waits}")
    terminal.expect("Approve\\? y, or a reason to deny: ")
    terminal.sendline("not before the back-up")
    terminal.expect("Approve\\? y, or a reason to deny: ")
    terminal.sendline("y")
    terminal.expect("all done")
    terminal.expect(PROMPT)
    terminal.sendline("print([m['content'].upper() for m in cleaner.model.requests[-1].messages if m['role'] == 'tool'])")
    terminal.expect("DENIED BY USER.*REASON: NOT BEFORE THE BACK-UP.*'DELETED'")


PRINTS = """\
@aw.tool
def here() -> None:
    "Print something."
    print("printed", "here")

@aw.tool(isolate="process")
def there() -> None:
    "Print something in a process."
    print("printed", "there")

printer = aw.Agent(ScriptedModel([[call("here")], [call("there")], [say("all done")]]), tools=[here, there])
"""


def test_what_tools_print_is_seen_once(terminal: Any) -> None:
    for line in PRINTS.splitlines():
        terminal.sendline(line)
    terminal.sendline("run = aw.chat(printer, 'Print')")
    terminal.expect(r"all done\s+\[completed")
    assert [terminal.before.count(f"printed {where}") for where in ("here", "there")] == [1, 1]


def test_a_magic_cell_works_and_ctrl_c_stops_it(terminal: Any) -> None:
    terminal.sendline("%load_ext agent_widgets")
    terminal.expect(PROMPT)
    terminal.sendline("%%agent agent")
    terminal.sendline("Tell me a story")
    terminal.sendline("")  # ends the cell
    terminal.sendline("")  # runs it
    terminal.expect("word0 word1 word2")
    terminal.sendintr()
    terminal.expect("AgentStopped")
    terminal.expect(PROMPT)
    terminal.sendline("print(agent.state.context[0].text.upper(), agent.state.check())")
    terminal.expect(r"TELL ME A STORY \(\)")


def test_a_plain_script_is_stopped_by_ctrl_c_and_the_history_is_valid(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(SETUP + SCRIPT)
    child = spawned([str(script)], {})
    child.expect("begun")
    child.sendintr()
    child.expect(r"stopped \(\) \d")
    child.close(force=True)
