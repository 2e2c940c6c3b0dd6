"""The public names and signatures: changing one is a decision, and shows here."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import agent_widgets as aw
from agent_widgets import errors
from agent_widgets.compression import SUMMARY_PROMPT
from agent_widgets.models import scripted

NAMES = [
    "Agent",
    "AgentBusyError",
    "AgentInterruptedError",
    "AgentState",
    "AgentStopped",
    "AgentWidgetsError",
    "AssistantMsg",
    "Budget",
    "CompressionConfig",
    "ConfirmResult",
    "ConfirmationRequiredError",
    "ConversationTooLongError",
    "DataBlock",
    "Event",
    "ExternalExecutionResultEvent",
    "HintBlock",
    "InputError",
    "MissingPackageError",
    "ModelError",
    "ModelSetupError",
    "Msg",
    "NotWaitingError",
    "PermissionRule",
    "ReplyEndEvent",
    "RequireExternalExecutionEvent",
    "RequireUserConfirmEvent",
    "Run",
    "SavedStateError",
    "Session",
    "Summary",
    "SystemMsg",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolCallBlock",
    "ToolDefinitionError",
    "ToolResultBlock",
    "UserConfirmResultEvent",
    "UserInterruptEvent",
    "UserMsg",
    "card",
    "chat",
    "load_ipython_extension",
    "sessions",
    "stop_requested",
    "tool",
    "unload_ipython_extension",
]

SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (
        aw.Agent,
        (
            "(model=None, *, name='assistant', instructions='', tools=(), state=None, permissions='ask', "
            "compression=CompressionConfig(trigger_tokens=None, keep_recent_tokens=None, max_summary_tokens=2000, model=None), "
            "budget=None, max_steps=20, on_interrupt='reply', base_url=None, api_key=None)"
        ),
    ),
    (aw.Agent.reply, "(self, inputs=None)"),
    (aw.Agent.reply_stream, "(self, inputs=None)"),
    (aw.Agent.__call__, "(self, inputs=None)"),
    (aw.Agent.reply_sync, "(self, inputs=None)"),
    (aw.Agent.as_tool, "(self, *, name=None, description=None)"),
    (aw.Agent.interrupt, "(self, after='now', reason='')"),
    (aw.Agent.forget_rule, "(self, rule)"),
    (aw.Budget, "(*, seconds=None, tokens=None, steps=None, tool_calls=None)"),
    (
        aw.CompressionConfig,
        f"(*, trigger_tokens=None, keep_recent_tokens=None, max_summary_tokens=2000, prompt={SUMMARY_PROMPT!r}, model=None)",
    ),
    (aw.Summary, "(*, text, messages=0, blocks=0)"),
    (aw.PermissionRule, "(tool_name, rule_content=None, behavior='allow', source='user')"),
    (aw.Agent.handle_interrupt, "(self, reason)"),
    (
        aw.chat,
        "(agent, prompt=None, *, session=None, on_confirm=None, deadline=None, answer_within=None, budget=None, loop=None)",
    ),
    (aw.card, "(agent, prompt=None, *, session=None, on_confirm=None, deadline=None, answer_within=None, budget=None)"),
    (aw.Run.stop, "(self, after='now', reason='', *, call_id=None, source='code', raises=None)"),
    (aw.Run.approve, "(self, call_id=None, *, arguments=None, always=False)"),
    (aw.Run.deny, "(self, call_id=None, reason='', *, stop=False)"),
    (aw.Run.answer, "(self, call_id, result)"),
    (aw.Run.resume, "(self)"),
    (aw.Run.wait, "(self, timeout=None)"),
    (aw.Session, "(agent, name=None, *, loop='own')"),
    (
        aw.Session.run,
        (
            "(self, prompt=None, reset=False, *, deadline=None, answer_within=None, budget=None, waiter=None, on_pause=None, "
            "before_start=None)"
        ),
    ),
    (aw.Session.interrupt, "(self, after='now', reason='')"),
    (aw.Session.save, "(self, path)"),
    (aw.Session.load, "(path, agent)"),
    (aw.Session.close, "(self)"),
    (aw.sessions, "()"),
    (
        aw.tool,
        (
            "(function=None, /, *, name=None, confirm=False, external=False, timeout=None, isolate=None, thread=None, "
            "sequential=False)"
        ),
    ),
    (aw.stop_requested, "()"),
    (
        aw.Msg,
        (
            "(name, content, role, *, id=None, metadata=None, created_at=None, usage=None, finished_at=None, "
            "finished_reason=None, error=None)"
        ),
    ),
    (aw.UserMsg, "(name, content)"),
    (aw.AssistantMsg, "(name, content)"),
    (aw.SystemMsg, "(name, content)"),
    (scripted.ScriptedModel, "(script, tokens_per_second=None, name='scripted')"),
    (scripted.say, "(text)"),
    (scripted.think, "(text)"),
    (scripted.call, "(name, arguments='{}', id=None)"),
    (scripted.fail, "(error)"),
    (scripted.wait, "(event)"),
]


def without_annotations(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_the_public_names_are_these_in_order_and_each_exists() -> None:
    assert aw.__all__ == NAMES
    assert [name for name in NAMES if not hasattr(aw, name)] == []


@pytest.mark.parametrize(("function", "expected"), SIGNATURES, ids=[function.__qualname__ for function, _ in SIGNATURES])
def test_the_public_signatures_are_these(function: Callable[..., Any], expected: str) -> None:
    assert without_annotations(function) == expected


@pytest.mark.parametrize("name", ["status", "events", "text", "reply", "transcript", "error", "elapsed", "is_over"])
def test_what_a_run_shows_is_read_only(name: str) -> None:
    assert isinstance(attribute := inspect.getattr_static(aw.Run, name), property)
    assert attribute.fset is None


def test_every_public_thing_says_what_it_is() -> None:
    assert [name for name in NAMES if name != "Event" and not inspect.getdoc(getattr(aw, name))] == []


def test_every_error_of_ours_has_the_one_root_and_its_place_in_the_tree() -> None:
    own = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, Exception)]
    apart = {aw.AgentInterruptedError, aw.AgentStopped}  # outcomes of a stop, which is not an error
    assert {cls for cls in own if not issubclass(cls, aw.AgentWidgetsError)} == apart
    assert all(cls.__name__ in (errors.__doc__ or "") for cls in own)
    assert issubclass(aw.InputError, ValueError)
    assert issubclass(aw.MissingPackageError, ImportError)


def test_importing_brings_no_vendor() -> None:
    program = "import sys, agent_widgets; print([name for name in ('openai', 'httpx', 'agentscope') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip() == "[]"
