"""The fold: events in, transcript out; the log that keeps it small; and the events that close what is open."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_widgets import events as ev
from agent_widgets.endings import closing
from agent_widgets.eventlog import EventLog
from agent_widgets.messages import (
    Base64Source,
    DataBlock,
    ErrorInfo,
    HintBlock,
    PermissionRule,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    Usage,
)
from agent_widgets.state import INTERRUPTED_TEXT, AgentState
from agent_widgets.transcript import Transcript, TranscriptBuilder, fold

exactly = settings(deadline=None, derandomize=True, database=None)  # the same examples on every machine, however slow
R: dict[str, Any] = {"reply_id": "r"}
START = ev.ReplyStartEvent(session_id="s", name="bob", **R)
CALL_START = ev.ToolCallStartEvent(tool_call_id="c", tool_call_name="find", **R)
CALL_END = ev.ToolCallEndEvent(tool_call_id="c", **R)
RESULT_START = ev.ToolResultStartEvent(tool_call_id="c", tool_call_name="find", **R)
RESULT_END = ev.ToolResultEndEvent(tool_call_id="c", state="success", **R)


def text(delta: str, block_id: str = "b") -> ev.TextBlockDeltaEvent:
    return ev.TextBlockDeltaEvent(block_id=block_id, delta=delta, **R)


def argument(delta: str) -> ev.ToolCallDeltaEvent:
    return ev.ToolCallDeltaEvent(tool_call_id="c", delta=delta, **R)


def printed(words: str, name: str = "stdout", call_id: str = "c") -> ev.CustomEvent:
    return ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": call_id, "name": name, "text": words})


def result_text(delta: str) -> ev.ToolResultTextDeltaEvent:
    return ev.ToolResultTextDeltaEvent(tool_call_id="c", delta=delta, **R)


def result_image(data: str) -> ev.ToolResultDataDeltaEvent:
    return ev.ToolResultDataDeltaEvent(tool_call_id="c", block_id=f"img-{data}", media_type="image/png", data=data, **R)


# -- fold -----------------------------------------------------------------------------------------------------------


def test_a_reply_is_one_message_with_its_blocks_in_order() -> None:
    end = ev.ReplyEndEvent(session_id="s", metadata={"reason": "r"}, **R)
    transcript = fold(
        None,
        START,
        ev.ModelCallStartEvent(model_name="m", **R),
        ev.ThinkingBlockStartEvent(block_id="t", **R),
        ev.ThinkingBlockDeltaEvent(block_id="t", delta="hm", **R),
        ev.ThinkingBlockEndEvent(block_id="t", **R),
        ev.TextBlockStartEvent(block_id="b", **R),
        text("one "),
        text("two"),
        ev.TextBlockEndEvent(block_id="b", **R),
        CALL_START,
        argument('{"x"'),
        argument(": 1}"),
        CALL_END,
        ev.ModelCallEndEvent(input_tokens=3, output_tokens=4, **R),
        RESULT_START,
        result_text("fo"),
        result_text("und"),
        RESULT_END,
        end,
    )
    message = transcript.message
    assert (message.id, message.name, message.role, message.created_at) == ("r", "bob", "assistant", START.created_at)
    assert (message.finished_reason, message.finished_at, message.metadata) == ("completed", end.created_at, {"reason": "r"})
    assert message.usage == Usage(input_tokens=3, output_tokens=4)
    thinking, said, call, result = message.content
    assert isinstance(thinking, ThinkingBlock)
    assert isinstance(said, TextBlock)
    assert isinstance(call, ToolCallBlock)
    assert isinstance(result, ToolResultBlock)
    assert (thinking.thinking, said.text, call.input, result.output) == ("hm", "one two", '{"x": 1}', "found")
    assert (call.state, result.state) == ("finished", "success")
    assert (call.created_at, call.finished_at) == (CALL_START.created_at, CALL_END.created_at)
    assert (transcript.model, transcript.steps, transcript.calling) == ("m", 1, False)


def test_a_model_call_is_open_until_it_ends_and_its_tokens_add_up() -> None:
    start, end = (
        ev.ModelCallStartEvent(model_name="m", **R),
        ev.ModelCallEndEvent(input_tokens=1, output_tokens=2, cache_input_tokens=3, **R),
    )
    unknown = ev.ModelCallEndEvent(input_tokens=0, output_tokens=0, metadata={"usage": "unknown"}, **R)
    assert fold(None, START, start).calling
    transcript = fold(None, START, start, end, start, end, start, unknown)
    assert (transcript.steps, transcript.calling) == (3, False)
    assert transcript.message.usage == Usage(input_tokens=2, output_tokens=4, cache_input_tokens=6, unknown_calls=1)


def test_calls_and_their_results_may_interleave() -> None:
    other = ev.ToolCallStartEvent(tool_call_id="d", tool_call_name="look", **R)
    transcript = fold(
        None, START, CALL_START, other, argument("{"), ev.ToolCallDeltaEvent(tool_call_id="d", delta="[", **R), argument("}")
    )
    assert [block.input for block in transcript.message.content if isinstance(block, ToolCallBlock)] == ["{}", "["]


def test_a_final_text_replaces_the_sum_of_the_deltas() -> None:
    start = ev.TextBlockStartEvent(block_id="b", **R)
    assert fold(None, START, start, text("long"), ev.TextBlockEndEvent(block_id="b", text="lo", **R)).message.text == "lo"


def test_the_end_of_a_cut_call_brings_the_arguments_that_can_be_read() -> None:
    cut = replace(CALL_END, metadata={"input": '{"x":1}'})
    (call,) = fold(None, START, CALL_START, argument('{"x": 1, "y'), cut).message.content
    assert isinstance(call, ToolCallBlock)
    assert call.input == '{"x":1}'


def test_an_interrupted_reply_is_marked() -> None:
    end = ev.ReplyEndEvent(session_id="s", finished_reason="interrupted", **R)
    assert fold(None, START, end).message.metadata == {"_is_interrupted": True}


def test_the_error_of_a_failed_reply_is_on_its_message() -> None:
    error = ErrorInfo(type="ModelError", message="no")
    assert fold(None, START, ev.ReplyEndEvent(session_id="s", finished_reason="error", error=error, **R)).message.error == error


def test_a_pause_and_its_decision_change_the_call_and_nothing_else() -> None:
    asked = ToolCallBlock(id="c", name="find", input="{}", suggested_rules=(PermissionRule("find"),))
    paused = fold(None, START, CALL_START, argument("{}"), CALL_END, ev.RequireUserConfirmEvent(tool_calls=(asked,), **R))
    assert [(call.id, call.state, call.suggested_rules) for call in paused.waiting] == [
        ("c", "asking", (PermissionRule("find"),))
    ]
    edited = ev.ConfirmResult(confirmed=True, tool_call=replace(asked, input='{"y": 2}'))
    approved = fold(paused, ev.UserConfirmResultEvent(confirm_results=(edited,), **R))
    assert approved.waiting == ()
    assert isinstance(call := approved.message.content[0], ToolCallBlock)
    assert (call.state, call.input) == ("allowed", '{"y": 2}')
    denied = fold(paused, ev.UserConfirmResultEvent(confirm_results=(ev.ConfirmResult(confirmed=False, tool_call=asked),), **R))
    assert isinstance(call := denied.message.content[0], ToolCallBlock)
    assert call.state == "finished"


def test_an_outside_execution_waits_until_its_result_came() -> None:
    call = ToolCallBlock(id="c", name="find")
    waiting = fold(None, START, CALL_START, CALL_END, RESULT_START, ev.RequireExternalExecutionEvent(tool_calls=(call,), **R))
    assert [call.state for call in waiting.waiting] == ["submitted"]
    assert fold(waiting, result_text("x"), RESULT_END).waiting == ()


def test_nothing_waits_in_a_reply_that_has_ended() -> None:
    asked = ev.RequireUserConfirmEvent(tool_calls=(ToolCallBlock(id="c", name="find"),), **R)
    assert fold(None, START, CALL_START, asked, ev.ReplyEndEvent(session_id="s", **R)).waiting == ()


def test_data_blocks_gather_base64_or_take_an_address() -> None:
    start = ev.DataBlockStartEvent(block_id="d", media_type="image/png", name="plot", **R)
    pieces = [ev.DataBlockDeltaEvent(block_id="d", media_type="image/png", data=data, **R) for data in ("AA", "BB")]
    end = ev.DataBlockEndEvent(block_id="d", **R)
    (block,) = fold(None, START, start, *pieces, end).message.content
    assert isinstance(block, DataBlock)
    assert (block.source, block.name, block.finished_at) == (Base64Source("AABB", "image/png"), "plot", end.created_at)
    link = ev.DataBlockDeltaEvent(block_id="d", media_type="image/png", url="https://example.org/a.png", **R)
    (block,) = fold(None, START, start, link).message.content
    assert isinstance(block, DataBlock)
    assert block.source == URLSource("https://example.org/a.png", "image/png")


def test_a_hint_is_complete_when_it_comes() -> None:
    (block,) = fold(None, START, ev.HintBlockEvent(block_id="h", hint="look", source="system", **R)).message.content
    assert isinstance(block, HintBlock)
    assert (block.hint, block.source, block.finished_at) == ("look", "system", block.created_at)


def test_text_and_images_of_a_result_stay_in_order() -> None:
    events = [
        START,
        CALL_START,
        RESULT_START,
        result_text("a"),
        result_text("b"),
        result_image("AA"),
        result_text("c"),
        result_image("BB"),
    ]
    result = fold(None, *events).message.content[1]
    assert isinstance(result, ToolResultBlock)
    assert isinstance(result.output, tuple)
    assert [b.text if isinstance(b, TextBlock) else b.id for b in result.output] == ["ab", "img-AA", "c", "img-BB"]


def test_what_a_tool_prints_is_joined_per_stream_and_displays_stay_apart() -> None:
    shown = ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": "c", "name": "display", "data": {"text/plain": "p"}})
    transcript = fold(
        None,
        START,
        printed("a"),
        printed("b"),
        printed("!", "stderr"),
        printed("c"),
        shown,
        printed("d"),
        printed("x", call_id="other"),
    )
    assert [(o.call_id, o.name, o.text, o.data) for o in transcript.outputs] == [
        ("c", "stdout", "ab", None),
        ("c", "stderr", "!", None),
        ("c", "stdout", "c", None),
        ("c", "display", "", {"text/plain": "p"}),
        ("c", "stdout", "d", None),
        ("other", "stdout", "x", None),
    ]


def test_notices_are_gathered_and_other_custom_events_are_ignored() -> None:
    notice = ev.CustomEvent(name=ev.NOTICE, value={"text": "look"})
    transcript = fold(
        None,
        START,
        notice,
        ev.CustomEvent(name="state_updated", value={"a": 1}),
        ev.CustomEvent(name=ev.NOTICE, value={"text": 5}),
    )
    assert transcript.notices == ("look",)


@pytest.mark.parametrize(
    "event",
    [
        text("x", "no such"),
        argument("x"),
        RESULT_END,
        CALL_END,
        printed("x").__class__(name=ev.TOOL_OUTPUT, value={"call_id": 5}),
        result_image("A"),
    ],
)
def test_events_about_what_is_not_there_are_ignored(event: ev.Event) -> None:
    assert fold(None, START, event).message.content == ()


def test_a_second_start_of_a_block_goes_on_in_the_same_block() -> None:
    transcript = fold(None, START, CALL_START, RESULT_START, result_text("a"), RESULT_START, result_text("b"))
    assert [block.type for block in transcript.message.content] == ["tool_call", "tool_result"]
    assert isinstance(result := transcript.message.content[1], ToolResultBlock)
    assert result.output == "ab"


def test_a_reader_gets_the_same_object_until_something_happens() -> None:
    builder = TranscriptBuilder()
    builder.apply(START)
    assert builder.freeze() is builder.freeze()
    before = builder.freeze()
    builder.apply(ev.TextBlockStartEvent(block_id="b", **R))
    assert builder.freeze() is not before
    assert before.message.content == ()


def test_reading_between_all_events_changes_nothing() -> None:
    events = [
        START,
        ev.TextBlockStartEvent(block_id="b", **R),
        text("a"),
        text("b"),
        CALL_START,
        argument("{"),
        argument("}"),
        printed("p"),
        printed("q"),
    ]
    read = TranscriptBuilder()
    for event in events:
        read.apply(event)
        read.freeze()
    assert read.freeze() == replace(fold(None, *events), message=read.freeze().message)
    assert read.freeze().message.content == fold(None, *events).message.content


def test_another_thread_reads_whole_transcripts_while_one_is_built() -> None:
    builder, torn = TranscriptBuilder(), list[str]()
    builder.apply(START)
    builder.apply(ev.TextBlockStartEvent(block_id="b", **R))
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = builder.freeze().message.text
            if seen != "xy" * (len(seen) // 2) + "x" * (len(seen) % 2):
                torn.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(500):
        builder.apply(text("x"))
        builder.apply(text("y"))
    done.set()
    reader.join()
    assert torn == []
    assert builder.freeze().message.text == "xy" * 500


# -- the log --------------------------------------------------------------------------------------------------------


def test_the_log_keeps_one_entry_for_the_deltas_of_one_block() -> None:
    log = EventLog([START, ev.TextBlockStartEvent(block_id="b", **R), text("one "), text("two "), text("three")])
    assert len(log) == 3
    joined = log.events()[-1]
    assert isinstance(joined, ev.TextBlockDeltaEvent)
    assert joined.delta == "one two three"


def test_reading_the_log_does_not_stop_the_joining() -> None:
    log = EventLog([text("a")])
    first = log.events()
    log.append(text("b"))
    assert [event.delta for event in (*first, *log.events()) if isinstance(event, ev.TextBlockDeltaEvent)] == ["a", "ab"]


def test_taking_the_events_empties_the_log_and_later_deltas_begin_a_new_entry() -> None:
    log = EventLog([text("a"), START])
    assert [event.type for event in log.take()] == ["TEXT_BLOCK_DELTA", "REPLY_START"]
    assert len(log) == 0
    log.append(text("b"))
    (event,) = log.take()
    assert isinstance(event, ev.TextBlockDeltaEvent)
    assert event.delta == "b"


argument_delta = argument("{")
STREAM = st.lists(
    st.sampled_from(
        [
            ev.TextBlockStartEvent(block_id="b", **R),
            text("x"),
            ev.TextBlockEndEvent(block_id="b", **R),
            CALL_START,
            argument_delta,
            CALL_END,
            RESULT_START,
            result_text("t"),
            result_image("AA"),
            result_image("BB"),
            RESULT_END,
            printed("p"),
            printed("q", "stderr"),
            ev.RequireUserConfirmEvent(tool_calls=(ToolCallBlock(id="c", name="find"),), **R),
        ]
    ),
    max_size=25,
)


@exactly
@given(STREAM)
def test_the_fold_of_the_log_is_the_fold_of_what_happened(events: list[ev.Event]) -> None:
    begun = [START, ev.TextBlockStartEvent(block_id="b", **R), CALL_START, RESULT_START, *events]
    live = fold(None, *begun)
    logged = fold(None, *EventLog(begun).events())
    assert replace(logged, message=live.message) == live
    assert _seen(logged) == _seen(live)


def _seen(transcript: Transcript) -> list[object]:
    """What a reader sees: the blocks, without the ids of a result's own parts."""
    parts: list[object] = []
    for block in transcript.message.content:
        if isinstance(block, ToolResultBlock) and isinstance(block.output, tuple):
            parts += [part.text if isinstance(part, TextBlock) else part.id for part in block.output]
        else:
            parts.append(block)
    return parts


# -- closing --------------------------------------------------------------------------------------------------------


def close(*events: ev.Event) -> list[ev.Event]:
    return list(closing(fold(None, *events), session_id="s", finished_reason="interrupted"))


def test_closing_ends_an_open_text_then_the_model_call_then_the_reply() -> None:
    events = close(START, ev.ModelCallStartEvent(model_name="m", **R), ev.TextBlockStartEvent(block_id="b", **R), text("half"))
    assert [event.type for event in events] == ["TEXT_BLOCK_END", "MODEL_CALL_END", "REPLY_END"]
    assert isinstance(end := events[1], ev.ModelCallEndEvent)
    assert (end.finished_reason, end.metadata) == ("interrupted", {"usage": "unknown"})


def test_closing_ends_a_cut_call_with_what_can_be_read_and_answers_it() -> None:
    events = close(START, CALL_START, argument('{"x": 1, "y'))
    assert [event.type for event in events] == [
        "TOOL_CALL_END",
        "TOOL_RESULT_START",
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END",
        "REPLY_END",
    ]
    assert events[0].metadata == {"input": '{"x":1}'}
    assert isinstance(delta := events[2], ev.ToolResultTextDeltaEvent)
    assert delta.delta == INTERRUPTED_TEXT


def test_closing_a_running_tool_starts_no_second_result() -> None:
    events = close(START, CALL_START, CALL_END, RESULT_START, result_text("so far"))
    assert [event.type for event in events] == ["TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "REPLY_END"]


def test_closing_what_has_ended_gives_nothing() -> None:
    assert close(START, ev.ReplyEndEvent(session_id="s", **R)) == []


def test_closing_carries_the_reason_the_error_and_the_facts() -> None:
    error = ErrorInfo(type="E", message="m")
    (end,) = closing(fold(None, START), session_id="s1", finished_reason="error", error=error, metadata={"source": "code"})
    assert isinstance(end, ev.ReplyEndEvent)
    assert (end.session_id, end.reply_id, end.finished_reason, end.error, end.metadata) == (
        "s1",
        "r",
        "error",
        error,
        {"source": "code"},
    )


@exactly
@given(STREAM)
def test_whatever_was_open_is_valid_after_closing(events: list[ev.Event]) -> None:
    # Whoever ends a call sees to it that its arguments are whole.
    begun = [
        START,
        ev.TextBlockStartEvent(block_id="b", **R),
        CALL_START,
        argument("{}"),
        *(e for e in events if e != argument_delta),
    ]
    message = fold(None, *begun, *close(*begun)).message
    assert message.finished_reason == "interrupted"
    assert all(block.finished_at for block in message.content)
    assert AgentState(context=(message,)).check() == ()
