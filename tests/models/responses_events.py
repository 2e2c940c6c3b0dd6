"""Events of the Responses API as a server sends them, for :class:`tests.models.chat_server.ChatServer`."""

from __future__ import annotations

import json
from typing import Any

from tests.models.chat_server import Answer, End, stream

Event = dict[str, Any]
USAGE: Event = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


def answer(*events: Event | bytes, end: End = "no [DONE]") -> Answer:
    """A stream of events. There is no [DONE] in this language: the last event is the end."""
    return stream(*(event if isinstance(event, bytes) else sse(event) for event in (CREATED, *events)), end=end)


def sse(event: Event) -> bytes:
    return f"event: {event.get('type')}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode(errors="backslashreplace")


def text(delta: Any, index: int | None = 0) -> Event:
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": index,
        "content_index": 0,
        "delta": delta,
        "logprobs": [],
    }


def summary(delta: str, part: int = 0) -> Event:
    return {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs_1",
        "output_index": 0,
        "summary_index": part,
        "delta": delta,
    }


def added(call_id: str | None, name: str | None = "find", index: int | None = 0, item_id: str | None = None) -> Event:
    """A function call begins; its item has the id ``fc_`` and the call's id, unless one is given."""
    return {"type": "response.output_item.added", "output_index": index, "item": _call(call_id, name, "", item_id)}


def done(
    call_id: str | None, arguments: Any, name: str | None = "find", index: int | None = 0, item_id: str | None = None
) -> Event:
    """A function call, whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": _call(call_id, name, arguments, item_id)}


def _call(call_id: str | None, name: str | None, arguments: Any, item_id: str | None) -> Event:
    return {"type": "function_call", "id": item_id or f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def more(call_id: str, delta: Any, index: int | None = 0) -> Event:
    """More arguments of a call."""
    kind = "response.function_call_arguments.delta"
    return {"type": kind, "item_id": f"fc_{call_id}", "output_index": index, "delta": delta}


def whole(call_id: str, arguments: Any, index: int | None = 0) -> Event:
    """All arguments of a call."""
    kind = "response.function_call_arguments.done"
    return {"type": kind, "item_id": f"fc_{call_id}", "output_index": index, "arguments": arguments}


def called(call_id: str, arguments: str, name: str = "find", index: int = 0) -> list[Event]:
    """A call as OpenAI sends it: begun, in two pieces, its arguments whole, and whole itself."""
    half = len(arguments) // 2
    pieces = [more(call_id, arguments[:half], index), more(call_id, arguments[half:], index)]
    return [added(call_id, name, index), *pieces, whole(call_id, arguments, index), done(call_id, arguments, name, index)]


def ended(status: str, **fields: Any) -> Event:
    """The last event: ``completed``, ``incomplete`` or ``failed``."""
    response: Event = {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "output": [],
        "error": None,
        "usage": USAGE,
        **fields,
    }
    return {"type": f"response.{status}", "response": response}


def cut(reason: str | None) -> Event:
    return ended("incomplete", incomplete_details={"reason": reason})


def failed(code: str, message: str) -> Event:
    return ended("failed", error={"code": code, "message": message}, usage=None)


CREATED: Event = {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}}
COMPLETED = ended("completed")
