"""What a tool gives, as a model reads it: joined, cut while it comes, and always sendable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_widgets.messages import Base64Source, DataBlock, TextBlock, URLSource
from agent_widgets.outcomes import (
    MAX_DATA_CHARACTERS,
    MAX_OUTPUT_CHARACTERS,
    Pieces,
    failed,
    failed_with,
    sendable,
    succeeded,
    text_of,
)

IMAGE = DataBlock(Base64Source("AAAA", "image/png"))


def told(*pieces: object) -> str:
    """What a model reads of these pieces, an image as <image>."""
    return "".join(block.text if isinstance(block, TextBlock) else "<image>" for block in blocks(*pieces))


def blocks(*pieces: object) -> list[TextBlock | DataBlock]:
    taken: list[TextBlock | DataBlock] = []
    gathered = Pieces(taken.append)
    for piece in pieces:
        gathered.add(piece)
    gathered.close()
    return taken


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["one ", "two", "\n", "three"], "one two\nthree"),
        ([TextBlock("one"), TextBlock("two")], "one\ntwo"),
        ([TextBlock("one\n"), TextBlock("two")], "one\ntwo"),
        (["one", TextBlock("two"), "three"], "one\ntwo\nthree"),
        ([1, {"a": None}, [2]], '1\n{"a":null}\n[2]'),
        ([None, "", "one", None], "one"),
        (["one", IMAGE, "two", IMAGE, TextBlock("three")], "one<image>two<image>three"),
        ([], ""),
    ],
)
def test_text_is_joined_and_every_other_value_stands_on_lines_of_its_own(pieces: list[object], text: str) -> None:
    assert told(*pieces) == text


def test_a_returned_list_of_blocks_reads_as_the_same_blocks_yielded() -> None:
    assert succeeded([TextBlock("one"), TextBlock("two"), IMAGE]).text == "one\ntwo"


def test_each_piece_is_told_at_once() -> None:
    taken: list[TextBlock | DataBlock] = []
    pieces = Pieces(taken.append)
    pieces.add("one ")
    assert [getattr(block, "text", "") for block in taken] == ["one "]
    pieces.add(IMAGE)
    assert taken[-1] is IMAGE


def test_what_is_huge_is_cut_while_it_comes_and_none_of_it_is_held() -> None:
    taken: list[int] = []
    pieces = Pieces(lambda block: taken.append(len(block.text) if isinstance(block, TextBlock) else 0))
    for _ in range(1_000):
        pieces.add("x" * 1_000)
    assert sum(taken) == MAX_OUTPUT_CHARACTERS
    pieces.close()
    pieces.close()
    assert sum(taken) == MAX_OUTPUT_CHARACTERS + len("\n[cut: 50,000 of 1,000,000 characters are shown]")
    assert sum(len(block.text) for block in blocks(*["x" * 49_999] * 9) if isinstance(block, TextBlock)) < 50_100


def test_a_list_of_huge_blocks_is_cut_as_a_whole() -> None:
    text = succeeded([TextBlock("x" * 40_000), TextBlock("y" * 40_000)]).text
    assert text.endswith("yyy\n[cut: 50,000 of 80,001 characters are shown]")


def test_images_beyond_what_a_page_can_carry_are_left_out_and_counted() -> None:
    huge = DataBlock(Base64Source("A" * (MAX_DATA_CHARACTERS // 2), "image/png"))
    away = DataBlock(URLSource("https://example.org/a.png", "image/png"))
    assert told(huge, huge, huge, away, huge) == "<image><image>\n[left out: 3 images or files, which were too large]"


def test_what_a_generator_returns_is_its_last_piece_and_nothing_at_all_is_said_so() -> None:
    taken: list[TextBlock | DataBlock] = []
    pieces = Pieces(taken.append)
    assert pieces.outcome().text == "(done, no output)"
    pieces.add("one ")
    assert pieces.outcome("two").content == ()
    assert [getattr(block, "text", "") for block in taken] == ["one ", "two"]


@pytest.mark.parametrize(
    "result",
    [
        "\ud800 alone",
        ["\ud800"],
        {"\udfff": 1},
        [TextBlock("\ud83d")],
        float("nan"),
        float("inf"),
        {1: {2: (3, b"\xff", {4})}},
        (number for number in range(3)),
        object(),
        Ellipsis,
        ValueError("\ud800"),
    ],
    ids=repr,
)
def test_whatever_a_tool_gives_can_be_sent(result: Any) -> None:
    text = succeeded(result).text
    assert text
    json.dumps(text, ensure_ascii=False).encode()


def test_a_lone_surrogate_becomes_its_escape_and_other_text_is_left_alone() -> None:
    assert (sendable("a\ud800b"), sendable("é漢🙂")) == ("a\\ud800b", "é漢🙂")
    assert failed("\ud800").text == "\\ud800"
    assert "\\ud800" in str(failed_with(ValueError("\ud800"), "t").metadata["traceback"])


def test_what_is_deep_or_cyclic_is_a_text_or_a_failure_and_never_a_crash() -> None:
    cycle: dict[str, object] = {}
    cycle["me"] = cycle
    assert text_of(cycle) == "{'me': {...}}"
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        text_of(deep)
    while deep:  # a list that deep cannot be freed at once either
        deep = deep[0]  # pyright: ignore[reportAssignmentType]


def test_an_error_without_words_is_called_by_its_name() -> None:
    assert failed_with(KeyError(), "t").text == "KeyError"
    assert failed_with(KeyboardInterrupt(), "t").text == "KeyboardInterrupt"
