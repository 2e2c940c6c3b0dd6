"""Configuration in a real kernel: by a file of the profile, and by ``%config``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.page import SETUP, Page

CONFIG = """
c = get_config()
c.AgentWidgets.model = "demo"
c.AgentWidgets.on_confirm = "allow"
c.AgentWidgets.deadline = 30
c.AgentWidgets.answer_within = 3600
"""
ASKS = "agent = aw.Agent(ScriptedModel([[call('delete_rows', {'table': 'orders'})], [say('done')]]), tools=[delete_rows])\n"
LIMITS = "print(run.transcript.waiting[0].answer_within, run._deadline, run.status)"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile's config file that is not written yet; its folder is what ``configured`` kernels read."""
    file = tmp_path / "profile_default" / "ipython_config.py"
    file.parent.mkdir()
    return file


@pytest.fixture
def configured(kernel_python: Path, profile: Path) -> Iterator[Front]:
    profile.write_text(CONFIG)
    with Front(kernel_python, env={"IPYTHONDIR": str(profile.parents[1]), "OPENAI_API_KEY": "none"}) as front:
        front.run(SETUP)
        yield front


def test_a_config_file_counts_without_loading_an_extension_and_what_is_given_in_a_call_wins(configured: Front) -> None:
    assert configured.run("print(type(aw.Agent().model).__name__)") == "DemoModel\n"  # although there is a key
    assert configured.run("print(type(aw.Agent('gpt-5-mini').model).__name__)") == "OpenAIChat\n"
    configured.run(f"{ASKS}run = aw.chat(agent, 'clean up'); run.wait()")
    assert configured.run("print(agent.model.requests[-1].messages[-1]['content'], run._deadline)") == "3 30.0\n"
    page = Page(configured)
    configured.run(f"{ASKS}run = aw.chat(agent, 'clean up', on_confirm='ask', deadline=60, answer_within=5000)")
    page.wait_for_state("paused")
    assert configured.run(LIMITS) == "5000 60 paused\n"
    page = Page(configured)
    configured.run(
        f"import math\n{ASKS}run = aw.chat(agent, 'clean up', on_confirm='ask', deadline=math.inf, answer_within=math.inf)"
    )
    page.wait_for_state("paused")
    assert configured.run(LIMITS) == "None None paused\n"


def test_the_magic_shows_and_sets_the_defaults_of_what_comes_after_it(front: Front) -> None:
    front.run(f"{SETUP}\n%load_ext agent_widgets")
    assert "AgentWidgets" in front.run("%config")
    shown = front.run("%config AgentWidgets")
    for name in ("model", "on_confirm", "deadline", "answer_within", "frames_a_second", "early_answers", "remote_images"):
        assert f"AgentWidgets.{name}=" in shown
    front.run("%config AgentWidgets.answer_within = 3600")
    front.run("%config AgentWidgets.frames_a_second = 5")
    front.run("%config AgentWidgets.remote_images = True")
    page = Page(front)
    front.run(f"{ASKS}run = aw.chat(agent, 'clean up')")
    page.wait_for_state("paused")
    assert front.run(LIMITS) == "3600.0 None paused\n"
    assert page.card.state["remote_images"] is True
    front.run("%config AgentWidgets.on_confirm = 'deny'")
    front.run(f"{ASKS}run = aw.chat(agent, 'clean up'); run.wait()")
    assert "own policy" in front.run("print(agent.model.requests[-1].messages[-1]['content'])")
    page = Page(front)
    front.run("%%agent helper --model demo\nhello")
    assert page.settle()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("on_confirm = 'maybe'", "expected any of ['ask', 'deny', 'allow', 'raise']"),
        ("deadline = -1", "AgentWidgets.deadline is -1.0; it must be a number of seconds above 0."),
        ("answer_within = 'soon'", "expected a float, not the str 'soon'"),
        ("frames_a_second = 1000", "should not be greater than 20.0"),
    ],
)
def test_what_cannot_be_is_refused_by_the_magic_with_a_sentence(front: Front, line: str, complaint: str) -> None:
    front.run("%load_ext agent_widgets")
    assert complaint in front.run(f"%config AgentWidgets.{line}")


def test_a_file_that_cannot_be_is_told_where_it_would_have_counted(kernel_python: Path, profile: Path) -> None:
    profile.write_text("c = get_config()\nc.AgentWidgets.on_confirm = 'perhaps'\n")
    with Front(kernel_python, env={"IPYTHONDIR": str(profile.parents[1])}) as front:
        said = front.run(f"{SETUP}\nagent = aw.Agent('demo')\naw.chat(agent, 'hello')")
        assert "TraitError: The 'on_confirm' trait of an AgentWidgets instance expected any of" in said


def test_unloading_takes_the_configuration_out(front: Front) -> None:
    front.run("%load_ext agent_widgets")
    front.run("%unload_ext agent_widgets")
    assert "AgentWidgets" not in front.run("%config")
    front.run("%load_ext agent_widgets")
    assert front.run("%config").count("AgentWidgets") == 1
