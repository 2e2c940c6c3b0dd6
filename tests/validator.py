"""What an OpenAI-grade server says about a list of Chat Completions messages. It knows nothing of the package it judges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

Message = Mapping[str, Any]
_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def assert_valid(messages: Sequence[Message]) -> None:
    """Fail with every fault, if there is one."""
    found = faults(messages)
    assert not found, "\n".join([*found, json.dumps(list(messages), indent=1, default=str)])


def faults(messages: Sequence[Message]) -> list[str]:
    """Why a strict server would refuse this conversation; empty if it would not."""
    found = [] if messages else ["there is no message"]
    open_ids: list[str] = []
    for number, message in enumerate(messages):
        said = _of_shape(message) or _of_order(message, open_ids)
        if message.get("role") == "tool" and message.get("tool_call_id") in open_ids:
            open_ids.remove(message["tool_call_id"])
        elif message.get("role") == "assistant":
            open_ids = [call["id"] for call in message.get("tool_calls", [])]
        found += [f"message {number}: {fault}" for fault in said]
    return [*found, *(f"the end: call {call_id!r} has no answer" for call_id in open_ids)]


def _of_shape(message: Message) -> list[str]:
    role = message.get("role")
    if role not in _KEYS:
        return [f"the role {role!r} does not exist"]
    found = [f"unknown field {key!r}" for key in message if key not in _KEYS[role]]
    try:
        json.dumps(message, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        found.append(f"not JSON in UTF-8: {error}")
    content = message.get("content")
    if role == "assistant":
        found += _of_assistant(content, message.get("tool_calls"))
    elif role == "user":
        found += _of_user(content)
    elif not isinstance(content, str) or not content:
        found.append(f"a {role} message without text")
    return found


def _of_assistant(content: object, calls: object) -> list[str]:
    found = [] if content is None or isinstance(content, str) else ["content is not text"]
    if calls is None:
        return found if content else [*found, "an empty assistant message"]
    if not isinstance(calls, list) or not calls:
        return [*found, "tool_calls is not a list with something in it"]
    ids: list[object] = []
    for call in cast("list[dict[str, Any]]", calls):
        ids.append(call.get("id"))
        if (
            set(call) != {"id", "type", "function"}
            or call["type"] != "function"
            or not isinstance(call["id"], str)
            or not call["id"]
        ):
            found.append(f"a tool call that is none: {call}")
            continue
        if not _NAME.fullmatch(call["function"]["name"]):
            found.append(f"a function cannot be called {call['function']['name']!r}")
        found += _of_arguments(call["function"]["arguments"])
    return found if len(set(ids)) == len(ids) else [*found, f"one id twice in {ids}"]


def _of_arguments(text: object) -> list[str]:
    try:
        value: object = json.loads(cast("str", text), parse_constant=_refuse)
    except (TypeError, ValueError) as error:
        return [f"the arguments {text!r} are not JSON: {error}"]
    return [] if isinstance(value, dict) else [f"the arguments {text!r} are not an object"]


def _of_user(content: object) -> list[str]:
    if isinstance(content, str):
        return [] if content else ["an empty user message"]
    if not isinstance(content, list) or not content:
        return ["a user message without content"]
    kinds = [part.get("type") for part in cast("list[dict[str, Any]]", content)]
    return [f"a part of type {kind!r}" for kind in kinds if kind not in ("text", "image_url")]


def _of_order(message: Message, open_ids: Sequence[str]) -> list[str]:
    if message["role"] == "tool":
        return (
            []
            if message.get("tool_call_id") in open_ids
            else [f"the result {message.get('tool_call_id')!r} answers no open call"]
        )
    return [f"call {call_id!r} has no answer before this message" for call_id in open_ids]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
