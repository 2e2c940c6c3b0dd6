"""OpenAIResponses against a real server on a loopback port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from agent_widgets.agent import Agent
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ThinkingPiece, ToolCallPiece, ToolSpec, UsageReport
from agent_widgets.errors import InputError, ModelSetupError
from agent_widgets.messages import Msg, UserMsg
from agent_widgets.models import openai_responses
from agent_widgets.models.openai_responses import OpenAIResponses
from agent_widgets.models.responses_stream import ResponseReader
from agent_widgets.state import INTERRUPTED_TEXT
from agent_widgets.tools import tool
from tests.models.chat_server import ChatServer
from tests.models.responses_events import COMPLETED, USAGE, added, answer, called, cut, done, ended, more, summary, text, whole
from tests.models.responses_validator import assert_valid

ASK = ModelRequest(context=(UserMsg("user", "Hello"),), instructions="Be short.")
FIND = ToolSpec(name="find", description="Find a word.", parameters={"type": "object", "properties": {}})
HALF = text("half")
REPORT = UsageReport(input_tokens=11, output_tokens=7, cache_input_tokens=5)


async def heard(model: OpenAIResponses, request: ModelRequest = ASK) -> list[ModelDelta]:
    return [delta async for delta in model.stream(request)]


async def answered(*events: Any) -> list[ModelDelta]:
    """What is heard of these events, without the usage at the end."""
    async with ChatServer(answer(*events, COMPLETED)) as server:
        deltas = await heard(OpenAIResponses("fake", base_url=server.base_url))
    assert deltas.pop() == REPORT
    return deltas


def calls(deltas: Sequence[ModelDelta]) -> list[tuple[str, str, str]]:
    """Each call as id, name, arguments."""
    found: dict[int, tuple[str, str, str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallPiece):
            call_id, name, arguments = found.get(delta.index, (delta.call_id, delta.name, ""))
            found[delta.index] = (call_id, name, arguments + delta.arguments)
    return [call for _, call in sorted(found.items())]


# -- the answer -----------------------------------------------------------------------------------------------------


async def test_text_thinking_and_usage_are_streamed() -> None:
    raw = {"type": "response.reasoning_text.delta", "item_id": "rs_1", "output_index": 0, "content_index": 0, "delta": "Hm"}
    async with ChatServer(answer(raw, text("Hé", 1), text("llo", 1), COMPLETED)) as server:
        model = OpenAIResponses("fake", base_url=server.base_url, temperature=0.5)
        assert await heard(model) == [ThinkingPiece("Hm"), TextPiece("Hé"), TextPiece("llo"), REPORT]
        assert server.bodies == [
            {
                "model": "fake",
                "instructions": "Be short.",
                "input": [{"type": "message", "role": "user", "content": "Hello"}],
                "temperature": 0.5,
                "stream": True,
                "store": False,
            }
        ]
        assert server.headers[0]["authorization"] == "Bearer not-needed"
        assert model.last_finish_reason == "stop"
        await model.aclose()


async def test_the_tools_are_offered_and_not_strict() -> None:
    async with ChatServer(answer(text("ok"), COMPLETED)) as server:
        await heard(OpenAIResponses("fake", base_url=server.base_url), ModelRequest(context=ASK.context, tools=(FIND,)))
    wanted = {"type": "function", "name": "find", "description": "Find a word.", "parameters": FIND.parameters, "strict": False}
    assert server.bodies[0]["tools"] == [wanted]
    assert "instructions" not in server.bodies[0]


async def test_parts_of_a_summary_and_messages_in_a_row_are_paragraphs() -> None:
    thoughts = [summary("**One**", 0), summary("**Two", 1), summary("**", 1)]
    assert await answered(*thoughts, text("First.", 1), text("Second", 2), text(".", 2)) == [
        ThinkingPiece("**One**"),
        ThinkingPiece("\n\n**Two"),
        ThinkingPiece("**"),
        TextPiece("First."),
        TextPiece("\n\nSecond"),
        TextPiece("."),
    ]


async def test_a_refusal_is_text_and_unknown_events_and_items_are_ignored() -> None:
    refused = {"type": "response.refusal.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "No."}
    search = {"type": "response.output_item.added", "output_index": 3, "item": {"type": "web_search_call", "id": "ws_1"}}
    unknown = {"type": "response.tomorrow", "delta": "?", "output_index": 9}
    assert await answered(unknown, search, b": ping\n\n", refused) == [TextPiece("No.")]


TWO = [("c1", "find", '{"a": 1}'), ("c2", "find", '{"b": 2}')]
ODD_CALLS: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "as OpenAI sends them": ([*called("c1", TWO[0][2]), *called("c2", TWO[1][2], index=1)], TWO),
    "interleaved": (
        [added("c1"), added("c2", index=1), more("c1", '{"a"'), more("c2", TWO[1][2], 1), more("c1", ": 1}")],
        TWO,
    ),
    "one place for all": ([*called("c1", TWO[0][2]), *called("c2", TWO[1][2])], TWO),
    "no place": (
        [added("c1", index=None), more("c1", TWO[0][2], None), added("c2", index=None), more("c2", TWO[1][2], None)],
        TWO,
    ),
    "another item's id in each event": (
        [
            added("c1"),
            more("x", '{"a"'),
            more("y", ": 1}"),
            done("c1", TWO[0][2], item_id="z"),
            *called("c2", TWO[1][2], index=1),
        ],
        TWO,
    ),
    "another call's id at the end": ([added("c1"), more("c1", TWO[0][2]), done("zz", TWO[0][2], item_id="fc_c1")], TWO[:1]),
    "whole calls only": ([done("c1", TWO[0][2]), done("c2", TWO[1][2])], TWO),
    "arguments at the end only": (
        [added("c1"), whole("c1", TWO[0][2]), added("c2", index=1), done("c2", TWO[1][2], index=1)],
        TWO,
    ),
    "the rest of the arguments at the end": ([added("c1"), more("c1", '{"a"'), whole("c1", TWO[0][2])], TWO[:1]),
    "other white space at the end": ([added("c1"), more("c1", TWO[0][2]), whole("c1", '{"a":1}')], TWO[:1]),
    "nothing at the end": ([added("c1"), more("c1", TWO[0][2]), whole("c1", ""), done("c1", None)], TWO[:1]),
    "pieces of a call that was not begun": ([more("c1", '{"a"'), whole("c1", TWO[0][2]), done("c1", TWO[0][2])], TWO[:1]),
    "the name at the end": ([added("c1", None), more("c1", TWO[0][2]), done("c1", TWO[0][2])], TWO[:1]),
    "the same id twice": (
        [*called("c1", TWO[0][2]), added("c1", index=1, item_id="fc_2"), done("c1", TWO[1][2], index=1, item_id="fc_2")],
        [TWO[0], ("", *TWO[1][1:])],
    ),
    "no id": ([added(None), done(None, TWO[0][2])], [("", *TWO[0][1:])]),
    "no arguments": ([added("c1"), done("c1", "")], [("c1", "find", "")]),
}


@pytest.mark.parametrize("case", ODD_CALLS)
async def test_calls_are_read_however_a_server_sends_them(case: str) -> None:
    events, expected = ODD_CALLS[case]
    found = calls(await answered(*events))
    assert [(call_id if want[0] else "", *rest) for (call_id, *rest), want in zip(found, expected, strict=True)] == expected
    ids = [call_id for call_id, *_ in found]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_arguments_come_in_pieces_and_once() -> None:
    pieces = [delta for delta in await answered(*called("c1", '{"a": 1}')) if isinstance(delta, ToolCallPiece)]
    assert [(piece.call_id, piece.name, piece.arguments) for piece in pieces] == [
        ("c1", "find", ""),
        ("", "", '{"a"'),
        ("", "", ": 1}"),
    ]


async def test_why_an_answer_ended_is_said_in_the_words_of_the_other_wire() -> None:
    streams = [answer(*called("c1", "{}"), COMPLETED), answer(HALF, cut("max_output_tokens")), answer(HALF, COMPLETED)]
    async with ChatServer(*streams) as server:
        model = OpenAIResponses("fake", base_url=server.base_url)
        reasons: list[str] = []
        for _ in streams:
            await heard(model)
            reasons.append(model.last_finish_reason)
    assert reasons == ["tool_calls", "length", "stop"]


def test_usage_that_is_none_is_not_reported() -> None:
    for usage in (None, {}, {"input_tokens": None, "output_tokens": 1}):
        assert list(ResponseReader().read(ended("completed", usage=usage))) == []
    plain = {**USAGE, "input_tokens_details": None}
    assert list(ResponseReader().read(ended("completed", usage=plain))) == [UsageReport(input_tokens=11, output_tokens=7)]


# -- the connection -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [(), (HALF,), (added("c1"), more("c1", '{"a'))])
async def test_a_cancelled_stream_closes_its_connection_at_once(events: tuple[Any, ...]) -> None:
    async with ChatServer(answer(*events, end="hold")) as server:
        task = asyncio.create_task(heard(OpenAIResponses("fake", base_url=server.base_url)))
        await server.holding.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 0.5)


async def test_a_closed_stream_closes_its_connection_at_once() -> None:
    async with ChatServer(answer(HALF, end="hold")) as server:
        stream: Any = OpenAIResponses("fake", base_url=server.base_url).stream(ASK)
        assert await anext(stream) == TextPiece("half")
        await stream.aclose()
        await asyncio.wait_for(server.left.wait(), 0.5)


async def test_one_model_works_on_two_loops() -> None:
    ok = answer(text("ok"), COMPLETED)
    async with ChatServer(ok, ok, ok) as server:
        model = OpenAIResponses("fake", base_url=server.base_url)
        assert await heard(model) == [TextPiece("ok"), REPORT]
        assert await asyncio.to_thread(lambda: asyncio.run(heard(model))) == [TextPiece("ok"), REPORT]
        assert await heard(model) == [TextPiece("ok"), REPORT]
        await model.aclose()


async def test_a_client_of_the_user_is_used_as_it_is_on_its_own_loop() -> None:
    async with (
        ChatServer(answer(text("ok"), COMPLETED)) as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="mine") as client,
    ):
        model = OpenAIResponses("fake", client=client)
        assert await heard(model) == [TextPiece("ok"), REPORT]
        with pytest.raises(ModelSetupError, match=r"event loop before.*base_url and api_key"):
            await asyncio.to_thread(lambda: asyncio.run(heard(model)))
    assert server.headers[0]["authorization"] == "Bearer mine"


async def test_what_cannot_work_is_said_with_what_to_do() -> None:
    with pytest.raises(InputError, match="OpenAIResponses: the option 'store' is set by each call"):
        OpenAIResponses("fake", store=True)
    with pytest.raises(InputError, match="OpenAIResponses: give either client, or base_url"):
        OpenAIResponses("fake", client=openai.AsyncOpenAI(api_key="k"), api_key="k")
    with pytest.raises(ModelSetupError, match="Set OPENAI_API_KEY"):
        await heard(OpenAIResponses("gpt-5-mini"))
    with pytest.raises(ModelSetupError, match=r"'top_q'.*extra_body"):
        await heard(OpenAIResponses("fake", base_url="http://127.0.0.1:1/v1", top_q=5))
    model = OpenAIResponses("fake", base_url="http://me:secret@host:80/v1?k=secret", api_key="sk-secret")
    assert repr(model) == "OpenAIResponses('fake', base_url='http://host:80/v1')"


# -- a whole agent --------------------------------------------------------------------------------------------------


@tool
async def find(word: str) -> str:
    """Find a word."""
    await asyncio.sleep(0)
    return f"{word}: page 2"


async def said(agent: Agent, prompt: str, delta: str) -> asyncio.Task[Msg]:
    """A task that waits for the reply, once this piece has reached the agent's log."""
    task = asyncio.create_task(agent.reply(prompt))
    while agent._run is None or not any(getattr(e, "delta", "") == delta for e in agent._run.events):
        await asyncio.sleep(0)
    return task


async def test_an_agent_uses_tools_is_stopped_in_a_text_and_in_a_call_and_goes_on() -> None:
    two = [text("I look."), *called("c1", '{"word": "tea"}', index=1), *called("c2", '{"word": "cup"}', index=2), COMPLETED]
    stopped_in_text = answer(text("Tea is"), end="hold")
    stopped_in_call = answer(added("c3"), more("c3", '{"word": "mi'), end="hold")
    async with ChatServer(answer(*two), stopped_in_text, stopped_in_call, answer(text("Bye."), COMPLETED)) as server:
        agent = Agent(OpenAIResponses("fake", base_url=server.base_url), tools=[find], instructions="Be short.")
        for prompt, delta in (("Where is tea?", "Tea is"), ("And milk?", '{"word": "mi')):
            task = await said(agent, prompt, delta)
            agent.interrupt()
            assert (await task).metadata["_is_interrupted"]
            await asyncio.wait_for(server.left.wait(), 0.5)
            server.left.clear()
            assert agent.state.check() == ()
        assert (await agent.reply("Thank you")).text == "Bye."
    for body in server.bodies:
        assert_valid(body["input"])
    call, output, message = "function_call", "function_call_output", "message"
    assert server.bodies[-1]["input"] == [
        {"type": message, "role": "user", "content": "Where is tea?"},
        {"type": message, "role": "assistant", "content": "I look."},
        {"type": call, "call_id": "c1", "name": "find", "arguments": '{"word": "tea"}'},
        {"type": call, "call_id": "c2", "name": "find", "arguments": '{"word": "cup"}'},
        {"type": output, "call_id": "c1", "output": "tea: page 2"},
        {"type": output, "call_id": "c2", "output": "cup: page 2"},
        {"type": message, "role": "assistant", "content": "Tea is"},
        {"type": message, "role": "user", "content": "And milk?"},
        {"type": call, "call_id": "c3", "name": "find", "arguments": "{}"},
        {"type": output, "call_id": "c3", "output": INTERRUPTED_TEXT},
        {"type": message, "role": "user", "content": "Thank you"},
    ]


async def test_the_client_learns_its_events_off_the_loop_and_once() -> None:
    """Its first event takes it half a second, in which nothing else could be stopped."""
    openai_responses._learn_events.cache_clear()
    threads: list[threading.Thread] = []
    make = openai.OpenAI

    def counted(**given: Any) -> openai.OpenAI:
        threads.append(threading.current_thread())
        return make(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai, "OpenAI", counted)
        async with ChatServer(answer(text("ok"), COMPLETED), answer(text("ok"), COMPLETED)) as server:
            for _ in range(2):
                model = OpenAIResponses("fake", base_url=server.base_url)
                assert await heard(model)
                await model.aclose()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
