"""What must hold after every run on a failing server, whatever the fault (CONTRACT C1 to C4, C24, C26)."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_widgets import events as ev
from agent_widgets import wire
from agent_widgets.agent import Agent
from agent_widgets.errors import ModelError
from agent_widgets.messages import Msg
from agent_widgets.models.openai_model import OpenAIModel
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.tools import tool
from agent_widgets.transcript import Transcript
from tests.fuzz.checks import LogCheck
from tests.models.chat_server import ChatServer
from tests.models.dialects import Dialect
from tests.models.faults import HEADER, KEY

SECRETS = (KEY[:8], HEADER[:8])  # a secret that was cut is one, too
Way = Literal["session", "reply"]


@dataclass
class Stage:
    """An agent on a server of one dialect, carried one way; it remembers what its tool was called with.

    ``used`` is the model of another stage, to go on with its connections.
    """

    dialect: Dialect
    server: ChatServer
    way: Way = "session"
    timeout_s: float = 10.0
    ran: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    used: OpenAIModel | None = None

    def __post_init__(self) -> None:
        @tool
        async def find(a: int | None = None, b: str | int | None = None) -> str:
            """Find A or B."""
            self.ran.append({name: value for name, value in (("a", a), ("b", b)) if value is not None})
            return "found"

        self.model: OpenAIModel = self.used or self.dialect.model(
            "fake",
            base_url=self.server.base_url,
            api_key=KEY,
            timeout=self.timeout_s,
            extra_headers={"X-Team-Token": HEADER},
        )
        self.agent = Agent(self.model, tools=[find])
        self.session = Session(self.agent, loop=asyncio.get_running_loop()) if self.way == "session" else None

    async def carry(self, prompt: str | None) -> Run:
        """One run to its end; ``None`` goes on from the last."""
        if self.session is not None:
            run = self.session.runs[-1].resume() if prompt is None else self.session.run(prompt)
            await asyncio.wait([asyncio.wrap_future(run.ended)])
            return run
        (raised,) = await asyncio.gather(self.agent.reply(prompt), return_exceptions=True)
        run = self.agent._run
        assert run is not None
        assert raised is run.error or isinstance(raised, Msg)
        return run

    def judge(self, run: Run, logged: str) -> None:
        """The log, the history, and what is shown of secrets."""
        check = LogCheck(Transcript(message=Msg("", (), "assistant")))
        for event in run.events:
            check.read(event)
        assert [*check.end(paused=False, waiting=set())] == []
        ends = [event for event in run.events if isinstance(event, ev.ReplyEndEvent)]
        assert [end.finished_reason for end in ends] == [run.status]
        assert run.events[-1] is ends[0]
        assert self.agent.state.check() == ()
        assert self.agent.state.reply_id == ""
        if run.status == "error":
            assert isinstance(run.error, ModelError)
            assert run.error.advice
            assert ends[0].error is not None
            assert ends[0].error.message == str(run.error)
        self._assert_no_secret(run, logged)

    def _assert_no_secret(self, run: Run, logged: str) -> None:
        shown = [
            logged,
            repr(run),
            repr(self.agent),
            repr(self.model),
            json.dumps(self.agent.dump()),
            *(str(wire.dump_event(event)) for event in run.events),
            *told(run.error),
        ]
        assert not [text for text in shown for secret in SECRETS if secret in text]

    def judge_request(self, prompts: Sequence[str]) -> None:
        """The last request is one that a strict server takes, and has each prompt once."""
        body = self.server.bodies[-1]
        assert self.dialect.faults(self.dialect.conversation(body)) == []
        assert self.dialect.prompts(body) == [*prompts]

    async def rest(self) -> None:
        """Nothing is in the middle of an answer."""
        await self.server.until(lambda: self.server.answering == 0)
        assert self.server.open <= 1  # one may wait for the next call
        if self.session is not None:
            self.session.close()

    async def leave(self) -> None:
        """After ``aclose`` no connection is open."""
        await self.rest()
        await self.model.aclose()
        await self.server.until(lambda: self.server.open == 0)


def told(error: BaseException | None) -> list[str]:
    """All that a traceback, a debugger or a log can show of an error and of what led to it."""
    shown: list[str] = []
    while error is not None:
        shown += [str(error), repr(error), *traceback.format_exception(error), repr(vars(error))]
        shown += [repr(getattr(error, name)) for name in ("doc", "object") if hasattr(error, name)]
        request = vars(error).get("request") or vars(error).get("_request")
        shown += [str(dict(request.headers)), str(request.url)] if request is not None else []
        error = error.__cause__ or error.__context__
    return shown


def tries_again(run: Run) -> list[str]:
    """The notices about retries."""
    return [notice for notice in run.transcript.notices if "Trying again" in notice]
