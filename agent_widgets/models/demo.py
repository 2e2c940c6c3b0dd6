"""The demo model: no key, no network, no intelligence, and the same road as a real one.

It is spoken to through the ``openai`` client, whose HTTP transport is replaced by a server in this process. That server sends
Chat Completions events as bytes, in the pieces and at the pace of a real one, so that everything above it is what a real
model gets: streaming, Stop in the middle, thinking, tool calls, usage.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

from agent_widgets.errors import InputError
from agent_widgets.models.demo_script import Answer, compose
from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.openai_model import http_library

TOKENS_PER_SECOND = 60.0
_FIRST_TOKEN_S = 0.25
_SPLIT_EVERY = 7
_HOST = "http://demo.invalid/v1"


class DemoModel(OpenAIChat):
    """A scripted model to try everything with. It says that it is one.

    Deterministic: it looks at the last message and at the tools.

    * a word of an offered tool's name or description: it thinks shortly and asks for that tool, with arguments made from
      the tool's schema and the words of the prompt ("Clean up the orders table"); then it quotes the result, or, if the call
      was denied, the reason word for word;
    * "story", "long", "count": more than a minute of Markdown, made to be stopped;
    * "go on", "continue", or no new message: it goes on with what was stopped, where it was stopped;
    * "think": long thinking before a short answer;
    * anything else: what this is, and what to try.
    """

    def __init__(self, *, tokens_per_second: float | None = TOKENS_PER_SECOND, note: str = "") -> None:
        """Make one.

        Args:
            tokens_per_second: The pace, with a quarter of a second before the first token; ``None`` does not wait at all.
            note: What the card says about this model.

        Raises:
            InputError: the pace is not above 0.
        """
        if tokens_per_second is not None and tokens_per_second <= 0:
            raise InputError(f"DemoModel: tokens_per_second is {tokens_per_second}; give a number above 0, or None not to wait")
        super().__init__("demo", base_url=_HOST, api_key="demo")
        self.note = note or "demo model: scripted, nothing here thinks"
        self._server = _Server(tokens_per_second)

    def __repr__(self) -> str:
        """``DemoModel()``."""
        return "DemoModel()"

    @property
    def streaming(self) -> int:
        """How many answers its server is sending at this moment."""
        return self._server.streaming

    def _http_options(self) -> dict[str, Any]:
        return {"transport": http_library().MockTransport(self._server.answer)}


class _Server:
    """Answers every request with the events of one composed answer."""

    def __init__(self, tokens_per_second: float | None) -> None:
        self._tokens_per_second = tokens_per_second
        self.streaming = 0

    async def answer(self, request: Any) -> Any:
        http = http_library()
        body = json.loads(request.content)
        answer = compose(body["messages"], body.get("tools") or ())
        stream = self._event_stream(http.AsyncByteStream, _events(answer, body["messages"]))
        return http.Response(200, headers={"content-type": "text/event-stream"}, stream=stream, request=request)

    def _event_stream(self, base: type[Any], events: Sequence[Mapping[str, Any]]) -> Any:
        """The events as a byte stream of the HTTP library that the client uses: it insists on its own class."""
        server = self
        pause_s = 0.0 if self._tokens_per_second is None else 1 / self._tokens_per_second

        class EventStream(base):
            closed = False

            async def __aiter__(self) -> AsyncIterator[bytes]:
                if pause_s:
                    await asyncio.sleep(_FIRST_TOKEN_S)
                for data in _wire(events):
                    await asyncio.sleep(pause_s)
                    yield data

            async def aclose(self) -> None:
                server.streaming -= not self.closed
                self.closed = True

        self.streaming += 1
        return EventStream()


def _wire(events: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for number, event in enumerate(events, 1):
        data = b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
        half = len(data) // 2 if number % _SPLIT_EVERY == 0 else len(data)  # networks cut where they like, in a character too
        yield from (part for part in (data[:half], data[half:]) if part)
    yield b"data: [DONE]\n\n"


def _events(answer: Answer, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    deltas = list(_deltas(answer))
    asked = len(_tokens(json.dumps(list(messages))))
    usage = {"prompt_tokens": asked, "completion_tokens": len(deltas), "total_tokens": asked + len(deltas)}
    finish = "tool_calls" if answer.calls else "stop"
    return [
        _chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
        *(_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas),
        _chunk([{"index": 0, "delta": {}, "finish_reason": finish}]),
        {**_chunk([]), "usage": usage},
    ]


def _deltas(answer: Answer) -> Iterator[Mapping[str, Any]]:
    yield from ({"reasoning_content": token} for token in _tokens(answer.thinking))
    yield from ({"content": token} for token in _tokens(answer.text))
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]}
        for token in _tokens(json.dumps(call.arguments, ensure_ascii=False)):
            yield {"tool_calls": [{"index": index, "function": {"arguments": token}}]}


def _tokens(text: str) -> list[str]:
    """Pieces of up to six characters with the space before them: about the size of a real tokenizer's."""
    return cast("list[str]", re.findall(r"\s*\S{1,6}|\s+", text))


def _chunk(choices: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": "demo", "choices": choices}
