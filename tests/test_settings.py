"""Defaults: what is given wins over what is configured, and that over what is built in."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import traitlets

from agent_widgets.agent import Agent
from agent_widgets.chat import NOBODY_SECONDS, chat
from agent_widgets.errors import InputError
from agent_widgets.models.demo import DemoModel
from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.scripted import ScriptedModel, call, say
from agent_widgets.sessions import sessions
from agent_widgets.settings import AgentWidgets
from agent_widgets.tools import tool


@tool(confirm=True)
async def delete_rows(table: str) -> str:
    """Delete the rows of TABLE."""
    return f"deleted from {table}"


@pytest.fixture
def defaults() -> Iterator[AgentWidgets]:
    yield AgentWidgets.get()
    AgentWidgets.forget()
    for session in sessions():
        session.close()


def agent_that_asks() -> Agent:
    return Agent(ScriptedModel([[call("delete_rows", {"table": "orders"})], [say("done")]]), tools=[delete_rows])


def limits(
    agent: Agent, *, deadline: float | None = None, answer_within: float | None = None
) -> tuple[float | None, float | None]:
    run = chat(agent, "clean up", deadline=deadline, answer_within=answer_within).wait()
    return run._deadline, run._answer_within


def test_a_question_has_a_minute_where_nobody_is_there_unless_somebody_says_otherwise(defaults: AgentWidgets) -> None:
    assert limits(agent_that_asks()) == (None, NOBODY_SECONDS)
    assert limits(agent_that_asks(), answer_within=math.inf, deadline=math.inf) == (None, None)
    defaults.answer_within, defaults.deadline = 5, 7
    assert limits(agent_that_asks()) == (7, 5)
    assert limits(agent_that_asks(), answer_within=3, deadline=4) == (4, 3)
    assert limits(agent_that_asks(), answer_within=math.inf, deadline=math.inf) == (None, None)
    defaults.answer_within = math.inf
    assert limits(agent_that_asks()) == (7, None)


def test_the_configured_policy_decides_unless_another_is_given(defaults: AgentWidgets) -> None:
    defaults.on_confirm = "allow"
    assert "deleted from orders" in str(chat(agent_that_asks(), "clean up").wait().reply.content)
    assert "own policy" in str(chat(agent_that_asks(), "clean up", on_confirm="deny").wait().reply.content)


def test_an_agent_without_a_model_has_the_configured_one(defaults: AgentWidgets, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults.model = "some-model"
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    configured = Agent().model
    assert isinstance(configured, OpenAIChat)
    assert configured.name == "some-model"
    assert isinstance(Agent("demo").model, DemoModel)
    with pytest.raises(InputError, match="base_url needs the name"):
        Agent(base_url="http://127.0.0.1:1/v1")


def test_what_cannot_be_is_refused_and_changes_nothing(defaults: AgentWidgets) -> None:
    for name, value in (("deadline", 0), ("answer_within", -1), ("on_confirm", "maybe"), ("frames_a_second", 0), ("model", 3)):
        with pytest.raises(traitlets.TraitError, match=name):
            setattr(defaults, name, value)
    assert (defaults.deadline, defaults.answer_within, defaults.on_confirm, defaults.model) == (None, None, "ask", None)
    with pytest.raises(InputError, match="deadline is -1"):
        chat(agent_that_asks(), "clean up", deadline=-1)
