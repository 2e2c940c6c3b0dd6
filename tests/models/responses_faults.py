"""Faults that only the Responses API can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_widgets.errors import ConversationTooLongError, ModelSetupError
from tests.models.chat_server import Answer, refusal
from tests.models.chat_server import sse as plain_sse
from tests.models.dialects import RESPONSES
from tests.models.faults import HALF, HEADER, KEY, RETRIES, Case, lasting
from tests.models.responses_events import (
    COMPLETED,
    Event,
    added,
    answer,
    called,
    cut,
    done,
    ended,
    failed,
    more,
    text,
    whole,
)

_ONE, _TWO = {"a": 1}, {"b": 2}


def _broken(*events: Event | bytes, says: str, kind: Any = None) -> Case:
    more_facts: dict[str, Any] = {"kind": kind} if kind else {}
    return Case(answers=(answer(text(HALF), *events),), says=says, kept=HALF, **more_facts)


def _fine(*events: Event) -> Case:
    return Case(answers=(answer(*events),), outcome="completed", kept=HALF)


def _acted(*events: Event, ran: tuple[dict[str, Any], ...] = (_ONE, _TWO)) -> Case:
    return Case(answers=(answer(*events, COMPLETED), RESPONSES.said(HALF)), outcome="completed", kept=HALF, ran=ran)


def _first(*events: Event, says: str, retries: int) -> Case:
    return Case(answers=(answer(*events),) * (retries + 1), says=says, retries=retries)


RESPONSES_FAULTS: dict[str, Case] = {
    "a server without this language": lasting(refusal(404, {"error": {"message": "Not Found"}}), "needs OpenAIChat"),
    "a server without this method": lasting(refusal(405, {"error": {"message": "Not Allowed"}}), "needs OpenAIChat"),
    # the shape of an event
    "a type of the wrong type": _broken({"type": 5}, says="an event's type should be text, got 5"),
    "an event that nobody knows": _fine(text(HALF), {"type": "response.sung", "song": 5}, COMPLETED),
    "text of the wrong type": _broken(text(5), says="a delta should be text, got 5"),
    "text with a key in it": _broken(text({"echo": "x" * 60 + KEY}), says="a delta should be text"),
    "an item of the wrong type": _broken({**added("c1"), "item": "x"}, says="not a response"),
    "a response of the wrong type": _broken({**COMPLETED, "response": [1]}, says="not a response"),
    "usage with texts": _fine(text(HALF), ended("completed", usage={"input_tokens": "11", "output_tokens": "7"})),
    "usage below zero": _fine(text(HALF), ended("completed", usage={"input_tokens": -11, "output_tokens": 7})),
    "usage that is a text": _fine(text(HALF), ended("completed", usage="11 tokens")),
    # the end
    "a text cut at the limit": _fine(text(HALF), cut("max_output_tokens")),
    "nothing but the limit": Case(
        answers=(answer(cut("max_output_tokens")),), says="before it said anything.*larger max_output_tokens"
    ),
    "a call cut at the limit": _broken(
        added("c1"), more("c1", '{"a'), cut("max_output_tokens"), says="in the middle of a tool call.*larger max_output_tokens"
    ),
    "a filtered answer": _broken(cut("content_filter"), says="content filter.*other words"),
    "cut for another reason": _broken(cut("steered"), says="the answer is incomplete: steered"),
    "cut for no reason": _broken(cut(None), says="incomplete: no reason was given"),
    "failed": _broken(failed("server_error", f"bad {KEY} {HEADER}"), says=r"an error: bad \[removed\] \[removed\].*resume"),
    "failed without a word": _broken(ended("failed"), says="an error: no reason was given"),
    "failed from haste": _first(failed("rate_limit_exceeded", "slow"), says="too many requests.*slow", retries=RETRIES),
    "failed from haste, in mid-stream": _broken(failed("rate_limit_exceeded", "slow"), says="too many requests.*slow"),
    "failed from the prompt": _first(failed("invalid_prompt", "no"), says="would be refused again", retries=0),
    "failed from its length": Case(
        answers=(answer(failed("context_length_exceeded", "no")),), says="too long.*reset=True", kind=ConversationTooLongError
    ),
    "an error event": _broken({"type": "error", "code": "x", "message": f"late {KEY}"}, says=r"late \[removed\].*resume"),
    "an error event with an error": _broken(
        {"type": "error", "error": {"code": "insufficient_quota", "message": "no"}}, says="nothing left.*no", kind=ModelSetupError
    ),
    # calls
    "two calls, interleaved": _acted(
        added("c1"),
        added("c2", index=1),
        more("c1", '{"a"'),
        more("c2", '{"b": 2}', 1),
        more("c1", ": 1}"),
        done("c1", '{"a": 1}'),
        done("c2", '{"b": 2}', index=1),
    ),
    "one index for two calls": _acted(*called("c1", '{"a": 1}'), *called("c2", '{"b": 2}')),
    "one id, two calls": _acted(*called("c1", '{"a": 1}'), *called("c1", '{"b": 2}', index=1)),
    "a call without an id": _acted(
        added(None, item_id="i1"), done(None, '{"a": 1}', item_id="i1"), added(None, index=1), done(None, '{"b": 2}', index=1)
    ),
    "a call without a name": _broken(done("c1", "{}", None), COMPLETED, says="a tool call came without a name"),
    "a name that no server takes": _acted(*called("c1", '{"a": 1}', "fi nd\0\ud83d?" * 9), ran=()),
    "a name that is unknown": _acted(*called("c1", '{"a": 1}', "search"), ran=()),
    "arguments that are null": _acted(added("c1"), done("c1", None), ran=({},)),
    "arguments that are an object": _broken(added("c1"), done("c1", {"a": 1}), says="arguments should be text, got"),
    "pieces that are a number": _broken(added("c1"), more("c1", 5), says="arguments should be text, got 5"),
    "other arguments at the end": _broken(
        added("c1"), more("c1", '{"a": 1}'), whole("c1", '{"a": 2}'), says="the arguments of a call were .*and at its end"
    ),
    "a call that is never done": _acted(added("c1"), more("c1", '{"a": 1}'), ran=(_ONE,)),
    "a call that is half done": _acted(added("c1"), more("c1", '{"a": 1'), ran=()),
}

_ODD: tuple[Any, ...] = (None, True, 1.5, "\ud83d", [None], {"a": 1})


def odd_responses() -> Iterator[Answer]:
    """Answers with a value of every wrong type in every place."""
    for odd in _ODD:
        begun, item = added("c1"), done("c1", '{"a": 1}')
        events: list[tuple[Any, ...]] = [
            (odd,),
            ({"type": odd},),
            *(({**text("x"), name: odd},) for name in ("delta", "item_id", "output_index", "content_index")),
            *(({**begun, name: odd}, item) for name in ("item", "output_index")),
            *(({**begun, "item": {**begun["item"], name: odd}}, item) for name in ("type", "id", "call_id", "name")),
            *((begun, {**item, "item": {**item["item"], name: odd}}) for name in ("id", "call_id", "name", "arguments")),
            *((begun, {**more("c1", "{}"), name: odd}) for name in ("delta", "item_id", "output_index")),
            *((begun, {**whole("c1", "{}"), name: odd}) for name in ("arguments", "item_id", "output_index")),
            ({**COMPLETED, "response": odd},),
            (ended("completed", usage=odd),),
            (ended("completed", usage={"input_tokens": odd, "output_tokens": odd, "input_tokens_details": odd}),),
            (ended("incomplete", incomplete_details=odd),),
            (ended("failed", error=odd),),
            ({"type": "error", "error": odd},),
            ({"type": "error", "message": odd, "code": odd},),
        ]
        for place in events:
            parts = [plain_sse(event) for event in place]
            yield answer(text(HALF), *parts, COMPLETED)
