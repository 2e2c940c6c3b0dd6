"""Arguments that the demo model makes up for a tool: from the tool's JSON Schema and the words of the prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import JsonValue

from agent_widgets.messages import JsonObject

Schema = Mapping[str, Any]

_COMMON = """
a about after again all also an and any are as at be by can clean could delete do does for from get give go have how i
if in into is it its just let like make match me my new next no not now of on one or our out over please remove run
same should show so some that the their them then there these they this those to tool up us use was we what when where
which who will with would you your
"""
COMMON = frozenset(_COMMON.split())
"""Words that say nothing about what is meant."""

_BY_NAME = (
    (("where", "condition", "filter", "clause"), "status = 'cancelled'"),
    (("sql", "statement"), "SELECT 1"),
    (("mail",), "someone@example.com"),
    (("url", "link", "address"), "https://example.com"),
    (("path", "file"), "notes.txt"),
    (("date", "day"), "2026-01-31"),
    (("time",), "09:00"),
    (("city", "place", "location"), "Lisbon"),
    (("code", "expression"), "1 + 1"),
)
_IN_PROMPT = (
    (("mail",), r"[\w.+-]+@[\w-]+\.[\w.]+\b"),
    (("url", "link"), r"https?://\S+\b"),
    (("path", "file"), r"(?<![\w/@.])[\w./-]*\w\.[a-z]{1,5}\b"),
    (("date", "day"), r"\d{4}-\d\d-\d\d"),
    (("time",), r"\b\d{1,2}:\d\d\b"),
    (("sql", "query", "statement"), r"(?i)\b(?:select|delete|update|insert)\s.+"),
)
_WHOLE_PROMPT = ("query", "question", "prompt", "text", "message", "task", "request", "content", "body", "note")


def arguments_for(schema: Schema, prompt: str) -> JsonObject:
    """An object that fits ``schema``, filled from ``prompt``: quoted words, numbers, names, else something plausible.

    Optional properties are left out, unless the prompt holds their name.
    """
    words = _Words(prompt, schema)
    value = words.value(schema, "")
    return value if isinstance(value, dict) else {}


def words_of(text: str) -> list[str]:
    """The words of a text that say something, in order, in lower case. ``delete_rows`` is two words."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()
    return [word for word in re.findall(r"[^\W\d_]+", spaced) if word not in COMMON and len(word) > 1]


class _Words:
    """The prompt, used up from left to right: two texts do not get the same quoted word."""

    def __init__(self, prompt: str, root: Schema) -> None:
        self._prompt = prompt
        self._root = root
        self._quoted = [m[1] for m in re.finditer(r"""(?<!\w)["“”'`]([^"“”'`]{1,200})["“”'`](?!\w)""", prompt)]
        self._numbers = re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?(?!\w)", prompt)

    def value(self, schema: Schema, key: str) -> JsonValue:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return next((o for o in options if isinstance(o, str) and o.lower() in self._prompt.lower()), options[0])
        kind: object = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in cast("list[object]", kind) if k != "null"), None)
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return [self.value(schema.get("items", {"type": "string"}), key.removesuffix("s"))]
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return bool(schema.get("default", True))
            case "null":
                return None
            case _:
                return self._object(schema) if "properties" in schema else self._text(schema, key)

    def _resolved(self, schema: Schema) -> Schema:
        for _ in range(8):
            if isinstance(reference := schema.get("$ref"), str):
                found: Any = self._root
                for step in reference.removeprefix("#/").split("/"):
                    found = cast("Schema", found).get(step, {})
                schema = found
            elif choices := schema.get("anyOf") or schema.get("oneOf"):
                schema = next((c for c in choices if c.get("type") != "null"), choices[0])
            elif parts := schema.get("allOf"):
                schema = parts[0]
            else:
                break
        return schema

    def _object(self, schema: Schema) -> JsonObject:
        required = schema.get("required", ())
        properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
        mentioned = set(words_of(self._prompt))
        return {
            key: self.value(inner, key)
            for key, inner in properties.items()
            if key in required or (words_of(key) and mentioned.issuperset(words_of(key)))
        }

    def _number(self, schema: Schema, *, whole: bool) -> int | float:
        if self._numbers:
            text = self._numbers.pop(0)
            number = int(float(text)) if whole else float(text)
        else:
            number = schema.get("default") or schema.get("minimum") or 3
        low, high = schema.get("minimum"), schema.get("maximum")
        number = max(number, low) if low is not None else number
        return min(number, high) if high is not None else number

    def _text(self, schema: Schema, key: str) -> str:
        name = key.lower()
        for keys, pattern in _IN_PROMPT:
            if any(k in name for k in keys) and (found := re.search(pattern, self._prompt)):
                return found[0]
        if self._quoted:
            return self._quoted.pop(0)
        if isinstance(default := schema.get("default"), str) and default:
            return default
        if any(k in name for k in _WHOLE_PROMPT):
            return self._prompt.strip()
        if named := self._beside(name):
            return named
        if any(k in name for k in ("city", "place", "location", "name", "person")) and (proper := self._proper_noun()):
            return proper
        for keys, plausible in _BY_NAME:
            if any(k in name for k in keys):
                return plausible
        said = words_of(self._prompt)
        return said[-1] if said else "example"

    def _beside(self, name: str) -> str:
        """``orders`` for ``table`` in "the orders table" and in "table orders"."""
        for word in words_of(name):
            for pattern in (rf"(?i)\b([\w.-]+)\s+{word}\b", rf"(?i)\b{word}\s+(?:called\s+|named\s+)?([\w.-]*\w)"):
                for found in re.finditer(pattern, self._prompt):
                    if found[1].lower() not in COMMON:
                        return found[1]
        return ""

    def _proper_noun(self) -> str:
        found = re.search(r"(?<=[^.!?]\s)([A-Z][\w-]+(?:\s[A-Z][\w-]+)*)", self._prompt)
        return found[1] if found else ""
