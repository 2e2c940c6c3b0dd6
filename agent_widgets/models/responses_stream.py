"""Events of a Responses stream as pieces of an answer. Pure: nothing waits here, nothing is sent.

Compatible servers differ from OpenAI in how they number things: ids that change with each event, one ``output_index`` for
all items or none, arguments that come whole at the end only. Events that are not read here are ignored.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.models.fields import ChunkError, count_of, field_of, text_of
from agent_widgets.models.openai_errors import ServerSaidError

_BREAK = "\n\n"
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponseReader:
    """Reads the events of one answer.

    Attributes:
        finish_reason: Why the server ended the answer, in the words of Chat Completions: ``stop``, ``tool_calls``,
            ``length``, ``content_filter``; ``""`` until it said so.
        said: Whether any text or call has come.
        chunks: How many events have come, of whatever kind.
    """

    def __init__(self) -> None:
        """Begin: nothing has come."""
        self.finish_reason = ""
        self.said = False
        self.chunks = 0
        self._calls = _Calls()
        self._part: tuple[type[TextPiece | ThinkingPiece], object] | None = None

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is complete."""
        return bool(self.finish_reason)

    @property
    def called(self) -> bool:
        """Whether a tool call has come."""
        return self._calls.any()

    def read(self, chunk: object, /) -> Iterator[ModelDelta]:
        """The pieces in this event.

        Raises:
            ChunkError: it is not an event of a response.
            ServerSaidError: it says that the response failed.
        """
        self.chunks += 1
        match text_of(field_of(chunk, "type"), "an event's type"):
            case "response.output_text.delta" | "response.refusal.delta":
                yield from self._more(TextPiece, chunk, field_of(chunk, "output_index"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                # A summary comes in parts that each begin with a heading: glued together they would be one line.
                yield from self._more(ThinkingPiece, chunk, (field_of(chunk, "output_index"), field_of(chunk, "summary_index")))
            case "response.output_item.added" | "response.output_item.done" as kind:
                yield from self._item(chunk, is_whole=kind.endswith("done"))
            case "response.function_call_arguments.delta":
                yield from self._calls.more(chunk)
            case "response.function_call_arguments.done":
                yield from self._calls.whole(chunk)
            case "response.completed" | "response.incomplete" | "response.failed" as kind:
                yield from self._end(field_of(chunk, "response"), kind)
            case "error":
                raise _failure(field_of(chunk, "error") or chunk)
            case _:
                pass

    def rest(self) -> Iterator[ModelDelta]:
        """Nothing is left when the stream has ended.

        Raises:
            ChunkError: a tool call came without a name.
        """
        self._calls.check()
        yield from ()

    def _more(self, kind: type[TextPiece | ThinkingPiece], chunk: object, part: object) -> Iterator[ModelDelta]:
        text = text_of(field_of(chunk, "delta"), "a delta")
        if not text:
            return
        before, self._part = self._part, (kind, part)
        self.said = self.said or kind is TextPiece
        is_next_part = before is not None and before[0] is kind and before != self._part
        yield kind(_BREAK + text if is_next_part else text)

    def _item(self, chunk: object, *, is_whole: bool) -> Iterator[ModelDelta]:
        item = field_of(chunk, "item")
        if text_of(field_of(item, "type"), "an item's type") == "function_call":
            self.said, self._part = True, None
            yield from self._calls.item(item, field_of(chunk, "output_index"), is_whole=is_whole)

    def _end(self, response: object, kind: str) -> Iterator[ModelDelta]:
        if usage := _usage(field_of(response, "usage")):
            yield usage
        if kind == "response.failed":
            raise _failure(field_of(response, "error"))
        if kind == "response.completed":
            self.finish_reason = "tool_calls" if self.called else "stop"
            return
        reason = text_of(field_of(field_of(response, "incomplete_details"), "reason"), "a reason")
        if reason not in _INCOMPLETE:
            raise ServerSaidError(f"the answer is incomplete: {reason or 'no reason was given'}")
        self.finish_reason = _INCOMPLETE[reason]


@dataclass(slots=True)
class _Call:
    index: int
    call_id: str
    item_id: str
    output_index: object
    name: str = ""
    arguments: str = ""
    is_over: bool = False


class _Calls:
    """Which call a piece belongs to. Nothing of a call goes out before its name is known."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def any(self) -> bool:
        return bool(self._calls)

    def check(self) -> None:
        if any(not call.name for call in self._calls):
            raise ChunkError("a tool call came without a name")

    def item(self, item: object, output_index: object, *, is_whole: bool) -> Iterator[ModelDelta]:
        """A call begins; or it is said whole at its end, which for some servers is also its beginning."""
        call_id = text_of(field_of(item, "call_id"), "a call's id")
        item_id = text_of(field_of(item, "id"), "an item's id")
        call = self._find(call_id, item_id, output_index) if is_whole else None
        if call is None:
            taken = {known.call_id for known in self._calls}
            unique = call_id if call_id and call_id not in taken else f"call_{uuid.uuid4().hex}"
            call = _Call(len(self._calls), unique, item_id, output_index)
            self._calls.append(call)
        name = text_of(field_of(item, "name"), "a tool's name")
        if name and not call.name:
            call.name = name
            yield ToolCallPiece(index=call.index, call_id=call.call_id, name=name, arguments=call.arguments)
        if is_whole:
            yield from _completed(call, text_of(field_of(item, "arguments"), "a call's arguments"))
            call.is_over = True

    def more(self, chunk: object) -> Iterator[ModelDelta]:
        """Arguments of a call. Those of a call that was not begun come again with the whole of it."""
        delta = text_of(field_of(chunk, "delta"), "a call's arguments")
        if call := self._of(chunk):
            yield from _grown(call, delta)

    def whole(self, chunk: object) -> Iterator[ModelDelta]:
        """All arguments of a call, after its pieces."""
        arguments = text_of(field_of(chunk, "arguments"), "a call's arguments")
        if call := self._of(chunk):
            yield from _completed(call, arguments)

    def _of(self, chunk: object) -> _Call | None:
        return self._find("", text_of(field_of(chunk, "item_id"), "an item's id"), field_of(chunk, "output_index"))

    def _find(self, call_id: str, item_id: str, output_index: object) -> _Call | None:
        """By its ids; where a server makes up new ones for each event, the newest open call at this place."""
        newest = self._calls[::-1]
        still_open = [call for call in newest if not call.is_over]
        known = [call for call in still_open if item_id and call.item_id == item_id]
        known += [call for call in newest if call_id and call.call_id == call_id]
        known += [call for call in still_open if call.output_index == output_index]
        return known[0] if known else None


def _grown(call: _Call, more: str) -> Iterator[ModelDelta]:
    call.arguments += more
    if call.name and more:
        yield ToolCallPiece(index=call.index, arguments=more)


def _completed(call: _Call, whole: str) -> Iterator[ModelDelta]:
    """What of the whole arguments has not come in pieces.

    Raises:
        ChunkError: they are not those that came in pieces: what a person saw and what would be executed differ.
    """
    if whole.startswith(call.arguments):
        yield from _grown(call, whole[len(call.arguments) :])
    elif whole and not _is_same(whole, call.arguments):
        raise ChunkError(f"the arguments of a call were {call.arguments!r:.80}, and at its end {whole!r:.80}")


def _is_same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _failure(error: object) -> ServerSaidError:
    if isinstance(error, str):
        return ServerSaidError(error)
    message = text_of(field_of(error, "message"), "an error's message")
    return ServerSaidError(message or "no reason was given", text_of(field_of(error, "code"), "an error's code"))


def _usage(usage: object) -> UsageReport | None:
    asked, answered = count_of(usage, "input_tokens"), count_of(usage, "output_tokens")
    if asked is None or answered is None:
        return None
    cached = count_of(getattr(usage, "input_tokens_details", None), "cached_tokens")
    return UsageReport(input_tokens=asked, output_tokens=answered, cache_input_tokens=cached or 0)
