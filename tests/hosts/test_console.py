"""jupyter console: a kernel like any other, and a front-end that shows text. A real pseudo-terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.browser.jlab import ROOT
from tests.hosts.serving import bin_directory
from tests.hosts.story import AGENTS

PROMPT = r"In \[\d+\]:"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Any]:
    """A console that has made the agents. ``--simple-prompt``: lines as they are, without redrawing."""
    (tmp_path / "agents.py").write_text(AGENTS)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "HOME": str(tmp_path),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "TERM": "dumb",
    }
    pty: Any = pexpect
    arguments = ["console", "--simple-prompt", "--kernel=python3"]
    child = pty.spawn(
        str(bin_directory() / "jupyter"), arguments, env=env, cwd=tmp_path, encoding="utf-8", timeout=60, dimensions=(50, 200)
    )
    child.expect(PROMPT)
    child.sendline("from agents import *; story, clean = storyteller(), cleaner()")
    child.expect(PROMPT)
    yield child
    child.close(force=True)


@pytest.mark.parametrize("waits", ["await run", "run.wait()"])
def test_text_streams_and_ctrl_c_stops_the_run(console: Any, waits: str) -> None:
    console.sendline(f"run = aw.chat(story, 'Tell me a story'); {waits}")
    console.expect("word0 word1 word2")
    console.sendintr()
    console.expect("AgentStopped")
    console.expect(PROMPT)
    console.sendline("print(run.status, run.reply.metadata['source'], story.state.check())")
    console.expect(r"interrupted kernel \(\)")
    console.expect(PROMPT)
    console.sendline("run = aw.chat(story, 'Another one')")
    console.expect(PROMPT)
    console.sendline(f"print('wait' + 'ing'); {waits}")  # in a later line, as people do
    console.expect("waiting")
    console.expect(r"line\d+ line\d+")
    console.sendintr()
    console.expect("AgentStopped")
    console.expect(PROMPT)
    console.sendline("print((await aw.chat(story, 'Go on')).text.upper())")
    console.expect("THAT WAS ALL.")


@pytest.mark.parametrize("waits", ["await run", "run.wait()"])
def test_a_call_that_needs_a_person_is_asked_about(console: Any, waits: str) -> None:
    console.sendline(f"run = aw.chat(clean, 'Clean up'); {waits}")
    console.expect("Approve\\? y, or a reason to deny: ")
    console.sendline("not before the back-up")
    console.expect("Approve\\? y, or a reason to deny: ")
    console.sendline("y")
    console.expect("success")
    console.expect("All done.")
    console.expect(PROMPT)
    console.sendline("print([m['content'].upper() for m in clean.model.requests[-1].messages if m['role'] == 'tool'])")
    console.expect("REASON: NOT BEFORE THE BACK-UP.*DRAFTS IS EMPTY NOW")


def test_a_run_in_the_background_speaks_while_other_lines_are_typed(console: Any) -> None:
    console.sendline("run = aw.chat(story, 'Tell me a story')")
    console.expect(PROMPT)
    console.sendline("import time; time.sleep(1); print('slept' + ' well')")
    console.expect(r"word\d+ word\d+ .*slept well")
    console.sendline("run.stop(); _ = await run")
    console.expect("interrupted")
    console.expect(PROMPT)
    console.sendline("await aw.chat(story, 'Another one')")
    console.expect("line0 line1 line2")
