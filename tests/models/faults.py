"""What a server can do wrong, and what must become of it: the faults that are the same in both languages.

A ``Case`` says what the server answers until it is healed, and how the run must end. The rest of what must hold is the same
for all cases, and is judged in ``tests/test_models_faults.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agent_widgets.errors import ConversationTooLongError, ModelError, ModelSetupError
from tests.models.chat_server import Answer, refusal, sse
from tests.models.dialects import Dialect, Part

KEY = "Kq7vZ2-api-key-without-a-pattern-4411"
HEADER = "Zq9mW4-header-without-a-pattern-7733"
HALF = "half of an answer"
RETRIES = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault.

    Attributes:
        answers: What the server sends, request by request, until it is healed. It sees as many requests.
        outcome: How the run ends.
        says: A pattern of the error's message.
        kind: The error's class.
        retries: How often the call is tried again.
        retry_after_s: What the error says about when to try again.
        kept: The reply's text.
        ran: What ``find`` was called with, in order.
        timeout_s: The silence that is allowed.
    """

    answers: tuple[Answer, ...]
    outcome: Literal["error", "completed"] = "error"
    says: str = ""
    kind: type[ModelError] = ModelError
    retries: int = 0
    retry_after_s: float | None = None
    kept: str = ""
    ran: tuple[dict[str, Any], ...] = ()
    timeout_s: float = 10.0


def passing(answer: Answer, says: str, **more: Any) -> Case:
    """A fault that may pass, before a word was said: tried again until the retries are used up."""
    return Case(answers=(answer,) * (RETRIES + 1), says=says, retries=RETRIES, **more)


def lasting(answer: Answer, says: str, kind: type[ModelError] = ModelSetupError, **more: Any) -> Case:
    """A fault that a person has to mend: told at once."""
    return Case(answers=(answer,), says=says, kind=kind, **more)


def busy(retry_after_s: float | None = None, **headers: str) -> Case:
    """Too many requests."""
    wait = "Wait a little" if retry_after_s is None else f"Wait {retry_after_s:g} s"
    answer = refusal(429, {"error": {"message": f"slow down {KEY}"}}, **headers)
    return passing(answer, rf'too many requests.*429: "slow down \[removed\]" {wait}\. .*resume', retry_after_s=retry_after_s)


def _error(message: str, code: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "code": code}}


def refused() -> dict[str, Case]:
    """The server answers with a status that is no success."""
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    return {
        "429 with seconds": busy(7, retry_after="7"),
        "429 with a date": busy(30, retry_after="Wed, 21 Oct 2026 07:28:30 GMT", date=date),
        "429 with a date that is over": busy(0, retry_after="Wed, 21 Oct 2026 07:27:30 GMT", date=date),
        "429 with a long wait": busy(86400, retry_after="86400"),
        "429 with an absurd wait": busy(retry_after="9" * 400),
        "429 with a wait of years": busy(retry_after="99999999"),
        "429 with a date in years": busy(retry_after="Wed, 21 Oct 2099 07:28:30 GMT", date=date),
        "429 with a date beyond all time": busy(retry_after="Wed, 21 Oct 99999999999 07:28:30 GMT", date=date),
        "429 with a negative wait": busy(retry_after="-5"),
        "429 with words": busy(retry_after="soon"),
        "429 with a date that is none": busy(retry_after="Wed, 99 Oct 2026 07:28:30 GMT", date=date),
        "429 without a word about when": busy(),
        "429, nothing left to spend": lasting(refusal(429, _error("no", "insufficient_quota")), "nothing left to spend.*billing"),
        "500": passing(
            refusal(500, _error(f"oops {KEY}")), r'server has a problem.*500: "oops \[removed\]".*Wait a little.*resume'
        ),
        "502 in HTML": passing(
            refusal(502, f"<html><h1>Bad</h1> gateway {HEADER}</html>"), r'has a problem.*502: "Bad gateway \[removed\]"'
        ),
        "503": passing(refusal(503, "", retry_after="3"), "server has a problem.*503", retry_after_s=3),
        "408": passing(refusal(408, _error("late")), "gave up waiting.*resume"),
        "409": passing(refusal(409, _error("busy")), "another request was in the way.*resume"),
        "504": passing(refusal(504, _error("late")), "gave up waiting.*resume"),
        "a refusal that goes silent": passing(
            Answer([b'{"error":'], 503, end="hold"), r"was silent for 0\.1 s.*resume", timeout_s=0.1
        ),
        "401": lasting(refusal(401, _error(f"bad {KEY}")), r'key was refused.*401: "bad \[removed\]".*Check OPENAI_API_KEY'),
        "403": lasting(refusal(403, _error("no")), "key was refused"),
        "404": lasting(refusal(404, _error("The model does not exist")), "no such model or address.*does not exist.*base_url"),
        "413": lasting(refusal(413, _error("no")), "request was refused.*refused again", ModelError),
        "400 of a field": lasting(
            refusal(400, {"error": {"message": "no", "param": "temperature"}}), "refused.*refused again", ModelError
        ),
        "400, too long": lasting(
            refusal(400, _error("no", "context_length_exceeded")), "too long for this model.*reset=True", ConversationTooLongError
        ),
        "400, too long for llama.cpp": lasting(
            refusal(400, _error("exceeds the available context size")), "too long for this model", ConversationTooLongError
        ),
    }


def dropped(d: Dialect) -> dict[str, Case]:
    """The connection breaks, or goes silent."""
    half = d.text(HALF)
    cut = r"broke off before the answer was complete\. .*resume"
    silent = r"was silent for 0\.1 s\. .*resume\(\) tries again\. A slow model needs a longer timeout"
    begun = (half, *d.call("c1", '{"a": 1}'))
    return {
        "reset before the headers": passing(Answer(has_head=False, end="reset"), cut),
        "closed before the headers": passing(Answer(has_head=False, end="cut"), cut),
        "reset after the headers": passing(d.answer(end="reset"), cut),
        "reset in mid-stream": Case(answers=(d.answer(half, end="reset"),), says=cut, kept=HALF),
        "closed in mid-stream": Case(answers=(d.answer(half, end="cut"),), says=cut, kept=HALF),
        "reset within a call": Case(answers=(d.answer(*begun[:-2], end="reset"),), says=cut, kept=HALF),
        "reset after a whole call": Case(answers=(d.answer(*begun, end="reset"),), says=cut, kept=HALF),
        "silent before the headers": passing(Answer(has_head=False, end="hold"), silent, timeout_s=0.1),
        "silent after the headers": passing(d.answer(end="hold"), silent, timeout_s=0.1),
        "silent in mid-stream": Case(answers=(d.answer(half, end="hold"),), says=silent, kept=HALF, timeout_s=0.1),
        "silent within a call": Case(answers=(d.answer(*begun[:-2], end="hold"),), says=silent, kept=HALF, timeout_s=0.1),
        "reset after the end": Case(answers=(d.answer(half, *d.end(False), end="reset"),), outcome="completed", kept=HALF),
        "silent after the end": Case(
            answers=(d.answer(half, *d.end(False), end="hold"),), outcome="completed", kept=HALF, timeout_s=0.1
        ),
        "ended before the first word": passing(
            d.answer(*(() if d.created else (d.text(""),))), r"ended before the answer was complete\. .*resume"
        ),
    }


def garbled(d: Dialect) -> dict[str, Case]:
    """What comes is not what the language says."""
    half = d.text(HALF)

    def broken(part: bytes, says: str) -> Case:
        return Case(answers=(d.answer(half, part),), says=says, kept=HALF)

    def told(part: bytes, says: str, retries: int = RETRIES, kind: type[ModelError] = ModelError) -> Case:
        return Case(answers=(d.answer(part),) * (retries + 1), says=says, kind=kind, retries=retries)

    no_language = r"sent something that is not a .*resume"
    cut = r"ended before the answer was complete\. .*resume"
    return {
        "a truncated line at the end": broken(b'data: {"choices": [{"del', cut),
        "malformed JSON": broken(b'data: {"choices": [\n\n', no_language),
        "malformed JSON with a key in it": broken(f'data: {{"{KEY} {HEADER}\n\n'.encode(), no_language),
        "a list": broken(b"data: [1, 2]\n\n", no_language),
        "a number": broken(b"data: 5\n\n", no_language),
        "a wrong type, then silence": Case(answers=(d.answer(half, d.text(5), end="hold"),), says=no_language, kept=HALF),
        "a text": broken(f'data: "{"x" * 60} {KEY}"\n\n'.encode(), no_language),
        "no field of an event": broken(b"what is this\n\n", cut),
        "an error": broken(
            f'data: {{"error": {{"message": "overloaded {KEY}"}}}}\n\n'.encode(), r"an error: overloaded \[removed\]"
        ),
        "an error as text": broken(b'data: {"error": "overloaded"}\n\n', "broke off with an error.*resume"),
        "an error before a word": told(b'data: {"error": {"message": "overloaded"}}\n\n', "an error: overloaded.*resume"),
        "too many requests, in the stream": told(
            b'data: {"error": {"message": "slow", "code": "rate_limit_exceeded"}}\n\n', "too many requests.*slow.*Wait a little"
        ),
        "too long, in the stream": told(
            b'data: {"error": {"message": "no", "code": "context_length_exceeded"}}\n\n',
            "too long.*reset=True",
            0,
            ConversationTooLongError,
        ),
        "refused, in the stream": told(b'data: {"error": {"message": "no", "code": "invalid_prompt"}}\n\n', "refused again", 0),
        "half a character": broken(b'data: {"a": "\xc3"}\n\n', "not UTF-8.*resume"),
        "half a character at the end": broken(b'data: {"a": "\xc3', cut),
        "not a stream": lasting(
            refusal(200, {"choices": [], "output": []}), "not with a stream.*Check that base_url", ModelError
        ),
        "a page in HTML": lasting(refusal(200, "<html>Log in</html>"), "not with a stream", ModelError),
        "nothing at all": lasting(refusal(200, ""), "not with a stream", ModelError),
    }


def harmless(d: Dialect) -> dict[str, Case]:
    """What looks odd, and is an answer all the same."""
    whole = b"".join(part if isinstance(part, bytes) else sse(part) for part in (d.text("né 😀!"), *d.end(False)))
    at = whole.index("é".encode()) + 1, whole.index("😀".encode()) + 2
    call = d.asked("c1", '{"a": 1}')

    def fine(*parts: Part, kept: str = HALF, **more: Any) -> Case:
        return Case(answers=(d.answer(*parts, **more),), outcome="completed", kept=kept)

    def acted(answer: Answer, *ran: dict[str, Any]) -> Case:
        return Case(answers=(answer, d.said(HALF)), outcome="completed", kept=HALF, ran=ran)

    end = d.end(False)
    return {
        "a character in two packets": fine(whole[: at[0]], whole[at[0] : at[1]], whole[at[1] :], kept="né 😀!", pause_s=0.01),
        "a character in two deltas": fine(d.text("a\ud83d"), d.text("\ude00b"), *end, kept="a😀b"),
        "half a surrogate pair": fine(
            d.text("a\ud83d"), d.text("b\ude00"), d.text("c\ud83d"), *end, kept="a\ufffdb\ufffdc\ufffd"
        ),
        "NUL": fine(d.text("a\0b"), *end, kept="a\0b"),
        "keep-alive lines": fine(b": still here\n\n", d.text(HALF), b": still here\n\n", *end),
        "10 MB in one delta": fine(d.text("0123456789" * 1_000_000), *end, kept="0123456789" * 1_000_000),
        "a busy server": Case(
            answers=(
                refusal(429, _error("slow down"), retry_after="0"),
                refusal(503, "", retry_after="0"),
                d.said(HALF),
            ),
            outcome="completed",
            kept=HALF,
            retries=2,
        ),
        "another place": Case(answers=(refusal(307, "", location="/v1/elsewhere"), d.said(HALF)), outcome="completed", kept=HALF),
        "another place, and a page there": Case(
            answers=(refusal(302, "", location=f"/login?key={KEY}"), refusal(200, "<html>")), says="not with a stream"
        ),
        "another place, again and again": Case(
            answers=(refusal(307, "", location=f"/v1/elsewhere?key={KEY}"),) * 21,
            says="sends us from place to place.*base_url",
            kind=ModelSetupError,
        ),
        "a call": acted(call, {"a": 1}),
        "a call again, with the same id": Case(
            answers=(call, call, d.said(HALF)), outcome="completed", kept=HALF, ran=({"a": 1}, {"a": 1})
        ),
        "a call without arguments": acted(d.asked("c1", ""), {}),
        "a call with half its arguments": acted(d.asked("c1", '{"a": 1')),
        "a call with a list": acted(d.asked("c1", "[1]")),
        "a call with NUL": acted(d.asked("c1", '{"b": "\\u0000"}'), {"b": "\0"}),
        "a call with half a surrogate pair": acted(d.asked("c1", '{"b": "\\ud83d"}')),  # no JSON: the model is told
        "a call, and the next step fails": Case(
            answers=(call, *(refusal(503, ""),) * 3), says="server has a problem", retries=2, ran=({"a": 1},)
        ),
        "a call, and the next step breaks off": Case(
            answers=(call, d.answer(d.text(HALF), end="reset")), says="broke off", kept=HALF, ran=({"a": 1},)
        ),
    }


def common(d: Dialect) -> dict[str, Case]:
    """All faults that both languages know."""
    return {**refused(), **dropped(d), **garbled(d), **harmless(d)}
