"""What one reply does when the conversation is too long for the model: older messages are summarised, or left out.

A summary takes effect with one event, said after the summarising call has ended: whatever stops or breaks that call, nothing
has changed. What is left out is left out of requests, for the rest of the reply, and never of the history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent_widgets import events as ev
from agent_widgets.answers import call_ended
from agent_widgets.backends import Model, ModelDelta, ModelRequest, TextPiece, UsageReport
from agent_widgets.compression import CHARACTERS_PER_TOKEN, CompressionConfig, Gauge, request_for, stages, told
from agent_widgets.cuts import Cut, as_sent, between, characters, cut_of, next_cut
from agent_widgets.errors import ModelError
from agent_widgets.memory import Memory
from agent_widgets.messages import JsonObject
from agent_widgets.state import AgentState, Summary

LEFT_OUT_NOTICE = "Older messages could not be summarised:"
"""How the notice begins that says what is left out, and why."""


class Notes:
    """A summary as it comes in: nobody is shown its pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.usage: UsageReport | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any text has come."""
        return bool(self._pieces)

    @property
    def text(self) -> str:
        """So far."""
        return "".join(self._pieces).strip()

    def add(self, piece: ModelDelta) -> None:
        """One piece more: text and usage count, a model that calls tools here is not listened to."""
        if isinstance(piece, TextPiece):
            self._pieces.append(piece.text)
        elif isinstance(piece, UsageReport):
            self.usage = piece


class Shortening:
    """Keeps the requests of one leg of a reply within what the model can read."""

    def __init__(
        self,
        *,
        memory: Memory,
        config: CompressionConfig | None,
        gauge: Gauge,
        model: Model,
        ask: Callable[[Model, ModelRequest, Notes], Awaitable[bool]],
        say: Callable[..., None],
        give_way: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            memory: What the agent remembers; the reply is the one that is open in it.
            config: When to summarise; ``None``: never. A summary that is there already is used all the same.
            gauge: What the agent knows of the size of requests.
            model: Who summarises.
            ask: Streams an answer into notes, and tries again like any other call.
            say: Remembers events, then emits them.
            give_way: Raises a stop that no await has met yet.
        """
        self._memory = memory
        self._config = config
        self._gauge = gauge
        self._model = model
        self._ask = ask
        self._say = say
        self._give_way = give_way
        self._left_out: Cut | None = None
        self.is_asking = False

    def applied(self, request: ModelRequest) -> ModelRequest:
        """The request with the whole history, as it is sent: the summary in place of older messages."""
        state = self._memory.state
        return replace(request, context=as_sent(state.context, state.summary, self._left_out))

    async def before(self, request: ModelRequest) -> ModelRequest:
        """The request as it is sent, after a summary if it would be too long without."""
        sent = self.applied(request)
        trigger = self._config.trigger_tokens if self._config else None
        if self._config is None or trigger is None or self._gauge.tokens(sent) <= trigger:
            return sent
        # What must be kept may be too long by itself: there must not be a summary before every call then.
        shortened = await self._shorten(self._config, trigger, at_once=trigger * 5 // 4, worth=trigger // 8)
        return self.applied(request) if shortened else sent

    async def after_refusal(self, request: ModelRequest, refused: ModelRequest) -> ModelRequest | None:
        """A shorter request than the one that was refused as too long; ``None`` if there is none."""
        if self._config is None:
            return None
        self._say(call_ended(self._reply_id, None, "interrupted"))
        limit = self._gauge.tokens(refused)
        shortened = await self._shorten(self._config, limit, at_once=limit * 9 // 10, worth=1)
        return self.applied(request) if shortened else None

    @property
    def _reply_id(self) -> str:
        return self._memory.transcript.message.id

    async def _shorten(self, config: CompressionConfig, limit: int, *, at_once: int, worth: int) -> bool:
        """Summarise, or leave out, what is before the next cut.

        Args:
            config: How.
            limit: The tokens that the request must come below.
            at_once: The tokens that are read for one summary.
            worth: Nothing is done, and ``False`` given, for less than so many tokens.
        """
        state, gauge = self._memory.state, self._gauge
        since = self._left_out or cut_of(state.summary)
        target = next_cut(state.context, since, gauge.characters_in(config.kept(limit)))
        if target is None:
            return False
        saved = _length(state, self._left_out) - _length(state, target)
        if gauge.tokens_in(saved) < worth:
            return False
        if self._left_out is None:
            problem = await self._summarise_up_to(target, config, gauge.characters_in(at_once))
            if not problem:
                return True
            state = self._memory.state
            self._warn(problem, told(between(state.context, cut_of(state.summary), target), state.context))
        self._left_out = target
        return True

    async def _summarise_up_to(self, target: Cut, config: CompressionConfig, at_once: int) -> str:
        """In calls that read ``at_once`` characters each: a long history may have been loaded. Gives ``""``, or what failed."""
        state = self._memory.state
        for cut in stages(state.context, cut_of(state.summary), target, at_once):
            if problem := await self._summarise(cut, config):
                return problem
        return ""

    async def _summarise(self, cut: Cut, config: CompressionConfig) -> str:
        """Ask for a summary up to ``cut`` and let it take effect; gives ``""``, or why there is none."""
        state = self._memory.state
        older = between(state.context, cut_of(state.summary), cut)
        request = request_for(config, state.summary, older)
        notes = Notes()
        self._say(
            ev.ModelCallStartEvent(reply_id=self._reply_id, model_name=self._model.name, metadata={"purpose": "compression"})
        )
        self._give_way()
        problem, self.is_asking = "", True
        try:
            await self._ask(self._model, request, notes)
        except ModelError as error:
            problem = error.problem
        finally:
            self.is_asking = False
        self._say(call_ended(self._reply_id, notes.usage, "interrupted" if problem else "completed"))
        text = notes.text[: config.max_summary_tokens * CHARACTERS_PER_TOKEN]
        replaced = characters(older) + (len(state.summary.text) if state.summary else 0)
        problem = problem or _fault(text, replaced)
        if not problem:
            self._take(Summary(text=text, messages=cut.messages, blocks=cut.blocks), told(older, state.context), replaced)
        self._give_way()  # after it was taken: it is paid for
        return problem

    def _take(self, summary: Summary, of: str, replaced: int) -> None:
        """From here on the summary is what a model reads, and what a saved state holds."""
        value: JsonObject = {"text": summary.text, "messages": summary.messages, "blocks": summary.blocks}
        self._say(ev.CustomEvent(name=ev.SUMMARY, value=value))
        before, after = self._gauge.tokens_in(replaced), self._gauge.tokens_in(len(summary.text))
        estimated = " (estimated: the model has reported no tokens)" if self._gauge.is_estimate else ""
        text = f"Older messages were summarised: {of}, about {before:,} tokens, became about {after:,}{estimated}."
        self._say(ev.CustomEvent(name=ev.NOTICE, value={"text": text}))

    def _warn(self, problem: str, of: str) -> None:
        """Once in a reply, however many legs it has."""
        if not any(text.startswith(LEFT_OUT_NOTICE) for text in self._memory.transcript.notices):
            text = f"{LEFT_OUT_NOTICE} {problem.rstrip('.')}. The oldest {of} are left out of what the model reads in this reply."
            self._say(ev.CustomEvent(name=ev.NOTICE, value={"text": f"{text} The history keeps them."}))


def _length(state: AgentState, left_out: Cut | None) -> int:
    """How long the messages are that are sent, without what is kept in a summary anyway."""
    return characters(as_sent(state.context, state.summary, left_out))


def _fault(text: str, replaced: int) -> str:
    """Why this is no summary; ``""`` if it is one."""
    if not text:
        return "The model gave no summary."
    return "" if len(text) < replaced else "The summary is longer than what it would replace."
