"""The journal of a stored session: each change of what an agent remembers as a line, and the fold that reads the lines back.

A line is ``{"asked": [Msg, …]}``, ``{"said": Event}``, ``{"rules": [PermissionRule, …]}`` or ``{"taken": Event}``: a decision
or an outside result that was taken and waits to take effect. What a tool prints and what a notice says is no part of the
state, and is not written.

Its law: a line is written before anything follows from it, but for streamed text, which is joined for at most
``FLUSH_SECONDS``. A disk that fails is told once, and never stops a run.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic import JsonValue

from agent_widgets import events as ev
from agent_widgets.errors import InputError, SavedStateError
from agent_widgets.eventlog import EventLog
from agent_widgets.inbox import Taken
from agent_widgets.memory import Memory
from agent_widgets.messages import JsonObject, Msg, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.state import AgentState
from agent_widgets.store import Store
from agent_widgets.wire import dump_event, dump_msg, dump_rules, dump_state, load_event, load_msg, load_rules, load_state

FLUSH_SECONDS = 0.05
"""How long streamed text may wait for more of its block: a crash loses this much, and twice as much is promised."""

LOG_BYTES = 65_536
"""A log that is smaller goes on after the end of a reply; a larger one as long as it is smaller than its state."""


class Journal:
    """A ``Recorder`` that writes into a store. Any thread; it never raises."""

    def __init__(self, store: Store, name: str, dump: Callable[[], JsonObject], tell: Callable[[str], None]) -> None:
        """Prepare a journal; nothing is written before ``begin``.

        Args:
            store: Where to.
            name: The session's.
            dump: The agent's state as JSON.
            tell: Takes a sentence for the person, when the disk fails and when it works again.
        """
        self._store = store
        self._name = name
        self._dump = dump
        self._tell = tell
        self._lock = threading.Lock()
        self._joined = EventLog()
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._is_open = False

    def begin(self, taken: Iterable[Taken] = ()) -> None:
        """Write the state and a new log. ``taken``: decisions and results that still wait to take effect.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            self._store.renew(self._name, self._dump(), b"".join(_line("taken", dump_event(event)) for event in taken))
            self._is_open = True

    def asked(self, messages: tuple[Msg, ...]) -> None:
        """A prompt; see ``Recorder``."""
        with self._lock:
            self._append(_line("asked", [dump_msg(message) for message in messages]))

    def said(self, event: ev.Event) -> None:
        """An event; see ``Recorder``."""
        if isinstance(event, ev.CustomEvent) and event.name in (ev.TOOL_OUTPUT, ev.NOTICE):
            return
        with self._lock:
            if isinstance(event, ev.TextDelta):
                self._join(event)
                return
            # That a tool begins also survives a power cut: an approval is never carried out a second time.
            self._append(self._joined_lines() + _said(event), sync=isinstance(event, ev.ToolResultStartEvent))
            ends = isinstance(event, ev.ReplyEndEvent)
            if ends and (self._has_failed or self._store.log_size >= max(LOG_BYTES, self._store.state_size)):
                self._renew()

    def ruled(self, rules: tuple[PermissionRule, ...]) -> None:
        """Other rules; see ``Recorder``."""
        with self._lock:
            self._append(_line("rules", [*dump_rules(rules)]))

    def taken(self, event: Taken) -> None:
        """A decision or an outside result was taken, and has no effect yet."""
        with self._lock:
            self._append(_line("taken", dump_event(event)))

    def replaced(self) -> None:
        """Another state; see ``Recorder``."""
        with self._lock:
            self._renew()

    def close(self) -> None:
        """Write what is joined, and let the store go. Changes after this are not written."""
        with self._lock:
            self._append(self._joined_lines())
            self._is_open = False
            self._store.close()

    def _join(self, event: ev.TextDelta) -> None:
        now = time.monotonic()
        if not len(self._joined):
            self._since = now
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)
        self._joined.append(event)
        if now - self._since >= FLUSH_SECONDS:  # the loop was too busy for its timer
            self._append(self._joined_lines())

    def _flush(self) -> None:
        with self._lock:
            self._append(self._joined_lines())

    def _joined_lines(self) -> bytes:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return b"".join(map(_said, self._joined.take()))

    def _append(self, data: bytes, *, sync: bool = False) -> None:
        if not self._is_open or self._has_failed or not data:
            return
        try:
            self._store.append(data, sync=sync)
        except OSError as error:
            self._has_failed = True
            self._tell(
                f"The session could not be written to {self._store.path}: {error}. The run goes on and the agent's state in this "
                "kernel is right, but the disk does not follow. It is tried again when the reply ends."
            )

    def _renew(self) -> None:
        if not self._is_open:
            return
        try:
            self._store.renew(self._name, self._dump())
        except OSError as error:
            if not self._has_failed:  # the log goes on where it was
                self._has_failed = True
                self._tell(f"The session could not be written to {self._store.path}: {error}.")
        else:
            if self._has_failed:
                self._has_failed = False
                self._tell(f"The session is written to {self._store.path} again, with everything that happened meanwhile.")


def read_back(store: Store) -> tuple[str, JsonObject, tuple[Taken, ...]] | None:
    """The name, the state and what was taken but had no effect yet; ``None`` for a new store.

    The state is valid. A call that had begun is closed as interrupted; one that was decided and had not begun waits again, and
    its decision is among those taken.

    Raises:
        SavedStateError: a file is damaged or of a newer version. All are left alone.
    """
    found = store.read()
    if found is None:
        return None
    name, saved, lines, whole = found
    if not lines:
        return name, saved, ()
    memory, taken = Memory(), _Taken()
    memory.restore(load_state(saved))
    for number, line in enumerate(lines, 2):
        try:
            _fold(line, memory, taken)
        except (ValueError, TypeError) as error:  # InputError is a ValueError
            raise SavedStateError(
                f"{store.path} is damaged: line {number} of its log cannot be read ({error!s:.200}). Everything was left as it "
                "is. What it held before that log is in its state.json: Session.load reads it."
            ) from error
    state = taken.reopened(memory.state) if whole else _given_up(memory.state)
    state = state.repair()
    return name, dump_state(state), taken.events(state.reply_id) if whole else ()


def _given_up(state: AgentState) -> AgentState:
    """Nothing waits any more: where the disk failed, what waits here may have been carried out without a trace."""
    if not state.waiting():
        return state
    content = (replace(b, state="finished") if isinstance(b, ToolCallBlock) else b for b in state.context[-1].content)
    children = tuple(replace(child, state=_given_up(child.state)) for child in state.children)
    context = (*state.context[:-1], replace(state.context[-1], content=tuple(content)))
    return replace(state, context=context, children=children)


@dataclass(slots=True)
class _Taken:
    """What was decided and answered, until it has taken effect."""

    decisions: dict[str, ev.ConfirmResult] = field(default_factory=dict[str, ev.ConfirmResult])
    answers: dict[str, ToolResultBlock] = field(default_factory=dict[str, ToolResultBlock])

    def note(self, event: ev.Event) -> None:
        """A tool that has begun used up its approval; a denial and an answer are used up when their result has ended."""
        match event:
            case ev.UserConfirmResultEvent():
                self.decisions |= {result.tool_call.id: result for result in event.confirm_results}
            case ev.ExternalExecutionResultEvent():
                self.answers |= {result.id: result for result in event.execution_results}
            case ev.ToolResultStartEvent(tool_call_id=call_id):
                if call_id in self.decisions and self.decisions[call_id].confirmed:
                    del self.decisions[call_id]
            case ev.ToolResultEndEvent(tool_call_id=call_id):
                self.decisions.pop(call_id, None)
                self.answers.pop(call_id, None)
            case ev.ReplyEndEvent() if not ev.agent_path(event):
                self.decisions.clear()
                self.answers.clear()
            case _:
                pass

    def reopened(self, state: AgentState) -> AgentState:
        """The state with these calls waiting again, without the half of a result that a crash may have left."""
        if not state.reply_id:
            return state
        content = (
            replace(block, state="asking")
            if isinstance(block, ToolCallBlock) and block.id in self.decisions
            else replace(block, output="")
            if isinstance(block, ToolResultBlock) and block.id in self.answers
            else block
            for block in state.context[-1].content
            if not (isinstance(block, ToolResultBlock) and block.id in self.decisions)
        )
        children = tuple(replace(child, state=self.reopened(child.state)) for child in state.children)
        context = (*state.context[:-1], replace(state.context[-1], content=tuple(content)))
        return replace(state, context=context, children=children)

    def events(self, reply_id: str) -> tuple[Taken, ...]:
        """As a run takes them."""
        decided = ev.UserConfirmResultEvent(reply_id=reply_id, confirm_results=tuple(self.decisions.values()))
        answered = ev.ExternalExecutionResultEvent(reply_id=reply_id, execution_results=tuple(self.answers.values()))
        return (*([decided] if self.decisions else []), *([answered] if self.answers else []))


def _fold(line: bytes, memory: Memory, taken: _Taken) -> None:
    value: object = json.loads(line)
    kind, given = next(iter(cast("JsonObject", value).items())) if isinstance(value, dict) and value else ("", None)
    match kind:
        case "asked":
            memory.begin(load_msg(message) for message in cast("list[JsonValue]", given))
        case "said":
            event = load_event(given)
            memory.apply(event)
            taken.note(event)
        case "rules":
            rules = load_rules(given)
            memory.forget(lambda _: True)
            memory.allow(rules)
        case "taken":
            taken.note(load_event(given))
        case _:
            raise InputError(f"a line of the kind {kind!r:.40} is not known")


def _said(event: ev.Event) -> bytes:
    return _line("said", dump_event(event))


def _line(kind: str, value: JsonValue) -> bytes:
    return json.dumps({kind: value}, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
