"""One answer of a model as events: its pieces in, blocks and calls out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agent_widgets import events as ev
from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.messages import JsonObject, new_id
from agent_widgets.state import valid_arguments


class Answer:
    """Turns the pieces of one model answer into events: one block open at a time, and calls that may interleave."""

    def __init__(self, say: Callable[[ev.Event], None], reply_id: str, taken: set[str], *, keeps_ids: bool = True) -> None:
        """Prepare.

        Args:
            say: Takes the events.
            reply_id: Whose answer it is.
            taken: Ids of calls that the conversation holds already: a model may use one again.
            keeps_ids: Whether calls keep the ids that the model gave. If not they get ids that no other conversation has.
        """
        self._keeps_ids = keeps_ids
        self._say = say
        self._reply_id = reply_id
        self._taken = taken
        self._block: tuple[str, str] | None = None
        self._calls: dict[int, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._usage: UsageReport | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the model has said anything: then a second try would say it twice."""
        return self._block is not None or bool(self._calls)

    @property
    def calls(self) -> dict[str, str]:
        """The ids of the calls asked for, in order, with their arguments as the model wrote them."""
        return {call_id: "".join(self._arguments[call_id]) for call_id in self._calls.values()}

    @property
    def input_tokens(self) -> int:
        """How long the request was, as the provider counted it; 0 if it did not say."""
        return self._usage.input_tokens if self._usage else 0

    def add(self, piece: ModelDelta) -> None:
        """One piece more."""
        match piece:
            case TextPiece(text=text) if text:
                block_id = self._open("text")
                self._say(ev.TextBlockDeltaEvent(reply_id=self._reply_id, block_id=block_id, delta=text))
            case ThinkingPiece(text=text) if text:
                block_id = self._open("thinking")
                self._say(ev.ThinkingBlockDeltaEvent(reply_id=self._reply_id, block_id=block_id, delta=text))
            case ToolCallPiece():
                self._add_call(piece)
            case UsageReport():
                self._usage = piece
            case TextPiece() | ThinkingPiece():
                pass

    def end(self) -> None:
        """The answer is complete: end its blocks, then the model call."""
        self._end_block()
        for call_id, text in self.calls.items():
            whole = valid_arguments(text)  # some servers send no arguments at all, some models half of them
            metadata: JsonObject = {} if whole == text else {"input": whole}
            self._say(ev.ToolCallEndEvent(reply_id=self._reply_id, tool_call_id=call_id, metadata=metadata))
        self._say(call_ended(self._reply_id, self._usage))

    def _add_call(self, piece: ToolCallPiece) -> None:
        call_id = self._calls.get(piece.index)
        if call_id is None:
            self._end_block()
            is_usable = self._keeps_ids and piece.call_id and piece.call_id not in self._taken
            call_id = piece.call_id if is_usable else f"call_{new_id()}"
            self._taken.add(call_id)
            self._calls[piece.index] = call_id
            self._arguments[call_id] = []
            self._say(ev.ToolCallStartEvent(reply_id=self._reply_id, tool_call_id=call_id, tool_call_name=piece.name))
        if piece.arguments:
            self._arguments[call_id].append(piece.arguments)
            self._say(ev.ToolCallDeltaEvent(reply_id=self._reply_id, tool_call_id=call_id, delta=piece.arguments))

    def _open(self, kind: str) -> str:
        if self._block is not None and self._block[0] == kind:
            return self._block[1]
        self._end_block()
        block_id = new_id()[:8]
        self._block = (kind, block_id)
        start = ev.TextBlockStartEvent if kind == "text" else ev.ThinkingBlockStartEvent
        self._say(start(reply_id=self._reply_id, block_id=block_id))
        return block_id

    def _end_block(self) -> None:
        if self._block is not None:
            kind, block_id = self._block
            end = ev.TextBlockEndEvent if kind == "text" else ev.ThinkingBlockEndEvent
            self._say(end(reply_id=self._reply_id, block_id=block_id))
            self._block = None


def call_ended(
    reply_id: str, usage: UsageReport | None, reason: Literal["completed", "interrupted"] = "completed"
) -> ev.ModelCallEndEvent:
    """The end of a model call, with what the provider reported; ``None`` means unknown, which is not 0."""
    known = usage or UsageReport(input_tokens=0, output_tokens=0)
    return ev.ModelCallEndEvent(
        reply_id=reply_id,
        input_tokens=known.input_tokens,
        output_tokens=known.output_tokens,
        cache_input_tokens=known.cache_input_tokens,
        finished_reason=reason,
        metadata={} if usage else {"usage": "unknown"},
    )
