"""What tools print and display, in a real kernel: all of it on the tool's card, nothing in a cell, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page

NOISE = """
import builtins, concurrent.futures, getpass, logging, subprocess, sys, threading, warnings
from IPython.display import HTML, JSON, Image, Markdown, SVG, clear_output, display, update_display
early = logging.getLogger("early"); early.addHandler(logging.StreamHandler(sys.stderr)); early.propagate = False

def noise(who, times=10):
    "Everything that can be seen, so often, in its order."
    for n in range(times):
        print(f"out {who} {n};")
        display(HTML(f"<b>{who} {n}</b>"))
        print(f"err {who} {n};", file=sys.stderr)
        early.warning(f"early {who} {n};")
        late.warning(f"late {who} {n};")
        warnings.warn(f"warning {who} {n};")
        time.sleep(0.002)

def in_threads(who):
    noise(who, 5)
    child = threading.Thread(target=noise, args=(f"{who}-child", 5)); child.start(); child.join()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(noise, f"{who}-pool", 5).result()
    return "said"

@aw.tool
def one(who: str) -> str:
    "Make noise in threads."
    return in_threads(who)

@aw.tool
def two(who: str) -> str:
    "Make noise in threads."
    return in_threads(who)

@aw.tool
async def three(who: str) -> str:
    "Make noise on the loop, in a task and in a thread of asyncio."
    noise(who, 5)
    await asyncio.create_task(asyncio.sleep(0, noise(who + "-task", 5)))
    await asyncio.to_thread(noise, who + "-thread", 5)
    await asyncio.get_running_loop().run_in_executor(None, noise, who + "-executor", 5)
    return "said"

calls = [call("one", {"who": "one"}), call("two", {"who": "two"}), call("three", {"who": "three"})]
agent = aw.Agent(ScriptedModel([calls, [say("done")]] * 2), tools=[one, two, three])
"""
LATE_HANDLER = """
late = logging.getLogger("late"); late.addHandler(logging.StreamHandler(sys.stderr)); late.propagate = False
"""
WHO = {
    "call_1": ["one", "one-child", "one-pool"],
    "call_2": ["two", "two-child", "two-pool"],
    "call_3": ["three", "three-task", "three-thread", "three-executor"],
}
PLOTTING = Path(mpl.__file__).parents[1]
"""Where matplotlib and pandas are; the kernels' own environments do without."""


def texts(outputs: list[dict[str, Any]], name: str) -> str:
    return "".join(output["text"] for output in outputs if output["name"] == name)


def expected(kind: str, who: list[str], times: int) -> list[str]:
    return [f"{kind} {one} {n};" for one in who for n in range(times)]


def printed(text: str, kind: str) -> list[str]:
    return re.findall(rf"\b{kind} [\w-]+ \d+;", text)


def ran(front: Front, *, tools: str, script: str) -> dict[str, Any]:
    """The transcript of a run that calls these tools."""
    assert front.run(SETUP) == ""
    page = Page(front)
    assert front.run("import sys, threading\nfrom IPython.display import *\n" + tools) == ""
    front.run(f"agent = aw.Agent(ScriptedModel([{script}, [say('done')]]), tools=tools)\nrun = aw.chat(agent, 'go'); await run")
    return page.settle()


def result_of(transcript: dict[str, Any], at: int = 0) -> str:
    return [block["output"] for block in transcript["message"]["content"] if block["type"] == "tool_result"][at]


@pytest.mark.parametrize("first", ["%load_ext agent_widgets", "%load_ext agent_widgets\n%unload_ext agent_widgets"])
def test_three_noisy_tools_and_a_noisy_cell_each_get_exactly_their_own(front: Front, first: str) -> None:
    assert front.run(SETUP) == ""
    page = Page(front)
    assert front.run(NOISE) == ""
    front.run(first)
    front.run(LATE_HANDLER)  # made after us; the other one was made before
    start = front.execute("run = aw.chat(agent, 'make noise')")
    cell = front.execute("noise('cell')")
    front.wait(start)
    front.wait(cell)
    outputs = page.settle()["outputs"]
    for call_id, who in WHO.items():
        mine = [output for output in outputs if output["call_id"] == call_id]
        assert printed(texts(mine, "stdout"), "out") == expected("out", who, 5)
        for kind in ("err", "early", "late", "warning"):
            assert printed(texts(mine, "stderr"), kind) == expected(kind, who, 5)
        shown = [output["data"]["text/html"] for output in mine if output["name"] == "display"]
        assert shown == [f"<b>{one} {n}</b>" for one in who for n in range(5)]
    streams = {"stdout": "", "stderr": ""}
    for message in front.of(cell):
        if message.type == "stream":
            streams[message.content["name"]] += message.content["text"]
    assert printed(streams["stdout"], "out") == expected("out", ["cell"], 10)
    for kind in ("err", "early", "late", "warning"):
        assert printed(streams["stderr"], kind) == expected(kind, ["cell"], 10)
    shown = [message.content["data"]["text/html"] for message in front.of(cell) if message.type == "display_data"]
    assert shown == [f"<b>cell {n}</b>" for n in range(10)]
    assert not printed(front.text(start), "out")
    assert not printed(front.run("print(agent.model.requests[-1].messages)"), "out")  # no model reads it


def test_what_users_redirect_in_cells_works_as_ever_and_unloading_leaves_nothing(front: Front) -> None:
    front.run("import sys, threading, builtins, concurrent.futures, io, contextlib")
    front.run("ip = get_ipython(); pool = concurrent.futures.ThreadPoolExecutor")
    state = (
        "[type(sys.stdout), type(sys.stderr), threading.Thread.start, pool.submit, ip.display_pub.publish, "
        "ip.display_pub.clear_output, ip.kernel._input_request, ip.kernel._sys_raw_input, ip.kernel._save_getpass]"
    )
    front.run(f"before = {state}; streams = sys.stdout, sys.stderr")
    front.run("%load_ext agent_widgets")
    for _ in range(2):  # IPython 9 puts a write of its own on the stream in each cell
        assert front.run("print('a', end=''); sys.stdout.writelines(['b', 'c']); print('d', flush=True)") == "abcd\n"
    assert front.run(f"print([now == then for now, then in zip({state}, before)].count(False))") == "9\n"
    text = (
        "buffer = io.StringIO()\nwith contextlib.redirect_stdout(buffer):\n    print('inside')\nprint('got', buffer.getvalue())"
    )
    assert front.run(text) == "got inside\n\n"
    assert front.run("%%capture held\nprint('captured'); display(1)") == ""
    assert front.run("print(repr(held.stdout), len(held.outputs))") == "'captured\\n' 1\n"
    assert front.run("!echo from the shell") == "from the shell\r\n"  # by a pseudo-terminal
    assert front.run("handle = display('one', display_id=True); handle.update('two')").startswith("'one'")
    front.run(WRAPPER)
    front.run("%unload_ext agent_widgets")
    assert front.run("print('through', sys.stdout is wrapper)") == "THROUGH TRUE\n"
    front.run("from agent_widgets.execution import output_sink; lost = []; sys.stdout = streams[0]")
    assert front.run("output_sink.set(lambda *said: lost.append(said)); print('in a tool')") == "in a tool\n"
    assert front.run("print(lost)") == "[]\n"
    front.run("sys.stdout = wrapper.below")
    assert front.run(f"print([now == then for now, then in zip({state}, before)])") == f"{[True] * 9}\n"
    assert front.run("print(streams == (sys.stdout, sys.stderr), 'write' in vars(type(sys.stdout)))") == "True True\n"


WRAPPER = """
class Wrapper:
    def __init__(self, below): self.below = below
    def write(self, text): return self.below.write(text.upper())
    def __getattr__(self, name): return getattr(self.below, name)
sys.stdout = wrapper = Wrapper(sys.stdout)
"""
SHOWING = """
import base64, warnings
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

@aw.tool
def shows() -> str:
    "Display all kinds of things."
    import ipywidgets
    display(Markdown("**bold**"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"), JSON({"a": [1, 2]}), Image(PIXEL, width=40))
    display(ipywidgets.IntSlider(3), {"application/x-odd": 1}, raw=False)
    display({"application/x-odd": 1}, raw=True)
    display(HTML("<p>" + "x" * 1_000_000 + "</p>"))
    display({"image/png": "A" * 27_000_000, "text/plain": "<a photograph>"}, raw=True)
    return "shown"

@aw.tool
def moves() -> str:
    "Show progress, clear, and change what was shown."
    for n in range(101):
        sys.stderr.write(f"\\r{n}%")
    sys.stderr.write("\\n")
    clear_output()
    print("after the clear")
    handle = display("first", display_id=True)
    mine = display(HTML("<b>one</b>"), display_id="mine")
    time.sleep(0.2)
    handle.update("second")
    update_display(HTML("<b>two</b>"), display_id="mine")
    update_display("from the tool", display_id="the cell's")
    for n in range(50):
        sys.stderr.write(f"\\r{n}%")
        time.sleep(0.005)
    return "moved"

@aw.tool
def waits_to_clear() -> str:
    "Clear with the next output."
    print("first")
    time.sleep(0.2)
    clear_output(wait=True)
    print("second")
    clear_output(wait=True)
    return "moved"

@aw.tool
def floods() -> str:
    "Print a great deal."
    for n in range(60_000):
        print(f"line {n} of a great many")
    return "flooded"

tools = [shows, moves, waits_to_clear, floods]
"""


def test_each_kind_of_display_is_shown_or_said_and_what_is_huge_is_left_out_with_its_size(front: Front) -> None:
    transcript = ran(front, tools=SHOWING, script="[call('shows')]")
    data = [output["data"] for output in transcript["outputs"] if output["name"] == "display"]
    markdown, svg, json, image, widget, plain, odd, html, photograph = data
    assert markdown["text/markdown"] == "**bold**"
    assert svg["image/svg+xml"].startswith("<svg")
    assert json["text/plain"] == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    assert image["image/png"].startswith("iVBORw0KGgo")
    assert [o.get("metadata") for o in transcript["outputs"] if o.get("data") == image] == [{"image/png": {"width": 40}}]
    assert widget == {"text/plain": "IntSlider(value=3)\n(a widget: it works where a cell displays it, not in a tool's card)"}
    assert plain == {"text/plain": "{'application/x-odd': 1}"}
    assert odd == {"text/plain": "(application/x-odd: it cannot be shown in a tool's card)"}
    said = "[left out: text/html of 1,000,007 characters, which is more than is shown here]"
    assert html == {"text/plain": f"<IPython.core.display.HTML object>\n{said}"}
    assert photograph["text/plain"].startswith("<a photograph>\n[left out: image/png of 27,000,000 characters")


def test_progress_clears_and_updates_change_what_is_shown(front: Front) -> None:
    front.run("from IPython.display import display; display('a place', display_id=\"the cell's\")")
    transcript = ran(front, tools=SHOWING, script="[call('moves'), call('waits_to_clear')]")
    mine = [output for output in transcript["outputs"] if output["call_id"] == "call_1"]
    assert texts(mine, "stdout") == "after the clear\n"
    assert texts(mine, "stderr") == "49%"
    assert [output["data"].get("text/html", output["data"]["text/plain"]) for output in mine if output["name"] == "display"] == [
        "'second'",
        "<b>two</b>",
    ]
    other = [(output["name"], output["text"]) for output in transcript["outputs"] if output["call_id"] == "call_2"]
    assert other == [("stdout", "second\n")]
    told = [message.content["data"]["text/plain"] for message in front.messages if message.type == "update_display_data"]
    assert "'from the tool'" in told


def test_a_flood_is_cut_in_the_middle_and_costs_few_messages(front: Front) -> None:
    transcript = ran(front, tools=SHOWING, script="[call('floods')]")
    outputs = [output for output in transcript["outputs"] if output["call_id"] == "call_1"]
    assert outputs[0]["text"].startswith("line 0 of a great many\nline 1 ")
    assert re.search(r"\[left out: 1,[\d,]+ of 1,[\d,]+ printed characters\]", outputs[1]["text"])
    assert outputs[2]["text"].endswith("line 59999 of a great many\n")
    assert sum(len(output["text"]) for output in outputs) < 221_000
    assert len([message for message in front.messages if "great many" in str(message.content)]) < 200


ASKING = """
@aw.tool
def asks() -> str:
    "Ask with input."
    return input("Which table? ")

@aw.tool
def asks_a_secret() -> str:
    "Ask with getpass, in a thread of its own."
    import getpass
    with __import__("concurrent.futures").futures.ThreadPoolExecutor() as pool:
        return pool.submit(getpass.getpass, "Password: ").result()

tools = [asks, asks_a_secret]
"""


def test_a_tool_that_asks_by_input_is_told_how_to_ask_and_a_cell_asks_as_ever(front: Front) -> None:
    assert front.run(SETUP + ASKING) == ""
    page = Page(front)
    front.run("agent = aw.Agent(ScriptedModel([[call('asks'), call('asks_a_secret')], [say('ok')]] * 2), tools=tools)")
    cell = front.execute("await aw.chat(agent, 'go')\nanswer = input('And you? ')\nprint('you said', answer)")
    prompt = front.wait_for(lambda message: message.type == "input_request").content
    assert prompt["prompt"] == "And you? "  # the tools have not asked
    front.answer("yes")
    front.wait(cell)
    assert front.text(cell).endswith("you said yes\n")
    transcript = page.settle()
    for at, name in enumerate(("input", "getpass")):
        assert result_of(transcript, at).startswith(f"A tool cannot ask by {name}(): ")
        assert "@tool(external=True), which waits for run.answer(call_id, …)" in result_of(transcript, at)
    idle = Page(front)
    front.run("run = aw.chat(agent, 'go')")  # its tools run when no cell does
    assert result_of(idle.settle()).startswith("A tool cannot ask by input(): ")


PLOTS = """
import matplotlib
{backend}
import matplotlib.pyplot as plt, pandas
from matplotlib.figure import Figure

@aw.tool
def plots() -> str:
    "Plot in several ways."
    first = plt.figure(); plt.plot([1, 2]); plt.title("shown")
    print("numbers", plt.get_fignums(), plt.gcf() is first)
    {show}
    plt.figure(); plt.plot([3, 4])
    figure = Figure(); figure.subplots().plot([1]); display(figure)
    display(pandas.DataFrame({{"price": [3.5, 4.5]}}))
    {gate}
    return "plotted"

gate = threading.Event()
tools = [plots]
"""


@pytest.mark.parametrize("backend", ["", "matplotlib.use('Agg')"])
def test_figures_of_a_tool_are_shown_on_its_card_and_those_of_cells_in_cells(front: Front, backend: str) -> None:
    front.run(f"import sys; sys.path.append({str(PLOTTING)!r})")
    show = "plt.show()" if not backend else ""
    transcript = ran(front, tools=PLOTS.format(backend=backend, show=show, gate=""), script="[call('plots')]")
    assert result_of(transcript) == "plotted"
    shown = [output["data"] for output in transcript["outputs"] if output["name"] == "display"]
    images = [data["image/png"] for data in shown if "image/png" in data]
    assert len(images) == 3
    assert len(set(images)) == 3
    assert all(image.startswith("iVBORw0KGgo") for image in images)
    tables = [data["text/html"] for data in shown if "text/html" in data]
    assert ["dataframe" in table and "3.5" in table for table in tables] == [True]
    assert texts(transcript["outputs"], "stdout") == "numbers [1] True\n"
    assert front.run("print(plt.get_fignums())") == "[]\n"


def test_a_cell_that_plots_while_a_tool_plots_gets_its_own_figure_and_only_that(front: Front) -> None:
    front.run(f"import sys; sys.path.append({str(PLOTTING)!r})")
    assert front.run(SETUP) == ""
    page = Page(front)
    front.run("import threading\nfrom IPython.display import display\n" + PLOTS.format(backend="", show="", gate="gate.wait(20)"))
    front.run("agent = aw.Agent(ScriptedModel([[call('plots')], [say('ok')]]), tools=tools)\nrun = aw.chat(agent, 'go')")
    front.wait_for(lambda message: message.type == "comm_msg" and "[1] True" in str(message.content))
    cell = front.execute("plt.plot([5, 6]); print(plt.get_fignums(), len(plt.gca().lines))")
    front.wait(cell)
    assert front.text(cell).startswith("[1] 1\n")
    pictures = [m for m in front.of(cell) if m.type == "display_data" and "image/png" in m.content["data"]]
    assert len(pictures) == 1
    front.run("gate.set()")
    outputs = page.settle()["outputs"]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 3


IMPORTS = """
@aw.tool
def imports() -> str:
    "Plot, and be the first to import pyplot."
    import matplotlib.pyplot as plt
    plt.plot([1, 2])
    return "plotted"

tools = [imports]
"""


def test_a_cell_that_is_the_first_to_import_pyplot_keeps_its_figure_whatever_tool_ends_meanwhile(front: Front) -> None:
    front.run(f"{SETUP}\nimport sys, threading; sys.path.append({str(PLOTTING)!r})\nmay_end = threading.Event()")
    page = Page(front)
    front.run(
        "@aw.tool\ndef waits() -> str:\n    'Wait until the cell has plotted.'\n    may_end.wait(20)\n    return 'waited'\n"
        "agent = aw.Agent(ScriptedModel([[call('waits')], [say('done')]]), tools=[waits])\nrun = aw.chat(agent, 'go')"
    )
    cell = front.execute(
        "%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1]); may_end.set()\n"
        "while not run.is_over: time.sleep(0.01)\nprint(plt.get_fignums())"
    )
    front.wait(cell, 30)
    assert front.text(cell).startswith("[1]\n")
    assert [m.type for m in front.of(cell) if m.type == "display_data"] == ["display_data"]
    assert "outputs" not in page.settle()


def test_a_tool_that_is_the_first_to_import_pyplot_has_its_figure_on_its_card(front: Front) -> None:
    front.run(f"import sys; sys.path.append({str(PLOTTING)!r})")
    transcript = ran(front, tools=IMPORTS, script="[call('imports')]")
    assert ["image/png" in output.get("data", {}) for output in transcript["outputs"]] == [True]
    shown = front.execute("import matplotlib.pyplot as plt; plt.plot([1]); print(plt.get_fignums())")
    front.wait(shown)
    assert front.text(shown).startswith("[1]\n")
    assert len([m for m in front.of(shown) if m.type == "display_data"]) == 1
