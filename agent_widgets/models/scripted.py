"""A model that says what a test wrote down: no key, no network, no chance.

Public: users test their agents with it. ::

    model = ScriptedModel([
        [say("I will look."), call("find", {"word": "tea"})],   # the first model call
        [think("Two hits."), say(["It is ", "on page 2."])],    # the second: after the tool's result
        "Bye.",                                                  # a turn may be plain text
    ])
    agent = Agent(model, tools=[find])
    ...
    assert model.requests[1].messages[-1]["role"] == "tool"
    model.assert_used()
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never, cast

from pydantic import JsonValue

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.errors import InputError, ModelError

_ARGUMENT_PIECE = 8
_POLL_S = 0.005


class AsyncEvent(Protocol):
    """What ``asyncio.Event`` and ``anyio.Event`` have in common."""

    async def wait(self) -> object:
        """Return when it is set."""
        ...


@dataclass(frozen=True, slots=True)
class Say:
    """Text, in these pieces. Made by :func:`say`."""

    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Think:
    """Thinking, in these pieces. Made by :func:`think`."""

    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call whose ``arguments`` are this raw text. Made by :func:`call`."""

    name: str
    arguments: str
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Fail:
    """The call fails here. Made by :func:`fail`."""

    error: Exception | str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing more comes until the event is set. Made by :func:`wait`."""

    event: AsyncEvent | threading.Event


Item = Say | Think | Call | Fail | Wait | UsageReport
Turn = str | Item | Sequence[str | Item]


def say(text: str | Sequence[str]) -> Say:
    """Answer with text: a ``str`` streams word by word, a list exactly these pieces."""
    return Say(_pieces(text))


def think(text: str | Sequence[str]) -> Think:
    """Think before the answer: a ``str`` streams word by word, a list exactly these pieces."""
    return Think(_pieces(text))


def call(name: str, arguments: Mapping[str, JsonValue] | str = "{}", id: str | None = None) -> Call:  # noqa: A002 - the field's name
    """Ask for a tool. Several in one turn are parallel calls, with the indices 0, 1, ... in order.

    Args:
        name: The tool.
        arguments: A dict, or raw JSON text, sent as it is: ``call("find", '{"wo')`` is a call with broken arguments.
            They are streamed in pieces of 8 characters.
        id: The call's id; ``None`` gives ``call_1``, ``call_2``, ... in the order of the model's life.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(name, text, id)


def fail(error: Exception | str) -> Fail:
    """Fail at this point of the stream. A text becomes a ``ModelError``; an exception is raised as it is."""
    return Fail(error)


def wait(event: AsyncEvent | threading.Event) -> Wait:
    """Send nothing until ``event`` is set: how a test holds a model in the middle of an answer.

    An ``asyncio.Event`` must be set on the loop that runs the model. Where the model runs on another thread (``chat`` does
    that), give a ``threading.Event``: it may be set from anywhere, and is looked at every 5 ms.
    """
    return Wait(event)


class ScriptedModel:
    """A model that follows a script: one turn for each model call.

    It complains with a ``ModelError`` when it is called more often than the script says, and
    :meth:`assert_used` complains when it was called less often. Each call reports its usage, with words as tokens, unless
    the turn holds a ``UsageReport`` of its own; a call that is cut or fails reports none, as with a real provider.

    Any thread and any loop may call it; each call takes the next turn.

    Attributes:
        requests: What it was asked, in order. ``requests[0].messages`` is a list of dicts in Chat Completions form,
            ``requests[0].tools`` the tools that were offered.
        note: What the card says about this model.
    """

    def __init__(self, script: Sequence[Turn], tokens_per_second: float | None = None, name: str = "scripted") -> None:
        """Read the script.

        Args:
            script: One turn for each model call: a list of ``say``, ``think``, ``call``, ``fail``, ``wait`` (a ``str`` is
                ``say``), or one of them alone.
            tokens_per_second: Pieces a second; ``None`` does not sleep. The model can be cancelled at every piece either way.
            name: What the card calls it.

        Raises:
            InputError: the script holds something else.
        """
        if isinstance(script, str):
            raise InputError(
                f"ScriptedModel: the script is the text {script!r:.60}; give a list of turns: [[say({script!r:.60})]]"
            )
        if tokens_per_second is not None and tokens_per_second <= 0:
            raise InputError(
                f"ScriptedModel: tokens_per_second is {tokens_per_second}; give a number above 0, or None not to wait"
            )
        numbers = iter(range(1, 1_000_000))
        self._turns = tuple(_turn(turn, number, numbers) for number, turn in enumerate(script, 1))
        self._pause_s = 0.0 if tokens_per_second is None else 1 / tokens_per_second
        self._lock = threading.Lock()
        self._name = name
        self.requests: list[ModelRequest] = []
        self.note = ""

    @property
    def name(self) -> str:
        """As the card shows it."""
        return self._name

    def __repr__(self) -> str:
        """How far it is: ``ScriptedModel(2 of 3 turns used)``."""
        return f"ScriptedModel({min(len(self.requests), len(self._turns))} of {len(self._turns)} turns used)"

    def unused(self) -> list[list[Item]]:
        """The turns that nobody has asked for yet, in order. A turn that was cut counts as used."""
        return [list(turn) for turn in self._turns[len(self.requests) :]]

    def assert_used(self) -> None:
        """Complain if the script holds turns that nobody asked for.

        Raises:
            AssertionError: with the number of turns and the first unused one.
        """
        if left := self.unused():
            raise AssertionError(
                f"{self._name}: {len(left)} of {len(self._turns)} scripted model calls were never asked for; "
                f"the first is {left[0]!r:.200}"
            )

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        """The next turn of the script, piece by piece.

        Raises:
            ModelError: no turn is left; or the turn says ``fail``.
        """
        turn = self._next_turn(request)
        words = 0
        for delta in _deltas(turn):
            if isinstance(delta, Wait):
                await _set(delta.event)
            elif isinstance(delta, Fail):
                raise ModelError(self._name, delta.error) if isinstance(delta.error, str) else delta.error
            else:
                await asyncio.sleep(self._pause_s)
                words += _words(delta)
                yield delta
        if not any(isinstance(item, UsageReport) for item in turn):
            yield UsageReport(input_tokens=_count(request.messages), output_tokens=words)

    def _next_turn(self, request: ModelRequest) -> tuple[Item, ...]:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if number > len(self._turns):
            raise ModelError(
                self._name,
                f"this is model call {number}, but the script holds {len(self._turns)}.",
                f"Add a turn to the script; the last message was {request.messages[-1:]!r:.200}",
            )
        return self._turns[number - 1]


def _pieces(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(re.findall(r"\S+\s*|\s+", text)) if isinstance(text, str) else tuple(text)


def _turn(turn: Turn, number: int, call_numbers: Iterator[int]) -> tuple[Item, ...]:
    items = (turn,) if isinstance(turn, str | Item) else turn
    return tuple(_item(item, number, call_numbers) for item in items)


def _item(item: object, number: int, call_numbers: Iterator[int]) -> Item:
    if isinstance(item, str):
        return say(item)
    if isinstance(item, Call) and item.call_id is None:
        return Call(item.name, item.arguments, f"call_{next(call_numbers)}")
    if isinstance(item, Item):
        return item
    raise InputError(f"ScriptedModel: turn {number} holds {item!r:.80}; give text, say(), think(), call(), fail() or wait()")


def _deltas(turn: Sequence[Item]) -> Iterator[ModelDelta | Wait | Fail]:
    index = 0
    for item in turn:
        match item:
            case Say():
                yield from (TextPiece(piece) for piece in item.pieces)
            case Think():
                yield from (ThinkingPiece(piece) for piece in item.pieces)
            case Call():
                yield ToolCallPiece(index=index, call_id=item.call_id or "", name=item.name)
                for start in range(0, len(item.arguments), _ARGUMENT_PIECE):
                    yield ToolCallPiece(index=index, arguments=item.arguments[start : start + _ARGUMENT_PIECE])
                index += 1
            case Wait() | Fail() | UsageReport():
                yield item
            case _:
                assert_never(item)


def _words(delta: ModelDelta) -> int:
    match delta:
        case TextPiece() | ThinkingPiece():
            return len(delta.text.split())
        case ToolCallPiece():
            return len(delta.arguments.split()) + bool(delta.name)
        case UsageReport():
            return 0
        case _:
            assert_never(delta)


def _count(value: object) -> int:
    """The words in all texts of a JSON value."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, dict):
        return sum(_count(part) for part in cast("dict[str, object]", value).values())
    return sum(_count(part) for part in cast("list[object]", value)) if isinstance(value, list) else 0


async def _set(event: AsyncEvent | threading.Event) -> None:
    if isinstance(event, threading.Event):
        while not event.is_set():
            await asyncio.sleep(_POLL_S)
    else:
        await event.wait()
