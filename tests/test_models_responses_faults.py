"""What a failing Responses server looks like: one clear sentence, what to do, and no key in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_widgets.backends import TextPiece, ThinkingPiece, UsageReport
from agent_widgets.errors import ConversationTooLongError, ModelError, ModelSetupError
from agent_widgets.models.openai_responses import OpenAIResponses
from tests.models.chat_server import Answer, ChatServer, refusal
from tests.models.responses_events import COMPLETED, added, answer, cut, done, ended, more, summary, text, whole
from tests.models.responses_events import failed as said_failed
from tests.test_models_faults import KEY, REFUSALS, failed

HALF = text("half")
REPORT = UsageReport(input_tokens=11, output_tokens=7, cache_input_tokens=5)


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_says_what_the_server_said_and_what_to_do(case: str) -> None:
    refused, kind, sentence = REFUSALS[case]
    async with ChatServer(refused) as server:
        deltas, error = await failed(OpenAIResponses("fake", base_url=server.base_url, api_key=KEY))
    assert not deltas
    assert type(error) is kind
    with pytest.raises(kind, match=sentence):
        raise error


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_this_language_is_told_from_a_wrong_name(status: int) -> None:
    async with ChatServer(refusal(status, {"error": {"message": "Not Found"}})) as server:
        _, error = await failed(OpenAIResponses("fake", base_url=server.base_url))
    assert isinstance(error, ModelSetupError)
    assert "needs OpenAIChat" in str(error)


def broken(*events: Any, end: Any = "no [DONE]") -> Answer:
    return answer(HALF, *events, end=end)


BROKEN: dict[str, tuple[Answer, type[ModelError], str]] = {
    "a reset": (broken(end="cut"), ModelError, "broke off before the answer was complete"),
    "an end without an end": (broken(), ModelError, "ended before the answer was complete"),
    "malformed JSON": (broken(b'data: {"type": [\n\n'), ModelError, "not a response"),
    "half a character": (broken(b'data: {"a": "\xc3"}\n\n'), ModelError, "not UTF-8"),
    "a list": (broken(b"data: [1, 2]\n\n"), ModelError, "not a response"),
    "a number": (broken(b"data: 5\n\n"), ModelError, "not a response"),
    "a type of the wrong type": (broken({"type": 5}), ModelError, "an event's type should be text, got 5"),
    "text of the wrong type": (broken(text(5)), ModelError, "a delta should be text, got 5"),
    "an item of the wrong type": (broken({**added("c1"), "item": "x"}), ModelError, "not a response"),
    "a response of the wrong type": (broken({**COMPLETED, "response": [1]}), ModelError, "not a response"),
    "arguments of the wrong type": (broken(added("c1"), more("c1", 5)), ModelError, "arguments should be text, got 5"),
    "other arguments at the end": (
        broken(added("c1"), more("c1", '{"a": 1}'), whole("c1", '{"a": 2}')),
        ModelError,
        "the arguments of a call were .*and at its end",
    ),
    "a call without a name": (broken(done("c1", "{}", None), COMPLETED), ModelError, "a tool call came without a name"),
    "a filtered answer": (broken(cut("content_filter")), ModelError, "content filter"),
    "an answer that is cut for another reason": (broken(cut("steered")), ModelError, "the answer is incomplete: steered"),
    "an answer that is cut for no reason": (broken(cut(None)), ModelError, "incomplete: no reason was given"),
    "a call cut at the limit": (
        broken(added("c1"), more("c1", '{"a'), cut("max_output_tokens")),
        ModelError,
        "in the middle of a tool call. Give OpenAIResponses a larger max_output_tokens",
    ),
    "a failure": (broken(said_failed("server_error", f"bad {KEY}")), ModelError, r"an error: bad \[removed\].*resume"),
    "a failure without a word": (broken(ended("failed")), ModelError, "an error: no reason was given"),
    "a failure from haste": (broken(said_failed("rate_limit_exceeded", "slow down")), ModelError, "too many requests.*slow down"),
    "a failure from the prompt": (broken(said_failed("invalid_prompt", "no")), ModelError, "refused.*would be refused again"),
    "a failure from its length": (
        broken(said_failed("context_length_exceeded", "no")),
        ConversationTooLongError,
        "too long.*reset=True",
    ),
    "an error": (broken({"type": "error", "code": "x", "message": f"overloaded {KEY}"}), ModelError, r"overloaded \[removed\]"),
    "an error in an error": (
        broken({"type": "error", "error": {"code": "insufficient_quota", "message": f"no {KEY}"}}),
        ModelSetupError,
        r"nothing left to spend.*no \[removed\]",
    ),
    "an error as text": (broken({"type": "error", "error": "overloaded"}), ModelError, "broke off with an error"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_stream_keeps_what_came_and_says_what_happened(case: str) -> None:
    stream, kind, sentence = BROKEN[case]
    async with ChatServer(stream) as server:
        deltas, error = await failed(OpenAIResponses("fake", base_url=server.base_url, api_key=KEY))
    assert deltas[0] == TextPiece("half")
    assert type(error) is kind
    with pytest.raises(kind, match=sentence):
        raise error


async def test_an_answer_cut_before_its_first_word_is_an_error_with_its_usage() -> None:
    async with ChatServer(answer(summary("Hm"), cut("max_output_tokens"))) as server:
        deltas, error = await failed(OpenAIResponses("fake", base_url=server.base_url))
    assert deltas == [ThinkingPiece("Hm"), REPORT]
    assert "before it said anything" in str(error)


async def test_an_answer_that_is_no_stream_is_said() -> None:
    async with ChatServer(refusal(200, {"object": "response"})) as server:
        _, error = await failed(OpenAIResponses("fake", base_url=server.base_url))
    assert "not with a stream. Check that base_url is that of a server with the Responses API" in str(error)


async def test_silence_is_bounded_between_two_pieces() -> None:
    async with ChatServer(broken(end="hold")) as server:
        _, error = await failed(OpenAIResponses("fake", base_url=server.base_url, api_key=KEY, timeout=0.1))
        await asyncio.wait_for(server.left.wait(), 0.5)
    assert "was silent for 0.1 s" in str(error)
