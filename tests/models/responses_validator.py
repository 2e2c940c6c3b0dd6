"""What a strict server says about the input items of a Responses request. It knows nothing of the package it judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Item = Mapping[str, Any]
_FIELDS = {
    "message": {"type", "role", "content"},
    "function_call": {"type", "call_id", "name", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
}
_PARTS = {
    "input_text": {"type", "text"},
    "input_image": {"type", "detail", "image_url"},
    "input_file": {"type", "filename", "file_data"},
}


def assert_valid(items: Sequence[Item]) -> None:
    """Fail with every fault, if there is one."""
    found = faults(items)
    assert not found, "\n".join([*found, json.dumps(list(items), indent=1, default=str)])


def faults(items: Sequence[Item]) -> list[str]:
    """Why a strict server would refuse this input; empty if it would not."""
    found = [] if items else ["there is no item"]
    asked: list[str] = []
    answered: list[str] = []
    for number, item in enumerate(items):
        found += [f"item {number}: {fault}" for fault in _of_shape(item)]
        match item.get("type"):
            case "function_call":
                asked.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in asked:
                    found.append(f"item {number}: answers no call before it")
                answered.append(item["call_id"])
            case _:
                found += [f"item {number}: call {call_id!r} is still open" for call_id in asked if call_id not in answered]
    found += [f"call {call_id!r} is asked {asked.count(call_id)} times" for call_id in set(asked) if asked.count(call_id) > 1]
    found += [f"call {call_id!r} has {answered.count(call_id)} answers" for call_id in asked if answered.count(call_id) != 1]
    return found


def _of_shape(item: Item) -> list[str]:
    kind = item.get("type")
    if kind not in _FIELDS:
        return [f"the type {kind!r} does not exist"]
    if set(item) != _FIELDS[kind]:
        return [f"a {kind} with the fields {sorted(item)}"]
    try:
        json.dumps(item, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        return [f"not JSON in UTF-8: {error}"]
    match kind:
        case "function_call":
            return _of_call(item)
        case "function_call_output":
            return [] if isinstance(item["output"], str) else ["an output that is not text"]
        case _:
            return _of_message(item["role"], item["content"])


def _of_call(item: Item) -> list[str]:
    if not isinstance(item["arguments"], str):
        return ["arguments that are not text"]
    try:
        is_object = isinstance(json.loads(item["arguments"]), dict)
    except ValueError:
        is_object = False
    found = [] if is_object else [f"the arguments {item['arguments']!r} are not a JSON object"]
    return found if item["call_id"] and item["name"] else [*found, "a call without an id or a name"]


def _of_message(role: str, content: Any) -> list[str]:
    if role not in ("user", "assistant", "system", "developer"):
        return [f"the role {role!r} does not exist"]
    if not content:
        return ["an empty message"]
    if isinstance(content, str):
        return []
    if role == "assistant":
        return ["what an assistant said holds input parts"]
    return [f"a part {part}" for part in content if set(part) != _PARTS.get(part.get("type"))]
