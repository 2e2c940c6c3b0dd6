"""A run: one task, one log, one outcome, with backends that behave and backends that do not."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent_widgets import carriage
from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.backends import Emit, Inputs
from agent_widgets.decisions import Decision, StopLevel, StopRequest, StopSource
from agent_widgets.errors import AgentWidgetsError, InputError
from agent_widgets.loops import SideBySide
from agent_widgets.messages import ErrorInfo, JsonObject, PermissionRule, ToolCallBlock, ToolResultBlock
from agent_widgets.models.scripted import ScriptedModel, call, say, wait
from agent_widgets.runs import Run, current_run
from agent_widgets.tools import tool
from agent_widgets.transcript import fold
from agent_widgets.wire import fingerprint

R: dict[str, Any] = {"reply_id": "r"}
START = ev.ReplyStartEvent(session_id="s", name="fake", **R)
END = ev.ReplyEndEvent(session_id="s", **R)
TEXT = ev.TextBlockStartEvent(block_id="b", **R)
HALF = ev.TextBlockDeltaEvent(block_id="b", delta="half", **R)
CALL = ToolCallBlock(id="c", name="rm", input='{"x": 1}', suggested_rules=(PermissionRule("rm"),))
ASKS = (
    START,
    ev.ToolCallStartEvent(tool_call_id="c", tool_call_name="rm", **R),
    ev.ToolCallDeltaEvent(tool_call_id="c", delta='{"x": 1}', **R),
    ev.ToolCallEndEvent(tool_call_id="c", **R),
    ev.RequireUserConfirmEvent(tool_calls=(CALL,), **R),
)


@pytest.fixture(autouse=True)
def nothing_failed_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a callback of the loop raises is only logged: here it fails the test."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


Body = Callable[["Fake", Inputs, Emit], Awaitable[None]]


class Fake:
    """A backend whose behaviour is one function. It keeps what it was given."""

    name = "fake"

    def __init__(self, body: Body, *, steps: bool = True) -> None:
        self.body, self.steps = body, steps
        self.inputs: list[Inputs] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.seen_stop_after_step = 0

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        self.inputs.append(inputs)
        self.begun.set()
        await self.body(self, inputs, emit)

    def stop_after_step(self) -> bool:
        self.seen_stop_after_step += 1
        return self.steps

    def dump(self) -> JsonObject:
        return {}

    def load(self, saved: JsonObject, /) -> None:
        raise NotImplementedError(saved)


def started(backend: Fake | Agent, inputs: Inputs = "go", **options: Any) -> Run:
    run = Run(backend, inputs, loop=asyncio.get_running_loop(), session_id="s", **options)
    run.start()
    return run


async def until(run: Run, *wanted: str) -> None:
    reached = asyncio.Event()
    forget = run.listen(lambda run, _: reached.set() if run.status in wanted else None)
    if run.status not in wanted:
        await asyncio.wait_for(reached.wait(), 5)
    forget()


def types(run: Run) -> list[str]:
    return [event.type for event in run.events]


def assert_ended_once(run: Run) -> ev.ReplyEndEvent:
    """One end, last, and the transcript is the fold of the log."""
    last = run.events[-1]
    assert isinstance(last, ev.ReplyEndEvent)
    assert types(run).count("REPLY_END") == 1
    assert run.status == last.finished_reason
    folded = fold(None, *run.events)
    assert run.transcript.message.content == folded.message.content
    assert replace(run.transcript, message=folded.message) == folded
    assert all(block.finished_at for block in run.reply.content)
    return last


# -- bodies ---------------------------------------------------------------------------------------------------------


async def completes(fake: Fake, inputs: Inputs, emit: Emit) -> None:
    for event in (START, TEXT, HALF, ev.TextBlockEndEvent(block_id="b", **R), END):
        emit(event)


async def hangs_in_text(fake: Fake, inputs: Inputs, emit: Emit) -> None:
    for event in (START, TEXT, HALF):
        emit(event)
    await fake.go.wait()
    emit(END)


async def swallows(fake: Fake, inputs: Inputs, emit: Emit) -> None:
    emit(START)
    with contextlib.suppress(asyncio.CancelledError):  # such agents exist
        await asyncio.Event().wait()
    emit(TEXT)


async def asks(fake: Fake, inputs: Inputs, emit: Emit) -> None:
    """Pauses; goes on with a decision, closes with an interrupt."""
    if isinstance(inputs, str):
        for event in ASKS:
            emit(event)
        return
    emit(ev.ToolResultStartEvent(tool_call_id="c", tool_call_name="rm", **R))
    emit(ev.ToolResultEndEvent(tool_call_id="c", state="success", **R))
    emit(
        ev.ReplyEndEvent(
            session_id="s", finished_reason="interrupted" if isinstance(inputs, ev.UserInterruptEvent) else "completed", **R
        )
    )


# -- outcomes -------------------------------------------------------------------------------------------------------


async def test_a_run_is_queued_then_running_then_its_outcome() -> None:
    run, told = Run(Fake(completes), "go", loop=asyncio.get_running_loop()), list[str]()
    run.listen(lambda run, event: told.append(event.type if event else run.status))
    assert run.status == "queued"
    run.start()
    assert (await run).text == "half"
    assert told == ["running", "REPLY_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "REPLY_END", "completed"]
    assert (run.status, run.text, run.is_over, run.error) == ("completed", "half", True, None)
    assert_ended_once(run)


async def test_a_backend_that_ends_nothing_is_closed() -> None:
    async def forgets(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        for event in (START, TEXT, HALF):
            emit(event)

    run = started(Fake(forgets))
    await run
    assert types(run) == ["REPLY_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "REPLY_END"]
    assert_ended_once(run)


async def test_a_failing_backend_is_an_outcome_that_keeps_the_text_and_await_raises_the_error_whole() -> None:
    failure = ValueError("no luck")

    async def fails(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        for event in (START, TEXT, HALF):
            emit(event)
        raise failure

    run = started(Fake(fails))
    with pytest.raises(ValueError, match="no luck") as caught:
        await run
    assert caught.value is failure
    assert run.error is failure
    end = assert_ended_once(run)
    assert (end.finished_reason, end.error) == ("error", ErrorInfo(type="internal", message="ValueError: no luck"))
    assert run.text == "half"


async def test_nothing_is_logged_or_told_after_the_end() -> None:
    async def talks_on(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        emit(START)
        emit(END)
        emit(TEXT)
        emit(END)

    told: list[ev.Event | None] = []
    run = Run(Fake(talks_on), "go", loop=asyncio.get_running_loop())
    run.listen(lambda _, event: told.append(event) if event else None)
    run.start()
    await run
    assert types(run) == ["REPLY_START", "REPLY_END"]
    assert told == list(run.events)


async def test_a_listener_hears_of_an_event_after_it_is_in_the_log_until_it_leaves() -> None:
    backend, seen = Fake(hangs_in_text), list[tuple[str, int]]()
    run = Run(backend, "go", loop=asyncio.get_running_loop())
    forget = run.listen(lambda run, event: seen.append((event.type, len(run.events))) if event else None)
    run.start()
    await backend.begun.wait()
    forget()
    forget()
    backend.go.set()
    await run
    assert seen == [("REPLY_START", 1), ("TEXT_BLOCK_START", 2), ("TEXT_BLOCK_DELTA", 3)]


async def test_a_tool_can_ask_for_the_run_it_works_for() -> None:
    found: list[Run | None] = []

    async def looks(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        found.append(current_run())
        emit(START)

    run = started(Fake(looks))
    await run
    assert found == [run]
    assert current_run() is None


async def test_the_repr_is_one_line_that_says_how_it_went() -> None:
    run = started(Fake(completes))
    await run
    assert repr(run) == "<Run completed in 0.0 s: half>"


# -- stopping -------------------------------------------------------------------------------------------------------


async def test_a_stop_cuts_what_runs_closes_what_is_open_and_says_who_and_why() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    run.stop(reason="enough", source="user")
    assert (await run).text == "half"
    end = assert_ended_once(run)
    assert end.finished_reason == "interrupted"
    assert {**end.metadata, "stop_ms": 0} == {"source": "user", "when": "now", "reason": "enough", "stop_ms": 0}
    assert isinstance(end.metadata["stop_ms"], float)
    assert run.reply.metadata["_is_interrupted"] is True


async def test_stop_returns_before_the_effect_and_cancels_in_the_next_turn_of_the_loop() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    run.stop()
    assert run.status == "running"
    await asyncio.sleep(0)
    assert run.status == "stopping"
    await run


async def test_a_run_stopped_before_its_start_never_begins() -> None:
    backend = Fake(completes)
    run = Run(backend, "go", loop=asyncio.get_running_loop())
    run.stop(reason="no")
    run.start()
    await run
    assert backend.inputs == []
    assert types(run) == ["REPLY_END"]
    assert assert_ended_once(run).metadata["reason"] == "no"


@pytest.mark.parametrize("level", ["now", "step"])
async def test_a_run_stopped_between_start_and_its_first_step_never_begins(level: StopLevel) -> None:
    backend = Fake(completes)
    run = started(backend)
    run.stop(level)
    await run
    assert backend.inputs == []
    assert assert_ended_once(run).metadata["when"] == level


async def test_a_step_is_asked_for_and_now_upgrades_it() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    run.stop("step", reason="soft")
    await until(run, "stopping")
    assert backend.seen_stop_after_step == 1
    assert len(run.events) == 3
    run.stop("now", reason="hard")
    await run
    assert {key: assert_ended_once(run).metadata[key] for key in ("when", "reason")} == {"when": "now", "reason": "hard"}


async def test_a_step_does_not_downgrade_now_and_the_first_reason_stays() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    run.stop("now", "first")
    run.stop("step", "second")
    run.stop("now", "third")
    await run
    assert assert_ended_once(run).metadata["reason"] == "first"


async def test_a_backend_that_cannot_stop_after_a_step_is_cancelled() -> None:
    backend = Fake(hangs_in_text, steps=False)
    run = started(backend)
    await backend.begun.wait()
    run.stop("step")
    await run
    assert assert_ended_once(run).finished_reason == "interrupted"


async def test_a_backend_that_swallows_the_cancel_is_interrupted_all_the_same() -> None:
    backend = Fake(swallows)
    run = started(backend)
    await backend.begun.wait()
    run.stop()
    await run
    assert assert_ended_once(run).finished_reason == "interrupted"


async def test_a_backend_that_does_not_end_after_its_stop_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriage, "CLEAN_UP_SECONDS", 0.01)

    async def deaf(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        while not fake.go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await fake.go.wait()

    backend = Fake(deaf)
    run, told = started(backend), asyncio.Event()
    await backend.begun.wait()
    run.listen(lambda _, event: told.set() if isinstance(event, ev.CustomEvent) else None)
    run.stop()
    await asyncio.wait_for(told.wait(), 5)
    assert run.status == "stopping"
    backend.go.set()
    await run
    assert assert_ended_once(run).finished_reason == "interrupted"
    (notice,) = [event.value["text"] for event in run.events if isinstance(event, ev.CustomEvent)]
    assert "has not ended 0.01 s after its stop" in str(notice)


async def test_a_backend_that_completes_in_the_face_of_a_cancel_has_completed() -> None:
    async def hurries(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        emit(START)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        emit(END)

    backend = Fake(hurries)
    run = started(backend)
    await backend.begun.wait()
    run.stop()
    await run
    assert assert_ended_once(run).metadata == {}
    assert run.status == "completed"


async def test_a_stop_of_a_run_that_has_ended_does_nothing() -> None:
    run = started(Fake(completes))
    await run
    before = run.events
    run.stop()
    run.approve()
    run.deny(stop=True)
    run.answer("c", "x")
    await asyncio.sleep(0)
    assert (run.events, run.status) == (before, "completed")


async def test_a_stop_from_another_thread_is_as_good() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    await asyncio.to_thread(run.stop, reason="from a thread")
    await run
    assert assert_ended_once(run).metadata["reason"] == "from a thread"


async def test_many_stops_at_once_from_many_threads_are_one() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    threads = [threading.Thread(target=run.stop) for _ in range(20)]
    for thread in threads:
        thread.start()
    await run
    for thread in threads:
        thread.join()
    await asyncio.sleep(0)
    assert_ended_once(run)


@pytest.mark.parametrize("level", ["later", "", None, "NOW"])
async def test_a_level_that_does_not_exist_is_refused(level: Any) -> None:
    run = started(Fake(completes))
    with pytest.raises(InputError, match=r"it must be 'now' or 'step'"):
        run.stop(level)
    await run


@pytest.mark.parametrize("source", ["user", "code", "kernel", "deadline", "budget"])
async def test_a_stop_may_make_await_raise(source: StopSource) -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    run.stop(source=source, raises=RuntimeError("policy"))
    with pytest.raises(RuntimeError, match="policy"):
        await run
    assert assert_ended_once(run).metadata["source"] == source


async def test_a_deadline_stops_the_run_and_says_so() -> None:
    run = started(Fake(hangs_in_text), deadline=0.01)
    assert (await run).text == "half"
    end = assert_ended_once(run)
    assert {key: end.metadata[key] for key in ("source", "when", "reason")} == {
        "source": "deadline",
        "when": "now",
        "reason": "0.01 s are over",
    }


async def test_a_deadline_also_ends_a_pause() -> None:
    backend = Fake(asks)
    run = started(backend, deadline=0.01)
    await run
    assert [type(given) for given in backend.inputs] == [str, ev.UserInterruptEvent]
    assert assert_ended_once(run).metadata["source"] == "deadline"


async def test_a_deadline_that_was_kept_changes_nothing_and_leaves_no_timer() -> None:
    run = started(Fake(completes), deadline=60)
    await run
    assert run.events[-1].metadata == {}
    assert [alarm.cancelled() for alarm in run._alarms] == [True]


# -- pausing and deciding -------------------------------------------------------------------------------------------


async def test_a_pause_leaves_no_task_and_no_end() -> None:
    run = started(Fake(asks))
    await until(run, "paused")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert types(run)[-1] == "REQUIRE_USER_CONFIRM"
    assert [call.id for call in run.transcript.waiting] == ["c"]
    run.stop()
    await run


async def test_an_approval_starts_the_reply_again_with_the_decision() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    run.approve()
    await run
    decision = backend.inputs[1]
    assert isinstance(decision, ev.UserConfirmResultEvent)
    assert [(r.confirmed, r.tool_call.id, r.tool_call.input, r.rules) for r in decision.confirm_results] == [
        (True, "c", '{"x": 1}', None)
    ]
    assert decision in run.events
    assert_ended_once(run)


async def test_a_denial_carries_the_reason_word_for_word() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    run.deny("c", "not on a «Friday»\n ")
    await run
    decision = backend.inputs[1]
    assert isinstance(decision, ev.UserConfirmResultEvent)
    assert [(r.confirmed, r.reason) for r in decision.confirm_results] == [(False, "not on a «Friday»\n ")]


async def test_always_passes_on_the_suggested_rules() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    run.approve(always=True)
    await run
    decision = backend.inputs[1]
    assert isinstance(decision, ev.UserConfirmResultEvent)
    assert decision.confirm_results[0].rules == (PermissionRule("rm"),)


@pytest.mark.parametrize("arguments", [{"x": 2}, '{"x":2}'])
async def test_edited_arguments_replace_the_models(arguments: Any) -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    run.approve("c", arguments=arguments)
    await run
    decision = backend.inputs[1]
    assert isinstance(decision, ev.UserConfirmResultEvent)
    assert decision.confirm_results[0].tool_call.input == '{"x":2}'
    assert isinstance(edited := run.reply.content[0], ToolCallBlock)
    assert edited.input == '{"x":2}'


@pytest.mark.parametrize("arguments", ["", "rm -rf", '{"x', "[1]", "null"])
async def test_edited_arguments_that_are_no_object_are_refused_at_once_and_it_goes_on_waiting(arguments: str) -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    with pytest.raises(InputError, match=r"it must be a JSON object.*Nothing was executed"):
        run.approve("c", arguments=arguments)
    await asyncio.sleep(0)
    assert (run.status, len(backend.inputs)) == ("paused", 1)
    run.stop()
    await run


async def test_a_decision_that_comes_before_the_reply_has_parked_waits_for_it() -> None:
    async def slow_to_park(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        await asks(fake, inputs, emit)
        if isinstance(inputs, str):
            await fake.go.wait()

    backend = Fake(slow_to_park)
    run = started(backend)
    await backend.begun.wait()
    run.approve()
    await asyncio.sleep(0)
    assert (run.status, len(backend.inputs)) == ("running", 1)
    backend.go.set()
    await run
    assert [type(given) for given in backend.inputs] == [str, ev.UserConfirmResultEvent]


async def test_each_decision_takes_effect_once_and_later_ones_say_why_they_do_not_count() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    yes, no = Decision(confirmed=True), Decision(confirmed=False)
    assert run.decide("c", yes) == ""
    assert "not waiting for a decision any more" in run.decide("c", no)
    assert "not waiting" in run.decide("no such call", yes)
    await run
    assert "already ended; nothing was executed" in run.decide("c", yes)
    assert len(backend.inputs) == 2


async def test_a_decision_about_arguments_that_were_not_the_ones_shown_does_not_count() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    stale = Decision(confirmed=True, seen=fingerprint("rm", '{"x": 2}'))
    assert "arguments have changed" in run.decide("c", stale)
    await asyncio.sleep(0)
    assert run.status == "paused"
    assert run.decide("c", Decision(confirmed=True, seen=fingerprint("rm", '{"x": 1}'))) == ""
    await run


async def test_a_policy_decides_when_the_reply_pauses() -> None:
    paused: list[str] = []

    def policy(run: Run) -> None:
        paused.append(run.status)
        run.deny(reason="policy")

    backend = Fake(asks)
    run = started(backend, on_pause=policy)
    await run
    assert paused == ["paused"]
    assert len(backend.inputs) == 2


@pytest.mark.parametrize("levels", [("now",), ("step",), ("step", "now"), ("step", "step"), ("now", "now")])
async def test_a_stop_of_a_paused_run_ends_it_with_a_user_interrupt(levels: tuple[StopLevel, ...]) -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    for level in levels:
        run.stop(level, reason="no thanks")
    await run
    assert [type(given) for given in backend.inputs] == [str, ev.UserInterruptEvent]
    assert assert_ended_once(run).metadata["reason"] == "no thanks"


async def test_a_stop_while_it_parks_ends_the_pause() -> None:
    async def slow_to_park(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        await asks(fake, inputs, emit)
        if isinstance(inputs, str):
            await fake.go.wait()

    backend = Fake(slow_to_park)
    run = started(backend)
    await backend.begun.wait()
    run.stop("step")
    backend.go.set()
    await run
    assert [type(given) for given in backend.inputs] == [str, ev.UserInterruptEvent]
    assert assert_ended_once(run).finished_reason == "interrupted"


@pytest.mark.parametrize("levels", [("now",), ("step",), ("step", "now")])
async def test_a_stop_right_after_an_approval_lets_nothing_begin(levels: tuple[StopLevel, ...]) -> None:
    ran: list[str] = []

    async def runs_tool(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        if isinstance(inputs, ev.UserConfirmResultEvent):
            await asyncio.sleep(0)
            ran.append("tool")
        await asks(fake, inputs, emit)

    backend = Fake(runs_tool)
    run = started(backend)
    await until(run, "paused")
    run.approve()
    for level in levels:
        run.stop(level)
    await run
    assert ran == []
    assert assert_ended_once(run).finished_reason == "interrupted"
    assert types(run).count("USER_CONFIRM_RESULT") == 1


async def test_a_pause_that_the_backend_has_forgotten_is_ended_by_a_stop_and_not_asked_for_again() -> None:
    async def forgets(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        if isinstance(inputs, str):
            await asks(fake, inputs, emit)

    backend = Fake(forgets)
    run = started(backend)
    await until(run, "paused")
    run.stop()
    await asyncio.wait_for(run, 5)
    assert len(backend.inputs) == 2
    assert assert_ended_once(run).finished_reason == "interrupted"
    assert [block.state for block in run.reply.content if isinstance(block, ToolResultBlock)] == ["interrupted"]


async def test_deny_and_stop_records_the_denial_and_ends() -> None:
    backend = Fake(asks)
    run = started(backend)
    await until(run, "paused")
    run.deny(reason="never", stop=True)
    await run
    assert types(run).count("USER_CONFIRM_RESULT") == 1
    assert run.events[-1].metadata.get("source") in ("user", None)


async def test_an_outside_result_goes_to_the_call_that_waits_for_it() -> None:
    submitted = (*ASKS[:-1], ev.RequireExternalExecutionEvent(tool_calls=(CALL,), **R))

    async def waits(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        if isinstance(inputs, str):
            for event in submitted:
                emit(event)
        else:
            await asks(fake, inputs, emit)

    backend = Fake(waits)
    run = started(backend)
    await until(run, "paused")
    run.approve("c")
    run.answer("no such call", "x")
    await asyncio.sleep(0)
    assert run.status == "paused"
    run.answer("c", "42")
    run.answer("c", "43")
    await run
    given = backend.inputs[1]
    assert isinstance(given, ev.ExternalExecutionResultEvent)
    assert [(r.id, r.name, r.output, r.state) for r in given.execution_results] == [("c", "rm", "42", "success")]
    assert len(backend.inputs) == 2


async def test_a_run_that_keeps_no_pause_is_over_when_it_pauses() -> None:
    run = started(Fake(asks), keeps_pause=False)
    await run
    assert (run.status, run.is_over) == ("paused", True)
    assert "REPLY_END" not in types(run)


async def test_a_run_that_is_over_leaves_its_pause_to_whoever_goes_on_with_it() -> None:
    backend = Fake(asks)
    run = started(backend, keeps_pause=False)
    await run
    run.stop()
    run.approve()
    await asyncio.sleep(0)
    assert (run.status, len(backend.inputs)) == ("paused", 1)


# -- waiting --------------------------------------------------------------------------------------------------------


async def test_a_cancelled_waiter_stops_the_run_and_gets_its_cancel_after_the_clean_up() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    waiter = asyncio.create_task(run._wait_for_reply())
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert run.is_over
    assert assert_ended_once(run).metadata["reason"] == "the caller was cancelled"


async def test_a_second_cancel_does_not_wait_for_the_clean_up() -> None:
    async def slow_to_clean(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        emit(START)
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await fake.go.wait()

    cleaning, backend = asyncio.Event(), Fake(slow_to_clean)
    run = started(backend)
    await backend.begun.wait()
    waiter = asyncio.create_task(run._wait_for_reply())
    await asyncio.sleep(0)
    waiter.cancel()
    await cleaning.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert not run.is_over
    backend.go.set()
    await run


async def test_cancelling_one_waiters_future_does_not_cancel_the_others() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.wrap_future(run.ended), 0.01)
    assert not run.is_over
    backend.go.set()
    await run
    assert run.status == "completed"


async def test_wait_blocks_another_thread_until_the_end() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    waiting = asyncio.create_task(asyncio.to_thread(run.wait, 5))
    backend.go.set()
    assert await waiting is run
    assert run.status == "completed"


async def test_wait_that_is_not_long_enough_says_so_and_the_run_goes_on() -> None:
    backend = Fake(hangs_in_text)
    run = started(backend)
    await backend.begun.wait()
    with pytest.raises(TimeoutError, match=r"still running after 0.01 s. It goes on; stop it with run.stop\(\)"):
        await asyncio.to_thread(run.wait, 0.01)
    assert run.status == "running"
    backend.go.set()
    await run


async def test_wait_on_the_runs_own_loop_is_refused_and_not_a_deadlock() -> None:
    run = started(Fake(completes))
    with pytest.raises(InputError, match=r"would block the loop.*await run"):
        run.wait()
    await run
    assert run.wait() is run


async def test_a_run_of_no_session_cannot_be_resumed() -> None:
    run = started(Fake(completes))
    with pytest.raises(AgentWidgetsError, match=r"resume\(\): this run is queued"):
        run.resume()
    await run
    with pytest.raises(AgentWidgetsError, match="only a run of a session"):
        run.resume()


async def test_telling_a_run_its_place_does_not_bring_it_back_to_life() -> None:
    run = Run(Fake(completes), "go", loop=asyncio.get_running_loop())
    run.stop()
    run.wait_behind(2)
    await run
    await asyncio.sleep(0)
    assert (run.status, run.ahead) == ("interrupted", 2)


async def test_the_status_for_a_page_has_what_the_card_shows() -> None:
    backend = Fake(hangs_in_text)
    run = Run(backend, "go", loop=asyncio.get_running_loop())
    run.wait_behind(2)
    assert run.status_facts() == {"state": "queued", "elapsed": 0.0, "ahead": 2}
    run.note = "demo model"
    run.start()
    await backend.begun.wait()
    run.stop("step", "why", source="user")
    await until(run, "stopping")
    assert run.status_facts() | {"elapsed": 0} == {
        "state": "stopping",
        "elapsed": 0,
        "stop": {"source": "user", "when": "step", "reason": "why"},
        "note": "demo model",
    }
    backend.go.set()
    await run
    elapsed = run.elapsed
    assert elapsed > 0
    assert run.elapsed == elapsed
    assert (run.view().prompt, run.view().run_id) == ("go", run.run_id)


# -- side by side ----------------------------------------------------------------------------------------------------


async def test_coroutines_run_side_by_side_until_all_have_ended() -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def first() -> None:
        await gate.wait()
        order.append("first")

    async def second() -> None:
        order.append("second")
        gate.set()

    await SideBySide(patience=1, left_behind=order.append).run({"a": first(), "b": second()})
    assert order == ["second", "first"]


async def test_cancelling_cancels_them_all_and_names_who_does_not_end_in_time() -> None:
    begun, left, order, gate = asyncio.Event(), list[str](), list[str](), asyncio.Event()

    async def polite() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("polite")

    async def stubborn() -> None:
        begun.set()
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
            order.append("woke")

    task = asyncio.create_task(
        SideBySide(patience=0.01, left_behind=left.append).run({"polite": polite(), "stubborn": stubborn()})
    )
    await begun.wait()
    (stray,) = [one for one in asyncio.all_tasks() if one.get_name() == "stubborn"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == ["stubborn"]
    assert order == ["polite", "woke"]
    gate.set()
    await stray


async def test_nothing_to_do_is_done() -> None:
    await SideBySide(patience=1, left_behind=list[str]().append).run({})


# -- memory ---------------------------------------------------------------------------------------------------------


async def test_a_long_stream_costs_its_text_and_not_an_object_a_token() -> None:
    import tracemalloc

    count = 200_000  # a million tokens may cost 100 MB
    ready, go = asyncio.Event(), asyncio.Event()

    async def streams(fake: Fake, inputs: Inputs, emit: Emit) -> None:
        emit(START)
        emit(TEXT)
        ready.set()
        await go.wait()
        for _ in range(count):
            emit(ev.TextBlockDeltaEvent(block_id="b", delta="token ", id="e", created_at="t", **R))
        emit(END)

    run = started(Fake(streams))
    await ready.wait()
    tracemalloc.start()
    try:
        go.set()
        reply = await run
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reply.text) == count * 6
    assert len(run.events) == 4
    assert peak < 100_000_000 * count / 1_000_000


# -- a run of a real agent, from another thread's point of view -----------------------------------------------------


async def test_a_run_can_be_carried_on_a_loop_of_another_thread() -> None:
    from agent_widgets.loops import LoopThread

    @tool(confirm=True)
    def rm(x: int) -> str:
        """Remove a thing."""
        return f"removed {x}"

    agent = Agent(ScriptedModel([[call("rm", {"x": 1})], "done"]), tools=[rm])
    run = Run(agent, "go", loop=LoopThread.get().loop)
    paused = threading.Event()
    run.listen(lambda run, _: paused.set() if run.status == "paused" else None)
    run.start()
    assert await asyncio.to_thread(paused.wait, 5)
    run.approve()
    assert (await run).text == "done"
    LoopThread.get().close()


async def test_a_run_whose_loop_is_gone_ignores_every_order() -> None:
    loop = asyncio.new_event_loop()
    run = Run(Fake(completes), "go", loop=loop)
    assert run.is_busy
    loop.close()
    run.start()
    run.stop()
    run.approve()
    assert (run.status, run.is_busy) == ("queued", False)


def test_a_stop_counts_the_milliseconds_since_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    request = StopRequest(source="user", when="now", reason="why", at=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0123)
    assert request.milliseconds() == 12.3
    assert request.facts() == {"source": "user", "when": "now", "reason": "why"}


def test_the_end_of_a_run_is_a_future_of_any_thread() -> None:
    loop = asyncio.new_event_loop()
    run = Run(Fake(completes), "go", loop=loop)
    run.start()
    loop.run_until_complete(run._wait_for_reply())
    loop.close()
    assert isinstance(run.ended, concurrent.futures.Future)
    assert run.ended.done()


async def test_a_model_that_waits_is_cut_within_a_turn_and_its_generator_is_closed() -> None:
    closed: list[bool] = []

    class Slow:
        name = "slow"

        async def stream(self, request: Any, /) -> AsyncIterator[Any]:
            try:
                async for piece in ScriptedModel([[say(["a"]), wait(asyncio.Event())]]).stream(request):
                    yield piece
            finally:
                closed.append(True)

    agent = Agent(Slow())
    run = Run(agent, "go", loop=asyncio.get_running_loop())
    heard = asyncio.Event()
    run.listen(lambda _, event: heard.set() if isinstance(event, ev.TextBlockDeltaEvent) else None)
    run.start()
    await heard.wait()
    run.stop()
    await run
    assert closed == [True]
    assert run.text == "a"


async def test_a_listener_that_fails_is_reported_and_hurts_neither_the_run_nor_the_others() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: reported.append(str(facts["exception"])))
    heard: list[str] = []
    run = Run(Agent(ScriptedModel([say("one")])), "go", loop=asyncio.get_running_loop())

    def fails(_run: Run, _event: object) -> None:
        raise RuntimeError("the page is gone")

    run.listen(fails)
    run.listen(lambda run, event: heard.append(run.status if event is None else event.type))
    run.start()
    assert (await run).text == "one"
    assert set(reported) == {"the page is gone"}
    assert heard[-2:] == ["REPLY_END", "completed"]


async def test_an_empty_prompt_is_refused_with_a_sentence() -> None:
    with pytest.raises(InputError, match="The prompt is empty"):
        await Agent(ScriptedModel([say("one")])).reply(" \n")
