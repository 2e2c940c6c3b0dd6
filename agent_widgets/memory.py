"""What an agent remembers: the messages of a conversation, and the fold of the reply that is open.

Its law: every change is told to the recorder, if there is one, before anything can follow from it. So a stored session has
on the disk what an agent acts on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from agent_widgets import events as ev
from agent_widgets.messages import Msg, PermissionRule, new_id
from agent_widgets.state import AgentState, Summary
from agent_widgets.transcript import Transcript, TranscriptBuilder


@dataclass(frozen=True, slots=True)
class _Held:
    done: tuple[Msg, ...] = ()
    open: TranscriptBuilder | None = None
    cur_iter: int = 0
    rules: tuple[PermissionRule, ...] = ()
    summary: Summary | None = None
    late: tuple[ev.CustomEvent, ...] = ()


class Recorder(Protocol):
    """Is told of each change of a memory, in order. Any thread may tell it. It never raises."""

    def asked(self, messages: tuple[Msg, ...]) -> None:
        """These messages were added, and a reply was opened."""
        ...

    def said(self, event: ev.Event) -> None:
        """An event was folded into the open reply."""
        ...

    def ruled(self, rules: tuple[PermissionRule, ...]) -> None:
        """These are the rules from now on."""
        ...

    def replaced(self) -> None:
        """Another state was loaded."""
        ...


class Memory:
    """What an agent remembers, always swapped in one step: a reader in another thread never sees half a change."""

    def __init__(self) -> None:
        self._held = _Held()
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()  # the loop writes while another thread may take back a rule
        self.session_id = new_id()
        self.recorder: Recorder | None = None

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
            summary=held.summary,
        )

    def load(self, state: AgentState) -> None:
        """Take over a state, repaired."""
        self.restore(state.repair())
        if self.recorder is not None:
            self.recorder.replaced()

    def restore(self, state: AgentState) -> None:
        """Take over a state as it is: a reply that is open in it goes on with its next event."""
        self.session_id = state.session_id
        before = self._held.rules
        if state.reply_id:
            opened = TranscriptBuilder(Transcript(message=state.context[-1], steps=state.cur_iter))
            held = _Held(state.context[:-1], opened, state.cur_iter, state.rules, state.summary)
        else:
            held = _Held(state.context, None, 0, state.rules, state.summary)
        self._swap(lambda _: held)
        self._tell_watchers(before)

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
        asked = tuple(messages)
        self._swap(lambda held: replace(held, done=(*held.done, *asked), open=TranscriptBuilder(), cur_iter=0))
        if self.recorder is not None:
            self.recorder.asked(asked)

    def allow(self, rules: Iterable[PermissionRule]) -> None:
        """Remember rules that a person gave with an approval; one that is there already is kept once."""
        given = tuple(rules)
        self._rule(lambda held: tuple(dict.fromkeys((*held, *given))))

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """What a person has allowed for this conversation."""
        return self._held.rules

    def watch_rules(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Tell ``watcher`` of each change of the rules, on the thread that makes it; call the result to stop."""
        self._watchers = (*self._watchers, watcher)

        def stop() -> None:
            self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return stop

    def forget(self, is_meant: Callable[[PermissionRule], bool]) -> int:
        """Take back the rules that are meant; gives how many there were. Any thread."""
        return sum(map(is_meant, self._rule(lambda held: tuple(rule for rule in held if not is_meant(rule)))))

    def keep_late(self, event: ev.CustomEvent) -> None:
        """A late result for which there is no reply now. Any thread; it is not part of the state."""
        self._swap(lambda held: replace(held, late=(*held.late, event)))

    def take_late(self) -> tuple[ev.CustomEvent, ...]:
        """The late results that nobody has been told."""
        with self._lock:
            late = self._held.late
            self._held = replace(self._held, late=())
        return late

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the open reply.

        ``MODEL_CALL_START`` may begin a step of it, ``REPLY_END`` closes it, a summary stands for older messages from now on.
        """
        opened = self._held.open
        if opened is None:
            return
        opened.apply(event)
        match event:
            case ev.ModelCallStartEvent() if event.begins_step:
                self._swap(lambda held: replace(held, cur_iter=held.cur_iter + 1))
            case ev.ReplyEndEvent():
                message = opened.freeze().message
                self._swap(lambda held: replace(held, done=(*held.done, message), open=None, cur_iter=0))
            case ev.CustomEvent(name=ev.SUMMARY, value={"text": str(text), "messages": int(messages), "blocks": int(blocks)}):
                summary = Summary(text=text, messages=messages, blocks=blocks)
                self._swap(lambda held: replace(held, summary=summary))
            case _:
                pass
        if self.recorder is not None:
            self.recorder.said(event)

    def _rule(self, change: Callable[[tuple[PermissionRule, ...]], tuple[PermissionRule, ...]]) -> tuple[PermissionRule, ...]:
        """Change the rules, in one step; gives those before. They are told in the order in which they were changed."""
        with self._lock:
            before, rules = self._held.rules, change(self._held.rules)
            self._held = replace(self._held, rules=rules)
            if self.recorder is not None and rules != before:
                self.recorder.ruled(rules)
        self._tell_watchers(before)
        return before

    def _tell_watchers(self, before: tuple[PermissionRule, ...]) -> None:
        if self._held.rules != before:
            for watcher in self._watchers:
                watcher()

    def _swap(self, change: Callable[[_Held], _Held]) -> _Held:
        """Change what is held, in one step; gives what was held before."""
        with self._lock:
            before = self._held
            self._held = change(before)
            return before
