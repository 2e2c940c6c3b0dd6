"""Chunks of a Chat Completions stream as pieces of an answer. Pure: nothing waits here, nothing is sent.

Servers that call themselves compatible differ most in tool calls: some send no index, no id, the id in every chunk, a whole
call at once, or the same index for each call. What is read here is what was seen from OpenAI, llama.cpp, vLLM, Ollama,
DeepSeek, Mistral and Gemini's compatible endpoints.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pydantic_core

from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.models.fields import ChunkError, count_of, field_of, list_of, number_of, text_of


class ChunkReader:
    """Reads the chunks of one answer.

    Attributes:
        finish_reason: Why the server ended the answer (``stop``, ``length``, ``tool_calls``, ``content_filter``, ...);
            ``""`` until it said so.
        said: Whether any text or call has come.
        chunks: How many chunks have come.
    """

    def __init__(self) -> None:
        """Begin: nothing has come."""
        self.finish_reason = ""
        self.said = False
        self.chunks = 0
        self._calls = _Calls()
        self._usage: UsageReport | None = None
        self._reported = False

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is complete."""
        return bool(self.finish_reason or self._reported)

    @property
    def called(self) -> bool:
        """Whether a tool call has come."""
        return self._calls.any()

    def read(self, chunk: object) -> Iterator[ModelDelta]:
        """The pieces in this chunk.

        Raises:
            ChunkError: it is not a chunk of a chat completion.
        """
        self.chunks += 1
        choices = list_of(chunk, "choices")
        for choice in choices:
            if choice is not None and not number_of(field_of(choice, "index"), "a choice's index"):
                yield from self._choice(choice)  # of several only the first is read
        self._usage = _usage(field_of(chunk, "usage")) or self._usage
        if self._usage and not choices and not self._reported:
            self._reported = True
            yield self._usage

    def rest(self) -> Iterator[ModelDelta]:
        """What is left when the stream has ended: usage that came with the last text.

        Raises:
            ChunkError: a tool call came without a name.
        """
        if self._usage and not self._reported:
            self._reported = True
            yield self._usage
        self._calls.check()

    def _choice(self, choice: object) -> Iterator[ModelDelta]:
        delta = field_of(choice, "delta")
        if delta is not None:
            for thought in (field_of(delta, "reasoning_content") or field_of(delta, "reasoning"), *_parts(delta, "thinking")):
                if text := text_of(thought, "reasoning"):
                    yield ThinkingPiece(text)
            for part in (_plain(field_of(delta, "content")), *_parts(delta, "text"), field_of(delta, "refusal")):
                if text := text_of(part, "content"):
                    self.said = True
                    yield TextPiece(text)
            for position, entry in enumerate(list_of(delta, "tool_calls")):
                if entry is not None:
                    self.said = True
                    yield from self._calls.read(entry, position)
        self.finish_reason = text_of(field_of(choice, "finish_reason"), "finish_reason") or self.finish_reason


@dataclass(slots=True)
class _Call:
    index: int
    call_id: str
    name: str = ""
    arguments: str = ""

    def complete(self) -> bool:
        try:
            return isinstance(pydantic_core.from_json(self.arguments), dict)
        except ValueError:
            return False


class _Calls:
    """Which call a piece belongs to."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def any(self) -> bool:
        return bool(self._calls)

    def check(self) -> None:
        if any(not call.name for call in self._calls):
            raise ChunkError("a tool call came without a name")

    def read(self, entry: object, position: int) -> Iterator[ModelDelta]:
        function = field_of(entry, "function")
        name = text_of(field_of(function, "name"), "a tool's name")
        arguments = _arguments(field_of(function, "arguments"))
        call_id = text_of(field_of(entry, "id"), "a call's id")
        index = number_of(field_of(entry, "index"), "a call's index")
        call = self._find(index, call_id, name, arguments, position) or self._start(index, call_id)
        had_name = bool(call.name)
        call.arguments += arguments
        call.name = call.name or name
        if not call.name:
            return  # a piece without its tool says nothing yet: it goes out with the name
        if not had_name:
            yield ToolCallPiece(index=call.index, call_id=call.call_id, name=call.name, arguments=call.arguments)
        elif arguments:
            yield ToolCallPiece(index=call.index, arguments=arguments)

    def _find(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> _Call | None:
        known = self._by_id.get(call_id) if call_id else None
        if index is not None:
            call = self._by_index.get(index)
            if call is None:  # a new index with the id of another call is a new call, if it names a tool
                return known if known and not name else None
            other_id = bool(call_id) and known is not call
            return None if (other_id and name) or _begins_another(call, call_id, name, arguments) else call
        if known or not self._calls or call_id:
            return known
        last = self._calls[-1]
        return None if (position and name) or _begins_another(last, call_id, name, arguments) else last

    def _start(self, index: int | None, call_id: str) -> _Call:
        unique = call_id if call_id and call_id not in self._by_id else f"call_{uuid.uuid4().hex}"
        call = _Call(len(self._calls), unique)
        self._calls.append(call)
        self._by_id[unique] = call
        if index is not None:
            self._by_index[index] = call
        return call


def _begins_another(call: _Call, call_id: str, name: str, arguments: str) -> bool:
    """Without an id, a name after complete arguments begins the next call; a name that is only repeated does not."""
    return not call_id and bool(name) and bool(call.name) and (name != call.name or (bool(arguments) and call.complete()))


def _plain(content: object) -> object:
    return None if isinstance(content, list) else content


def _parts(delta: object, kind: str) -> Iterator[object]:
    """Mistral's way: ``content`` is a list of ``{"type": "text"|"thinking", ...}``."""
    content: object = field_of(delta, "content")
    for part in cast("list[object]", content) if isinstance(content, list) else ():
        if field_of(part, "type") == kind:
            value: object = field_of(part, kind)
            if isinstance(value, list):
                yield from (field_of(inner, "text") for inner in cast("list[object]", value))
            else:
                yield value


def _arguments(value: object) -> str:
    """Text as it is; an object, as Ollama's own format has it, as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else text_of(value, "a call's arguments")


def _usage(usage: object) -> UsageReport | None:
    asked, answered = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    if asked is None or answered is None:
        return None
    cached = count_of(getattr(usage, "prompt_tokens_details", None), "cached_tokens")
    return UsageReport(input_tokens=asked, output_tokens=answered, cache_input_tokens=cached or 0)
