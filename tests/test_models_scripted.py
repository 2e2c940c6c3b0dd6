"""ScriptedModel: what users test their agents with must itself be exact."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.errors import InputError, ModelError
from agent_widgets.messages import UserMsg
from agent_widgets.models.scripted import ScriptedModel, call, fail, say, think, wait

ASK = ModelRequest(context=(UserMsg("user", "two words"),))


async def heard(model: ScriptedModel, request: ModelRequest = ASK) -> list[ModelDelta]:
    return [delta async for delta in model.stream(request)]


async def test_each_model_call_gets_the_next_turn() -> None:
    model = ScriptedModel([[say("one")], ["two"], "three", call("find")])
    first = [await heard(model) for _ in range(4)]
    assert [deltas[0] for deltas in first] == [
        TextPiece("one"),
        TextPiece("two"),
        TextPiece("three"),
        ToolCallPiece(index=0, call_id="call_1", name="find"),
    ]


async def test_text_streams_word_by_word_and_a_list_exactly_as_given() -> None:
    model = ScriptedModel([[think("a  b\n"), say(["x ", "", "yz"])]])
    assert (await heard(model))[:-1] == [
        ThinkingPiece("a  "),
        ThinkingPiece("b\n"),
        TextPiece("x "),
        TextPiece(""),
        TextPiece("yz"),
    ]


async def test_calls_of_one_turn_are_parallel_and_their_arguments_come_in_pieces() -> None:
    model = ScriptedModel([[call("a", {"text": "höher als 8"}), call("b", '{"cut', id="mine")]])
    pieces = [delta for delta in await heard(model) if isinstance(delta, ToolCallPiece)]
    texts = ["".join(piece.arguments for piece in pieces if piece.index == index) for index in (0, 1)]
    assert texts == ['{"text": "höher als 8"}', '{"cut']
    assert [(p.call_id, p.name) for p in pieces if p.name] == [("call_1", "a"), ("mine", "b")]
    assert len(pieces) > 4


async def test_usage_counts_words_and_a_turn_may_bring_its_own() -> None:
    own = UsageReport(input_tokens=7, output_tokens=8)
    model = ScriptedModel([[say("one two three")], [say("x"), own]])
    assert (await heard(model))[-1] == UsageReport(input_tokens=3, output_tokens=3)  # "user", "two", "words"
    assert [delta for delta in await heard(model) if isinstance(delta, UsageReport)] == [own]


async def test_a_call_beyond_the_script_says_how_many_were_scripted() -> None:
    model = ScriptedModel([[say("one")]])
    await heard(model)
    with pytest.raises(ModelError, match=r"model call 2, but the script holds 1.*two words"):
        await heard(model)


async def test_unused_turns_are_complained_about() -> None:
    model = ScriptedModel([[say("one")], [say("two")]])
    await heard(model)
    assert model.unused() == [[say("two")]]
    with pytest.raises(AssertionError, match=r"1 of 2 scripted model calls were never asked for.*two"):
        model.assert_used()
    await heard(model)
    model.assert_used()
    assert repr(model) == "ScriptedModel(2 of 2 turns used)"


async def test_it_keeps_what_it_was_asked() -> None:
    model = ScriptedModel(["ok"])
    await heard(model)
    assert model.requests[0].messages == [{"role": "user", "content": "two words"}]


async def test_a_failure_comes_where_it_was_written() -> None:
    model = ScriptedModel([[say(["half"]), fail(OSError("gone"))], fail("no more")])
    stream = model.stream(ASK)
    assert await anext(stream) == TextPiece("half")
    with pytest.raises(OSError, match="gone"):
        await anext(stream)
    with pytest.raises(ModelError, match="scripted: no more"):
        await heard(model)


@pytest.mark.parametrize("kind", [asyncio.Event, anyio.Event])
async def test_it_waits_for_an_event_of_its_loop(kind: type[asyncio.Event | anyio.Event]) -> None:
    event = kind()
    task = asyncio.create_task(heard(ScriptedModel([[wait(event), say("now")]])))
    await asyncio.sleep(0)
    assert not task.done()
    event.set()
    assert (await task)[0] == TextPiece("now")


async def test_it_waits_for_an_event_of_another_thread() -> None:
    event = threading.Event()
    threading.Timer(0.02, event.set).start()
    assert (await heard(ScriptedModel([[wait(event), say("now")]])))[0] == TextPiece("now")


@pytest.mark.parametrize("rate", [None, 5.0])
async def test_it_can_be_cancelled_at_every_piece(rate: float | None) -> None:
    heard_by_now: list[ModelDelta] = []
    third = asyncio.Event()

    async def listen() -> None:
        async for delta in ScriptedModel([[say(["x"] * 10_000)]], tokens_per_second=rate and rate * 1000).stream(ASK):
            heard_by_now.append(delta)
            if len(heard_by_now) == 3:
                third.set()

    task = asyncio.create_task(listen())
    await third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 3 <= len(heard_by_now) < 10


@pytest.mark.parametrize(
    ("script", "complaint"),
    [("text", "give a list of turns"), ([[say("x"), 5]], "turn 1 holds 5"), ([["a"], [ValueError()]], "turn 2 holds ValueError")],
)
def test_a_script_that_cannot_work_is_refused_at_once(script: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ScriptedModel(script)  # pyright: ignore[reportArgumentType] - what a user may give


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="above 0"):
        ScriptedModel([], tokens_per_second=0)
