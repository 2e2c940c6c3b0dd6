"""Writes the golden logs: ``python tests/golden/record.py``. Fixed ids and times, so that a change shows in the diff.

Each ``NAME.jsonl`` holds one full event a line; ``NAME.transcript.json`` what the page gets after folding them. pytest and
vitest fold the same files: change the fold in both languages, run this, and read the diff.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_widgets import events as ev
from agent_widgets.endings import closing
from agent_widgets.messages import ErrorInfo, PermissionRule, TextBlock, ToolCallBlock, ToolResultBlock
from agent_widgets.transcript import fold
from agent_widgets.wire import dump_event, page_transcript

HERE = Path(__file__).resolve().parent
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Log:
    """A log being written: stamps every event with the next id and a time 0.1 s later."""

    def __init__(self, *, name: str = "assistant") -> None:
        self.events: list[ev.Event] = []
        self.path: list[str] = []
        self.add(ev.ReplyStartEvent(session_id="s1", reply_id="r1", name=name))

    def add(self, *events: ev.Event) -> None:
        for event in events:
            number = len(self.events)
            at = (START + timedelta(seconds=number / 10)).isoformat()
            self.events.append(replace(self._placed(event), id=f"e{number:03d}", created_at=at))

    @contextmanager
    def inside(self, *path: str) -> Generator[None]:
        """What is added meanwhile is a sub-agent's."""
        before, self.path = self.path, [*path]
        yield
        self.path = before

    def _placed(self, event: ev.Event) -> ev.Event:
        reply: dict[str, Any] = {"reply_id": "-".join(["r1", *self.path])} if hasattr(event, "reply_id") else {}
        for call_id in reversed(self.path):
            event = ev.under(call_id, event)
        return replace(event, **reply) if self.path else event

    def model(self, *, name: str = "demo") -> None:
        self.add(ev.ModelCallStartEvent(reply_id="r1", model_name=name))

    def model_end(self, tokens_in: int = 120, tokens_out: int = 31, **more: Any) -> None:
        self.add(ev.ModelCallEndEvent(reply_id="r1", input_tokens=tokens_in, output_tokens=tokens_out, **more))

    def text(self, block_id: str, *deltas: str, end: bool = True) -> None:
        self.add(ev.TextBlockStartEvent(reply_id="r1", block_id=block_id))
        self.add(*(ev.TextBlockDeltaEvent(reply_id="r1", block_id=block_id, delta=delta) for delta in deltas))
        if end:
            self.add(ev.TextBlockEndEvent(reply_id="r1", block_id=block_id))

    def thinking(self, block_id: str, *deltas: str) -> None:
        self.add(ev.ThinkingBlockStartEvent(reply_id="r1", block_id=block_id))
        self.add(*(ev.ThinkingBlockDeltaEvent(reply_id="r1", block_id=block_id, delta=delta) for delta in deltas))
        self.add(ev.ThinkingBlockEndEvent(reply_id="r1", block_id=block_id))

    def call(self, call_id: str, name: str, *deltas: str, end: bool = True) -> None:
        self.add(ev.ToolCallStartEvent(reply_id="r1", tool_call_id=call_id, tool_call_name=name))
        self.add(*(ev.ToolCallDeltaEvent(reply_id="r1", tool_call_id=call_id, delta=delta) for delta in deltas))
        if end:
            self.add(ev.ToolCallEndEvent(reply_id="r1", tool_call_id=call_id))

    def result(self, call_id: str, name: str, *deltas: str, state: Any = "success", **metadata: Any) -> None:
        self.add(ev.ToolResultStartEvent(reply_id="r1", tool_call_id=call_id, tool_call_name=name))
        self.add(*(ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id=call_id, delta=delta) for delta in deltas))
        self.add(ev.ToolResultEndEvent(reply_id="r1", tool_call_id=call_id, state=state, metadata=metadata))

    def printed(self, call_id: str, name: str, **value: Any) -> None:
        self.add(ev.CustomEvent(name=ev.TOOL_OUTPUT, value={"call_id": call_id, "name": name, **value}))

    def end(self, **more: Any) -> None:
        self.add(ev.ReplyEndEvent(session_id="s1", reply_id="r1", **more))

    def stop(self, **metadata: Any) -> None:
        """Close all that is open, as a stop does."""
        transcript = fold(None, *self.events)
        self.add(*closing(transcript, session_id="s1", finished_reason="interrupted", metadata=metadata))

    def waiting_call(self, call_id: str) -> ToolCallBlock:
        (call,) = (b for b in fold(None, *self.events).message.content if isinstance(b, ToolCallBlock) and b.id == call_id)
        return call


def plain_text() -> Log:
    log = Log()
    log.model()
    log.text(
        "t1",
        "# A title\n\nSome **bold",
        "** text with `code` and é, 漢字, 🙂.\n\n- one\n- t",
        "wo\n\n```python\nprint(",
        "'hi')\n```\n",
    )
    log.model_end(1204, 310)
    log.end()
    return log


def two_tools() -> Log:
    """Thinking, text, two calls whose arguments and results interleave, and an answer."""
    log = Log(name="weather")
    log.model(name="gpt-5-mini")
    log.thinking("k1", "The person asks about two cities.", " I can look at both at once.")
    log.text("t1", "I look at both cities.")
    log.add(
        ev.ToolCallStartEvent(reply_id="r1", tool_call_id="c1", tool_call_name="get_weather"),
        ev.ToolCallStartEvent(reply_id="r1", tool_call_id="c2", tool_call_name="get_weather"),
        ev.ToolCallDeltaEvent(reply_id="r1", tool_call_id="c1", delta='{"city": "Par'),
        ev.ToolCallDeltaEvent(reply_id="r1", tool_call_id="c2", delta='{"city": "Os'),
        ev.ToolCallDeltaEvent(reply_id="r1", tool_call_id="c1", delta='is", "days": 3}'),
        ev.ToolCallDeltaEvent(reply_id="r1", tool_call_id="c2", delta='lo"}'),
        ev.ToolCallEndEvent(reply_id="r1", tool_call_id="c1"),
        ev.ToolCallEndEvent(reply_id="r1", tool_call_id="c2"),
    )
    log.model_end(cache_input_tokens=64)
    log.add(
        ev.ToolResultStartEvent(reply_id="r1", tool_call_id="c1", tool_call_name="get_weather"),
        ev.ToolResultStartEvent(reply_id="r1", tool_call_id="c2", tool_call_name="get_weather"),
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c2", delta="Oslo: 12 °C,"),
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="Paris: 21 °C, sunny"),
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c2", delta=" rain"),
        ev.ToolResultEndEvent(reply_id="r1", tool_call_id="c2", state="success"),
        ev.ToolResultEndEvent(reply_id="r1", tool_call_id="c1", state="success"),
    )
    log.model(name="gpt-5-mini")
    log.text("t2", "| city | °C |\n|---|--:|\n| Paris | 21 |\n", "| Oslo | 12 |\n\nTake an umbrella to **Oslo**.")
    log.model_end(200, 40)
    log.end()
    return log


def paused() -> Log:
    log = Log()
    log.model()
    log.text("t1", "I would delete the old orders.")
    log.call("c1", "delete_rows", '{"table": "orders", ', '"where": "created < \'2020-01-01\'"}')
    log.model_end()
    call = replace(log.waiting_call("c1"), state="asking", suggested_rules=(PermissionRule("delete_rows", "orders"),))
    call = replace(call, answer_by="2026-01-02T03:05:06+00:00", answer_within=60.0)
    log.add(ev.RequireUserConfirmEvent(reply_id="r1", tool_calls=(call,)))
    return log


def decided(*, confirmed: bool, reason: str = "", edited: str | None = None) -> Log:
    log = paused()
    call = log.waiting_call("c1")
    call = replace(call, input=edited or call.input)
    result = ev.ConfirmResult(confirmed=confirmed, tool_call=call, reason=reason)
    log.add(ev.UserConfirmResultEvent(reply_id="r1", confirm_results=(result,)))
    return log


def approved() -> Log:
    """Approved with other arguments than the model had asked for."""
    log = decided(confirmed=True, edited='{"table":"orders","where":"created < \'2019-01-01\'"}')
    log.result("c1", "delete_rows", "42 rows deleted")
    log.model()
    log.text("t2", "Done: 42 rows.")
    log.model_end(180, 12)
    log.end()
    return log


def denied() -> Log:
    log = decided(confirmed=False, reason="Not in production!")
    log.result("c1", "delete_rows", "Denied by the user: Not in production!", state="denied", reason="Not in production!")
    log.model()
    log.text("t2", "I leave the orders alone.")
    log.model_end(170, 9)
    log.end()
    return log


def stopped_in_text() -> Log:
    log = Log()
    log.model()
    log.text("t1", "The history of Rome begins ", "in the year **753 befo", end=False)
    log.stop(source="user", when="now", reason="", stop_ms=12)
    return log


def stopped_in_arguments() -> Log:
    """One call whose arguments were cut, one that was running, one waiting to be."""
    log = Log()
    log.model()
    log.call("c1", "count_to", '{"n": 100}')
    log.call("c2", "write_file", '{"path": "/tmp/a.txt", "text": "half a sent', end=False)
    log.add(ev.ToolResultStartEvent(reply_id="r1", tool_call_id="c1", tool_call_name="count_to"))
    log.add(ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="1 2 3 "))
    log.stop(source="code", when="now", reason="enough", stop_ms=3.5)
    return log


def tool_output() -> Log:
    """A tool that prints, displays and returns text, an image and text again."""
    log = Log()
    log.model()
    log.call("c1", "plot", '{"column": "price"}')
    log.model_end(0, 0, metadata={"usage": "unknown"})
    log.add(ev.ToolResultStartEvent(reply_id="r1", tool_call_id="c1", tool_call_name="plot"))
    log.printed("c1", "stdout", text="\x1b[32mreading\x1b[0m 1 of 2\n")
    log.printed("c1", "stdout", text="reading 2 of 2\n")
    log.printed("c1", "stderr", text="warning: 3 values are missing\n")
    log.printed("c1", "stdout", text="done\n")
    html = '<table border="1" class="dataframe"><tr><th>price</th></tr><tr><td>3.5</td></tr></table>'
    log.printed("c1", "display", data={"text/html": html, "text/plain": "price\n3.5"})
    log.printed("c1", "display", data={"image/png": PIXEL, "text/plain": "<Figure>"})
    log.printed("c1", "stdout", text="after the picture\n")
    log.printed("c1", "waits", text="for the main thread, which is busy")
    log.printed("c1", "stderr", text="\r 10%\r 20%")
    log.printed("c1", "waits", text="")
    log.printed("c1", "stderr", text="\r 30%\r\n100%\r")
    log.printed("c1", "display", data={"text/plain": "first"}, display_id="d", metadata={"image/png": {"width": 40}})
    log.printed("c1", "display", data={"text/plain": "second"}, display_id="d", update=True)
    log.printed("c1", "display", data={"text/plain": "nowhere"}, display_id="other", update=True)
    log.printed("c2", "stdout", text="goes\n")
    log.printed("c2", "clear")
    log.printed("c2", "stdout", text="stays\r\n")
    log.printed("c2", "waits", text="for something else")
    log.add(
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="The plot:"),
        ev.ToolResultDataDeltaEvent(reply_id="r1", tool_call_id="c1", block_id="d1", media_type="image/png", data=PIXEL),
        ev.ToolResultDataDeltaEvent(
            reply_id="r1", tool_call_id="c1", block_id="d2", media_type="image/png", url="https://example.org/a.png"
        ),
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="two "),
        ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="pictures"),
        ev.ToolResultEndEvent(reply_id="r1", tool_call_id="c1", state="success", metadata={"still_running": True}),
        ev.DataBlockStartEvent(reply_id="r1", block_id="d3", media_type="image/png", name="summary.png"),
        ev.DataBlockDeltaEvent(reply_id="r1", block_id="d3", media_type="image/png", data=PIXEL[:40]),
        ev.DataBlockDeltaEvent(reply_id="r1", block_id="d3", media_type="image/png", data=PIXEL[40:]),
        ev.DataBlockEndEvent(reply_id="r1", block_id="d3"),
        ev.DataBlockStartEvent(reply_id="r1", block_id="d4", media_type="image/png"),
        ev.DataBlockDeltaEvent(reply_id="r1", block_id="d4", media_type="image/png", url="https://example.org/b.png"),
        ev.DataBlockEndEvent(reply_id="r1", block_id="d4"),
    )
    log.end(finished_reason="exceed_max_iters")
    return log


def error() -> Log:
    log = Log()
    log.model()
    log.text("t1", "Let me see.")
    log.call("c1", "divide", '{"a": 1, "b": 0}')
    log.model_end()
    trace = 'Traceback (most recent call last):\n  File "<cell>", line 2, in divide\nZeroDivisionError: division by zero\n'
    log.result("c1", "divide", "ZeroDivisionError: division by zero", state="error", traceback=trace)
    log.model()
    failed = fold(None, *log.events)
    problem = ErrorInfo(type="connection", message="demo: the server closed the connection.")
    log.add(*closing(failed, session_id="s1", finished_reason="error", error=problem))
    return log


def hints_and_notices() -> Log:
    """What is rare: hints, notices, unknown customs, outside results, a second start, a replaced text, unknown blocks."""
    log = Log()
    log.add(ev.HintBlockEvent(reply_id="r1", block_id="h1", source="plan", hint="Keep it short."))
    part = TextBlock("Look at this.", id="p1", created_at=START.isoformat())
    log.add(ev.HintBlockEvent(reply_id="r1", block_id="h2", hint=(part,)))
    log.add(ev.CustomEvent(name=ev.NOTICE, value={"text": "The page was reloaded."}))
    log.add(ev.CustomEvent(name="metrics", value={"queue": 3, "nothing": None}))
    late: dict[str, Any] = {"call_id": "c0", "name": "count_rows", "state": "success", "text": "5"}
    log.add(ev.CustomEvent(name=ev.LATE_RESULT, value=late))
    log.add(ev.CustomEvent(name=ev.LATE_RESULT, value={**late, "state": "error", "text": "ValueError: gone"}))
    log.add(ev.CustomEvent(name=ev.LATE_RESULT, value={**late, "state": "interrupted", "text": ""}))
    log.add(ev.CustomEvent(name=ev.LATE_RESULT, value={"name": "count_rows", "text": 5}))
    log.model()
    log.add(ev.TextBlockDeltaEvent(reply_id="r1", block_id="nowhere", delta="lost"))
    log.add(ev.TextBlockStartEvent(reply_id="r1", block_id="t1"))
    log.add(ev.TextBlockStartEvent(reply_id="r1", block_id="t2"))
    log.add(ev.TextBlockDeltaEvent(reply_id="r1", block_id="t1", delta="first, "))
    log.add(ev.TextBlockDeltaEvent(reply_id="r1", block_id="t2", delta="second"))
    log.add(ev.TextBlockDeltaEvent(reply_id="r1", block_id="t1", delta="interleaved"))
    log.add(ev.TextBlockEndEvent(reply_id="r1", block_id="t2"))
    log.add(ev.TextBlockEndEvent(reply_id="r1", block_id="t1", text="first, replaced"))
    log.call("c1", "ask_colleague", '{"question": "Is it safe?"}')
    log.model_end(12, 3)
    log.add(ev.RequireExternalExecutionEvent(reply_id="r1", tool_calls=(log.waiting_call("c1"),)))
    answer = ToolResultBlock(id="c1", name="ask_colleague", output="Yes.", state="success", created_at=START.isoformat())
    log.add(ev.ExternalExecutionResultEvent(reply_id="r1", execution_results=(answer,)))
    log.add(ev.ToolResultStartEvent(reply_id="r1", tool_call_id="c1", tool_call_name="ask_colleague"))
    log.result("c1", "ask_colleague", "Yes.")
    log.add(ev.UserInterruptEvent(reply_id="r1"))
    log.add(ev.ExceedMaxItersEvent(reply_id="r1", name="assistant"))
    log.end()
    return log


def sub_agents() -> Log:
    """Two sub-agents whose blocks and calls have equal ids, one below the first, and a call there that a person approved."""
    log = Log(name="boss")
    log.model()
    log.call("c1", "researcher", '{"task": "Look at both."}')
    log.call("c2", "researcher", '{"task": "Look at neither."}')
    log.model_end()
    for call_id in ("c1", "c2"):
        log.add(ev.ToolResultStartEvent(reply_id="r1", tool_call_id=call_id, tool_call_name="researcher"))
        with log.inside(call_id):
            log.add(ev.ReplyStartEvent(session_id="s1", reply_id="", name="researcher"))
            log.model(name="gpt-5-mini")
            log.add(ev.TextBlockStartEvent(reply_id="", block_id="t1"))
    for call_id, piece in (("c1", "I ask "), ("c2", "I do "), ("c1", "for both."), ("c2", "not look")):
        with log.inside(call_id):
            log.add(ev.TextBlockDeltaEvent(reply_id="", block_id="t1", delta=piece))
    with log.inside("c1"):
        log.add(ev.TextBlockEndEvent(reply_id="", block_id="t1"))
        log.call("c1", "helper", '{"task": "Tidy up."}')
        log.model_end(40, 6)
        log.add(ev.ToolResultStartEvent(reply_id="", tool_call_id="c1", tool_call_name="helper"))
    with log.inside("c1", "c1"):
        log.add(ev.ReplyStartEvent(session_id="s1", reply_id="", name="helper"))
        log.model(name="gpt-5-nano")
        log.call("deep", "delete_rows", '{"table": "drafts"}')
        log.model_end(20, 4)
        call = ToolCallBlock(
            id="deep", name="delete_rows", input='{"table": "drafts"}', state="asking", created_at=START.isoformat()
        )
        log.add(ev.RequireUserConfirmEvent(reply_id="", tool_calls=(call,)))
    decision = ev.ConfirmResult(confirmed=True, tool_call=replace(call, input='{"table": "old_drafts"}'))
    log.add(ev.UserConfirmResultEvent(reply_id="r1", confirm_results=(decision,)))
    with log.inside("c1", "c1"):
        log.printed("deep", "stdout", text="7 rows\n")
        log.result("deep", "delete_rows", "7 rows deleted")
        log.add(ev.CustomEvent(name=ev.NOTICE, value={"text": "The model is slow."}))
        log.end()
    with log.inside("c1"):
        log.add(ev.ToolResultTextDeltaEvent(reply_id="", tool_call_id="c1", delta="Tidy."))
        log.add(ev.ToolResultEndEvent(reply_id="", tool_call_id="c1", state="success"))
        log.end()
    log.add(ev.ToolResultTextDeltaEvent(reply_id="r1", tool_call_id="c1", delta="Both are tidy."))
    log.add(ev.ToolResultEndEvent(reply_id="r1", tool_call_id="c1", state="success"))
    with log.inside("c2"):
        log.add(ev.TextBlockEndEvent(reply_id="", block_id="t1"))
        log.call("also deep", "delete_rows", '{"table": "orders"}')
        log.model_end(30, 5)
        call = replace(call, id="also deep", input='{"table": "orders"}')
        log.add(ev.RequireUserConfirmEvent(reply_id="", tool_calls=(call,)))
    log.add(ev.UserInterruptEvent(reply_id="r1-c2"))
    log.stop(source="user", when="now", reason="", stop_ms=12)
    return log


def compressed() -> Log:
    """A step that is refused as too long, a summary, and the step's call made again: one step, and the usage of all."""
    log = Log()
    log.model()
    log.model_end(0, 0, finished_reason="interrupted", metadata={"usage": "unknown"})
    log.add(ev.ModelCallStartEvent(reply_id="r1", model_name="small", metadata={"purpose": "compression"}))
    log.model_end(900, 40)
    log.add(ev.CustomEvent(name=ev.SUMMARY, value={"text": "They talked about tea.", "messages": 12, "blocks": 0}))
    log.add(ev.CustomEvent(name=ev.NOTICE, value={"text": "Older messages were summarised: 12 messages."}))
    log.add(ev.ModelCallStartEvent(reply_id="r1", model_name="demo", metadata={"purpose": "again"}))
    log.text("t1", "Green tea.")
    log.model_end(120, 3)
    log.end()
    return log


LOGS = (
    plain_text,
    two_tools,
    paused,
    approved,
    denied,
    stopped_in_text,
    stopped_in_arguments,
    tool_output,
    error,
    hints_and_notices,
    sub_agents,
    compressed,
)


def files() -> Iterator[tuple[Path, str]]:
    """Each file and its text."""
    for make in LOGS:
        log = make()
        lines = (json.dumps(dump_event(event), ensure_ascii=False) for event in log.events)
        yield HERE / f"{make.__name__}.jsonl", "".join(f"{line}\n" for line in lines)
        transcript = page_transcript(fold(None, *log.events))
        yield HERE / f"{make.__name__}.transcript.json", json.dumps(transcript, ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
