"""The state: what is wrong with a history, and what mending it gives."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_widgets.backends import chat_messages
from agent_widgets.messages import (
    AssistantMsg,
    Base64Source,
    Block,
    DataBlock,
    Msg,
    TextBlock,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    UserMsg,
)
from agent_widgets.state import INTERRUPTED_TEXT, AgentState, Summary, valid_arguments
from tests.validator import assert_valid

ASK = UserMsg("user", "please")
exactly = settings(deadline=None, derandomize=True, database=None)  # the same examples on every machine, however slow
WORDS = st.text('ab"\\{}[]é☕\n', max_size=4)
VALUE = st.none() | st.integers() | WORDS | st.lists(WORDS, max_size=2)


def asked(call_id: str = "c1", state: ToolCallState = "finished", arguments: str = '{"x": 1}') -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="find", input=arguments, state=state)


def answered(call_id: str = "c1") -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name="find", output="found", state="success")


def held(*blocks: Block, is_open: bool = True) -> AgentState:
    """A conversation whose last message holds ``blocks``."""
    message = AssistantMsg("a", blocks)
    return AgentState(context=(ASK, message), reply_id=message.id if is_open else "", cur_iter=2)


def results_of(state: AgentState) -> list[tuple[str, str, str]]:
    return [(b.id, b.state, b.text()) for m in state.context for b in m.content if isinstance(b, ToolResultBlock)]


# -- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', ' {"a" : [1, {"b": null}]} ', '{"é": "☕"}'])
def test_arguments_that_are_an_object_stay_as_they_are_to_the_byte(text: str) -> None:
    assert valid_arguments(text) == text


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ("null", "{}"),
        ("[1]", "{}"),
        ("5", "{}"),
        ('"x"', "{}"),
        ("rm -rf", "{}"),
        ('{"a": 1, "b', '{"a":1}'),
        ("{", "{}"),
    ],
)
def test_other_arguments_become_the_object_that_can_be_read_in_them(text: str, mended: str) -> None:
    assert valid_arguments(text) == mended


@exactly
@given(st.dictionaries(WORDS, VALUE, max_size=3), st.floats(0, 1))
def test_arguments_cut_anywhere_are_mended_to_an_object_and_mending_twice_changes_nothing(
    value: dict[str, object], part: float
) -> None:
    text = json.dumps(value)
    cut = text[: round(len(text) * part)]
    mended = valid_arguments(cut)
    assert isinstance(json.loads(mended), dict)
    assert valid_arguments(mended) == mended
    assert cut != text or mended == text


# -- what waits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["asking", "submitted"])
def test_a_call_that_asks_or_is_submitted_waits_in_an_open_reply(state: ToolCallState) -> None:
    assert [call.id for call in held(asked(state=state), asked("c2", "allowed")).waiting()] == ["c1"]


def test_nothing_waits_when_no_reply_is_open() -> None:
    assert held(asked(state="asking"), is_open=False).waiting() == ()
    assert AgentState(reply_id="gone").waiting() == ()
    paused = held(asked(state="asking"))
    assert replace(paused, context=(*paused.context, ASK)).waiting() == ()


def test_a_call_that_has_its_result_does_not_wait() -> None:
    assert held(asked(state="asking"), answered()).waiting() == ()


# -- check ----------------------------------------------------------------------------------------------------------


def test_a_valid_history_has_no_faults() -> None:
    assert held(TextBlock("one"), asked(), answered(), TextBlock("two"), is_open=False).check() == ()
    assert AgentState().check() == ()


@pytest.mark.parametrize("state", ["pending", "asking", "allowed", "submitted"])
def test_a_call_without_a_result_is_no_fault_while_its_reply_is_open(state: ToolCallState) -> None:
    assert held(asked(state=state)).check() == ()
    assert held(asked(state=state), is_open=False).check() == ("message 1: call 'c1' of 'find' has no result",)


@pytest.mark.parametrize(
    ("blocks", "fault"),
    [
        ((answered(),), "result 'c1' answers no call"),
        ((asked(), answered(), answered()), "call 'c1' is answered 2 times"),
        ((asked(), asked(), answered()), "two calls have the id 'c1'"),
        ((asked(), replace(answered(), state="running")), "call 'c1' of 'find' has no result"),
        ((asked(arguments='{"x'), answered()), "the arguments of call 'c1' are not a JSON object"),
    ],
)
def test_each_fault_is_a_sentence_that_names_the_message_and_the_call(blocks: tuple[Block, ...], fault: str) -> None:
    assert held(*blocks, is_open=False).check() == (f"message 1: {fault}",)


# -- repair ---------------------------------------------------------------------------------------------------------


def test_repairing_a_valid_history_gives_an_equal_one() -> None:
    state = AgentState(
        context=(ASK, replace(AssistantMsg("a", [TextBlock("x"), asked(), answered()]), finished_reason="completed"))
    )
    assert state.repair() == state


def test_messages_that_a_person_wrote_as_examples_are_not_called_interrupted() -> None:
    state = AgentState(context=(ASK, AssistantMsg("a", "an example"), ASK))
    assert state.repair() == state


def test_a_reply_that_ran_when_it_was_saved_is_ended_as_interrupted_and_keeps_its_text() -> None:
    repaired = held(TextBlock("half a sent")).repair()
    last = repaired.context[-1]
    assert (repaired.reply_id, repaired.cur_iter) == ("", 0)
    assert (last.text, last.finished_reason, last.metadata) == ("half a sent", "interrupted", {"_is_interrupted": True})
    assert last.finished_at is not None
    assert last.content[0].finished_at is not None


def test_a_call_that_ran_is_closed_as_interrupted_with_what_it_had_said() -> None:
    running = ToolResultBlock(id="c1", name="find", output="so far", state="running")
    assert results_of(held(asked(state="allowed"), running).repair()) == [("c1", "interrupted", f"so far\n{INTERRUPTED_TEXT}")]
    assert results_of(held(asked(state="pending")).repair()) == [("c1", "interrupted", INTERRUPTED_TEXT)]


def test_a_finished_result_is_kept_when_its_neighbour_is_closed() -> None:
    repaired = held(asked(), asked("c2", "allowed"), answered()).repair()
    assert results_of(repaired) == [("c1", "success", "found"), ("c2", "interrupted", INTERRUPTED_TEXT)]


def test_a_paused_reply_goes_on_waiting_and_what_ran_beside_it_is_closed() -> None:
    repaired = held(asked(state="asking"), asked("c2", "allowed")).repair()
    assert [call.id for call in repaired.waiting()] == ["c1"]
    assert (repaired.cur_iter, repaired.context[-1].finished_reason) == (2, None)
    assert results_of(repaired) == [("c2", "interrupted", INTERRUPTED_TEXT)]


def test_half_arguments_are_mended_and_orphans_and_doubles_are_dropped() -> None:
    state = held(asked(arguments='{"x": 1, "y'), asked(), answered("other"), answered(), answered(), is_open=False)
    repaired = state.repair()
    assert repaired.check() == ()
    assert [block.id for block in repaired.context[1].content] == ["c1", "c1"]
    assert isinstance(call := repaired.context[1].content[0], ToolCallBlock)
    assert call.input == '{"x":1}'


BLOCK = st.one_of(
    st.builds(TextBlock, WORDS),
    st.builds(
        ToolCallBlock,
        id=st.sampled_from("abc"),
        name=st.just("find"),
        input=st.sampled_from(["{}", '{"x', "", "[]", '{"x": 1}']),
        state=st.sampled_from(["pending", "asking", "allowed", "submitted", "finished"]),
    ),
    st.builds(
        ToolResultBlock,
        id=st.sampled_from("abcd"),
        name=st.just("find"),
        output=st.sampled_from(["", "x", (TextBlock("t"), DataBlock(Base64Source("A", "image/png")))]),
        state=st.sampled_from(["success", "error", "interrupted", "denied", "running"]),
    ),
)


@exactly
@given(st.lists(st.lists(BLOCK, max_size=6), max_size=3), st.booleans())
def test_whatever_was_saved_is_valid_after_repair_and_repairing_twice_changes_nothing(
    contents: list[list[Block]], is_open: bool
) -> None:
    context: list[Msg] = []
    for blocks in contents:
        context += [ASK, AssistantMsg("a", blocks)]
    state = AgentState(context=tuple(context), reply_id=context[-1].id if is_open and context else "").repair()
    assert state.check() == ()
    assert replace(state, context=state.context).repair() == state
    sent = chat_messages((*state.context, UserMsg("user", "next")))
    assert_valid(sent)
    assert sent[-1] == {"role": "user", "content": "next"}


# -- a summary ------------------------------------------------------------------------------------------------------

STEPS = held(asked("a"), answered("a"), asked("b"), answered("b"), TextBlock("done"), is_open=False).repair()


def summed(state: AgentState, messages: int, blocks: int = 0) -> AgentState:
    return replace(state, summary=Summary(text="notes", messages=messages, blocks=blocks))


@pytest.mark.parametrize(("messages", "blocks"), [(0, 0), (1, 0), (1, 2), (1, 4), (2, 0)])
def test_a_summary_that_ends_between_messages_or_steps_is_kept(messages: int, blocks: int) -> None:
    state = summed(STEPS, messages, blocks)
    assert state.check() == ()
    assert state.repair() == state


@pytest.mark.parametrize(
    ("messages", "blocks", "says"),
    [
        (3, 0, "the summary stands for 3 messages, and there are 2"),
        (-1, 0, "the summary stands for -1 messages, and there are 2"),
        (1, 1, "the summary ends inside a step of message 1"),
        (1, 5, "the summary ends inside a step of message 1"),
        (1, 9, "the summary ends inside a step of message 1"),
        (1, -1, "the summary ends inside a step of message 1"),
        (0, 1, "the summary ends inside a step of message 0"),
        (2, 1, "the summary ends inside a step of message 2"),
    ],
)
def test_a_summary_that_fits_no_history_is_a_fault_and_dropped(messages: int, blocks: int, says: str) -> None:
    state = summed(STEPS, messages, blocks)
    assert state.check() == (says,)
    assert state.repair() == STEPS


def test_a_repair_that_moves_what_a_summary_stands_for_drops_it() -> None:
    doubled = held(asked("a"), answered("a"), answered("a"), asked("b"), answered("b"), TextBlock("done"), is_open=False)
    assert summed(doubled, 1, 5).repair().summary is None
    assert summed(doubled, 1, 2).repair().summary == Summary(text="notes", messages=1, blocks=2)


def test_a_summary_inside_a_reply_that_a_crash_cut_is_kept() -> None:
    running = held(asked("a"), answered("a"), asked("b", state="pending"))
    repaired = summed(running, 1, 2).repair()
    assert (repaired.summary, repaired.check()) == (Summary(text="notes", messages=1, blocks=2), ())
