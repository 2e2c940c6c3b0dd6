"""Wherever the package is first used: by IPython's configuration, below %%capture, in a thread, in a forked process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page

TOOLS = """
import threading
from IPython.display import display

@aw.tool
def speaks() -> str:
    "Print and display something."
    print("printed")
    display("displayed")
    return "spoken"

@aw.tool(thread="main")
def where() -> str:
    "Say on which thread this is."
    return str(threading.current_thread() is threading.main_thread())

def calling(name):
    return aw.Agent(ScriptedModel([[call(name)], [say("done")]]), tools=[speaks, where])
"""
HANDLER = """
other = aw.Agent(slow())

async def follow():
    global background
    background = aw.chat(other, "go")
    await background

def begins(comm, message):
    global following
    following = asyncio.get_event_loop().create_task(follow())

get_ipython().kernel.comm_manager.register_target("begins", begins)
agent = aw.Agent(slow("went on", model=InWaitingCell))
"""


@pytest.fixture
def configured(kernel_python: Path, tmp_path: Path) -> Iterator[Front]:
    """A kernel whose configuration loads the extension before any cell."""
    profile = tmp_path / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text('get_config().InteractiveShellApp.extensions = ["agent_widgets"]\n')
    with Front(kernel_python, env={"IPYTHONDIR": str(tmp_path)}) as front:
        assert front.run("print('agent' in get_ipython().magics_manager.magics['cell'])") == "True\n"
        assert front.run(SETUP + TOOLS) == ""
        yield front


def test_loaded_by_configuration_it_serves_the_main_thread(configured: Front) -> None:
    page = Page(configured)
    configured.run("run = aw.chat(calling('where'), 'go')")
    results = [block["output"] for block in page.settle()["message"]["content"] if block["type"] == "tool_result"]
    assert results == ["True"]


def test_loaded_by_configuration_an_interrupt_leaves_alone_what_a_handler_has_begun(configured: Front) -> None:
    configured.run(HANDLER)
    begun = Page(configured)
    configured.comm_open("begins", metadata={"of": "a page"})
    begun.wait_for_text()
    configured.interrupt()
    assert configured.run("print(background.status, following.done())") == "running False\n"
    page = Page(configured)
    cell = configured.execute("run = aw.chat(agent, 'go'); await run")
    page.wait_for_text()
    configured.interrupt()
    assert configured.wait(cell)["ename"] == "AgentStopped"
    assert configured.run("print(run.status, background.status)") == "interrupted running\n"
    assert configured.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")


@pytest.mark.parametrize("first", ["%load_ext agent_widgets", "aw.chat(calling('speaks'), 'go').wait()"])
def test_after_a_first_use_below_capture_what_tools_say_is_on_their_cards(front: Front, first: str) -> None:
    front.run(SETUP + TOOLS)
    assert front.run(f"%%capture held\n{first}") == ""
    page = Page(front)
    assert "printed" not in front.run("run = aw.chat(calling('speaks'), 'go'); await run")
    outputs = page.settle()["outputs"]
    assert [output.get("text") or output["data"]["text/plain"] for output in outputs] == ["printed\n", "'displayed'"]
    front.run("%unload_ext agent_widgets")
    assert front.run("print('a cell')") == "a cell\n"


IN_THREADS = {
    "reply_sync": "list(pool.map(lambda answer: agent_of(answer).reply_sync('go').text, ('one', 'two')))",
    "reply": "list(pool.map(lambda answer: asyncio.run(agent_of(answer).reply('go')).text, ('one', 'two')))",
}


@pytest.mark.parametrize("way", IN_THREADS)
def test_agents_without_a_card_answer_in_threads_of_the_users_own(front: Front, way: str) -> None:
    front.run(SETUP + "def agent_of(answer): return aw.Agent(ScriptedModel([[say(answer)]]))")
    cell = f"from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool: print({IN_THREADS[way]})"
    assert front.run(cell) == "['one', 'two']\n"


def test_an_agent_answers_in_a_forked_process(front: Front) -> None:
    front.run(SETUP + "def ask(prompt): return aw.Agent(ScriptedModel([[say('from a child')]])).reply_sync(prompt).text")
    page = Page(front)
    front.run("run = aw.chat(aw.Agent(ScriptedModel([[say('from the kernel')]])), 'go')")
    page.settle()
    said = front.run(
        "import multiprocessing, warnings\nwarnings.simplefilter('ignore')\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map_async(ask, ['go']).get(20))"
    )
    assert said == "['from a child']\n"


@pytest.mark.parametrize("inner", ["''", "' \\n'"])
def test_an_empty_cell_in_a_cell_does_not_end_it(front: Front, inner: str) -> None:
    front.run(SETUP + "agent = aw.Agent(slow('went on', model=InWaitingCell))\n%load_ext agent_widgets")
    page = Page(front)
    cell = front.execute(f"get_ipython().run_cell({inner})\nrun = aw.chat(agent, 'go'); await run")
    page.wait_for_text()
    info = front.ask_info()
    front.wait_for(lambda message: message.parent_id == info and message.type == "kernel_info_reply")
    assert not any(message.channel == "shell" for message in front.of(cell))  # answered early
    front.interrupt()
    assert front.wait(cell)["ename"] == "AgentStopped"
    assert front.run("print((await aw.chat(agent, 'go on')).text)").endswith("went on\n")
