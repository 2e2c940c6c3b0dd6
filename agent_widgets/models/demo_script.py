"""What the demo model answers: one pure function from the request that a server gets to the answer that it gives."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agent_widgets.messages import JsonObject
from agent_widgets.models.demo_arguments import arguments_for, words_of
from agent_widgets.models.demo_texts import AFTER_THINKING, DISCLAIMER, MARKER, THOUGHTS, WELCOME, counting, story

Message = Mapping[str, Any]

_GO_ON = re.compile(r"(?is)^\W*(please\s+)?(and\s+)?(go\s+on|continue|carry\s+on|resume|proceed|keep\s+going)\b.{0,40}$")
_LONG = re.compile(r"(?i)\b(story|stories|long|essay|novel|count)\b")
_THINK = re.compile(r"(?i)\b(think|thinking|reason|reasoning)\b")
_AGAIN = re.compile(r"(?i)\b(and|now|also|again|next|same|too)\b")
_DENIED = re.compile(r"(?i)\b(denied by|(is|was|been|were) denied|permission denied for|denied this|denied the)\b")
_INTERRUPTED = re.compile(r"(?i)\b(been|was|were|is) interrupted\b")
_REASON = re.compile(r"(?is)\b(?:reasons?(?:\s+given)?|because|said|saying|feedback|message)\b[^:=\n]{0,30}[:=]\s*(.+)")
_REMOVING = frozenset(("clean", "delete", "remove", "drop", "erase", "purge", "clear"))
_SURE = 20  # so many characters in common are no accident
_LEAD_IN = "Where was I? At “{last}”. I go on from there:\n\n"
_LEAD_IN_RE = re.compile(r"\AWhere was I\? At “.*?”\. I go on from there:\n\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its id, the tool and its arguments."""

    call_id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Answer:
    """What to stream, in this order."""

    thinking: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()


def compose(messages: Sequence[Message], tools: Sequence[Message] = ()) -> Answer:
    """The answer to a Chat Completions request. The same request gets the same answer.

    Args:
        messages: The conversation, as a server gets it.
        tools: The tools that are offered, as a server gets them.
    """
    messages = [message for message in messages if message.get("role") != "system"]
    if not messages:
        return Answer(text=f"{WELCOME}\n\n{DISCLAIMER}")
    last = messages[-1]
    if last.get("role") == "tool":
        return _after_results(messages)
    if last.get("role") == "assistant":  # asked without a new message: what was stopped goes on
        return _go_on(messages, tools)
    prompt = _text(last)
    return _go_on(messages, tools) if _GO_ON.match(prompt) else _fresh(messages, tools, prompt)


def _fresh(messages: Sequence[Message], tools: Sequence[Message], prompt: str) -> Answer:
    if calls := _calls(messages, tools, prompt):
        names = " and ".join(f"`{call.name}`" for call in calls)
        thinking = f"“{_cut(prompt, 80)}” fits the tool {names}. I take the arguments from these words and ask for a call."
        return Answer(thinking=thinking, calls=calls)
    if "summar" in prompt.lower():
        asked = [_cut(_text(m), 100) for m in messages[:-1] if m.get("role") == "user"]
        return _said(
            messages, f"So far you asked: {'; '.join(f'“{text}”' for text in asked)}." if asked else "Nothing was said yet."
        )
    if wanted := _LONG.search(prompt):
        number = re.search(r"\d+", prompt)
        counts = wanted[1].lower() == "count"
        return Answer(text=counting(min(int(number[0]), 100_000) if number else 3600) if counts else story())
    if _THINK.search(prompt):
        text = AFTER_THINKING.format(prompt=_cut(prompt, 80), count=len(THOUGHTS))
        return replace(_said(messages, text), thinking="\n\n".join(THOUGHTS))
    if _has_said(messages):
        text = f"You said: “{_cut(prompt, 200)}”. I keep to my script: try “tell me a long story”, “think”, or give me a tool."
        return Answer(text=text)
    return _said(messages, WELCOME)


def _go_on(messages: Sequence[Message], tools: Sequence[Message]) -> Answer:
    """Go on with the answer that was stopped: it is made again, and what has been said is left out."""
    if messages[-1].get("role") == "user" and (again := _ask_again(messages)):
        return again
    asked = max((number for number, message in enumerate(messages) if _asks(message)), default=-1)
    if asked < 0:
        return _said(messages, "There is nothing to go on with yet.")
    whole = compose(messages[: asked + 1], tools)
    rest, last = whole.text, ""
    for message in messages[asked + 1 :]:
        said = _LEAD_IN_RE.sub("", _text(message)).strip() if message.get("role") == "assistant" else ""
        common = os.path.commonprefix([rest.lstrip(), said])  # noqa: RUF071 - texts, not paths
        if common and len(common) >= min(len(said), _SURE):
            rest, last = rest.lstrip()[len(common) :], common
    if not last:
        return whole
    if not rest.strip():
        return Answer(text=f"I had finished. My last words were: “{_tail(last)}”")
    return Answer(text=_LEAD_IN.format(last=_tail(last)) + rest.lstrip("\n"))


def _asks(message: Message) -> bool:
    """Whether an answer began after this message: a prompt that is not "go on", or a tool's result."""
    return message.get("role") == "tool" or (message.get("role") == "user" and not _GO_ON.match(_text(message)))


def _ask_again(messages: Sequence[Message]) -> Answer | None:
    """The calls of the last step that were interrupted, asked for once more."""
    steps = [n for n, m in enumerate(messages) if m.get("tool_calls")]
    if not steps or any(m.get("role") == "user" for m in messages[steps[-1] : -1]):
        return None
    cut = {r.get("tool_call_id") for r in messages[steps[-1] :] if r.get("role") == "tool" and _INTERRUPTED.search(_text(r))}
    calls = tuple(
        Call(_call_id(messages, number), str(asked["function"]["name"]), _loaded(asked["function"].get("arguments")))
        for number, asked in enumerate(_asked(messages[steps[-1]]))
        if asked.get("id") in cut
    )
    if not calls:
        return None
    names = " and ".join(f"`{call.name}`" for call in calls)
    return Answer(text=f"The call of {names} was interrupted before it could end, so I ask for it once more.", calls=calls)


def _after_results(messages: Sequence[Message]) -> Answer:
    step = max(n for n, m in enumerate(messages) if m.get("role") != "tool")
    names = {str(call.get("id")): str(call["function"]["name"]) for call in _asked(messages[step])}
    lines = [_about(names.get(str(m.get("tool_call_id")), "the tool"), _text(m)) for m in messages[step + 1 :]]
    return _said(messages, "\n\n".join(lines))


def _about(name: str, result: str) -> str:
    plain = re.sub(r"</?system-reminder>", "", result).strip()
    if _DENIED.search(plain[:400]):
        reason = _REASON.search(plain)
        because = f"The reason that I was given: “{(reason[1] if reason else plain).strip()}”"
        return f"I will not call `{name}`: it was denied. {because}"
    if _INTERRUPTED.search(plain):
        return (
            f"The call of `{name}` was interrupted: I do not know whether it did its work. Say “go on”, and I ask for it again."
        )
    if "\n" in plain:
        return f"`{name}` answered:\n\n```\n{_cut(plain, 1000)}\n```"
    return f"`{name}` answered “{_cut(plain, 300)}”. That is all I need."


def _calls(messages: Sequence[Message], tools: Sequence[Message], prompt: str) -> tuple[Call, ...]:
    functions = [cast("Message", tool["function"]) for tool in tools if isinstance(tool.get("function"), Mapping)]
    return tuple(
        Call(_call_id(messages, number), str(function["name"]), arguments_for(function.get("parameters") or {}, prompt))
        for number, function in enumerate(_wanted(messages, functions, prompt))
    )


def _wanted(messages: Sequence[Message], functions: Sequence[Message], prompt: str) -> Sequence[Message]:
    """The tools that the prompt names; else the one that shares most words with it; else, for "and now …", the last one."""
    lower = prompt.lower()
    named = [f for f in functions if re.search(rf"\b{re.escape(str(f['name']).lower()).replace('_', '[_ ]')}\b", lower)]
    if named:
        return named
    said = {_stem(word) for word in [*words_of(prompt), *(_REMOVING & set(lower.split()))]}
    removing = bool(said & {_stem(word) for word in _REMOVING})
    scores = [_score(function, said, removing=removing) for function in functions]
    if scores and max(scores):
        return [functions[scores.index(max(scores))]]
    used = [str(call["function"]["name"]) for message in messages for call in _asked(message)]
    return [f for f in functions if used and f["name"] == used[-1]][:1] if _AGAIN.match(prompt.strip()) else []


def _score(function: Message, said: set[str], *, removing: bool) -> int:
    name = re.findall(r"[^\W\d_]+", str(function["name"]).lower())
    described = words_of(str(function.get("description") or ""))
    shared = 3 * len(said & {_stem(word) for word in name}) + len(said & {_stem(word) for word in described})
    return shared + 2 * (removing and bool(_REMOVING & {*name, *re.findall(r"\w+", str(function.get("description")).lower())}))


def _stem(word: str) -> str:
    return re.sub(r"(?<=\w{3})(?:ing|es|s|ed|e)$", "", word)


def _said(messages: Sequence[Message], text: str) -> Answer:
    return Answer(text=text if _has_said(messages) else f"{text}\n\n{DISCLAIMER}")


def _has_said(messages: Sequence[Message]) -> bool:
    return any(MARKER in _text(m) for m in messages if m.get("role") == "assistant")


def _asked(message: Message) -> Sequence[Message]:
    return cast("Sequence[Message]", message.get("tool_calls") or ())


def _call_id(messages: Sequence[Message], number: int) -> str:
    return f"demo_{sum(len(_asked(message)) for message in messages) + number + 1}"


def _loaded(arguments: object) -> JsonObject:
    try:
        value: object = json.loads(str(arguments))
    except ValueError:
        return {}
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Message]", content or ())
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def _cut(text: str, length: int) -> str:
    text = text.strip()
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _tail(text: str) -> str:
    """The last words, on one line, to point at a place with."""
    words = re.sub(r"[“”]", "", text).split()
    return " ".join(words[-6:])
