"""OpenAIChat against a real server on a loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ThinkingPiece, ToolCallPiece, ToolSpec, UsageReport
from agent_widgets.errors import InputError, ModelError, ModelSetupError
from agent_widgets.messages import UserMsg
from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.openai_errors import explain
from tests.models.chat_server import CALLS, STOP, USAGE, ChatServer, chunk, entry, refusal, stream, tool

ASK = ModelRequest(context=(UserMsg("user", "Hello"),), instructions="Be short.")
FIND = ToolSpec(name="find", description="Find a word.", parameters={"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def heard(model: OpenAIChat, request: ModelRequest = ASK) -> list[ModelDelta]:
    return [delta async for delta in model.stream(request)]


def calls(deltas: Sequence[ModelDelta]) -> list[tuple[str, str, str]]:
    """Each call as id, name, arguments."""
    found: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallPiece):
            call = found.setdefault(delta.index, [delta.call_id, delta.name, ""])
            assert found[delta.index] is call
            call[2] += delta.arguments
    return [(call[0], call[1], call[2]) for _, call in sorted(found.items())]


async def test_text_thinking_and_usage_are_streamed() -> None:
    parts = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": "m."}),
        chunk("Hé"),
        chunk("llo"),
        STOP,
        USAGE,
    ]
    async with ChatServer(stream(*parts)) as server:
        model = OpenAIChat("fake", base_url=server.base_url, temperature=0.5)
        assert await heard(model) == [
            ThinkingPiece("Hm"),
            ThinkingPiece("m."),
            TextPiece("Hé"),
            TextPiece("llo"),
            UsageReport(input_tokens=11, output_tokens=7, cache_input_tokens=5),
        ]
        assert server.bodies == [
            {
                "model": "fake",
                "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}],
                "temperature": 0.5,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ]
        assert server.headers[0]["authorization"] == "Bearer not-needed"
        assert model.last_finish_reason == "stop"
        await model.aclose()


async def test_the_tools_are_offered() -> None:
    async with ChatServer(stream(chunk("ok"), STOP)) as server:
        await heard(OpenAIChat("fake", base_url=server.base_url), ModelRequest(context=ASK.context, tools=(FIND,)))
    function = {"name": "find", "description": "Find a word.", "parameters": FIND.parameters}
    assert server.bodies[0]["tools"] == [{"type": "function", "function": function}]


TWO = [("c1", "find", '{"a": 1}'), ("c2", "find", '{"b": 2}')]
ODD_CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "as OpenAI sends them, interleaved": (
        [
            tool(0, "c1", "find", ""),
            tool(1, "c2", "find", ""),
            tool(0, None, None, '{"a"'),
            tool(1, None, None, '{"b": 2}'),
            tool(0, None, None, ": 1}"),
        ],
        TWO,
    ),
    "the id and the name in every chunk": (
        [tool(0, "c1", "find", '{"a"'), tool(0, "c1", "find", ": 1}"), tool(1, "c2", "find", '{"b": 2}')],
        TWO,
    ),
    "no index": ([tool(None, "c1", "find", '{"a"'), tool(None, None, None, ": 1}"), tool(None, "c2", "find", '{"b": 2}')], TWO),
    "one index for all, with ids": ([tool(0, "c1", "find", '{"a": 1}'), tool(0, "c2", "find", '{"b": 2}')], TWO),
    "whole calls in one chunk": (
        [chunk({"tool_calls": [entry(0, "c1", "find", '{"a": 1}'), entry(1, "c2", "find", '{"b": 2}')]})],
        TWO,
    ),
    "no id": ([tool(0, "", "find", '{"a": 1}'), tool(1, None, "find", '{"b": 2}')], [("", *TWO[0][1:]), ("", *TWO[1][1:])]),
    "no id and no index": (
        [chunk({"tool_calls": [entry(None, None, "find", '{"a": 1}'), entry(None, None, "find", '{"b": 2}')]})],
        [("", *TWO[0][1:]), ("", *TWO[1][1:])],
    ),
    "no id, one index for all": (
        [tool(0, None, "find", '{"a": 1}'), tool(0, None, "find", '{"b": 2}')],
        [("", *TWO[0][1:]), ("", *TWO[1][1:])],
    ),
    "the same id twice": ([tool(0, "c1", "find", '{"a": 1}'), tool(1, "c1", "find", '{"b": 2}')], [TWO[0], ("", *TWO[1][1:])]),
    "another id for the rest of a call": ([tool(0, "c1", "find", '{"a"'), tool(0, "zz", None, ": 1}")], TWO[:1]),
    "the name after the id": ([tool(0, "c1"), tool(0, None, "find", '{"a": 1}')], TWO[:1]),
    "arguments as an object": ([tool(0, "c1", "find", {"a": 1})], TWO[:1]),
    "no arguments": ([tool(0, "c1", "find")], [("c1", "find", "")]),
    "nulls": ([chunk({"content": None, "tool_calls": None}), chunk(None), tool(0, "c1", "find", '{"a": 1}')], TWO[:1]),
}


@pytest.mark.parametrize("case", ODD_CALLS)
async def test_tool_calls_are_read_however_a_server_sends_them(case: str) -> None:
    parts, expected = ODD_CALLS[case]
    async with ChatServer(stream(*parts, CALLS)) as server:
        found = calls(await heard(OpenAIChat("fake", base_url=server.base_url)))
    assert [(call_id if want[0] else "", *rest) for (call_id, *rest), want in zip(found, expected, strict=True)] == expected
    ids = [call_id for call_id, *_ in found]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_content_in_parts_is_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    async with ChatServer(stream(chunk({"content": [thinking, {"type": "text", "text": "Yes"}]}), STOP)) as server:
        assert await heard(OpenAIChat("fake", base_url=server.base_url)) == [ThinkingPiece("Hm"), TextPiece("Yes")]


async def test_a_refusal_is_text() -> None:
    async with ChatServer(stream(chunk({"refusal": "No."}), STOP)) as server:
        assert await heard(OpenAIChat("fake", base_url=server.base_url)) == [TextPiece("No.")]


async def test_usage_with_the_last_text_is_reported_once() -> None:
    usage = USAGE["usage"]
    async with ChatServer(
        stream(chunk("a", usage={**usage, "completion_tokens": 1}), chunk("b", finish="stop", usage=usage))
    ) as server:
        deltas = await heard(OpenAIChat("fake", base_url=server.base_url))
    assert deltas[2:] == [UsageReport(input_tokens=11, output_tokens=7, cache_input_tokens=5)]


async def test_a_server_without_stream_options_is_asked_again_without_them_and_from_then_on() -> None:
    no = refusal(400, {"error": {"message": "Unrecognized request argument: stream_options", "param": None}})
    async with ChatServer(no, stream(chunk("ok"), STOP), stream(chunk("ok"), STOP)) as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        assert await heard(model) == await heard(model) == [TextPiece("ok")]
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


async def test_a_400_about_something_else_is_not_asked_again() -> None:
    async with ChatServer(refusal(400, {"error": {"message": "bad temperature", "param": "temperature"}})) as server:
        with pytest.raises(ModelError, match="bad temperature"):
            await heard(OpenAIChat("fake", base_url=server.base_url))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("parts", [(), (chunk("one"),)])
async def test_a_cancelled_stream_closes_its_connection_at_once(parts: tuple[dict[str, Any], ...]) -> None:
    async with ChatServer(stream(*parts, end="hold")) as server:
        task = asyncio.create_task(heard(OpenAIChat("fake", base_url=server.base_url)))
        await server.holding.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 0.5)


async def test_a_closed_stream_closes_its_connection_at_once() -> None:
    async with ChatServer(stream(chunk("one"), end="hold")) as server:
        answer: Any = OpenAIChat("fake", base_url=server.base_url).stream(ASK)
        assert await anext(answer) == TextPiece("one")
        await answer.aclose()
        await asyncio.wait_for(server.left.wait(), 0.5)


async def test_one_model_works_on_two_loops_in_turn_and_on_both_at_once() -> None:
    ok = stream(chunk("ok"), STOP)
    async with ChatServer(ok, ok, ok, ok) as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        assert await heard(model) == [TextPiece("ok")]
        for _ in range(2):
            assert await asyncio.to_thread(lambda: asyncio.run(heard(model))) == [TextPiece("ok")]
        assert await heard(model) == [TextPiece("ok")]
        await model.aclose()


async def test_a_closed_model_opens_a_new_connection() -> None:
    ok = stream(chunk("ok"), STOP)
    async with ChatServer(ok, ok) as server:
        model = OpenAIChat("fake", base_url=server.base_url)
        for _ in range(2):
            assert await heard(model) == [TextPiece("ok")]
            await model.aclose()


async def test_a_client_of_the_user_is_used_as_it_is() -> None:
    async with (
        ChatServer(stream(chunk("ok"), STOP)) as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="mine") as client,
    ):
        assert await heard(OpenAIChat("fake", client=client)) == [TextPiece("ok")]
    assert server.headers[0]["authorization"] == "Bearer mine"


async def test_a_client_on_a_second_loop_fails_with_what_to_do() -> None:
    async with (
        ChatServer(stream(chunk("ok"), STOP)) as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="mine") as client,
    ):
        model = OpenAIChat("fake", client=client)
        await heard(model)
        with pytest.raises(ModelSetupError, match=r"event loop before.*base_url and api_key"):
            await asyncio.to_thread(lambda: asyncio.run(heard(model)))
    assert len(server.bodies) == 1


def test_a_client_that_others_used_on_another_loop_fails_with_what_to_do() -> None:
    cause = RuntimeError("<asyncio.locks.Event object> is bound to a different event loop")
    error = explain(cause, model="fake", address="http://h/v1", silence_s=1, secrets=[])
    assert "base_url and api_key" in str(error)
    assert error.__cause__ is cause


async def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer(stream(chunk("ok"), STOP)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert await heard(OpenAIChat("fake")) == [TextPiece("ok")]


async def test_a_missing_key_is_said_when_the_model_is_used() -> None:
    model = OpenAIChat("gpt-5-mini")
    with pytest.raises(ModelSetupError, match=r'Set OPENAI_API_KEY.*"demo".*"local".*base_url'):
        await heard(model)


async def test_an_option_that_the_client_does_not_know_is_named() -> None:
    with pytest.raises(ModelSetupError, match=r"'top_q'.*extra_body"):
        await heard(OpenAIChat("fake", base_url="http://127.0.0.1:1/v1", top_q=5))


def test_options_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="'stream' is set by each call"):
        OpenAIChat("fake", stream=False)
    with pytest.raises(InputError, match="either client, or base_url"):
        OpenAIChat("fake", client=openai.AsyncOpenAI(api_key="k"), api_key="k")


def test_a_model_shows_no_key() -> None:
    model = OpenAIChat("fake", base_url="http://me:secret@host:80/v1?k=secret", api_key="sk-secret")
    assert repr(model) == "OpenAIChat('fake', base_url='http://host:80/v1')"
