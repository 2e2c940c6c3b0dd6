"""Messages: values that keep what they were given and refuse what cannot be."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import datetime, timedelta

import pytest

from agent_widgets.errors import InputError
from agent_widgets.messages import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
    new_id,
    timestamp,
)

IMAGE = DataBlock(Base64Source("AAAA", "image/png"))


def test_ids_are_32_hexadecimal_characters_and_never_the_same() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_times_are_iso_8601_in_utc() -> None:
    assert datetime.fromisoformat(timestamp()).utcoffset() == timedelta(0)


def test_text_becomes_one_text_block() -> None:
    message = Msg("ann", "hello", "user")
    assert [(type(block), block.text) for block in message.content if isinstance(block, TextBlock)] == [(TextBlock, "hello")]
    assert (message.name, message.role, message.text) == ("ann", "user", "hello")


@pytest.mark.parametrize(("make", "role"), [(UserMsg, "user"), (AssistantMsg, "assistant"), (SystemMsg, "system")])
def test_the_three_makers_set_the_role_and_take_agentscopes_keywords(make: type[Msg], role: str) -> None:
    message = make(name="x", content="y")  # pyright: ignore[reportCallIssue] - functions that are named like classes
    assert (message.name, message.role, message.text) == ("x", role, "y")


def test_a_list_of_blocks_becomes_a_tuple() -> None:
    assert UserMsg("u", [TextBlock("a"), IMAGE]).content[1] is IMAGE


@pytest.mark.parametrize("role", ["User", "tool", "", None])
def test_a_role_that_does_not_exist_is_refused_with_the_three_that_do(role: object) -> None:
    with pytest.raises(InputError, match=rf"Msg: role is {role!r}; it must be 'user', 'assistant' or 'system'"):
        Msg("x", "y", role)  # pyright: ignore[reportArgumentType] - what a user may give


def test_the_text_of_a_message_is_its_text_blocks_and_nothing_else() -> None:
    message = AssistantMsg("a", [ThinkingBlock("hm"), TextBlock("one"), ToolCallBlock(id="c", name="t"), TextBlock("two")])
    assert message.get_text_content() == "one\ntwo"
    assert message.get_text_content(" ") == "one two"
    assert message.text == "one\ntwo"


def test_a_message_without_text_gives_none_and_its_text_property_is_empty() -> None:
    message = AssistantMsg("a", [ThinkingBlock("hm")])
    assert message.get_text_content() is None
    assert message.text == ""


def test_blocks_are_found_by_type() -> None:
    message = AssistantMsg("a", [TextBlock("one"), IMAGE, TextBlock("two")])
    assert [block.type for block in message.get_content_blocks()] == ["text", "data", "text"]
    assert message.get_content_blocks("data") == [IMAGE]
    assert message.get_content_blocks("hint") == []


def test_messages_and_blocks_cannot_be_changed() -> None:
    message = UserMsg("u", "x")
    for value, name in ((message, "role"), (message.content[0], "text")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "assistant")


def test_replace_makes_a_changed_copy_of_a_message() -> None:
    message = UserMsg("u", "x")
    changed = replace(message, finished_reason="error", metadata={"a": 1})
    assert (changed.id, changed.content, changed.created_at) == (message.id, message.content, message.created_at)
    assert (changed.finished_reason, changed.metadata, message.metadata) == ("error", {"a": 1}, {})


def test_two_messages_do_not_share_their_metadata() -> None:
    assert UserMsg("u", "x").metadata is not UserMsg("u", "x").metadata


def test_the_repr_is_one_short_line() -> None:
    message = replace(AssistantMsg("bob", "line one\nline two " + "word " * 100), finished_reason="interrupted")
    assert repr(message).startswith("<Msg bob (interrupted): line one line two word word")
    assert repr(message).endswith("…>")
    assert len(repr(message)) < 110
    assert repr(AssistantMsg("bob", "short")) == "<Msg bob: short>"


def test_the_text_of_a_tool_result_is_without_its_images() -> None:
    assert ToolResultBlock(id="c", name="t", output="plain").text() == "plain"
    assert ToolResultBlock(id="c", name="t", output=(TextBlock("a"), IMAGE, TextBlock("b"))).text() == "a\nb"
    assert ToolResultBlock(id="c", name="t", output=(IMAGE,)).text() == ""
