"""What has been asked of a run and has not taken effect yet: decisions and answers for its pause, notes for its next step.

Law of this room: it is changed on the run's loop only, and each thing in it takes effect once. ``notes`` is a value, which any
thread may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from agent_widgets import events as ev
from agent_widgets.backends import ChecksArguments
from agent_widgets.decisions import Decision
from agent_widgets.errors import InputError
from agent_widgets.messages import JsonObject, PermissionRule, ToolCallBlock, ToolResultBlock, ToolResultState, new_id
from agent_widgets.transcript import Transcript
from agent_widgets.wire import fingerprint

NOT_WAITING = "This call is not waiting for a decision any more; nothing was executed by this click."
CHANGED = "The arguments have changed since this view was drawn; nothing was executed. Look again and decide."
SOME_CHANGED = (
    "One of these calls was decided, or has changed, since this view was drawn; nothing was executed. Look again and decide."
)


Taken = ev.UserConfirmResultEvent | ev.ExternalExecutionResultEvent
"""A decision or an outside result that a run has taken. It takes effect, as an event of the log, when the reply has parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a person adds while the agent works: the model reads it at its next step, as a message of the user."""

    id: str = field(default_factory=lambda: new_id()[:8])
    text: str

    def __post_init__(self) -> None:
        given = cast("object", self.text)  # untyped callers exist
        if not isinstance(given, str) or not given.strip():
            raise InputError(f"steer({given!r:.80}): give some text for the model to read at its next step.")

    def facts(self) -> JsonObject:
        """What a page gets."""
        return {"id": self.id, "text": self.text}


class Inbox:
    """What waits to take effect in one run."""

    def __init__(
        self, backend: object, reply_id: str, taken: Iterable[Taken] = (), on_taken: Callable[[Taken], None] | None = None
    ) -> None:
        """Begin with what was taken before.

        Args:
            backend: Says whether edited arguments fit, if it can (``ChecksArguments``).
            reply_id: The reply that has paused before this run; ``""`` if it begins one.
            taken: What a run before this one took. A decision names its reply: a call of another one may have the same id.
            on_taken: Told of each decision and each outside result before it has any effect.
        """
        self.notes: tuple[Note, ...] = ()
        self._checks = backend if isinstance(backend, ChecksArguments) else None
        self._on_taken = on_taken
        self._decisions: dict[str, Decision] = {}
        self._answers: dict[str, ToolResultBlock] = {}
        for event in taken:
            if event.reply_id != reply_id:
                continue
            if isinstance(event, ev.UserConfirmResultEvent):
                self._decisions |= {result.tool_call.id: Decision.of(result) for result in event.confirm_results}
            else:
                self._answers |= {result.id: result for result in event.execution_results}

    # -- decisions ----------------------------------------------------------------------------------------------

    def decide(self, transcript: Transcript, call_id: str | None, decision: Decision) -> str:
        """Take a decision about one of the calls that wait, or about all. Gives ``""``, or why nothing of it counts."""
        chosen = [call for call in self._undecided(transcript.waiting) if call_id in (None, call.id)]
        if not chosen:
            return NOT_WAITING
        for call in chosen:
            if decision.seen is not None and decision.seen != fingerprint(call.name, call.input):
                return CHANGED
            if fault := self._fault(call, decision):
                return fault
        return self._take(transcript, chosen, decision)

    def decide_all(self, transcript: Transcript, seen: Mapping[str, str], decision: Decision) -> str:
        """Take one decision about the calls that a person saw: fingerprints by id. Gives ``""``, or why nothing of it counts.

        If one of them is stale, nothing is approved. A denial counts for those that still wait as they were seen.
        """
        chosen = [c for c in self._undecided(transcript.waiting) if seen.get(c.id) == fingerprint(c.name, c.input)]
        if decision.confirmed and len(chosen) < len(seen):
            return SOME_CHANGED
        if not chosen:
            return NOT_WAITING
        return self._take(transcript, chosen, decision)

    def _take(self, transcript: Transcript, chosen: Sequence[ToolCallBlock], decision: Decision) -> str:
        results = tuple(decision.result_for(call) for call in chosen)
        self._note_taken(ev.UserConfirmResultEvent(reply_id=transcript.message.id, confirm_results=results))
        self._decisions.update({call.id: decision for call in chosen})
        return ""

    def _note_taken(self, event: Taken) -> None:
        if self._on_taken is not None:
            self._on_taken(event)

    def misfit(self, waiting: Sequence[ToolCallBlock], call_id: str | None, arguments: str) -> str:
        """Why edited arguments cannot be given to the calls that wait for a decision; ``""`` if they can."""
        chosen = (call for call in self._undecided(waiting) if call_id in (None, call.id))
        return next((fault for call in chosen if (fault := self._misfit(call, arguments))), "")

    def _undecided(self, waiting: Sequence[ToolCallBlock]) -> list[ToolCallBlock]:
        return [call for call in waiting if call.state == "asking" and call.id not in self._decisions]

    def _fault(self, call: ToolCallBlock, decision: Decision) -> str:
        """Why this decision cannot be taken about this call."""
        if decision.arguments is not None and (fault := self._misfit(call, decision.arguments)):
            return fault
        rule = decision.always
        if isinstance(rule, PermissionRule):
            if (rule.tool_name, rule.behavior) != (call.name, "allow"):
                return f"A rule for {call.name} must allow {call.name}, and {rule!r} does not; nothing was executed."
            edited = decision.arguments is not None and rule.rule_content is not None
            offered = {(one.tool_name, one.rule_content) for one in call.suggested_rules}
            if decision.seen is not None and (edited or (rule.tool_name, rule.rule_content) not in offered):
                return "This rule was not offered for this call; nothing was executed and nothing is allowed."
        return ""

    def _misfit(self, call: ToolCallBlock, arguments: str) -> str:
        fault = self._checks.misfit(replace(call, input=arguments)) if self._checks else ""
        return f"{fault}. Nothing was executed, and the call still waits." if fault else ""

    # -- answers ------------------------------------------------------------------------------------------------

    def answer(self, transcript: Transcript, call_id: str, result: str) -> str:
        """Take the outside result of a call that waits for one. Gives ``""``, or why it does not count."""
        call = next((c for c in transcript.waiting if c.id == call_id and c.state == "submitted"), None)
        if call is None or call_id in self._answers:
            return "This call is not waiting for a result any more; the answer was not used."
        self._take_answer(transcript, call, result, "success")
        return ""

    def _take_answer(self, transcript: Transcript, call: ToolCallBlock, result: str, state: ToolResultState) -> None:
        block = ToolResultBlock(id=call.id, name=call.name, output=result, state=state)
        self._note_taken(ev.ExternalExecutionResultEvent(reply_id=transcript.message.id, execution_results=(block,)))
        self._answers[call.id] = block

    def give_up(self, transcript: Transcript, call: ToolCallBlock, reason: str) -> None:
        """Nobody has answered: deny the call, or give an error for its outside result. Nothing if an answer was taken."""
        if call.state == "asking":
            self.decide(transcript, call.id, Decision(confirmed=False, reason=reason))
        elif call.id not in self._answers:
            self._take_answer(transcript, call, f"{reason} There is no result.", "error")

    def ready(self, transcript: Transcript) -> ev.UserConfirmResultEvent | ev.ExternalExecutionResultEvent | None:
        """What a paused reply goes on with now; ``None`` while nothing is there for what it waits for."""
        calls = {call.id: call for call in transcript.waiting}
        decided = tuple(d.result_for(calls[call_id]) for call_id, d in self._decisions.items() if call_id in calls)
        if decided:
            return ev.UserConfirmResultEvent(reply_id=transcript.message.id, confirm_results=decided)
        answers = tuple(block for call_id, block in self._answers.items() if call_id in calls)
        return ev.ExternalExecutionResultEvent(reply_id=transcript.message.id, execution_results=answers) if answers else None

    # -- notes --------------------------------------------------------------------------------------------------

    def withdraw(self, note_id: str | None) -> bool:
        """Take back one note, or all that wait. Gives whether there was one."""
        kept = tuple(note for note in self.notes if note_id not in (None, note.id))
        changed, self.notes = len(kept) < len(self.notes), kept
        return changed

    def take_notes(self) -> tuple[Note, ...]:
        """All that wait; they are taken out."""
        notes, self.notes = self.notes, ()
        return notes
