"""What a call prints and displays: joined, bounded, in order, from any thread."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_widgets import outputs
from agent_widgets.messages import JsonObject
from agent_widgets.outputs import Outputs, shown


class Told:
    """Takes what is told."""

    def __init__(self) -> None:
        self.outputs: list[JsonObject] = []
        self.sink = Outputs(self.outputs.append)

    def printed(self, *texts: str, name: str = "stdout") -> None:
        for text in texts:
            self.sink(name, {"text": text})

    def displayed(self, **data: Any) -> None:
        self.sink("display", {"data": {name.replace("_", "/"): value for name, value in data.items()}})

    def all(self) -> list[tuple[Any, ...]]:
        self.sink.close()
        return [tuple(output.values()) for output in self.outputs]


async def test_what_is_printed_together_is_told_together_and_the_order_is_kept() -> None:
    told = Told()
    told.printed("one ", "two")
    told.printed("oops", name="stderr")
    told.printed("three")
    assert told.all() == [("stdout", "one two"), ("stderr", "oops"), ("stdout", "three")]


async def test_the_first_words_are_told_at_once_and_a_loop_that_prints_is_told_now_and_then() -> None:
    told = Told()
    first = asyncio.get_running_loop().time()
    told.printed("first")
    while not told.outputs:
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() - first < outputs.FLUSH_SECONDS
    for _ in range(100):
        await asyncio.to_thread(told.printed, "x")
    told.sink.flush()
    assert sum(len(str(output["text"])) for output in told.outputs) == 105
    assert len(told.outputs) < 60


async def test_of_what_is_too_long_the_beginning_and_the_end_are_kept() -> None:
    told = Told()
    for n in range(50):
        told.printed(f"{n:09}\n" * 1_000)
        told.sink.flush()
    told.printed("the last words")
    texts = [str(output["text"]) for output in told.outputs]
    assert sum(map(len, texts)) == outputs.PRINTED_CHARACTERS
    said = told.all()
    assert said[-1][1].endswith("000000049\nthe last words")
    assert len(said[-1][1]) == outputs.END_CHARACTERS
    assert said[-2] == ("stderr", "\n[left out: 280,014 of 500,014 printed characters]\n")


async def test_progress_may_go_on_for_ever() -> None:
    told = Told()
    for n in range(5_000):
        told.printed("\r" + f"{n} of many".ljust(100), name="stderr")
        told.sink.flush()
    told.printed("\ndone", name="stderr")
    assert told.all()[-1] == ("stderr", "\ndone")
    assert told.outputs[-2]["text"] == "\r" + "4999 of many".ljust(100)


async def test_a_clear_forgets_what_was_not_told_and_one_that_waits_comes_with_the_next_output() -> None:
    told = Told()
    told.printed("gone")
    told.sink("clear", {"wait": False})
    told.printed("kept")
    told.sink("clear", {"wait": True})
    told.sink.flush()
    assert [tuple(output.values()) for output in told.outputs] == [("clear",), ("stdout", "kept")]
    told.printed("new")
    assert told.all()[2:] == [("clear",), ("stdout", "new")]


async def test_all_that_a_call_displays_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_DATA_CHARACTERS", 1_000)
    told = Told()
    for _ in range(3):
        told.displayed(image_png="A" * 400)
    told.displayed(text_html="<b>" * 100_000, text_plain="bold")
    told.sink.close()
    first, second, third, html = (output["data"] for output in told.outputs)
    assert first == second == {"image/png": "A" * 400}
    assert third == {"text/plain": "[left out: image/png of 400 characters, which is more than is shown here]"}
    assert html == {"text/plain": "bold\n[left out: text/html of 300,000 characters, which is more than is shown here]"}


def test_bytes_become_base64_and_what_no_page_can_show_becomes_a_sentence() -> None:
    assert shown({"image/png": b"\x89PNG", "text/plain": "p"}) == {"image/png": "iVBORw==", "text/plain": "p"}
    assert shown({"application/javascript": "alert(1)"}) == {
        "text/plain": "(application/javascript: it cannot be shown in a tool's card)"
    }
    assert shown({}) == {"text/plain": "(nothing: it cannot be shown in a tool's card)"}
    assert shown({"text/plain": "lone \ud800"}) == {"text/plain": "lone \\ud800"}


async def test_a_lone_surrogate_can_be_printed() -> None:
    told = Told()
    told.printed("\ud800")
    assert told.all() == [("stdout", "\\ud800")]
