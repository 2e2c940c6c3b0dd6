"""A plain terminal IPython: the same calls stream text, and Ctrl-C stops. No page, no kernel, a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from agent_widgets.mainthread import DOUBLE_CLICK_SECONDS
from agent_widgets.messages import ToolResultBlock
from agent_widgets.wire import load_state
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
WORKS = """\
import asyncio, json, signal, sys
import agent_widgets as aw
from agent_widgets.models.scripted import ScriptedModel, call, say

@aw.tool
async def work(clean_up: float = 0.5) -> str:
    "Work for a minute, and clean up for a while."
    await asyncio.sleep(0.1)
    print("be" "gun", file=sys.__stdout__, flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("stop" "ping", file=sys.__stdout__, flush=True)
        await asyncio.sleep(clean_up)
        print("cleaned", file=sys.__stdout__, flush=True)
    return "done"

class Stubborn:
    "A foreign agent that swallows every cancel."
    name = "stubborn"
    async def run(self, inputs, emit):
        await asyncio.sleep(0.1)
        print("be" "gun", file=sys.__stdout__, flush=True)
        while True:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                print("stop" "ping", file=sys.__stdout__, flush=True)
    def stop_after_step(self): return False
    def dump(self): return {}
    def load(self, saved): pass

agent = aw.Agent(ScriptedModel([[call("work")], [say("went on")]]), tools=[work])
stubborn = Stubborn()

async def awaited(agent):
    run = aw.chat(agent, "go")
    return await run

async def by_session(agent):
    return await aw.Session(agent).run("go")

async def streamed(agent):
    async for event in agent.reply_stream("go"):
        pass
"""
SCRIPT = """
try:
    {line}
finally:
    agent_state = agent.dump()
    json.dump(agent_state, open("state.json", "w"))
    print("saved", flush=True)
"""
LINES = (
    "asyncio.run(agent.reply('go'))",
    "asyncio.run(awaited(agent))",
    "asyncio.run(by_session(agent))",
    "asyncio.run(streamed(agent))",
    "agent.reply_sync('go')",
    "aw.chat(agent, 'go').wait()",
)
PROMPT = r"In \[\d+\]: "


def spawned(command: list[str], env: dict[str, str], cwd: Path | None = None) -> Any:
    """This Python in a pseudo-terminal of its own; pexpect has no types."""
    pty: Any = pexpect
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    options = {"preexec_fn": hear_ctrl_c, "encoding": "utf-8", "timeout": 30, "dimensions": (50, 200)}
    return pty.spawn(sys.executable, command, env=env, cwd=cwd, **options)


def hear_ctrl_c() -> None:
    """As from a terminal: what a script starts in its background ignores SIGINT, and hands that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def press_twice(child: Any, until: Any, soon: float) -> None:
    """Ctrl-C in a waiting run, and once that has been heard and is no double click any more, again: that one frees at once."""
    child.expect("begun")
    child.sendintr()
    child.expect("stopping")
    time.sleep(DOUBLE_CLICK_SECONDS + 0.1)
    pressed = time.monotonic()
    child.sendintr()
    child.expect(until)
    assert time.monotonic() - pressed < soon


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


def test_a_second_ctrl_c_frees_the_prompt_and_the_default_handler_is_back(terminal: Any) -> None:
    for number, waits in enumerate(("await run", "run.wait()")):
        for line in WORKS.splitlines() if not number else []:
            terminal.sendline(line)
        script = "[[call('work', {'clean_up': 4})], [say('went on')]]"
        terminal.sendline(f"agent = aw.Agent(ScriptedModel({script}), tools=[work], name='t{number}')")
        terminal.sendline(f"run = aw.chat(agent, 'go'); {waits}")
        press_twice(terminal, "AgentStopped: the run was stopped, and its clean-up goes on", 1)
        terminal.expect(PROMPT)
        terminal.sendline("print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, 'handler')")
        terminal.expect("True handler")
        terminal.sendline("print((await aw.chat(agent, 'go on')).text.upper(), agent.state.check())")
        terminal.expect(r"WENT ON \(\)")
        terminal.sendline(f"run = aw.chat(Stubborn(), 'go'); {waits}")
        press_twice(terminal, "AgentStopped: the run was stopped, and its clean-up goes on", 1)
        terminal.expect(PROMPT)
        terminal.sendline("import time; print('slee' + 'ping', flush=True); time.sleep(30)")
        terminal.expect("sleeping")
        terminal.sendintr()
        terminal.expect("KeyboardInterrupt")
        terminal.expect(PROMPT)


@pytest.mark.parametrize("waits", ["await run", "run.wait()"])
def test_ctrl_c_while_the_question_is_open_stops_the_run(terminal: Any, waits: str) -> None:
    for line in ASKS.splitlines():
        terminal.sendline(line)
    terminal.sendline(f"run = aw.chat(cleaner, 'Clean up'); {waits}")
    terminal.expect("Approve\\? y, or a reason to deny: ")
    terminal.sendintr()
    terminal.expect("AgentStopped: the run was stopped and its state is kept")
    terminal.expect(PROMPT)
    terminal.sendline("print(run.status, cleaner.state.check(), cleaner.state.waiting(), len(cleaner.model.requests))")
    terminal.expect(r"interrupted \(\) \(\) 1")


@pytest.mark.parametrize("line", LINES)
def test_a_plain_script_is_stopped_by_ctrl_c_after_the_clean_up_and_its_state_is_valid(tmp_path: Path, line: str) -> None:
    (tmp_path / "script.py").write_text(WORKS + SCRIPT.format(line=line))
    child = spawned(["script.py"], {}, cwd=tmp_path)
    child.expect("begun")
    pressed = time.monotonic()
    child.sendintr()
    child.expect(pexpect.EOF)
    assert time.monotonic() - pressed < 3
    child.close()
    said = child.before
    assert "cleaned" in said
    assert said.rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert child.signalstatus == signal.SIGINT  # as Python ends a script that does not catch it
    for noise in ("never retrieved", "destroyed", "never awaited", "Exception ignored", "Exception in"):
        assert noise not in said
    state = load_state(json.loads((tmp_path / "state.json").read_text()))
    assert state.check() == ()
    assert state.context[-1].finished_reason == "interrupted"
    assert [b.state for b in state.context[-1].content if isinstance(b, ToolResultBlock)] == ["interrupted"]


@pytest.mark.parametrize("line", ["asyncio.run(awaited(stubborn))", "aw.chat(stubborn, 'go').wait()"])
def test_a_second_ctrl_c_ends_a_script_with_a_stubborn_agent(tmp_path: Path, line: str) -> None:
    (tmp_path / "script.py").write_text(WORKS + line)
    child = spawned(["script.py"], {}, cwd=tmp_path)
    press_twice(child, pexpect.EOF, 3)
    child.close()
    assert child.before.rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert child.signalstatus == signal.SIGINT
    for noise in ("never retrieved", "destroyed", "Exception ignored"):
        assert noise not in child.before
