"""The protocols: what a run can drive (``Backend``), what an agent asks (``Model``), and how both say what happened.

An agent emits, it does not yield: ``Backend.run`` is a coroutine that calls ``emit`` for each event. A ``yield`` inside a
timeout or a task group cancels slow readers, and an abandoned generator skips its clean-up.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from pydantic import JsonValue

from agent_widgets.errors import InputError
from agent_widgets.events import (
    Event,
    ExternalExecutionResultEvent,
    UserConfirmResultEvent,
    UserInterruptEvent,
)
from agent_widgets.messages import (
    Base64Source,
    DataBlock,
    HintBlock,
    JsonObject,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from agent_widgets.state import valid_arguments

CHANGED_TEXT = (
    "\n<system-reminder>The user changed the arguments of this call before approving it. "
    "You had asked for: {original}</system-reminder>"
)
"""What the model reads below the result of a call that a person edited: it must not take the new arguments for its own."""

Emit = Callable[[Event], None]
Inputs = str | Msg | Sequence[Msg] | UserConfirmResultEvent | UserInterruptEvent | ExternalExecutionResultEvent | None
"""What a reply starts from: text, messages, an answer to a pause, or ``None`` to go on where it stopped."""


@runtime_checkable
class Backend(Protocol):
    """What a run can drive: our ``Agent``, or an adapter around somebody else's."""

    @property
    def name(self) -> str:
        """Whose reply it is."""
        ...

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        """Carry one reply until it ends or pauses. Cancellable at every await. All events go through ``emit``."""
        ...

    def stop_after_step(self) -> bool:
        """End after the running step. ``False``: this backend cannot, cancel it."""
        ...

    def dump(self) -> JsonObject:
        """The state, at any moment."""
        ...

    def load(self, saved: JsonObject, /) -> None:
        """Go on from a dumped state."""
        ...


@runtime_checkable
class ChecksArguments(Protocol):
    """A backend that knows what its tools accept: arguments that a person edits are checked before the decision counts."""

    def misfit(self, call: ToolCallBlock, /) -> str:
        """Why this call, with its edited ``input``, cannot run; ``""`` if it can, or if nobody knows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told about it: ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model: the whole conversation, and the tools it may ask for."""

    context: tuple[Msg, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation in Chat Completions form."""
        return chat_messages(self.context, self.instructions)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPiece:
    """More of the tool call number ``index``: the first piece carries ``call_id`` and ``name``."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The tokens of this call, as the provider counted them."""

    input_tokens: int
    output_tokens: int
    cache_input_tokens: int = 0


ModelDelta = TextPiece | ThinkingPiece | ToolCallPiece | UsageReport


class Model(Protocol):
    """What an agent asks. ``stream`` closes its connection when it is cancelled or closed."""

    @property
    def name(self) -> str:
        """As the card shows it."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        """The answer, piece by piece.

        Raises:
            ModelError: the call failed; pieces that came before are part of the answer.
        """
        ...


def messages_of(inputs: str | Msg | Sequence[Msg]) -> tuple[Msg, ...]:
    """Inputs as messages: text becomes a message of the user.

    Raises:
        InputError: something else was given.
    """
    if isinstance(inputs, str):
        if not inputs.strip():
            raise InputError("The prompt is empty. Give some text, or None to go on where it stopped.")
        return (UserMsg("user", inputs),)
    given: object = inputs  # untyped callers exist
    messages = tuple(cast("Iterable[object]", given)) if isinstance(given, Iterable) and not isinstance(given, Msg) else (given,)
    for message in messages:
        if not isinstance(message, Msg):
            raise InputError(f"An input must be text or Msg, or a list of Msg; got {type(message).__name__}: {message!r:.80}")
    return cast("tuple[Msg, ...]", messages)


def prompt_of(inputs: Inputs) -> str:
    """What a person would recognise as the question: the text of the inputs, ``""`` for an answer to a pause."""
    if inputs is None or isinstance(inputs, UserConfirmResultEvent | UserInterruptEvent | ExternalExecutionResultEvent):
        return ""
    return "\n\n".join(message.get_text_content() or "" for message in messages_of(inputs))


def chat_messages(context: Iterable[Msg], instructions: str = "") -> list[JsonObject]:
    """A conversation in Chat Completions form, valid for a strict server whatever was interrupted in it.

    One assistant message may hold several steps: each run of calls becomes one assistant message, followed by its results.
    Thinking is not sent. A message with nothing to say is left out.
    """
    sent: list[JsonObject] = [{"role": "system", "content": instructions}] if instructions else []
    for message in context:
        if message.role == "assistant":
            sent += _assistant_messages(message)
        else:
            content = _content(message.content)
            if content:
                sent.append({"role": message.role, "content": content})
    return sent


def _assistant_messages(message: Msg) -> Iterable[JsonObject]:
    """Text and calls are gathered until the results begin: then the step is over."""
    results = {b.id: b for b in message.content if isinstance(b, ToolResultBlock) and b.state != "running"}
    text: list[str] = []
    calls: list[ToolCallBlock] = []
    for block in message.content:
        match block:
            case TextBlock():
                if calls:
                    yield from _step(text, calls, results)
                    text, calls = [], []
                text.append(block.text)
            case ToolCallBlock():
                if block.id in results:
                    calls.append(block)
            case HintBlock():
                yield from _step(text, calls, results)
                text, calls = [], []
                yield {"role": "user", "content": block.hint if isinstance(block.hint, str) else _content(block.hint)}
            case ToolResultBlock():
                if calls:
                    yield from _step(text, calls, results)
                    text, calls = [], []
            case ThinkingBlock() | DataBlock():
                pass
    yield from _step(text, calls, results)


def _step(text: list[str], calls: list[ToolCallBlock], results: dict[str, ToolResultBlock]) -> Iterable[JsonObject]:
    joined = "\n".join(part for part in text if part)
    if calls:
        asked: list[JsonObject] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": _sendable(call.name), "arguments": valid_arguments(call.input)},
            }
            for call in calls
        ]
        yield {"role": "assistant", "content": joined or None, "tool_calls": [*asked]}
        for call in calls:
            given = results[call.id].text() or "(no output)"
            changed = "" if call.original_input is None else CHANGED_TEXT.format(original=call.original_input)
            yield {"role": "tool", "tool_call_id": call.id, "content": given + changed}
    elif joined:
        yield {"role": "assistant", "content": joined}


def _sendable(name: str) -> str:
    """A name that a server takes back; models make up others."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def _content(blocks: Sequence[object]) -> JsonValue:
    parts: list[JsonObject] = []
    for block in blocks:
        if isinstance(block, TextBlock) and block.text:
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, DataBlock):
            source = block.source
            url = f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64Source) else source.url
            parts.append({"type": "image_url", "image_url": {"url": url}})
    if all(part["type"] == "text" for part in parts):
        return "\n".join(str(part["text"]) for part in parts)
    return [*parts]
