"""What a failing server looks like: one clear sentence, what to do, and no key in it."""

from __future__ import annotations

import asyncio
import socket
import traceback
from typing import Any

import pytest

from agent_widgets.backends import Model, ModelDelta, ModelRequest, TextPiece
from agent_widgets.errors import ConversationTooLongError, ModelError, ModelSetupError
from agent_widgets.messages import UserMsg
from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.openai_errors import explain
from tests.models.chat_server import CALLS, STOP, USAGE, Answer, ChatServer, chunk, refusal, stream, tool

ASK = ModelRequest(context=(UserMsg("user", "Hello"),))
KEY = "sk-very-secret-0123456789"
HALF = chunk("half")


async def failed(model: Model) -> tuple[list[ModelDelta], ModelError]:
    """What came before the failure, and the failure."""
    deltas: list[ModelDelta] = []
    try:
        async for delta in model.stream(ASK):
            deltas.append(delta)  # noqa: PERF401 - kept when the stream fails
    except ModelError as error:
        failure = error
    else:
        pytest.fail("the call did not fail")
    assert failure.model_name == "fake"
    assert_no_key(failure)
    return deltas, failure


def assert_no_key(error: BaseException | None) -> None:
    """Not in what is shown, not in what led to it, and not in its request's headers."""
    while error is not None:
        shown = [str(error), repr(error), *traceback.format_exception(error), repr(vars(error))]
        assert not [text for text in shown if KEY in text]
        request = getattr(error, "request", None) if "request" in vars(error) else None
        assert KEY not in str(dict(request.headers) if request is not None else "")
        error = error.__cause__ or error.__context__


def said(status: int, message: str = f"bad {KEY}", **more: Any) -> Answer:
    return refusal(status, {"error": {"message": message, **more}})


REFUSALS: dict[str, tuple[Answer, type[ModelError], str]] = {
    "a refused key": (said(401), ModelSetupError, r'key was refused.*answered 401: "bad \[removed\]".*Check OPENAI_API_KEY'),
    "no right": (said(403), ModelSetupError, "key was refused"),
    "no such model": (said(404, "The model `fake` does not exist"), ModelSetupError, "no such model or address.*does not exist"),
    "too many requests": (
        refusal(429, {"error": {"message": "slow down"}}, retry_after="20"),
        ModelError,
        r'too many requests.*"slow down" Wait 20 s\.',
    ),
    "nothing left to spend": (said(429, "no", code="insufficient_quota"), ModelSetupError, "nothing left to spend"),
    "too long": (
        said(400, "no", code="context_length_exceeded"),
        ConversationTooLongError,
        "too long for this model.*reset=True",
    ),
    "too long for llama.cpp": (
        said(400, "exceeds the available context size"),
        ConversationTooLongError,
        "too long for this model",
    ),
    "a refused request": (said(413), ModelError, "request was refused"),
    "a fault in HTML": (refusal(500, "<html><b>Bad</b> day</html>"), ModelError, r'server has a problem.*500: "Bad day"'),
    "an empty fault": (refusal(503, ""), ModelError, "server has a problem.*503"),
    "a gateway's silence": (said(504), ModelError, "gave up waiting"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_says_what_the_server_said_and_what_to_do(case: str) -> None:
    answer, kind, sentence = REFUSALS[case]
    async with ChatServer(answer, answer) as server:
        deltas, error = await failed(OpenAIChat("fake", base_url=server.base_url, api_key=KEY))
    assert not deltas
    assert type(error) is kind
    assert error.__cause__ is not None
    with pytest.raises(kind, match=sentence):
        raise error


BROKEN: dict[str, tuple[Answer, str]] = {
    "a reset": (stream(HALF, end="cut"), "broke off before the answer was complete"),
    "an end without an end": (stream(HALF, end="no [DONE]"), "ended before the answer was complete"),
    "malformed JSON": (stream(HALF, b'data: {"choices": [\n\n'), "not a chat completion"),
    "half a character": (stream(HALF, b'data: {"a": "\xc3"}\n\n'), "not UTF-8"),
    "an error in the stream": (stream(HALF, {"error": {"message": f"overloaded {KEY}"}}), r"an error: overloaded \[removed\]"),
    "an error as text": (stream(HALF, {"error": "overloaded"}), "broke off with an error"),
    "a list": (stream(HALF, b"data: [1, 2]\n\n"), "not a chat completion"),
    "a number": (stream(HALF, b"data: 5\n\n"), "not a chat completion"),
    "choices of the wrong type": (stream(HALF, {**chunk(), "choices": 5}), "'choices' should be a list, got 5"),
    "a choice of the wrong type": (stream(HALF, {**chunk(), "choices": ["x"]}), "not a chat completion"),
    "a delta of the wrong type": (stream(HALF, chunk(5)), "not a chat completion"),
    "content of the wrong type": (stream(HALF, chunk({"content": 5})), "content should be text, got 5"),
    "calls of the wrong type": (stream(HALF, chunk({"tool_calls": "x"})), "'tool_calls' should be a list"),
    "arguments of the wrong type": (stream(HALF, tool(0, "c1", "find", 5)), "arguments should be text, got 5"),
    "a call without a name": (stream(HALF, tool(0, "c1", None, "{}"), CALLS), "a tool call came without a name"),
    "a filtered answer": (stream(HALF, chunk({}, finish="content_filter")), "content filter"),
    "a finish that is an error": (stream(HALF, chunk({}, finish="error")), "broke off with an error"),
    "a call cut at the limit": (
        stream(HALF, tool(0, "c1", "find", '{"a'), chunk({}, finish="length")),
        "in the middle of a tool call",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_stream_keeps_what_came_and_says_what_happened(case: str) -> None:
    answer, sentence = BROKEN[case]
    async with ChatServer(answer) as server:
        deltas, error = await failed(OpenAIChat("fake", base_url=server.base_url, api_key=KEY))
    assert deltas[0] == TextPiece("half")
    with pytest.raises(ModelError, match=sentence):
        raise error


async def test_an_answer_cut_before_its_first_word_is_an_error_and_a_cut_text_is_not() -> None:
    async with ChatServer(stream(chunk({}, finish="length"), USAGE), stream(HALF, chunk({}, finish="length"))) as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        _, error = await failed(model)
        assert "before it said anything" in str(error)
        assert [delta async for delta in model.stream(ASK)] == [TextPiece("half")]
        assert model.last_finish_reason == "length"


async def test_an_answer_that_is_no_stream_is_said() -> None:
    async with ChatServer(refusal(200, {"choices": []})) as server:
        _, error = await failed(OpenAIChat("fake", base_url=server.base_url))
    assert "not with a stream" in str(error)


@pytest.mark.parametrize("parts", [(), (HALF,)])
async def test_silence_is_bounded_between_two_pieces(parts: tuple[dict[str, Any], ...]) -> None:
    async with ChatServer(stream(*parts, end="hold")) as server:
        _, error = await failed(OpenAIChat("fake", base_url=server.base_url, api_key=KEY, timeout=0.1))
        await asyncio.wait_for(server.left.wait(), 0.5)
    assert "was silent for 0.1 s" in str(error)


async def test_a_slow_reader_is_not_silence() -> None:
    async with ChatServer(stream(HALF, STOP)) as server:
        answer = OpenAIChat("fake", base_url=server.base_url, timeout=0.05).stream(ASK)
        assert await anext(answer) == TextPiece("half")
        await asyncio.sleep(0.1)  # the reader's own time
        assert [delta async for delta in answer] == []


async def test_nothing_listening_names_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        _, error = await failed(OpenAIChat("fake", base_url=address, api_key=KEY))
    assert str(error) == f"fake: nothing listens at {address}. Start the server, or correct base_url."
    assert isinstance(error, ModelSetupError)


def test_an_unknown_host_names_the_address() -> None:
    cause = OSError("All connection attempts failed")
    cause.__cause__ = socket.gaierror(-2, "Name or service not known")
    error = explain(cause, model="fake", address="http://me:secret@nowhere.invalid/v1", silence_s=1, secrets=[])
    assert str(error) == "fake: the address http://nowhere.invalid/v1 cannot be found. Check its spelling and the network."
    assert error.__cause__ is cause


@pytest.mark.parametrize("key", [f"{KEY}…", f"a{KEY} b\nc"])
async def test_a_key_with_a_wrong_character_is_not_shown(key: str) -> None:
    async with ChatServer() as server:
        _, error = await failed(OpenAIChat("fake", base_url=server.base_url, api_key=key))
    assert isinstance(error, ModelSetupError)
    assert "character" in str(error)


async def test_white_space_around_a_key_does_no_harm() -> None:
    async with ChatServer(stream(HALF, STOP)) as server:
        assert [delta async for delta in OpenAIChat("fake", base_url=server.base_url, api_key=f" {KEY}\n").stream(ASK)]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("address", ["localhost:8000/v1", "not an address", "http://"])
async def test_an_address_that_is_none_is_said(address: str) -> None:
    _, error = await failed(OpenAIChat("fake", base_url=address, api_key=KEY))
    assert isinstance(error, ModelSetupError)


async def test_a_plain_server_behind_https_is_said() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, error = await failed(OpenAIChat("fake", base_url=f"https://127.0.0.1:{port}/v1", api_key=KEY))
    assert "no secure connection" in str(error)
