"""The demo model: honest, deterministic, and on the same road as a real one."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ThinkingPiece, ToolCallPiece, ToolSpec, UsageReport
from agent_widgets.errors import InputError
from agent_widgets.messages import AssistantMsg, Block, JsonObject, Msg, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from agent_widgets.models.demo import DemoModel
from agent_widgets.models.demo_arguments import arguments_for
from agent_widgets.models.demo_script import compose
from agent_widgets.state import INTERRUPTED_TEXT


def schema(*required: str, **properties: Any) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*required]}


TEXT = {"type": "string"}
DELETE = ToolSpec(
    name="delete_rows",
    description="Delete the rows of TABLE that match WHERE.",
    parameters=schema("table", "where", table=TEXT, where=TEXT),
)
WEATHER = ToolSpec(name="get_weather", description="Tell the forecast for a city.", parameters=schema("city", city=TEXT))
CALL = ToolCallBlock(id="c1", name="delete_rows", input='{"table": "orders", "where": "x"}')


async def deltas(*context: Msg, tools: tuple[ToolSpec, ...] = ()) -> list[ModelDelta]:
    model = DemoModel(tokens_per_second=None)
    return [delta async for delta in model.stream(ModelRequest(context=context, tools=tools))]


async def text(*context: Msg, tools: tuple[ToolSpec, ...] = ()) -> str:
    return "".join(delta.text for delta in await deltas(*context, tools=tools) if isinstance(delta, TextPiece))


def composed(*context: Msg) -> str:
    """The whole text at once, without its road through HTTP."""
    return compose(ModelRequest(context=context).messages).text


async def calls(*context: Msg, tools: tuple[ToolSpec, ...]) -> list[tuple[str, Any]]:
    pieces = [delta for delta in await deltas(*context, tools=tools) if isinstance(delta, ToolCallPiece)]
    names = {piece.index: piece.name for piece in pieces if piece.name}
    return [(name, json.loads("".join(p.arguments for p in pieces if p.index == index))) for index, name in names.items()]


def user(words: str) -> Msg:
    return UserMsg("user", words)


def after_call(result: str, *more: Block) -> Msg:
    return AssistantMsg("demo", [CALL, ToolResultBlock(id="c1", name=CALL.name, output=result, state="success"), *more])


async def test_it_says_once_that_it_is_a_scripted_demo() -> None:
    first = await text(user("Hello"))
    assert first.count("scripted demo") == 1
    second = await text(user("Hello"), AssistantMsg("demo", first), user("Who are you?"))
    assert "scripted demo" not in second
    assert "Who are you?" in second


async def test_the_same_request_gets_the_same_answer() -> None:
    assert await deltas(user("think"), tools=(DELETE,)) == await deltas(user("think"), tools=(DELETE,))


async def test_a_long_answer_takes_a_minute_and_shows_what_markdown_can() -> None:
    found = await deltas(user("Tell me a long story"))
    assert len(found) > 60 * 60
    written = "".join(delta.text for delta in found if isinstance(delta, TextPiece))
    assert all(re.search(sign, written, re.MULTILINE) for sign in (r"^## ", r"^- ", r"^```python$", r"^\|---"))
    assert found[-1] == UsageReport(input_tokens=12, output_tokens=len(found) - 1)


async def test_it_counts_as_far_as_it_is_asked() -> None:
    assert "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,\n11, 12." in await text(user("Please count to 12"))


async def test_it_thinks_when_it_is_asked_to() -> None:
    found = await deltas(user("Think about it first"))
    thinking = [delta for delta in found if isinstance(delta, ThinkingPiece)]
    assert len(thinking) > 100
    assert found[: len(thinking)] == thinking


def test_a_stopped_answer_goes_on_where_it_was_stopped_however_often() -> None:
    whole = composed(user("a long story"))
    context, heard, lead_in = [user("a long story")], "", ""
    for prompt, length in (("go on", 1234), ("continue", 40), ("Please go on!", 5000)):
        said = composed(*context)
        if heard:
            place, said = said.split("I go on from there:\n\n")
            assert place.endswith(f"{heard.rsplit(maxsplit=1)[-1]}”. ")
            lead_in = place + "I go on from there:\n\n"
        heard += said[:length]
        context += [AssistantMsg("demo", lead_in + said[:length]), user(prompt)]
    rest = composed(*context).split("I go on from there:\n\n")[1]
    assert "".join((heard + rest).split()) == "".join(whole.split())


def test_a_stopped_answer_goes_on_without_a_new_message_too() -> None:
    whole = composed(user("a long story"))
    assert composed(user("a long story"), AssistantMsg("demo", whole[:500])).endswith(whole[500:])


async def test_going_on_after_the_end_says_that_it_had_finished() -> None:
    whole = await text(user("Hello"))
    assert "I had finished" in await text(user("Hello"), AssistantMsg("demo", whole), user("go on"))
    assert "nothing to go on with" in await text(user("go on"))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Clean up the orders table", ("delete_rows", {"table": "orders", "where": "status = 'cancelled'"})),
        ("Delete from the 'old stuff' please", ("delete_rows", {"table": "old stuff", "where": "status = 'cancelled'"})),
        ("How is the weather in Porto?", ("get_weather", {"city": "Porto"})),
        ("use get_weather", ("get_weather", {"city": "Lisbon"})),
    ],
)
async def test_a_prompt_that_fits_a_tool_asks_for_it(prompt: str, expected: tuple[str, Any]) -> None:
    found = await deltas(user(prompt), tools=(DELETE, WEATHER))
    assert isinstance(found[0], ThinkingPiece)
    assert await calls(user(prompt), tools=(DELETE, WEATHER)) == [expected]


async def test_two_named_tools_are_asked_for_in_parallel() -> None:
    found = await calls(user("First get_weather for 'Rome', and delete rows too"), tools=(DELETE, WEATHER))
    assert [name for name, _ in found] == ["delete_rows", "get_weather"]


async def test_a_prompt_that_fits_no_tool_gets_an_answer() -> None:
    assert "live" in await text(user("Hello"), tools=(DELETE, WEATHER))
    assert not await calls(user("Hello"), tools=(DELETE, WEATHER))


async def test_and_now_means_the_last_tool_again() -> None:
    before = (user("Clean up the orders table"), after_call("3"))
    assert await calls(*before, user("and now the customers"), tools=(DELETE, WEATHER)) == [
        ("delete_rows", {"table": "customers", "where": "status = 'cancelled'"})
    ]


async def test_a_result_is_quoted() -> None:
    answer = await text(user("Clean up"), after_call("42 rows"), tools=(DELETE,))
    assert "`delete_rows` answered “42 rows”" in answer
    assert "scripted demo" in answer
    assert "```\na\nb\n```" in await text(user("Clean up"), after_call("a\nb"), tools=(DELETE,))


@pytest.mark.parametrize("reason", ["Ask Ann first, she: knows.", 'because it is\nproduction: "no" & <b>!'])
async def test_a_denied_call_is_not_made_and_the_reason_is_repeated_word_for_word(reason: str) -> None:
    denied = f'<system-reminder>The execution of tool "delete_rows" is denied by user!</system-reminder>\nReason: {reason}'
    answer = await text(user("Clean up"), after_call(denied), tools=(DELETE,))
    assert "I will not call `delete_rows`" in answer
    assert f"“{reason}”" in answer


async def test_a_denial_without_a_reason_is_repeated() -> None:
    denied = "Permission to use x has been denied"
    assert f"“{denied}”" in await text(user("Clean up"), after_call(denied))


async def test_an_interrupted_call_is_said_and_asked_for_again_on_go_on() -> None:
    before = (user("Clean up"), after_call(INTERRUPTED_TEXT))
    assert "`delete_rows` was interrupted" in await text(*before, tools=(DELETE,))
    again = await deltas(*before, user("go on"), tools=(DELETE,))
    assert await calls(*before, user("go on"), tools=(DELETE,)) == [("delete_rows", {"table": "orders", "where": "x"})]
    assert [delta.call_id for delta in again if isinstance(delta, ToolCallPiece) and delta.name] == ["demo_2"]


async def test_going_on_after_a_result_does_not_call_the_tool_again() -> None:
    whole = await text(user("Clean up"), after_call("42 rows"), tools=(DELETE,))
    stopped = (user("Clean up"), after_call("42 rows", TextBlock(whole[:30])), user("go on"))
    assert not await calls(*stopped, tools=(DELETE,))
    assert (await text(*stopped, tools=(DELETE,))).endswith(whole[30:].strip())


async def test_a_summary_is_made_of_the_questions() -> None:
    assert "“Hello”" in await text(user("Hello"), AssistantMsg("demo", "Hi"), user("Summarise this conversation."))


def test_arguments_fit_the_schema() -> None:
    full = {
        "$defs": {"Color": {"enum": ["red", "green"]}},
        **schema(
            *("color", "count", "ratio", "sure", "names", "inner", "maybe", "fixed", "path", "none"),
            color={"$ref": "#/$defs/Color"},
            count={"type": "integer", "maximum": 10},
            ratio={"type": "number"},
            sure={"type": "boolean"},
            names={"type": "array", "items": TEXT},
            inner=schema("where", where=TEXT),
            maybe={"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 7}]},
            fixed={"const": 5},
            path={"type": ["string", "null"]},
            none={"type": "null"},
            extra=TEXT,
            limit={"type": "integer"},
        ),
    }
    found = arguments_for(full, "Paint 12 green lines in 'house' with a ratio of 2.5, see a/b.txt")
    assert found == {
        "color": "green",
        "count": 10,
        "ratio": 2.5,
        "sure": True,
        "names": ["house"],
        "inner": {"where": "status = 'cancelled'"},
        "maybe": 7,
        "fixed": 5,
        "path": "a/b.txt",
        "none": None,
    }
    assert arguments_for({}, "x") == {}


async def test_stopping_closes_the_stream_of_its_server() -> None:
    model = DemoModel(tokens_per_second=1000)
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in model.stream(ModelRequest(context=(user("a long story"),))):
            heard.set()

    task = asyncio.create_task(listen())
    await heard.wait()
    assert model.streaming == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.streaming == 0


async def test_it_keeps_its_pace() -> None:
    model = DemoModel(tokens_per_second=500)
    start = time.perf_counter()
    found = [delta async for delta in model.stream(ModelRequest(context=(user("count to 20"),)))]
    assert time.perf_counter() - start > 0.25 + len(found) / 500


def test_a_pace_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="above 0"):
        DemoModel(tokens_per_second=0)


def test_the_card_says_what_it_is() -> None:
    assert DemoModel().note
    assert DemoModel(note="no key").note == "no key"
    assert repr(DemoModel()) == "DemoModel()"
