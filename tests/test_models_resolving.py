"""From what a user gives to a model."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from agent_widgets.errors import InputError
from agent_widgets.models import resolve
from agent_widgets.models.demo import DemoModel
from agent_widgets.models.scripted import ScriptedModel


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_key_the_default_is_the_demo_model_and_it_says_so() -> None:
    model = resolve(None)
    assert isinstance(model, DemoModel)
    assert "no OPENAI_API_KEY" in model.note


def test_with_a_key_the_default_is_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    assert repr(resolve(None)) == "OpenAIChat('gpt-5-mini')"


def test_names_and_models_are_resolved() -> None:
    scripted = ScriptedModel([])
    assert resolve(scripted) is scripted
    assert [resolve(name).name for name in ("demo", "local", "other")] == ["demo", "local", "other"]
    assert repr(resolve("m", base_url="http://h/v1")) == "OpenAIChat('m', base_url='http://h/v1')"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (5, "got int 5; give"),
        ("", "got str ''; give"),
        (ScriptedModel, "the class ScriptedModel instead of an object"),
        (openai.AsyncOpenAI(api_key="k"), r"OpenAIChat\(name, client="),
    ],
)
def test_what_is_no_model_is_refused_with_what_to_give(given: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        resolve(given)


@pytest.mark.parametrize(
    ("model", "more"),
    [(None, {"base_url": "http://h"}), ("demo", {"base_url": "http://h"}), (ScriptedModel([]), {"api_key": "k"})],
)
def test_an_address_or_a_key_that_would_be_ignored_is_refused(model: Any, more: dict[str, str]) -> None:
    with pytest.raises(InputError):
        resolve(model, **more)
