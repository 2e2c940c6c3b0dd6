"""The two languages of the ``openai`` client under one set of words, so that a fault is written once and told to both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_widgets.models.openai_chat import OpenAIChat
from agent_widgets.models.openai_model import OpenAIModel
from agent_widgets.models.openai_responses import OpenAIResponses
from tests import validator
from tests.models import responses_events as re
from tests.models import responses_validator
from tests.models.chat_server import CALLS, STOP, USAGE, Answer, End, chunk, stream, tool

Part = dict[str, Any] | bytes


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One language. ``text``, ``call`` and ``end`` give what a server streams; ``answer`` puts it into a whole answer."""

    name: str
    model: type[OpenAIModel]
    text: Callable[[Any], Part]
    call: Callable[[str, str], Sequence[Part]]
    end: Callable[[bool], Sequence[Part]]
    created: Sequence[Part]
    conversation: Callable[[dict[str, Any]], Sequence[dict[str, Any]]]
    faults: Callable[[Sequence[Any]], list[str]]

    def answer(self, *parts: Part, end: End = "no [DONE]", pause_s: float = 0) -> Answer:
        """A stream of these parts."""
        return stream(*self.created, *parts, end=end, pause_s=pause_s)

    def said(self, text: Any) -> Answer:
        """A whole answer of one text."""
        return self.answer(self.text(text), *self.end(False))

    def asked(self, call_id: str, arguments: str) -> Answer:
        """A whole answer that asks for one call of ``find``."""
        return self.answer(*self.call(call_id, arguments), *self.end(True))

    def prompts(self, body: dict[str, Any]) -> list[str]:
        """What the user said in a request."""
        return [message["content"] for message in self.conversation(body) if message.get("role") == "user"]

    def count(self, body: dict[str, Any], text: str) -> int:
        """How often a text stands in a request's conversation."""
        return json.dumps(self.conversation(body), ensure_ascii=False).count(json.dumps(text, ensure_ascii=False)[1:-1])


def _chat_call(call_id: str, arguments: str) -> Sequence[Part]:
    half = len(arguments) // 2
    return [tool(0, call_id, "find", ""), tool(0, None, None, arguments[:half]), tool(0, None, None, arguments[half:])]


CHAT = Dialect(
    name="chat",
    model=OpenAIChat,
    text=chunk,
    call=_chat_call,
    end=lambda called: [CALLS if called else STOP, USAGE],
    created=(),
    conversation=lambda body: body["messages"],
    faults=validator.faults,
)
RESPONSES = Dialect(
    name="responses",
    model=OpenAIResponses,
    text=lambda text: re.sse(re.text(text)),
    call=lambda call_id, arguments: [re.sse(event) for event in re.called(call_id, arguments)],
    end=lambda _: [re.sse(re.COMPLETED)],
    created=(re.sse(re.CREATED),),
    conversation=lambda body: body["input"],
    faults=responses_validator.faults,
)
DIALECTS = (CHAT, RESPONSES)
