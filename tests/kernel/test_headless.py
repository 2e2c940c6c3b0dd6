"""Nobody there: nbclient, papermill and nbconvert come to an end, and the file they leave is the final one, on each kernel."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbclient.exceptions
import nbformat
import papermill  # pyright: ignore[reportMissingTypeStubs]
import pytest
from nbconvert import HTMLExporter, MarkdownExporter

from tests.kernel.fakefront import ROOT, Front, OwnPorts
from tests.kernel.page import ENDED, SETUP, Page

MORE = """
from agent_widgets.models.scripted import fail

@aw.tool(external=True)
async def ask_person(question: str) -> str:
    "Ask a person who is somewhere else."

@aw.tool
def stubborn() -> str:
    "Never looks whether it shall stop."
    time.sleep(4)
    return "late"

ORDERS = call('delete_rows', {'table': 'orders'})
LUNCH = call('ask_person', {'question': 'Lunch?'})

def agent_of(*script, pace=None):
    return aw.Agent(ScriptedModel(list(script), tokens_per_second=pace), tools=[delete_rows, ask_person, stubborn])

def story(name):
    "A model whose answer takes a second."
    return agent_of([say([name + ' '] * 40)], pace=50)
"""


@pytest.fixture
def kernel_name(kernel_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel spec of this kernel. Not called python3: jupyter_client would put its own interpreter into that."""
    spec = {
        "argv": [str(kernel_python), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "under test",
        "language": "python",
        "env": {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")},
    }
    folder = tmp_path / "share" / "kernels" / "under-test"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    return "under-test"


def notebook(kernel_name: str, *cells: str) -> Any:
    made: Any = nbformat.v4.new_notebook()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in (SETUP + MORE, *cells)]  # pyright: ignore[reportUnknownMemberType]
    made.metadata["kernelspec"] = {"name": kernel_name, "display_name": "under test", "language": "python"}
    return made


def execute(made: Any, **options: Any) -> Any:
    client: Any = nbclient.NotebookClient
    client(made, **{"timeout": 60, "kernel_manager_class": OwnPorts, **options}).execute()
    return made


class Saved:
    """What a reader of the file finds."""

    def __init__(self, made: Any) -> None:
        self.notebook = made

    def outputs(self, index: int) -> list[Any]:
        return self.notebook.cells[index].outputs

    def twin(self, index: int) -> str:
        """The one static transcript of a cell, as text."""
        found = [o["data"]["text/html"] for o in self.outputs(index) if "aw-static" in o.get("data", {}).get("text/html", "")]
        assert len(found) == 1, f"cell {index} has {len(found)} transcripts"
        return html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", "", found[0]))

    def states(self, index: int) -> list[str]:
        """How the runs of a cell's card stand in the widget state that is saved."""
        view = "application/vnd.jupyter.widget-view+json"
        [model] = [o["data"][view]["model_id"] for o in self.outputs(index) if view in o.get("data", {})]
        state = self.notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"][model]["state"]
        return [run["status"]["state"] for run in state["snapshot"]["runs"]]

    def errors(self, index: int) -> list[str]:
        return [output["ename"] for output in self.outputs(index) if output["output_type"] == "error"]

    def printed(self, index: int) -> str:
        return "".join(output["text"] for output in self.outputs(index) if output["output_type"] == "stream")

    def assert_final(self, *indices: int) -> None:
        """These cells have cards, and nothing in their twins or their states is still going on."""
        for index in indices:
            assert self.states(index)
            assert set(self.states(index)) <= set(ENDED), (index, self.states(index))
            assert not re.search(r"· (running|waiting|stopping)", self.twin(index)), self.twin(index)


WAYS = (
    "reply = await aw.chat(story('awaited'), 'a')",
    "run = aw.chat(story('blocking'), 'b').wait()",
    "run = aw.chat(story('background'), 'c')",
    "one, two = story('first'), story('second')\nruns = [aw.chat(one, 'd', session='one'), aw.chat(two, 'e', session='two')]",
    "print(order)\nlast = aw.chat(story('closing'), 'f')",
)


def assert_saved(saved: Saved) -> None:
    for index, words in ((1, "awaited"), (2, "blocking"), (3, "background"), (5, "closing")):
        saved.assert_final(index)
        assert saved.twin(index).count(words) == 40
    both = [o["data"]["text/html"] for o in saved.outputs(4) if "aw-static" in o.get("data", {}).get("text/html", "")]
    assert [text.count("first") + text.count("second") for text in both] == [40, 40]


def visible(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)


def test_nbclient_keeps_what_each_way_of_waiting_came_to_and_exports_show_it_once(kernel_name: str) -> None:
    made = execute(notebook(kernel_name, *WAYS))
    assert_saved(Saved(made))
    page: Any = HTMLExporter().from_notebook_node(made)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    markdown: Any = MarkdownExporter().from_notebook_node(made)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    for word in ("awaited", "blocking", "background", "first", "second", "closing"):
        for text in (visible(page[0]), visible(markdown[0])):
            assert len(re.findall(rf"(?:{word} ){{39}}{word}", text)) == 1, word
            assert "live card" not in text
    made.metadata.pop("widgets")
    bare: Any = HTMLExporter().from_notebook_node(made)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert len(re.findall(r"(?:background ){39}", visible(bare[0]))) == 1


def test_papermill_and_nbconvert_leave_the_same_file(kernel_name: str, tmp_path: Path) -> None:
    source, by_papermill, by_nbconvert = (tmp_path / name for name in ("source.ipynb", "papermill.ipynb", "nbconvert.ipynb"))
    nbformat.write(notebook(kernel_name, *WAYS), source)  # pyright: ignore[reportUnknownMemberType]
    papermill.execute_notebook(source, by_papermill, progress_bar=False, kernel_manager_class=OwnPorts)  # pyright: ignore[reportUnknownMemberType]
    ports = f"--ExecutePreprocessor.kernel_manager_class={OwnPorts.__module__}.{OwnPorts.__name__}"
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", ports, source, "--output", by_nbconvert]
    subprocess.run(command, check=True, capture_output=True, timeout=100, env={**os.environ, "PYTHONPATH": str(ROOT)})
    for file in (by_papermill, by_nbconvert):
        read: Any = nbformat.read(file, as_version=4)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        assert_saved(Saved(read))


POLICIES = (
    "await aw.chat(agent_of([ORDERS], [say('I see.')]), 'a')",
    "await aw.chat(agent_of([ORDERS], [say('I see.')]), 'b', on_confirm='deny')",
    "await aw.chat(agent_of([ORDERS], [say('I see.')]), 'c', on_confirm='allow')",
    "run = aw.chat(agent_of([ORDERS], [say('I see.')]), 'd', on_confirm='raise')",
    "print(run.status, type(run.error).__name__, run.error)",
    "run = aw.chat(agent_of([fail(RuntimeError('no such machine'))]), 'e')",
    "run = aw.chat(agent_of([call('stubborn')]), 'f', deadline=0.5)",
    "run = aw.chat(agent_of([say('long ' * 1000)], pace=5), 'g', budget=aw.Budget(seconds=0.5))",
    "print([s.current for s in aw.sessions()])",
)


def test_every_policy_error_and_limit_ends_in_its_own_cell(kernel_name: str) -> None:
    saved = Saved(execute(notebook(kernel_name, *POLICIES)))
    saved.assert_final(1, 2, 3, 4, 6, 7, 8)
    assert "denied (Nobody is there to ask (no page, no terminal), so the call was denied by default.)" in saved.twin(1)
    assert "denied (Denied by the notebook's own policy" in saved.twin(2)
    assert "success: 3" in saved.twin(3)
    assert "stopped from code" in saved.twin(4)
    assert saved.printed(5).startswith("interrupted ConfirmationRequiredError delete_rows needs a confirmation")
    assert "no such machine" in saved.twin(6)
    assert "stopped at its deadline" in saved.twin(7)
    assert "at the end of its budget" in saved.twin(8)
    assert set(saved.printed(9)) <= set("[None, ]\n")


def test_an_await_that_fails_ends_the_notebook_or_not_as_the_person_says(kernel_name: str) -> None:
    cells = (
        "await aw.chat(agent_of([ORDERS]), 'a', on_confirm='raise')",
        "await aw.chat(agent_of([fail(RuntimeError('no such machine'))]), 'b')",
        "print('after all')",
    )
    saved = Saved(execute(notebook(kernel_name, *cells), allow_errors=True))
    assert [saved.errors(index) for index in (1, 2, 3)] == [["ConfirmationRequiredError"], ["RuntimeError"], []]
    saved.assert_final(1, 2)
    assert saved.printed(3) == "after all\n"
    made = notebook(kernel_name, *cells)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="on_confirm is 'raise'"):
        execute(made)
    assert "stopped from code" in Saved(made).twin(1)


OUTSIDE = (
    "agent = agent_of([LUNCH], [say('thank you')], [say('and then')])\nrun = aw.chat(agent, 'a')",
    "queued = aw.chat(agent, 'b'); began = time.monotonic()",
    "print(run.status, queued.status, time.monotonic() - began < 10)",
    "run.answer(run.transcript.waiting[0].id, 'at noon')",
    "print(run.text, queued.text)",
    "reply = await aw.chat(agent_of([LUNCH], [say('so not')]), 'c', answer_within=1)\nprint(reply.text)",
    "run = aw.chat(agent_of([LUNCH], [say('so neither')]), 'd', answer_within=2)",
    "time.sleep(3)",
    "print(run.text)",
    "run = aw.chat(agent_of([LUNCH]), 'e'); print(run._answer_within)",
)


def test_an_outside_result_is_waited_for_until_a_later_cell_brings_it_or_its_time_is_over(kernel_name: str) -> None:
    saved = Saved(execute(notebook(kernel_name, *OUTSIDE)))
    assert saved.printed(3) == "paused queued True\n"
    assert saved.printed(5) == "thank you and then\n"
    assert saved.printed(6) == "so not\n"
    assert saved.printed(9) == "so neither\n"
    assert saved.printed(10) == "60.0\n"
    saved.assert_final(1, 2, 6, 7)  # in their own cells, although later ones have brought the end
    assert "success: at noon" in saved.twin(1)
    assert "thank you" in saved.twin(1)
    assert "and then" in saved.twin(2)
    for index in (6, 7):
        assert "error: Nobody answered within" in saved.twin(index)
    assert saved.states(10) == ["paused"]  # the last cell: nobody will bring it
    assert "waits for a result" in saved.twin(10)


def brief(cell: Any) -> int:
    """Seconds that a cell may take: little for the long story; those that import the package may need theirs."""
    return 8 if "10_000" in cell.source else 60


@pytest.mark.parametrize("waits", ["await run", "run.wait()", "pass"])
def test_a_cell_that_takes_too_long_is_interrupted_and_its_run_stopped(kernel_name: str, waits: str) -> None:
    slow = f"run = aw.chat(agent_of([say('long ' * 10_000)], pace=5), 'a'); {waits}"
    cells = (slow, "print(run.status, run.reply.metadata['source'])")
    made, began = notebook(kernel_name, *cells), time.monotonic()
    saved = Saved(execute(made, timeout_func=brief, interrupt_on_timeout=True, allow_errors=True))
    assert time.monotonic() - began < 40
    assert saved.errors(1) == ([] if waits == "pass" else ["AgentStopped"])
    saved.assert_final(1)
    assert "stopped with the kernel" in saved.twin(1)
    assert saved.printed(2) == "interrupted kernel\n"


def test_without_an_interrupt_the_notebook_ends_at_the_time_limit(kernel_name: str) -> None:
    made = notebook(kernel_name, "run = aw.chat(agent_of([say('long ' * 10_000)], pace=5), 'a')", "print('never')")
    with pytest.raises(nbclient.exceptions.CellTimeoutError):
        execute(made, timeout_func=brief)
    assert Saved(made).outputs(2) == []


# -- a page is there ------------------------------------------------------------------------------------------------


@pytest.fixture
def front(kernel_python: Path) -> Iterator[Front]:
    with Front(kernel_python) as front:
        front.run(SETUP + MORE)
        yield front


ORDERED = {
    "await": "run = aw.chat(agent, 'a'); await run; order.append(run.status)",
    "sync": "run = aw.chat(agent, 'a'); run.wait(); order.append(run.status)",
}


@pytest.mark.parametrize("kind", ORDERED)
def test_run_all_keeps_its_order_and_each_cell_sees_what_was_waited_for(front: Front, kind: str) -> None:
    front.run("agent = story('word')")
    cells = [front.execute(code) for code in (ORDERED[kind], "order.append(run.status)", "order.append(len(run.text))")]
    for cell in cells:
        assert front.wait(cell)["status"] == "ok"
    assert front.run("print(order)") == "['completed', 'completed', 200]\n"


def test_run_all_with_a_run_in_the_background_goes_on_while_it_does(front: Front) -> None:
    front.run("agent = aw.Agent(slow())")
    cells = [front.execute(code) for code in ("run = aw.chat(agent, 'a')", "order.append(run.status)", "order.append('end')")]
    for cell in cells:
        assert front.wait(cell)["status"] == "ok"
    assert front.run("print(order)") == "['running', 'end']\n"
    front.run("run.stop()")


@pytest.mark.parametrize("kind", ORDERED)
def test_a_question_in_run_all_holds_the_cells_behind_it_until_it_is_decided(front: Front, kind: str) -> None:
    front.run("agent = agent_of([ORDERS], [say('done')])")
    page = Page(front)
    cells = [front.execute(code) for code in (ORDERED[kind], "order.append(run.text)", "order.append('end')")]
    page.wait_for_state("paused")
    assert not any(message.channel == "shell" and message.parent_id in cells for message in front.messages)
    page.decide("approve")
    for cell in cells:
        assert front.wait(cell)["status"] == "ok"
    assert front.run("print(order)") == "['completed', 'done', 'end']\n"


@pytest.mark.parametrize("kind", ORDERED)
def test_a_question_in_run_all_with_a_time_limit_lets_the_cells_behind_it_go_on(front: Front, kind: str) -> None:
    front.run("agent = agent_of([ORDERS], [say('as you say')])")
    page = Page(front)
    cells = [front.execute(code) for code in (ORDERED[kind].replace("'a'", "'a', answer_within=1"), "order.append(run.text)")]
    paused = page.wait_for_state("paused")
    for cell in cells:
        assert front.wait(cell)["status"] == "ok"
    assert page.wait_for_state("completed").time - paused.time < 5
    assert front.run("print(order)") == "['completed', 'as you say']\n"


def test_the_end_of_a_questions_time_is_in_what_a_page_gets_also_after_a_reload(front: Front) -> None:
    front.run("agent = agent_of([ORDERS], [say('as you say')])")
    page = Page(front)
    front.run("run = aw.chat(agent, 'a', answer_within=3600)")
    page.wait_for_state("paused")
    told = [event for m in page.card.custom if m["kind"] == "events" for event in m["events"]]
    asked = next(event for event in told if event["type"] == "REQUIRE_USER_CONFIRM")["tool_calls"][0]
    again = page.transcript()["message"]["content"][0]
    assert asked["answer_within"] == 3600
    assert again["answer_by"] == asked["answer_by"]
    page.stop()


def test_the_end_of_a_questions_time_outlives_a_killed_kernel(front: Front, kernel_python: Path, tmp_path: Path) -> None:
    lines = f"session = aw.Session.open({str(tmp_path / 'orders.session')!r}, agent)\nrun = aw.chat(agent, PROMPT)"
    end = "print([block.answer_by for block in run.reply.content if block.type == 'tool_call'])"
    page = Page(front)
    front.run("agent = agent_of([ORDERS])")
    front.run(lines.replace("PROMPT", "'clean up', answer_within=15"))
    page.wait_for_state("paused")
    told = front.run(end)
    front.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    front.wait_dead()
    with Front(kernel_python) as other:
        other.run(SETUP + MORE + "agent = agent_of([say('as you say')])")
        other.run(lines.replace(", PROMPT", ""))
        other.run("import concurrent.futures; concurrent.futures.wait([run.ended], 20)")
        assert other.run(end) == told
        assert other.run("print(run.text, run.reply.content[1].metadata)") == (
            "as you say {'reason': 'Nobody answered within 15 s.'}\n"
        )


@pytest.mark.parametrize("policy", ["deny", "allow", "raise"])
def test_a_policy_decides_although_a_page_is_there(front: Front, policy: str) -> None:
    front.run(f"agent = agent_of([ORDERS], [say('done')])\nrun = aw.chat(agent, 'a', on_confirm={policy!r})")
    front.run("import concurrent.futures; concurrent.futures.wait([run.ended], 10)")
    expected = {"deny": "completed denied\n", "allow": "completed success\n", "raise": "interrupted interrupted\n"}
    assert front.run("print(run.status, run.reply.content[1].state)") == expected[policy]


def test_a_budget_and_a_policy_together_fail_the_waiting_cell_with_the_policys_error(front: Front) -> None:
    front.run("agent = agent_of([ORDERS])")
    cell = front.execute("await aw.chat(agent, 'a', budget=aw.Budget(seconds=30), on_confirm='raise')")
    reply = front.wait(cell)
    assert (reply["status"], reply["ename"]) == ("error", "ConfirmationRequiredError")
    assert front.run("print(agent.state.check(), agent.state.waiting())") == "() ()\n"
