"""JSON both ways: events, states, what goes to a page and what a page sends. The only file that knows wire spelling.

Values are read and written with pydantic, which ``openai`` brings. Unknown fields are ignored, so that a newer writer's
events can be read; unknown kinds and wrong types are an ``InputError`` that says where.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, cast

import pydantic_core
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from agent_widgets.errors import InputError, SavedStateError
from agent_widgets.events import AGENT_PATH, Event, TextBlockDeltaEvent, TextDelta, ThinkingBlockDeltaEvent, agent_path
from agent_widgets.messages import JsonObject, Msg, PermissionRule
from agent_widgets.state import STATE_VERSION, AgentState
from agent_widgets.transcript import Transcript

ID_LIMIT = 64
"""Characters in an id that a page may give."""

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_EVENTS: TypeAdapter[tuple[Event, ...]] = TypeAdapter(tuple[Annotated[Event, Field(discriminator="type")], ...])
_MSG = TypeAdapter(Msg)
_RULES = TypeAdapter(tuple[PermissionRule, ...])
_STATE = TypeAdapter(AgentState)
_TRANSCRIPT = TypeAdapter(Transcript)


# -- events, messages, states ---------------------------------------------------------------------------------------


def dump_event(event: Event) -> JsonObject:
    """An event as JSON, field for field as AgentScope 2.0.11 spells it."""
    return _EVENT.dump_python(event, mode="json")


def load_event(value: object) -> Event:
    """Read one event: a dict, or JSON text.

    Raises:
        InputError: not an event; the message says which field is wrong.
    """
    try:
        return _EVENT.validate_json(value) if isinstance(value, str | bytes) else _EVENT.validate_python(value)
    except ValidationError as error:
        raise InputError(f"This is not an event: {_first_fault(error)}") from error


def load_events(value: object) -> tuple[Event, ...]:
    """Read a list of events.

    Raises:
        InputError: not a list of events.
    """
    try:
        return _EVENTS.validate_python(value)
    except ValidationError as error:
        raise InputError(f"These are not events: {_first_fault(error)}") from error


def dump_msg(message: Msg) -> JsonObject:
    """A message as JSON, field for field as AgentScope 2.0.11 spells it."""
    return _MSG.dump_python(message, mode="json")


def load_msg(value: object) -> Msg:
    """Read one message.

    Raises:
        InputError: not a message; the message says which field is wrong.
    """
    try:
        return _MSG.validate_python(value)
    except ValidationError as error:
        raise InputError(f"This is not a message: {_first_fault(error)}") from error


def dump_rules(rules: tuple[PermissionRule, ...]) -> list[JsonObject]:
    """Rules as JSON."""
    return _RULES.dump_python(rules, mode="json")


def load_rules(value: object) -> tuple[PermissionRule, ...]:
    """Read a list of rules.

    Raises:
        InputError: not a list of rules.
    """
    try:
        return _RULES.validate_python(value)
    except ValidationError as error:
        raise InputError(f"These are not rules: {_first_fault(error)}") from error


def dump_state(state: AgentState) -> JsonObject:
    """A state as JSON. ``load_state`` gives an equal value back."""
    return _STATE.dump_python(state, mode="json")


def load_state(value: object) -> AgentState:
    """Read a state, as it was saved: call ``repair()`` before going on from one that a crash may have cut.

    Raises:
        SavedStateError: not a state, or of a version that this package does not know.
    """
    version = cast("dict[str, object]", value).get("version") if isinstance(value, dict) else None
    if version is not None and not isinstance(version, int):
        raise SavedStateError(f"This is not a saved agent state: its version is {version!r:.40}, and must be a number.")
    if version is not None and version > STATE_VERSION:
        raise SavedStateError(
            f"This state was saved by a newer agent-widgets (version {version}; this one reads up to {STATE_VERSION}). "
            'Upgrade with:  pip install -U "agent-widgets"'
        )
    try:
        return replace(_STATE.validate_python(value), version=STATE_VERSION)  # what was read is this version's from here on
    except ValidationError as error:
        raise SavedStateError(f"This is not a saved agent state: {_first_fault(error)}") from error


def _first_fault(error: ValidationError) -> str:
    """The first one; of a block, which may be of six types, the first one of the type that it has."""
    faults = error.errors(include_url=False)
    others = {fault["loc"][:-1] for fault in faults if fault["loc"][-1:] == ("type",) and fault["type"] == "literal_error"}
    ours = (fault for fault in faults if not any(fault["loc"][:end] in others for end in range(len(fault["loc"]))))
    fault = next(ours, faults[0])
    where = ".".join(str(part) for part in fault["loc"]) or "value"
    return f"{where}: {fault['msg']}"


# -- to the page ----------------------------------------------------------------------------------------------------


def page_event(event: Event) -> JsonObject:
    """An event as the page gets it: a delta is its type, block, text and path; others lose their id and empty fields."""
    if isinstance(event, TextDelta):
        path = agent_path(event)
        where: JsonObject = {"metadata": {AGENT_PATH: [*path]}} if path else {}
        if isinstance(event, TextBlockDeltaEvent | ThinkingBlockDeltaEvent):
            return {"type": event.type, "block_id": event.block_id, "delta": event.delta, **where}
        return {"type": event.type, "tool_call_id": event.tool_call_id, "delta": event.delta, **where}
    return _without_empty({key: value for key, value in dump_event(event).items() if key != "id"})


def page_transcript(transcript: Transcript, limit: int | None = None) -> JsonObject:
    """A transcript as the page gets it, without empty fields.

    ``limit`` is the most characters of text to send: the oldest blocks are left out first, and ``"cut"`` says how many
    characters are missing. A sub-agent has its share of it.
    """
    return _within(_without_empty(_TRANSCRIPT.dump_python(transcript, mode="json")), limit)


def _within(value: JsonObject, limit: int | None) -> JsonObject:
    """A transcript in page form, cut to ``limit``; in place."""
    if limit is None or len(pydantic_core.to_json(value)) <= limit:
        return value
    children = cast("list[JsonObject]", value.get("children", []))
    share = limit // (len(children) + 1)
    message = cast("JsonObject", value["message"])
    needed = {cast("str", child["call_id"]) for child in children}
    kept, cut = _newest(cast("list[JsonObject]", message.get("content", [])), share, needed)
    message["content"] = cast("Any", kept)
    cut += _text_size(value.pop("outputs", None))
    below = [_within(cast("JsonObject", child["transcript"]), share) for child in children]
    value["cut"] = cut + sum(cast("int", transcript.pop("cut", 0)) for transcript in below)
    return value


def _newest(blocks: list[JsonObject], limit: int, needed: Collection[JsonValue]) -> tuple[list[JsonObject], int]:
    """The newest blocks that fit, one of them shortened, and how many characters that leaves out.

    Calls that wait are kept whole: a decision is bound to the arguments that the page shows. So are those that are
    ``needed``: their sub-agents are shown inside them.
    """
    kept: list[JsonObject] = []
    cut, room = 0, limit
    for block in reversed(blocks):
        is_call = block.get("type") == "tool_call"
        short, is_needed = max(room, 256), block.get("state") in ("asking", "submitted") or (is_call and block["id"] in needed)
        shorter: JsonObject = {k: v[-short:] if k in _LONG and isinstance(v, str) else v for k, v in block.items()}
        size = _text_size(shorter)
        cut += _text_size(block) - size
        if is_needed or size <= room or (room > 0 and size <= room + 1_000):  # an image, or arguments, cannot be shortened
            kept.append(shorter)
            room -= size
        else:
            cut += size
            room = 0
    kept.reverse()
    return kept, cut


_LONG = ("text", "thinking", "output")


def _text_size(value: JsonValue) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_text_size(part) for part in value.values())
    return sum(_text_size(part) for part in value) if isinstance(value, list) else 0


def _without_empty(value: JsonObject) -> JsonObject:
    return {key: _cleaned(part) for key, part in value.items() if part is not None and part not in ({}, [])}


def _cleaned(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return _without_empty(value)
    return [_cleaned(part) for part in value] if isinstance(value, list) else value


def fingerprint(name: str, arguments: str) -> str:
    """What a decision is bound to: the 64-bit FNV-1a of the tool's name and its arguments, as 16 hexadecimal digits.

    It tells a stale view from a current one; it is not a defence against an attacker. ``js/src/wire.ts`` has its twin.
    """
    value = 0xCBF29CE484222325
    text = f"{name}\n{arguments}".encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "replace"
    )  # as JavaScript encodes lone surrogates
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


# -- from the page --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a page asks for. ``id`` is unique for each press of a button: it may arrive twice and is handled once."""

    id: Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand(Command):
    """What a page asks of one run."""

    run_id: Annotated[str, Field(max_length=ID_LIMIT)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Command):
    """A view has appeared and has everything up to ``have``; ``page`` names the page load it belongs to."""

    kind: Literal["hello"] = "hello"
    have: int = -1
    page: Annotated[str, Field(max_length=ID_LIMIT)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync(Command):
    """A view has missed something after ``have``."""

    kind: Literal["resync"] = "resync"
    have: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(RunCommand):
    """End the run: ``now``, or after the running ``step``. With ``call_id`` only what this call runs."""

    kind: Literal["stop"] = "stop"
    call_id: str = ""
    after: Literal["now", "step"] = "now"
    reason: Annotated[str, Field(max_length=10_000)] = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as a page names it: which calls are allowed without asking."""

    tool_name: str
    rule_content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(RunCommand):
    """A decision about one call, bound to the arguments that the person saw.

    With an approval may come ``arguments``, JSON text as the person edited it, and the ``rule`` to store.
    """

    kind: Literal["decide"] = "decide"
    call_id: str
    fingerprint: str
    decision: Literal["approve", "deny"]
    reason: Annotated[str, Field(max_length=10_000)] = ""
    arguments: Annotated[str, Field(max_length=1_000_000)] | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAll(RunCommand):
    """One decision about the calls that the person saw together, and with ``stop`` the end of the run."""

    kind: Literal["decide_all"] = "decide_all"
    calls: Annotated[dict[str, str], Field(min_length=1, max_length=1_000)]
    decision: Literal["approve", "deny"]
    reason: Annotated[str, Field(max_length=10_000)] = ""
    stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall(RunCommand):
    """The result of a call that is done outside."""

    kind: Literal["answer"] = "answer"
    call_id: str
    text: Annotated[str, Field(max_length=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer(RunCommand):
    """A note for the next step; the command's id is the note's."""

    kind: Literal["steer"] = "steer"
    text: Annotated[str, Field(min_length=1, max_length=100_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw(RunCommand):
    """Take a note back."""

    kind: Literal["withdraw"] = "withdraw"
    steer_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(Command):
    """Take back a rule by which calls are allowed without asking."""

    kind: Literal["forget"] = "forget"
    rule: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Command):
    """A person typed a prompt into the card."""

    kind: Literal["send"] = "send"
    text: Annotated[str, Field(min_length=1, max_length=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(RunCommand):
    """Go on with a run that was stopped, without a new message."""

    kind: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTwin(Command):
    """The static twin in the page's document is too old: it was reloaded in mid-run, and no update reaches it."""

    kind: Literal["twin"] = "twin"


AnyCommand = Hello | Resync | Stop | Decide | DecideAll | AnswerCall | Steer | Withdraw | Forget | Send | Resume | AskTwin
_COMMAND: TypeAdapter[AnyCommand] = TypeAdapter(Annotated[AnyCommand, Field(discriminator="kind")])


def load_command(value: object) -> AnyCommand:
    """Read what a page sent.

    Raises:
        InputError: not a command. Nothing may be done about it.
    """
    try:
        return _COMMAND.validate_python(value)
    except ValidationError as error:
        raise InputError(f"not a command: {_first_fault(error)}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as a page sees it: what was asked, how it stands, and what happened."""

    run_id: str
    prompt: str
    status: JsonObject
    transcript: Transcript = field(repr=False)

    def dump(self, limit: int | None = None) -> JsonObject:
        """As JSON: ``{"run_id", "prompt", "status", "transcript"}``."""
        return {
            "run_id": self.run_id,
            "prompt": self.prompt,
            "status": self.status,
            "transcript": page_transcript(self.transcript, limit),
        }


def snapshot_message(
    seq: int, runs: Sequence[RunView], limit: int | None = None, rules: Sequence[PermissionRule] = ()
) -> JsonObject:
    """Everything up to ``seq``: the synced trait, and the answer to a page that asks (``kind="full"``)."""
    share = None if limit is None else limit // max(len(runs), 1)
    return {"kind": "full", "seq": seq, "runs": [run.dump(share) for run in runs], "rules": _page_rules(rules)}


def rules_message(rules: Sequence[PermissionRule]) -> JsonObject:
    """What is allowed without asking now, all of it: it needs no place in the sequence."""
    return {"kind": "rules", "rules": _page_rules(rules)}


def _page_rules(rules: Sequence[PermissionRule]) -> list[JsonValue]:
    return [{"tool_name": rule.tool_name, "rule_content": rule.rule_content} for rule in rules if rule.behavior == "allow"]


def events_message(seq: int, run_id: str, events: Iterable[Event], status: JsonObject | None = None) -> JsonObject:
    """What happened since the message before: ``seq`` counts up by one for each message of a card."""
    message: JsonObject = {"kind": "events", "seq": seq, "run_id": run_id, "events": [page_event(event) for event in events]}
    if status is not None:
        message["status"] = status
    return message


def twin_message(data: dict[str, str]) -> JsonObject:
    """The static twin as it should be now, as a MIME bundle."""
    return {"kind": "twin", "data": dict(data)}


def notice_message(command_id: str, text: str) -> JsonObject:
    """A sentence for the person whose command could not be carried out."""
    return {"kind": "notice", "id": command_id, "text": text}
