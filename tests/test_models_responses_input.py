"""What the Responses API is sent: input items that a strict server accepts, whatever was interrupted before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_widgets.messages import (
    AssistantMsg,
    Base64Source,
    Block,
    DataBlock,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from agent_widgets.models.openai_responses import input_items
from agent_widgets.state import AgentState
from tests.models.responses_validator import assert_valid, faults

ASK = UserMsg("user", "please")


def call(call_id: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="find", input=arguments, state="finished")


def result(call_id: str, output: str = "found") -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="find", output=output, state="success")


def sent(*blocks: Block) -> list[dict[str, Any]]:
    """What is sent of an assistant message, after the user's."""
    items = input_items([ASK, AssistantMsg("a", blocks)])
    assert_valid(items)
    return items[1:]


def test_a_reply_of_two_steps_keeps_its_order_and_its_thinking_stays() -> None:
    blocks = [ThinkingBlock("Hm"), TextBlock("One."), call("a", '{"x": 1}'), call("b"), result("b"), result("a", "")]
    assert sent(*blocks, TextBlock("Two."), call("c"), result("c"), TextBlock("Three.")) == [
        {"type": "message", "role": "assistant", "content": "One."},
        {"type": "function_call", "call_id": "a", "name": "find", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "b", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "(no output)"},
        {"type": "function_call_output", "call_id": "b", "output": "found"},
        {"type": "message", "role": "assistant", "content": "Two."},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"type": "message", "role": "assistant", "content": "Three."},
    ]


def test_half_a_call_is_sent_with_arguments_that_are_an_object_and_an_open_one_is_not_sent() -> None:
    assert [item["type"] for item in sent(call("a", '{"x": "ha'), result("a"), call("b", "{}"))] == [
        "function_call",
        "function_call_output",
    ]


def test_a_hint_is_said_as_the_user_and_instructions_in_between_as_the_system() -> None:
    assert sent(TextBlock("One."), HintBlock("Hurry."))[1:] == [{"type": "message", "role": "user", "content": "Hurry."}]
    assert input_items([SystemMsg("s", "Be kind.")]) == [{"type": "message", "role": "system", "content": "Be kind."}]


def test_nothing_is_sent_of_empty_messages() -> None:
    assert input_items([UserMsg("u", ""), AssistantMsg("a", ()), SystemMsg("s", "")]) == []


def test_images_and_files_are_sent_as_what_they_are() -> None:
    blocks = [
        TextBlock("what?"),
        DataBlock(Base64Source("QUJD", "image/png")),
        DataBlock(URLSource("https://example.org/a.png", "image/png")),
        DataBlock(Base64Source("QUJD", "application/pdf")),
    ]
    items = input_items([UserMsg("u", blocks)])
    assert_valid(items)
    assert items[0]["content"] == [
        {"type": "input_text", "text": "what?"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD"},
        {"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,QUJD"},
    ]


IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", "x", '{"a": 1}', '{"a": "ha', "[1]"])
BLOCK: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, TEXTS),
    st.builds(ThinkingBlock, TEXTS),
    st.builds(HintBlock, st.just("hint")),
    st.builds(call, IDS, TEXTS),
    st.builds(result, IDS, TEXTS),
    st.builds(ToolResultBlock, id=IDS, name=st.just("find"), state=st.just("running")),
)


@given(st.lists(BLOCK, max_size=8), st.booleans())
def test_whatever_was_interrupted_is_valid_after_repair(blocks: list[Block], is_open: bool) -> None:
    context: tuple[Msg, ...] = (ASK, AssistantMsg("a", blocks))
    state = AgentState(context=context, reply_id=context[-1].id if is_open else "").repair()
    items = input_items((*state.context, UserMsg("user", "next")))
    assert_valid(items)
    assert items[-1] == {"type": "message", "role": "user", "content": "next"}


ASKED: dict[str, Any] = {"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"}
ANSWERED: dict[str, Any] = {"type": "function_call_output", "call_id": "a", "output": "x"}
SAID: dict[str, Any] = {"type": "message", "role": "user", "content": "x"}


@pytest.mark.parametrize(
    "items",
    [
        [],
        [ASKED],
        [ANSWERED, ASKED],
        [ASKED, ANSWERED, ANSWERED],
        [ASKED, ASKED, ANSWERED],
        [ASKED, SAID, ANSWERED],
        [{**ASKED, "arguments": "[1]"}, ANSWERED],
        [{**ASKED, "arguments": '{"a'}, ANSWERED],
        [{**ASKED, "id": "fc_1"}, ANSWERED],
        [ASKED, {**ANSWERED, "output": None}],
        [{**SAID, "content": ""}],
        [{**SAID, "role": "tool"}],
        [{**SAID, "content": [{"type": "text", "text": "x"}]}],
        [{**SAID, "role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        [{"type": "item_reference", "id": "x"}],
    ],
)
def test_the_validator_bites(items: list[dict[str, Any]]) -> None:
    assert faults(items)
