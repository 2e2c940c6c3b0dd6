"""The wire: everything survives JSON, the unknown is ignored, the wrong is named."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import pytest
from pydantic import JsonValue, TypeAdapter

from agent_widgets import events as ev
from agent_widgets import wire
from agent_widgets.errors import InputError, SavedStateError
from agent_widgets.messages import (
    Base64Source,
    Block,
    DataBlock,
    ErrorInfo,
    HintBlock,
    JsonObject,
    Msg,
    PermissionRule,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    Usage,
)
from agent_widgets.printed import ToolOutput
from agent_widgets.state import STATE_VERSION, AgentState, Summary
from agent_widgets.transcript import Child, Transcript
from agent_widgets.wire import (
    AnswerCall,
    Decide,
    DecideAll,
    Forget,
    Hello,
    Resume,
    Resync,
    Rule,
    RunView,
    Send,
    Steer,
    Stop,
    Withdraw,
    dump_event,
    dump_msg,
    dump_state,
    events_message,
    fingerprint,
    load_command,
    load_event,
    load_events,
    load_msg,
    load_state,
    notice_message,
    page_event,
    page_transcript,
    rules_message,
    snapshot_message,
)

AT = "2026-01-02T03:04:05.678901+00:00"
WHEN: dict[str, Any] = {"id": "event-1", "created_at": AT, "metadata": {"source": "user", "nested": [1, {"a": None}]}}
DONE: dict[str, Any] = {"created_at": AT, "finished_at": AT}
RULE = PermissionRule("rm", "tmp/*", "ask", "project")
TEXT = TextBlock("höher ☕ \u0000", id="b1", **DONE)
PICTURE = DataBlock(Base64Source("AAAA", "image/png"), "plot.png", id="b2", **DONE)
LINK = DataBlock(URLSource("https://example.org/a.png", "image/png"), "a", id="b3", **DONE)
CALL = ToolCallBlock(id="call_1", name="rm", input='{"x": 1}', state="asking", suggested_rules=(RULE,), **DONE)
RESULT = ToolResultBlock(id="call_1", name="rm", output=(TEXT, PICTURE), state="denied", metadata={"reason": "no"}, **DONE)
BLOCKS: tuple[Block, ...] = (
    TEXT,
    ThinkingBlock("hm", id="b4", **DONE),
    HintBlock((TEXT, LINK), "system", id="b5", **DONE),
    HintBlock("plain", None, id="b6", **DONE),
    CALL,
    RESULT,
    PICTURE,
    LINK,
)
MESSAGE = Msg(
    "bob",
    BLOCKS,
    "assistant",
    id="reply-1",
    metadata={"_is_interrupted": True},
    created_at=AT,
    usage=Usage(input_tokens=1, output_tokens=2, cache_input_tokens=3, cache_creation_input_tokens=4, unknown_calls=5),
    finished_at=AT,
    finished_reason="error",
    error=ErrorInfo(type="ValueError", message="no"),
)
STATE = AgentState(session_id="s", context=(MESSAGE, replace(MESSAGE, id="r2")), reply_id="r2", cur_iter=3, rules=(RULE,))

EVERY_EVENT: tuple[ev.Event, ...] = (
    ev.ReplyStartEvent(session_id="s", reply_id="r", name="bob", role="system", **WHEN),
    ev.ReplyEndEvent(session_id="s", reply_id="r", finished_reason="error", error=ErrorInfo(type="E", message="m"), **WHEN),
    ev.ModelCallStartEvent(reply_id="r", model_name="m", **WHEN),
    ev.ModelCallEndEvent(
        reply_id="r",
        input_tokens=1,
        output_tokens=2,
        cache_input_tokens=3,
        cache_creation_input_tokens=4,
        finished_reason="interrupted",
        **WHEN,
    ),
    ev.TextBlockStartEvent(reply_id="r", block_id="b", **WHEN),
    ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="höher ☕", **WHEN),
    ev.TextBlockEndEvent(reply_id="r", block_id="b", text="final", **WHEN),
    ev.ThinkingBlockStartEvent(reply_id="r", block_id="b", **WHEN),
    ev.ThinkingBlockDeltaEvent(reply_id="r", block_id="b", delta="x", **WHEN),
    ev.ThinkingBlockEndEvent(reply_id="r", block_id="b", **WHEN),
    ev.DataBlockStartEvent(reply_id="r", block_id="b", media_type="image/png", name="plot.png", **WHEN),
    ev.DataBlockDeltaEvent(reply_id="r", block_id="b", media_type="image/png", data="AAAA", **WHEN),
    ev.DataBlockDeltaEvent(reply_id="r", block_id="b", media_type="image/png", url="https://example.org/a.png", **WHEN),
    ev.DataBlockEndEvent(reply_id="r", block_id="b", **WHEN),
    ev.HintBlockEvent(reply_id="r", block_id="b", source="system", hint=(TEXT, PICTURE), **WHEN),
    ev.HintBlockEvent(reply_id="r", block_id="b", source="alice", hint="plain", **WHEN),
    ev.ToolCallStartEvent(reply_id="r", tool_call_id="c", tool_call_name="rm", **WHEN),
    ev.ToolCallDeltaEvent(reply_id="r", tool_call_id="c", delta='{"x', **WHEN),
    ev.ToolCallEndEvent(reply_id="r", tool_call_id="c", **WHEN),
    ev.ToolResultStartEvent(reply_id="r", tool_call_id="c", tool_call_name="rm", **WHEN),
    ev.ToolResultTextDeltaEvent(reply_id="r", tool_call_id="c", delta="x", **WHEN),
    ev.ToolResultDataDeltaEvent(reply_id="r", tool_call_id="c", block_id="b", media_type="image/png", data="AAAA", **WHEN),
    ev.ToolResultEndEvent(reply_id="r", tool_call_id="c", state="interrupted", **WHEN),
    ev.RequireUserConfirmEvent(reply_id="r", tool_calls=(CALL,), **WHEN),
    ev.RequireExternalExecutionEvent(reply_id="r", tool_calls=(CALL,), **WHEN),
    ev.UserConfirmResultEvent(
        reply_id="r",
        confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=CALL, rules=(RULE,), reason="fine"),),
        **WHEN,
    ),
    ev.UserInterruptEvent(reply_id="r", **WHEN),
    ev.ExternalExecutionResultEvent(reply_id="r", execution_results=(RESULT,), **WHEN),
    ev.ExceedMaxItersEvent(reply_id="r", name="bob", **WHEN),
    ev.CustomEvent(name="tool_output", value={"call_id": "c", "name": "stdout", "text": "x"}, **WHEN),
)
"""One of each class at least, with every field filled with something that is not its default."""


def through_json(value: JsonObject) -> Any:
    return json.loads(json.dumps(value))


def every_field(cls: type[Any]) -> set[str]:
    return {field.name for field in fields(cls)}


# -- round trips ----------------------------------------------------------------------------------------------------


def test_the_samples_are_of_every_class() -> None:
    assert {type(event) for event in EVERY_EVENT} == set(ev.EVENT_CLASSES)
    assert {block.type for block in BLOCKS} == {"text", "thinking", "hint", "tool_call", "tool_result", "data"}


@pytest.mark.parametrize("event", EVERY_EVENT, ids=lambda event: type(event).__name__)
def test_an_event_survives_json(event: ev.Event) -> None:
    dumped = dump_event(event)
    assert set(dumped) == every_field(type(event))
    assert load_event(through_json(dumped)) == event
    assert load_event(json.dumps(dumped)) == event


def test_a_list_of_events_survives_json() -> None:
    assert load_events(json.loads(json.dumps([dump_event(event) for event in EVERY_EVENT]))) == EVERY_EVENT


@pytest.mark.parametrize(
    "message", [MESSAGE, Msg("ann", "hi", "user"), Msg("s", [TEXT, LINK], "user"), Msg("a", [], "assistant")]
)
def test_a_message_survives_json(message: Msg) -> None:
    dumped = dump_msg(message)
    assert set(dumped) == every_field(Msg)
    assert load_msg(through_json(dumped)) == message


@pytest.mark.parametrize("state", [AgentState(), STATE])
def test_a_state_survives_json(state: AgentState) -> None:
    dumped = dump_state(state)
    assert set(dumped) == every_field(AgentState)
    assert load_state(through_json(dumped)) == state


def test_every_text_that_a_model_can_stream_survives() -> None:
    text = "".join(map(chr, range(0x300))) + "\u2028\u2029\ufeff\ufffd😀" + '"\\</script>'
    event = ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta=text)
    assert load_event(through_json(dump_event(event))) == event


# -- the unknown, the missing, the wrong ----------------------------------------------------------------------------


def test_what_a_newer_writer_adds_is_ignored() -> None:
    event = dump_event(EVERY_EVENT[0]) | {"invented": 1}
    message = dump_msg(MESSAGE) | {"structured_output": {"a": 1}}
    cast("list[JsonObject]", message["content"])[0]["invented"] = 1
    state = dump_state(STATE) | {"invented": [1]}
    assert load_event(event) == EVERY_EVENT[0]
    assert load_msg(message) == MESSAGE
    assert load_state(state) == STATE


def test_what_an_older_writer_left_out_is_filled() -> None:
    event = load_event({"type": "REPLY_END", "session_id": "s", "reply_id": "r"})
    assert isinstance(event, ev.ReplyEndEvent)
    assert (event.finished_reason, event.error, event.metadata, len(event.id)) == ("completed", None, {}, 32)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"type": "NO_SUCH", "reply_id": "r"}, r"not an event: .*NO_SUCH"),
        ({"reply_id": "r"}, r"not an event: .*type"),
        ({"type": "TEXT_BLOCK_DELTA", "reply_id": "r", "delta": "x"}, r"block_id: Field required"),
        ({"type": "TEXT_BLOCK_DELTA", "reply_id": "r", "block_id": "b", "delta": 5}, r"delta: Input should be a valid string"),
        ({"type": "MODEL_CALL_END", "reply_id": "r", "input_tokens": "many", "output_tokens": 1}, r"input_tokens: .*integer"),
        (
            {"type": "REPLY_END", "session_id": "s", "reply_id": "r", "finished_reason": "bored"},
            r"finished_reason: .*'completed'",
        ),
        ("{", r"not an event: .*JSON"),
        (b"[]", r"not an event"),
        (None, r"not an event"),
        (7, r"not an event"),
    ],
)
def test_what_is_not_an_event_is_an_input_error_that_says_where(value: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_event(value)


@pytest.mark.parametrize("value", [None, "text", {}, [{"type": "NO_SUCH"}], [1]])
def test_what_is_not_a_list_of_events_is_an_input_error(value: object) -> None:
    with pytest.raises(InputError, match="These are not events: "):
        load_events(value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"role": "robot"}, r"not a message: role: .*'user'"),
        ({"content": "text"}, r"not a message: content"),
        ({"content": [{"type": "text"}]}, r"not a message: content\.0.*text: Field required"),
        ({"finished_reason": "bored"}, r"not a message: finished_reason"),
    ],
)
def test_what_is_not_a_message_is_an_input_error_that_says_where(change: JsonObject, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_msg(dump_msg(MESSAGE) | change)


@pytest.mark.parametrize("version", [STATE_VERSION + 1, 99])
def test_a_state_of_a_newer_version_says_both_versions_and_how_to_upgrade(version: int) -> None:
    with pytest.raises(
        SavedStateError, match=rf"newer agent-widgets \(version {version}; this one reads up to {STATE_VERSION}\).*pip install -U"
    ):
        load_state({"version": version, "context": "of another shape"})


def test_a_state_of_the_first_version_has_no_summary_and_is_of_this_version_from_then_on() -> None:
    state = AgentState(context=(MESSAGE,))
    first = {key: value for key, value in dump_state(state).items() if key != "summary"} | {"version": 1}
    assert load_state(first) == state


def test_a_summary_is_read_back_and_a_damaged_one_is_an_error() -> None:
    state = AgentState(context=(MESSAGE,), summary=Summary(text="notes", messages=1))
    assert dump_state(state)["summary"] == {"text": "notes", "messages": 1, "blocks": 0}
    assert load_state(json.loads(json.dumps(dump_state(state)))) == state
    with pytest.raises(SavedStateError, match=r"summary\.messages"):
        load_state(dump_state(state) | {"summary": {"text": "notes", "messages": "many"}})


@pytest.mark.parametrize(
    "value", [None, "text", list[Any](), 5, {"context": 5}, {"context": [None]}, {"version": "one"}, {"cur_iter": None}]
)
def test_a_damaged_state_is_a_saved_state_error(value: object) -> None:
    with pytest.raises(SavedStateError, match="This is not a saved agent state: "):
        load_state(value)


@pytest.mark.timeout(20)
def test_a_state_full_of_strange_blocks_is_refused_soon_and_at_the_first_one_that_can_be_named() -> None:
    value = dump_state(AgentState(context=(replace(MESSAGE, content=()),)))
    strange = [{"type": "video", "id": str(number)} for number in range(10_000)]
    content = [*strange, {"type": "text", "id": "t"}]
    with pytest.raises(SavedStateError, match=r"context\.0\.content\.10000\.TextBlock\.text: Field required"):
        load_state(json.loads(json.dumps(value).replace('"content": []', f'"content": {json.dumps(content)}')))


@pytest.mark.parametrize("answer_by", ["tomorrow", "2026-01-31T09:30:00", ""])
def test_a_question_whose_time_ends_at_no_moment_is_a_saved_state_error(answer_by: str) -> None:
    call = ToolCallBlock(id="c", name="delete", state="asking", answer_by="2026-01-31T09:30:00+00:00")
    value = dump_state(AgentState(context=(replace(MESSAGE, content=(call,)),)))
    assert load_state(value).context[0].content == (call,)
    damaged = json.loads(json.dumps(value).replace("2026-01-31T09:30:00+00:00", answer_by))
    with pytest.raises(SavedStateError, match=r"answer_by is '.*'; it must be a time as 2026"):
        load_state(damaged)


# -- to the page ----------------------------------------------------------------------------------------------------


def test_a_delta_for_the_page_is_its_type_its_block_and_its_text() -> None:
    text = ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="x")
    call = ev.ToolCallDeltaEvent(reply_id="r", tool_call_id="c", delta="y")
    assert page_event(text) == {"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": "x"}
    assert page_event(call) == {"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "delta": "y"}


def test_other_events_for_the_page_lose_their_id_and_their_empty_fields() -> None:
    event = ev.ReplyEndEvent(session_id="s", reply_id="r", created_at=AT)
    assert page_event(event) == {
        "type": "REPLY_END",
        "session_id": "s",
        "reply_id": "r",
        "finished_reason": "completed",
        "created_at": AT,
    }


def test_zero_and_false_are_not_empty() -> None:
    event = ev.CustomEvent(name="n", value={"zero": 0, "no": False, "text": "", "gone": None, "also": []})
    assert page_event(event)["value"] == {"zero": 0, "no": False, "text": ""}


def test_a_transcript_within_its_limit_is_whole() -> None:
    whole = page_transcript(Transcript(message=MESSAGE, model="m", steps=2))
    assert page_transcript(Transcript(message=MESSAGE, model="m", steps=2), 1_000_000) == whole
    assert "cut" not in whole


@pytest.mark.parametrize(
    "blocks", [[TextBlock("x" * 200) for _ in range(500)], [TextBlock("x" * 100_000)], [PICTURE, TextBlock("y" * 30_000)]]
)
def test_a_transcript_above_its_limit_loses_its_oldest_text_and_says_how_much(blocks: list[Block]) -> None:
    dumped = page_transcript(Transcript(message=Msg("a", [*blocks, TextBlock("the end")], "assistant")), 10_000)
    content = cast("list[JsonObject]", cast("JsonObject", dumped["message"])["content"])
    assert content[-1]["text"] == "the end"
    assert cast("int", dumped["cut"]) > 0
    assert len(json.dumps(dumped)) < 14_000


def test_a_sub_agent_has_its_share_of_the_limit_and_its_call_is_kept() -> None:
    long = [TextBlock("x" * 200) for _ in range(500)]
    asks = ToolCallBlock(id="deep", name="delete", input='{"what": "x"}', state="asking")
    below = Transcript(message=Msg("helper", [*long, asks], "assistant"))
    blocks = [ToolCallBlock(id="c", name="helper", input='{"task": "t"}'), *long, TextBlock("the end")]
    transcript = Transcript(message=Msg("a", blocks, "assistant"), children=(Child(call_id="c", transcript=below),))
    dumped = page_transcript(transcript, 10_000)
    read = TypeAdapter(Transcript).validate_python({key: value for key, value in dumped.items() if key != "cut"})
    assert [block.id for block in read.message.content if isinstance(block, ToolCallBlock)] == ["c"]
    assert read.waiting == (asks,)
    assert isinstance(last := read.message.content[-1], TextBlock)
    assert last.text == "the end"
    assert cast("int", dumped["cut"]) > 180_000
    assert len(json.dumps(dumped)) < 20_000


def test_an_image_that_is_larger_than_the_limit_is_left_out_whole() -> None:
    image = DataBlock(Base64Source("A" * 500_000, "image/png"))
    result = ToolResultBlock(id="c", name="plot", output=(image,), state="success")
    dumped = page_transcript(
        Transcript(message=Msg("a", [TextBlock("old"), image, result, TextBlock("new")], "assistant")), 10_000
    )
    content = cast("list[JsonObject]", cast("JsonObject", dumped["message"])["content"])
    assert [block["type"] for block in content] == ["text"]
    assert cast("int", dumped["cut"]) > 1_000_000


def test_a_transcript_of_many_blocks_is_cut_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []
    measure = wire._text_size

    def counting(value: JsonValue) -> int:
        measured.append(value)
        return measure(value)

    monkeypatch.setattr(wire, "_text_size", counting)
    blocks = tuple(TextBlock("x" * 50, id="b", created_at="") for _ in range(5000))
    page_transcript(Transcript(message=Msg("a", blocks, "assistant")), 10_000)
    assert len(measured) < 5000 * 20


def test_what_tools_printed_is_dropped_before_text_is() -> None:
    outputs = (ToolOutput(call_id="c", name="stdout", text="p" * 20_000),)
    dumped = page_transcript(Transcript(message=Msg("a", "short", "assistant"), outputs=outputs), 10_000)
    assert "outputs" not in dumped
    assert cast("int", dumped["cut"]) >= 20_000
    assert cast("JsonObject", dumped["message"])["content"] != []


def test_the_messages_to_the_page_have_their_documented_shape() -> None:
    view = RunView(
        run_id="r1", prompt="hi", status={"state": "running"}, transcript=Transcript(message=Msg("a", "x", "assistant"))
    )
    snapshot = snapshot_message(7, [view])
    assert (snapshot["kind"], snapshot["seq"]) == ("full", 7)
    assert set(cast("list[JsonObject]", snapshot["runs"])[0]) == {"run_id", "prompt", "status", "transcript"}
    delta = ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="x")
    assert events_message(8, "r1", [delta]) == {"kind": "events", "seq": 8, "run_id": "r1", "events": [page_event(delta)]}
    assert events_message(8, "r1", [], {"state": "paused"})["status"] == {"state": "paused"}
    assert notice_message("id-1", "no") == {"kind": "notice", "id": "id-1", "text": "no"}


def test_runs_of_one_snapshot_share_its_limit() -> None:
    views = [
        RunView(run_id=str(n), prompt="", status={}, transcript=Transcript(message=Msg("a", "x" * 50_000, "assistant")))
        for n in range(4)
    ]
    assert len(json.dumps(snapshot_message(1, views, 20_000))) < 28_000


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [("", "", "af63c74c8601c8dd"), ("rm", '{"x": 1}', None), ("größe", "☕", None), ("a", "\ud800", None)],
)
def test_a_fingerprint_is_the_fnv_of_the_text_as_a_browser_encodes_it(name: str, arguments: str, expected: str | None) -> None:
    value = 0xCBF29CE484222325
    for byte in f"{name}\n{arguments}".replace("\ud800", "\ufffd").encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    assert fingerprint(name, arguments) == f"{value:016x}"
    assert expected in (None, fingerprint(name, arguments))


# -- from the page --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ({"kind": "hello", "id": "1", "have": 3, "page": "p"}, Hello(id="1", have=3, page="p")),
        ({"kind": "resync", "id": "1", "have": 4}, Resync(id="1", have=4)),
        ({"kind": "stop", "id": "1", "run_id": "r", "call_id": "c"}, Stop(id="1", run_id="r", call_id="c")),
        ({"kind": "stop", "id": "1", "run_id": "r"}, Stop(id="1", run_id="r", after="now", reason="")),
        (
            {"kind": "stop", "id": "1", "run_id": "r", "after": "step", "reason": "why"},
            Stop(id="1", run_id="r", after="step", reason="why"),
        ),
        (
            {"kind": "decide", "id": "1", "run_id": "r", "call_id": "c", "fingerprint": "f", "decision": "deny", "reason": "no"},
            Decide(id="1", run_id="r", call_id="c", fingerprint="f", decision="deny", reason="no"),
        ),
        (
            {
                "kind": "decide",
                "id": "1",
                "call_id": "c",
                "fingerprint": "f",
                "decision": "approve",
                "arguments": "{}",
                "rule": {"tool_name": "rm", "rule_content": "path=a"},
            },
            Decide(id="1", call_id="c", fingerprint="f", decision="approve", arguments="{}", rule=Rule("rm", "path=a")),
        ),
        (
            {"kind": "decide_all", "id": "1", "run_id": "r", "calls": {"c": "f", "d": "g"}, "decision": "deny", "stop": True},
            DecideAll(id="1", run_id="r", calls={"c": "f", "d": "g"}, decision="deny", stop=True),
        ),
        ({"kind": "answer", "id": "1", "call_id": "c", "text": ""}, AnswerCall(id="1", call_id="c", text="")),
        ({"kind": "steer", "id": "1", "run_id": "r", "text": "on"}, Steer(id="1", run_id="r", text="on")),
        ({"kind": "withdraw", "id": "1", "steer_id": "n"}, Withdraw(id="1", steer_id="n")),
        ({"kind": "forget", "id": "1", "rule": {"tool_name": "rm"}}, Forget(id="1", rule=Rule("rm"))),
        ({"kind": "send", "id": "1", "text": "hi"}, Send(id="1", text="hi")),
        ({"kind": "resume", "id": "1", "run_id": "r", "invented": True}, Resume(id="1", run_id="r")),
    ],
)
def test_a_command_is_read(value: object, command: object) -> None:
    assert is_dataclass(command)
    assert load_command(value) == command


@pytest.mark.parametrize(
    "value",
    [
        None,
        "stop",
        [],
        {},
        {"kind": "eval", "id": "1", "code": "1"},
        {"kind": "stop"},
        {"kind": "stop", "id": ""},
        {"kind": "stop", "id": "x" * 65},
        {"kind": "stop", "id": 5},
        {"kind": "stop", "id": "1", "after": "later"},
        {"kind": "stop", "id": "1", "reason": "x" * 10_001},
        {"kind": "decide", "id": "1", "call_id": "c", "decision": "approve"},
        {"kind": "decide", "id": "1", "call_id": "c", "fingerprint": "f", "decision": "yes"},
        {"kind": "decide", "id": "1", "call_id": "c", "fingerprint": "f", "decision": "approve", "arguments": {"a": 1}},
        {"kind": "decide_all", "id": "1", "calls": {}, "decision": "approve"},
        {"kind": "decide_all", "id": "1", "calls": {"c": None}, "decision": "approve"},
        {"kind": "steer", "id": "1", "text": ""},
        {"kind": "forget", "id": "1", "rule": "rm"},
        {"kind": "decide", "id": "1", "call_id": None, "fingerprint": "f", "decision": "approve"},
        {"kind": "send", "id": "1", "text": ""},
        {"kind": "send", "id": "1", "text": "x" * 1_000_001},
    ],
)
def test_what_is_not_a_command_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="not a command: "):
        load_command(value)


def test_the_rules_of_a_page_are_those_that_allow() -> None:
    rules = (PermissionRule("rm"), PermissionRule("mv", "to=/tmp"), PermissionRule("cp", None, "deny"))
    allowed = [{"tool_name": "rm", "rule_content": None}, {"tool_name": "mv", "rule_content": "to=/tmp"}]
    assert rules_message(rules) == {"kind": "rules", "rules": allowed}
    assert snapshot_message(3, (), rules=rules)["rules"] == allowed
