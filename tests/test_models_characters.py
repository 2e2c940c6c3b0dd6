"""Halves of characters, joined and replaced."""

from __future__ import annotations

from agent_widgets.backends import ModelDelta, TextPiece, ThinkingPiece, ToolCallPiece, UsageReport
from agent_widgets.models.characters import Joiner, whole, whole_json

FIRST, SECOND = "\ud83d", "\ude00"


def joined(*pieces: ModelDelta) -> list[ModelDelta]:
    characters = Joiner()
    return [*characters.join(pieces), *characters.rest()]


def test_halves_are_joined_or_replaced() -> None:
    assert whole(f"{FIRST}{SECOND}, {FIRST}, {SECOND}") == "😀, \ufffd, \ufffd"
    assert whole_json({"a": [FIRST, 1, None, {"b": "é"}]}) == {"a": ["\ufffd", 1, None, {"b": "é"}]}


def test_a_text_without_halves_is_the_same_object() -> None:
    text = "né 😀"
    assert whole(text) is text


def test_a_character_is_joined_across_pieces_also_where_usage_comes_between() -> None:
    usage = UsageReport(input_tokens=1, output_tokens=1)
    assert joined(TextPiece(f"a{FIRST}"), usage, TextPiece(f"{SECOND}b")) == [TextPiece("a"), usage, TextPiece("😀b")]


def test_a_half_is_replaced_where_something_else_follows_or_nothing() -> None:
    thought, text = ThinkingPiece(FIRST), TextPiece(f"{SECOND}{FIRST}")
    assert joined(thought, text) == [ThinkingPiece(""), ThinkingPiece("\ufffd"), TextPiece("\ufffd"), TextPiece("\ufffd")]


def test_arguments_are_joined_for_each_call_and_names_made_whole() -> None:
    pieces = joined(
        ToolCallPiece(index=0, call_id="c1", name=f"f{FIRST}", arguments=FIRST),
        ToolCallPiece(index=0, arguments=SECOND),
        ToolCallPiece(index=1, call_id="c2", name="g", arguments=FIRST),
        ToolCallPiece(index=0, arguments=SECOND),
    )
    assert pieces == [
        ToolCallPiece(index=0, call_id="c1", name="f\ufffd"),
        ToolCallPiece(index=0, arguments="😀"),
        ToolCallPiece(index=1, call_id="c2", name="g"),
        ToolCallPiece(index=1, arguments="\ufffd"),
        ToolCallPiece(index=0, arguments="\ufffd"),
    ]
