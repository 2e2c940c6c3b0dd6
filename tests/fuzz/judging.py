"""What must hold for a leg, a run and the results of a story, given what was done to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_widgets import events as ev
from agent_widgets.errors import AgentInterruptedError, NotWaitingError
from agent_widgets.messages import Msg
from agent_widgets.results import DENIED_TEXT
from agent_widgets.state import AgentState
from tests.fuzz.checks import results_by_key
from tests.fuzz.lives import Watch

if TYPE_CHECKING:
    from tests.fuzz.stage import Stage


class ReaderFailedError(Exception):
    """What a reader of a stream raises of its own."""


def judge_leg(stage: Stage, watch: Watch | None, error: BaseException | None) -> None:
    """What the caller got must be what happened to him."""
    status = watch.run.status if watch else "nothing"
    expected: type[BaseException] | None = None
    if isinstance(error, ReaderFailedError):
        expected = ReaderFailedError
    elif watch is None and stage.pause_was_ended and isinstance(error, NotWaitingError):
        expected = NotWaitingError  # somebody ended the pause between the look at it and the decision
    elif stage._reader_left and stage.story.reading == "break" and error is None:
        expected = None  # it left while it was given the closing events, and took its cancel along
    elif stage._was_cancelled:
        expected = asyncio.CancelledError
    elif stage._expired:
        expected = TimeoutError
    elif status == "error" and watch is not None:
        expected = type(watch.run.error) if watch.run.error else None
        if stage._reader_left:
            expected = None
    elif status == "interrupted" and stage.story.raises and stage.story.way == "reply":
        expected = AgentInterruptedError
    if (type(error) if error else None) is not expected:
        stage.fault("wrong outcome", f"a {status} reply raised {error!r}, expected {expected}")


def judge_run(stage: Stage, watch: Watch) -> None:
    """One outcome, the right one, and a log that says so."""
    run = watch.run
    where = f"a run that is {run.status} after {[e.type for e in watch.events[-3:]]}"
    paused = run.status == "paused"
    for fault in watch.check.end(paused=paused, waiting={call.id for call in run.transcript.waiting}):
        stage.fault("broken log", f"{fault} ({where})")
    end = next((event for event in watch.events if isinstance(event, ev.ReplyEndEvent)), None)
    if end is not None and end.finished_reason != run.status:
        stage.fault("wrong outcome", f"REPLY_END says {end.finished_reason}: {where}")
    if watch.must_be_interrupted and run.status != "interrupted":
        stage.fault("wrong outcome", f"stopped now, and {where}")
    if watch.must_end and paused:
        stage.fault("wrong outcome", f"stopped, and {where}")
    if run.status == "interrupted" and not watch.reasons and not watch.may_be_interrupted:
        stage.fault("wrong outcome", f"nobody stopped it: {where}")
    if run.status == "error" and not watch.model_failed:
        stage.fault("wrong outcome", f"{run.error!r} came from nowhere: {where}")
    if not run.is_over:
        stage.fault("wrong outcome", f"not over: {where}")
    if end is not None and run.status == "interrupted" and watch.reasons and not watch.may_be_interrupted:
        if end.metadata.get("reason") not in watch.reasons:
            stage.fault("wrong outcome", f"REPLY_END's reason is {end.metadata.get('reason')!r}, asked was {watch.reasons}")
        if end.metadata.get("source") not in ("code", "user"):
            stage.fault("wrong outcome", f"REPLY_END's source is {end.metadata.get('source')!r}")
    kept = next((m for m in stage.life.agent.state.context if m.id == run.reply.id), None)
    if kept is not None and not paused and _content(kept) != _content(run.reply):
        stage.fault("broken log", f"the history is not the fold of the log: {where}")


def judge_results(stage: Stage, state: AgentState) -> None:
    """Nothing lost, nothing invented, and every reason word for word."""
    results = results_by_key(state.context)
    for key, text in (stage._must_have | stage.finished).items():
        if key in stage.noticed:
            continue
        call, result = results.get(key, (None, None))
        if result is None or call is None or text not in result.text():
            stage.fault("result lost", f"{key} finished with {text!r}; the history has {result and result.text()!r}")
        elif key in stage.finished and result.state not in ("success", "error"):
            stage.fault("result lost", f"{key} finished, and its result is {result.state}")
    for key, (call, result) in results.items():
        if key in stage.denied:
            reason = stage.denied[key]
            text = DENIED_TEXT.format(name=call.name) + (f"\nReason: {reason}" if reason else "")
            if result.state != "denied" or result.text() != text:
                stage.fault("wrong outcome", f"{key} was denied for {reason!r}; the model reads {result.state} {result.text()!r}")
        elif result.state == "success" and key not in stage.ran:
            stage.fault("wrong outcome", f"{key} has a result and never ran")
        elif result.state == "success" and key not in (stage._must_have | stage.finished):
            stage.fault("wrong outcome", f"{key} has a success that no tool gave: {result.text()!r}")
        if key in stage.ran and key in stage.allowed and call.input not in stage.allowed[key]:
            stage.fault("wrong outcome", f"{key} ran with {stage.allowed[key]}, and the history shows {call.input}")


def _content(message: Msg) -> list[object]:
    return [replace(block, finished_at=None) for block in message.content]
