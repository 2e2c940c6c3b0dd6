"""Faults that only Chat Completions can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.models.chat_server import CALLS, STOP, USAGE, Answer, chunk, entry, refusal, sse, stream, tool
from tests.models.dialects import CHAT, Part
from tests.models.faults import HALF, KEY, RETRIES, Case

_ONE, _TWO = {"a": 1}, {"b": 2}


def _broken(*parts: Part, says: str, kept: str = HALF) -> Case:
    return Case(answers=(stream(chunk(kept), *parts),), says=says, kept=kept)


def _fine(*parts: Part, kept: str = HALF) -> Case:
    return Case(answers=(stream(*parts),), outcome="completed", kept=kept)


def _acted(*parts: Part, ran: tuple[dict[str, Any], ...] = (_ONE, _TWO)) -> Case:
    return Case(answers=(stream(*parts, CALLS), CHAT.said(HALF)), outcome="completed", kept=HALF, ran=ran)


def _asked(*entries: dict[str, Any]) -> Part:
    return chunk({"tool_calls": [*entries]})


NULL_ARGUMENTS = {"index": 0, "id": "c1", "function": {"name": "find", "arguments": None}}
ENDED = "ended before the answer was complete.*resume"

CHAT_FAULTS: dict[str, Case] = {
    # the shape of a chunk
    "choices: []": Case(answers=(stream({**chunk(), "choices": []}),) * 3, says=ENDED, retries=RETRIES),
    "choices: [] among others": _fine(chunk(HALF), {**chunk(), "choices": []}, STOP),
    "no choices": Case(answers=(stream({"id": "c1"}),) * 3, says=ENDED, retries=RETRIES),
    "choices of the wrong type": _broken({**chunk(), "choices": 5}, says="'choices' should be a list, got 5"),
    "a choice of the wrong type": _broken({**chunk(), "choices": ["x"]}, says="not a chat completion"),
    "a choice with its index as text": _fine({"choices": [{"index": "0", "delta": {"content": HALF}}]}, STOP),
    "a second choice": _fine(chunk(HALF), {"choices": [{"index": 1, "delta": {"content": "other"}}]}, STOP),
    "a delta of the wrong type": _broken(chunk(5), says="not a chat completion"),
    "content that is a number": _broken(chunk({"content": 5}), says="content should be text, got 5"),
    "content with a key in it": _broken(chunk({"content": {"echo": "x" * 60 + KEY}}), says="content should be text, got"),
    "content in parts": _fine(chunk({"content": [{"type": "text", "text": HALF}]}), STOP),
    "tool_calls that are a dict": _broken(chunk({"tool_calls": {"a": 1}}), says="'tool_calls' should be a list"),
    "usage with texts": _fine(chunk(HALF), STOP, {**USAGE, "usage": {"prompt_tokens": "11", "completion_tokens": "7"}}),
    "usage below zero": _fine(chunk(HALF), STOP, {**USAGE, "usage": {"prompt_tokens": -11, "completion_tokens": 7}}),
    "usage that is a text": _fine(chunk(HALF), STOP, {**USAGE, "usage": "11 tokens"}),
    # the end
    "no [DONE]": Case(answers=(stream(chunk(HALF), STOP, end="no [DONE]"),), outcome="completed", kept=HALF),
    "no [DONE] and no finish_reason": Case(answers=(stream(chunk(HALF), end="no [DONE]"),), says=ENDED, kept=HALF),
    "no finish_reason": _broken(says=ENDED),
    "no finish_reason, with usage": _fine(chunk(HALF), USAGE),
    "silence after [DONE]": Case(
        answers=(stream(chunk(HALF), STOP, b"data: [DONE]\n\n", end="hold"),), outcome="completed", kept=HALF
    ),
    "half a character after [DONE]": _fine(chunk(HALF), STOP, b"data: [DONE]\n\n", b"\xc3"),
    "a finish_reason of the wrong type": _broken(chunk({}, finish=5), says="finish_reason should be text"),  # pyright: ignore[reportArgumentType]
    "an unknown finish_reason": _fine(chunk(HALF), chunk({}, finish="eos")),
    "a text cut at the limit": _fine(chunk(HALF), chunk({}, finish="length")),
    "nothing but the limit": Case(
        answers=(stream(chunk({}, finish="length"), USAGE),), says="before it said anything.*larger max_completion_tokens"
    ),
    "a call cut at the limit": _broken(
        tool(0, "c1", "find", '{"a'),
        chunk({}, finish="length"),
        says="in the middle of a tool call.*larger max_completion_tokens",
    ),
    "a filtered answer": _broken(chunk({}, finish="content_filter"), says="content filter.*other words"),
    "a finish that is an error": _broken(chunk({}, finish="error"), says="broke off with an error.*resume"),
    # calls
    "one index, two ids": _acted(tool(0, "c1", "find", '{"a": 1}'), tool(0, "c2", "find", '{"b": 2}')),
    "two indices, interleaved": _acted(
        tool(0, "c1", "find", ""),
        tool(1, "c2", "find", ""),
        tool(0, None, None, '{"a"'),
        tool(1, None, None, '{"b": 2}'),
        tool(0, None, None, ": 1}"),
    ),
    "indices as texts, interleaved": _acted(
        _asked({**entry(None, "c1", "find", ""), "index": "0"}),
        _asked({**entry(None, "c2", "find", ""), "index": "1"}),
        _asked({**entry(None, None, None, '{"a"'), "index": "0"}),
        _asked({**entry(None, None, None, '{"b": 2}'), "index": "1"}),
        _asked({**entry(None, None, None, ": 1}"), "index": "0"}),
    ),
    "an index of the wrong type": _broken(
        _asked({**entry(None, "c1", "find", "{}"), "index": "first"}), says="index should be a number, got 'first'"
    ),
    "a call without an id": _acted(tool(0, None, "find", '{"a": 1}'), tool(1, None, "find", '{"b": 2}')),
    "one id, two calls": _acted(tool(0, "c1", "find", '{"a": 1}'), tool(1, "c1", "find", '{"b": 2}')),
    "an id of the wrong type": _broken(tool(0, 5, "find", "{}"), says="id should be text, got 5"),  # pyright: ignore[reportArgumentType]
    "a call without a name": _broken(tool(0, "c1", None, "{}"), CALLS, says="a tool call came without a name"),
    "a name that no server takes": _acted(tool(0, "c1", "fi nd\0\ud83d?" * 9, '{"a": 1}'), ran=()),
    "a name that is unknown": _acted(tool(0, "c1", "search", '{"a": 1}'), ran=()),
    "arguments that are null": _acted(_asked(NULL_ARGUMENTS), ran=({},)),
    "arguments that are an object": _acted(tool(0, "c1", "find", {"a": 1}), ran=(_ONE,)),
    "arguments that are a number": _broken(tool(0, "c1", "find", 5), says="arguments should be text, got 5"),
    # a server without stream_options is asked twice for each try
    "400 without a field": Case(answers=(refusal(400, {"error": {"message": "no"}}),) * 2, says="refused.*refused again"),
}

_ODD: tuple[Any, ...] = (None, True, 1.5, "\ud83d", [None], {"a": 1})


def odd_chats() -> Iterator[Answer]:
    """Answers with a value of every wrong type in every place."""
    for odd in _ODD:
        call = entry(0, "c1", "find", '{"a": 1}')
        places: list[Any] = [
            odd,
            {**chunk(HALF), "choices": odd},
            {**chunk(HALF), "choices": [odd]},
            {**chunk(HALF), "choices": [{"index": odd, "delta": {"content": HALF}}]},
            {**chunk(HALF), "id": odd, "object": odd, "created": odd, "model": odd},
            chunk(odd),
            *(chunk({name: odd}) for name in ("role", "content", "refusal", "reasoning", "reasoning_content", "tool_calls")),
            chunk({"content": [{"type": "text", "text": odd}]}),
            chunk({"content": [{"type": "thinking", "thinking": odd}]}),
            chunk({"tool_calls": [odd]}),
            *(chunk({"tool_calls": [{**call, name: odd}]}) for name in ("index", "id", "type", "function")),
            tool(0, "c1", odd, '{"a": 1}'),
            tool(0, "c1", "find", odd),
            chunk({}, finish=odd),
            {**USAGE, "usage": odd},
            {**USAGE, "usage": {"prompt_tokens": odd, "completion_tokens": odd, "prompt_tokens_details": odd}},
            {"error": odd},
            {"error": {"message": odd, "code": odd, "param": odd, "type": odd}},
        ]
        for place in places:
            yield stream(chunk(HALF), sse(place), STOP)
