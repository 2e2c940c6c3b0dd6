"""What a model is sent: Chat Completions messages that a strict server accepts, whatever was interrupted before."""

from __future__ import annotations

from typing import Any

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Backend, ModelRequest, chat_messages, messages_of, prompt_of
from agent_widgets.errors import InputError
from agent_widgets.messages import (
    AssistantMsg,
    Base64Source,
    Block,
    DataBlock,
    HintBlock,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from agent_widgets.models.scripted import ScriptedModel
from tests.validator import assert_valid, faults

ASK = UserMsg("user", "please")


def call(call_id: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="find", input=arguments, state="finished")


def result(call_id: str, output: str = "found") -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="find", output=output, state="success")


def sent(*blocks: Block) -> list[Any]:
    """What is sent of an assistant message, after the user's."""
    messages = chat_messages([ASK, AssistantMsg("a", blocks)])
    assert_valid(messages)
    return messages[1:]


def roles(*blocks: Block) -> list[str]:
    return [message["role"] for message in sent(*blocks)]


# -- the conversation -----------------------------------------------------------------------------------------------


def test_instructions_come_first_as_the_system_message() -> None:
    assert chat_messages([ASK], "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "please"},
    ]
    assert chat_messages([ASK]) == [{"role": "user", "content": "please"}]


def test_a_request_spells_its_own_messages() -> None:
    assert ModelRequest(context=(ASK,), instructions="Be brief.").messages == chat_messages([ASK], "Be brief.")


def test_a_step_is_one_assistant_message_and_its_results_in_the_order_of_the_calls() -> None:
    assert sent(
        TextBlock("I look."), call("c1", '{"x": 1}'), call("c2"), result("c2", "two"), result("c1", "one"), TextBlock("Done.")
    ) == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"x": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "find", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "Done."},
    ]


def test_each_step_of_a_reply_is_its_own_assistant_message() -> None:
    assert roles(call("c1"), result("c1"), call("c2"), result("c2"), TextBlock("x")) == [
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


def test_text_after_a_call_of_the_same_answer_follows_its_result() -> None:
    assert roles(call("c1"), TextBlock("meanwhile"), result("c1")) == ["assistant", "tool", "assistant"]


def test_a_call_without_a_final_result_is_not_sent() -> None:
    running = ToolResultBlock(id="c1", name="find", state="running")
    assert sent(TextBlock("I look."), call("c1"), running) == [{"role": "assistant", "content": "I look."}]
    assert sent(call("c1")) == []


def test_a_result_without_its_call_is_not_sent() -> None:
    assert sent(result("c1"), TextBlock("x")) == [{"role": "assistant", "content": "x"}]


def test_half_arguments_are_sent_as_the_object_that_can_be_read() -> None:
    assert sent(call("c1", '{"x": 1, "y'), result("c1"))[0]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'


def test_an_empty_result_says_so() -> None:
    assert sent(call("c1"), result("c1", ""))[1]["content"] == "(no output)"


def test_thinking_and_empty_text_are_not_sent() -> None:
    assert sent(ThinkingBlock("hm"), TextBlock("")) == []
    assert sent(ThinkingBlock("hm"), TextBlock(""), TextBlock("yes")) == [{"role": "assistant", "content": "yes"}]


def test_a_hint_is_sent_as_a_user_message_where_it_came() -> None:
    assert sent(TextBlock("a"), HintBlock("look left"), TextBlock("b")) == [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "look left"},
        {"role": "assistant", "content": "b"},
    ]
    assert roles(call("c1"), HintBlock((TextBlock("look"),)), result("c1")) == ["assistant", "tool", "user"]


def test_a_message_with_nothing_to_say_is_left_out() -> None:
    assert chat_messages([UserMsg("u", ""), AssistantMsg("a", ()), SystemMsg("s", "")]) == []


def test_images_of_a_person_are_sent_as_data_or_as_their_address() -> None:
    image, link = DataBlock(Base64Source("AAAA", "image/png")), DataBlock(URLSource("https://example.org/a.png", "image/png"))
    messages = chat_messages([UserMsg("u", [TextBlock("what?"), image, link])])
    assert_valid(messages)
    assert messages[0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


# -- inputs ---------------------------------------------------------------------------------------------------------


def test_inputs_become_messages() -> None:
    (message,) = messages_of("hello")
    assert (message.name, message.role, message.text) == ("user", "user", "hello")
    assert messages_of(ASK) == (ASK,)
    assert messages_of([ASK, ASK]) == (ASK, ASK)


@pytest.mark.parametrize(
    "value", [5, object(), ["text"], [ASK, None], {"role": "user"}, b"bytes", ev.UserInterruptEvent(reply_id="r")]
)
def test_another_input_is_refused_with_what_was_given(value: object) -> None:
    with pytest.raises(InputError, match=r"An input must be text or Msg, or a list of Msg; got "):
        messages_of(value)  # pyright: ignore[reportArgumentType] - what a user may give


def test_the_prompt_is_what_a_person_asked() -> None:
    assert prompt_of("hello") == "hello"
    assert prompt_of([ASK, UserMsg("u", "and more")]) == "please\n\nand more"
    assert prompt_of(None) == ""
    assert prompt_of(ev.UserInterruptEvent(reply_id="r")) == ""


def test_our_agent_is_a_backend() -> None:
    assert isinstance(Agent(ScriptedModel([])), Backend)


# -- the validator itself -------------------------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "1", "content": "x"}
USER = {"role": "user", "content": "x"}


def with_arguments(text: object) -> dict[str, Any]:
    return {**CALLS, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}]}


def test_the_validator_refuses_an_empty_conversation() -> None:
    assert faults([]) == ["there is no message"]


def test_the_validator_accepts_what_a_server_accepts() -> None:
    assert faults([{"role": "system", "content": "x"}, USER, CALLS, ANSWER, {"role": "assistant", "content": "y"}, USER]) == []


REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([dict[str, Any]()], "the role None does not exist"),
    ([USER, CALLS], "call '1' has no answer"),
    ([USER, CALLS, USER, ANSWER], "call '1' has no answer before this message"),
    ([USER, CALLS, ANSWER, ANSWER], "answers no open call"),
    ([USER, ANSWER], "answers no open call"),
    ([{"role": "assistant", "content": ""}], "an empty assistant message"),
    ([{"role": "assistant", "content": None}], "an empty assistant message"),
    ([{"role": "assistant", "content": "x", "tool_calls": []}], "tool_calls is not a list"),
    ([{"role": "user", "content": ""}], "an empty user message"),
    ([with_arguments('{"x'), ANSWER], "are not JSON"),
    ([with_arguments("[]"), ANSWER], "are not an object"),
    ([with_arguments('{"x": NaN}'), ANSWER], "are not JSON"),
    ([with_arguments(None), ANSWER], "are not JSON"),
    ([{**CALLS, "tool_calls": CALLS["tool_calls"] * 2}, ANSWER, ANSWER], "one id twice"),
    ([{"role": "robot", "content": "x"}], "the role 'robot' does not exist"),
    ([{"role": "user", "content": "x", "thinking": "y"}], "unknown field 'thinking'"),
    ([{"role": "user", "content": "\ud800"}], "not JSON in UTF-8"),
]


@pytest.mark.parametrize(("messages", "fault"), REFUSED)
def test_the_validator_refuses_what_a_server_refuses(messages: list[dict[str, Any]], fault: str) -> None:
    assert any(fault in found for found in faults(messages)), faults(messages)
