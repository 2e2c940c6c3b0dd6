"""What an agent remembers: the messages of a conversation, and the fold of the reply that is open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent_widgets import events as ev
from agent_widgets.messages import Msg, PermissionRule, new_id
from agent_widgets.state import AgentState
from agent_widgets.transcript import Transcript, TranscriptBuilder


@dataclass(frozen=True, slots=True)
class _Held:
    done: tuple[Msg, ...] = ()
    open: TranscriptBuilder | None = None
    cur_iter: int = 0
    rules: tuple[PermissionRule, ...] = ()


class Memory:
    """What an agent remembers, always swapped in one step: a reader in another thread never sees half a change."""

    def __init__(self) -> None:
        self._held = _Held()
        self.session_id = new_id()

    @property
    def state(self) -> AgentState:
        """A value; the unfinished message of an open reply is the last of its context."""
        held = self._held
        opened = None if held.open is None else held.open.freeze().message
        return AgentState(
            session_id=self.session_id,
            context=held.done if opened is None else (*held.done, opened),
            reply_id="" if opened is None else opened.id,
            cur_iter=held.cur_iter,
            rules=held.rules,
        )

    def load(self, state: AgentState) -> None:
        """Take over a state, repaired."""
        state = state.repair()
        self.session_id = state.session_id
        if state.reply_id:
            opened = TranscriptBuilder(Transcript(message=state.context[-1]))
            self._held = _Held(state.context[:-1], opened, state.cur_iter, state.rules)
        else:
            self._held = _Held(state.context, None, 0, state.rules)

    @property
    def transcript(self) -> Transcript:
        """The open reply; an empty one when there is none."""
        return Transcript(message=Msg("", (), "assistant")) if self._held.open is None else self._held.open.freeze()

    @property
    def steps(self) -> int:
        """Steps of the open reply."""
        return self._held.cur_iter

    def begin(self, messages: Iterable[Msg]) -> None:
        """Add what was asked, and open a reply."""
        self._held = replace(self._held, done=(*self._held.done, *messages), open=TranscriptBuilder(), cur_iter=0)

    def count_step(self) -> None:
        """One more step of the open reply."""
        self._held = replace(self._held, cur_iter=self._held.cur_iter + 1)

    def allow(self, rules: Iterable[PermissionRule]) -> None:
        """Remember rules that a person gave with an approval."""
        self._held = replace(self._held, rules=(*self._held.rules, *rules))

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the open reply; ``REPLY_END`` closes it."""
        held = self._held
        if held.open is None:
            return
        held.open.apply(event)
        if isinstance(event, ev.ReplyEndEvent):
            self._held = replace(held, done=(*held.done, held.open.freeze().message), open=None, cur_iter=0)
