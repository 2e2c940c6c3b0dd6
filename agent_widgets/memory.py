"""What an agent remembers: the messages of a conversation, the fold of the reply that is open, and the memories of the
sub-agents that this reply has called.

Its law: every change is told to the recorder, if there is one, before anything can follow from it. So a stored session has
on the disk what an agent acts on. A sub-agent's memory has no recorder: its events are told by that of the agent above it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, cast

import pydantic_core

from agent_widgets import events as ev
from agent_widgets.messages import Msg, PermissionRule, TextBlock, ToolCallBlock, new_id
from agent_widgets.state import AgentState, ChildState, Summary, valid_arguments
from agent_widgets.transcript import Child, Transcript, TranscriptBuilder


@dataclass(frozen=True, slots=True)
class _Held:
    done: tuple[Msg, ...] = ()
    open: TranscriptBuilder | None = None
    cur_iter: int = 0
    rules: tuple[PermissionRule, ...] = ()
    summary: Summary | None = None
    children: tuple[tuple[str, Memory], ...] = ()
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

    def __init__(self, session_id: str = "") -> None:
        self._held = _Held()
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()  # the loop writes while another thread may take back a rule
        self.session_id = session_id or new_id()
        self.recorder: Recorder | None = None

    @property
    def state(self) -> AgentState:
        """A value; the unfinished message of an open reply is the last of its context."""
        held = self._held
        if held.open is None:
            return AgentState(
                session_id=self.session_id, context=held.done, cur_iter=held.cur_iter, rules=held.rules, summary=held.summary
            )
        opened = held.open.freeze()
        steps = {child.call_id: child.transcript.steps for child in opened.children}
        return AgentState(
            session_id=self.session_id,
            context=(*held.done, opened.message),
            reply_id=opened.message.id,
            cur_iter=held.cur_iter,
            rules=held.rules,
            summary=held.summary,
            children=tuple(
                ChildState(call_id=call_id, state=child.state, steps=steps.get(call_id, 0)) for call_id, child in held.children
            ),
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
            opened = TranscriptBuilder(_transcript_of(state, state.cur_iter))
            children = tuple((child.call_id, _memory_of(child.state)) for child in state.children)
            held = _Held(state.context[:-1], opened, state.cur_iter, state.rules, state.summary, children)
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
        fresh = TranscriptBuilder()
        self._swap(lambda held: replace(held, done=(*held.done, *asked), open=fresh, cur_iter=0, children=()))
        if self.recorder is not None:
            self.recorder.asked(asked)

    def child(self, call_id: str) -> Memory | None:
        """What the sub-agent that works for this call remembers."""
        return dict(self._held.children).get(call_id)

    def begin_child(self, call_id: str) -> Memory:
        """A sub-agent begins to work for this call, with nothing to remember."""
        begun = Memory(self.session_id)
        self._swap(lambda held: replace(held, children=(*held.children, (call_id, begun))))
        return begun

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
        return self._swap(lambda held: replace(held, late=())).late

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the open reply, and into the memory of the sub-agent that it is of.

        ``MODEL_CALL_START`` may begin a step of it, ``REPLY_END`` closes it, a summary stands for older messages from now on.
        """
        opened = self._held.open
        if opened is None:
            return
        opened.apply(event)
        if path := ev.agent_path(event):
            self._pass_down(path[0], ev.inside(event), opened)
        else:
            self._take(event, opened)
        if self.recorder is not None:
            self.recorder.said(event)

    def _take(self, event: ev.Event, opened: TranscriptBuilder) -> None:
        match event:
            case ev.ModelCallStartEvent() if event.begins_step:
                self._swap(lambda held: replace(held, cur_iter=held.cur_iter + 1))
            case ev.ReplyEndEvent():
                message = opened.freeze().message
                self._swap(lambda held: replace(held, done=(*held.done, message), open=None, cur_iter=0, children=()))
            case ev.CustomEvent(name=ev.SUMMARY, value={"text": str(text), "messages": int(messages), "blocks": int(blocks)}):
                summary = Summary(text=text, messages=messages, blocks=blocks)
                self._swap(lambda held: replace(held, summary=summary))
            case ev.UserConfirmResultEvent():  # names its calls by id: they may be a sub-agent's
                for _, child in self._held.children:
                    child.apply(event)
            case ev.UserInterruptEvent():  # names a reply: it may be a sub-agent's
                children = [child for _, child in self._held.children]
                for child in [child for child in children if child.holds(event.reply_id)] or children:
                    child.apply(event)
            case _:
                pass

    def holds(self, reply_id: str) -> bool:
        """Whether the open reply, or that of a sub-agent, has this id."""
        return self._held.open is not None and self._held.open.holds(reply_id)

    def _pass_down(self, call_id: str, event: ev.Event, opened: TranscriptBuilder) -> None:
        """An event of the sub-agent that works for this call. One that is not known begins here: a log is read back."""
        child = self.child(call_id)
        if child is None and isinstance(event, ev.ReplyStartEvent):
            calls = {block.id: block for block in opened.freeze().message.content if isinstance(block, ToolCallBlock)}
            if call_id in calls:
                child = self.begin_child(call_id)
                child.begin((task_of(calls[call_id]),))
        if child is not None:
            child.apply(event)

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


def task_of(call: ToolCallBlock) -> Msg:
    """What a call of a sub-agent gives it to do, as a message: the same one each time it is read from the call."""
    read = cast("dict[str, object]", pydantic_core.from_json(valid_arguments(call.input)))
    task_id = f"{call.id}-task"
    block = TextBlock(str(read.get("task", "")), id=task_id, created_at=call.created_at)
    return Msg("user", (block,), "user", id=task_id, created_at=call.created_at)


def _memory_of(state: AgentState) -> Memory:
    memory = Memory()
    memory.restore(state)
    return memory


def _transcript_of(state: AgentState, steps: int) -> Transcript:
    """A reply as a state knows it: the last of its context, open or not."""
    children = tuple(
        Child(call_id=child.call_id, transcript=_transcript_of(child.state, child.steps))
        for child in state.children
        if child.state.context
    )
    return Transcript(message=state.context[-1], steps=steps, children=children)
