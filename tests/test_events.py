"""Events: AgentScope 2.0.11's vocabulary, pinned."""

from __future__ import annotations

import re
from dataclasses import MISSING, FrozenInstanceError, fields

import pytest

from agent_widgets import events as ev

BASE = {"id", "created_at", "metadata"}
FIELDS = {
    "REPLY_START": "session_id reply_id name role",
    "REPLY_END": "session_id reply_id finished_reason error",
    "MODEL_CALL_START": "reply_id model_name",
    "MODEL_CALL_END": "reply_id input_tokens output_tokens cache_input_tokens cache_creation_input_tokens finished_reason",
    "TEXT_BLOCK_START": "reply_id block_id",
    "TEXT_BLOCK_DELTA": "reply_id block_id delta",
    "TEXT_BLOCK_END": "reply_id block_id text",
    "THINKING_BLOCK_START": "reply_id block_id",
    "THINKING_BLOCK_DELTA": "reply_id block_id delta",
    "THINKING_BLOCK_END": "reply_id block_id",
    "DATA_BLOCK_START": "reply_id block_id media_type name",
    "DATA_BLOCK_DELTA": "reply_id block_id media_type data url",
    "DATA_BLOCK_END": "reply_id block_id",
    "HINT_BLOCK": "reply_id block_id source hint",
    "TOOL_CALL_START": "reply_id tool_call_id tool_call_name",
    "TOOL_CALL_DELTA": "reply_id tool_call_id delta",
    "TOOL_CALL_END": "reply_id tool_call_id",
    "TOOL_RESULT_START": "reply_id tool_call_id tool_call_name",
    "TOOL_RESULT_TEXT_DELTA": "reply_id tool_call_id delta",
    "TOOL_RESULT_DATA_DELTA": "reply_id tool_call_id block_id media_type data url",
    "TOOL_RESULT_END": "reply_id tool_call_id state",
    "REQUIRE_USER_CONFIRM": "reply_id tool_calls",
    "REQUIRE_EXTERNAL_EXECUTION": "reply_id tool_calls",
    "USER_CONFIRM_RESULT": "reply_id confirm_results",
    "USER_INTERRUPT": "reply_id",
    "EXTERNAL_EXECUTION_RESULT": "reply_id execution_results",
    "EXCEED_MAX_ITERS": "reply_id name",
    "CUSTOM": "name value",
}


def test_the_vocabulary_is_complete_and_its_fields_are_agentscopes() -> None:
    found = {cls.type_of(): cls for cls in map(_Described, ev.EVENT_CLASSES)}
    assert {kind: cls.own_fields() for kind, cls in found.items()} == {kind: set(names.split()) for kind, names in FIELDS.items()}


@pytest.mark.parametrize("cls", ev.EVENT_CLASSES)
def test_the_type_is_the_class_name_in_upper_case(cls: type[ev.Event]) -> None:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Event")).upper()
    assert _Described(cls).type_of() == name


def test_each_event_has_an_id_a_time_and_metadata_of_its_own() -> None:
    one, two = (ev.UserInterruptEvent(reply_id="r") for _ in range(2))
    assert one.id != two.id
    assert one.created_at.endswith("+00:00")
    assert one.metadata == {}
    assert one.metadata is not two.metadata


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ev.UserInterruptEvent(reply_id="r").reply_id = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_deltas_of_one_block_have_one_key_and_others_have_another() -> None:
    text = ev.TextBlockDeltaEvent(reply_id="r", block_id="1", delta="a")
    assert ev.block_key(text) == ev.block_key(ev.TextBlockDeltaEvent(reply_id="r", block_id="1", delta="b"))
    others = [
        ev.TextBlockDeltaEvent(reply_id="r", block_id="2", delta="a"),
        ev.ThinkingBlockDeltaEvent(reply_id="r", block_id="1", delta="a"),
        ev.ToolCallDeltaEvent(reply_id="r", tool_call_id="1", delta="a"),
        ev.ToolResultTextDeltaEvent(reply_id="r", tool_call_id="1", delta="a"),
    ]
    assert len({ev.block_key(event) for event in [text, *others]}) == 5


class _Described:
    def __init__(self, cls: type[ev.Event]) -> None:
        self._fields = {field.name: field for field in fields(cls)}

    def type_of(self) -> object:
        default = self._fields["type"].default
        assert default is not MISSING
        return default

    def own_fields(self) -> set[str]:
        return set(self._fields) - BASE - {"type"}
