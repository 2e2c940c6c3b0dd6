"""agent-widgets: ``run.stop()`` and ``agent.interrupt()``, now or after the step; a cancelled reader of ``reply_stream``."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal

from stage import Piece, Stage, serve

import agent_widgets as aw
from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ToolCallPiece
from agent_widgets.events import RequireUserConfirmEvent, TextBlockDeltaEvent
from agent_widgets.sessions import Session
from agent_widgets.tools import Tool


class Scripted:
    """Streams pieces, as our ``OpenAIChat`` does."""

    name = "scripted"

    def __init__(self, stage: Stage, who: str = "go") -> None:
        self.stage, self.who = stage, who

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        return self.stage.speak(request.messages, _delta, self.who)


def _delta(piece: Piece) -> ModelDelta:
    match piece:
        case ("text", text):
            return TextPiece(text)
        case ("call", index, call_id, name):
            return ToolCallPiece(index=index, call_id=call_id, name=name)
        case (_, index, arguments):
            return ToolCallPiece(index=index, arguments=arguments)
        case _:
            raise ValueError(f"no such piece: {piece}")


class Player:
    """One agent. Seeds take turns between a session's ``run.stop()`` and ``agent.interrupt()`` on ``agent.reply``."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.way: str = stage.case["way"]
        url = stage.case.get("base_url")
        self.agent = aw.Agent(
            stage.model_name if url else Scripted(stage),
            instructions="Be brief.",
            tools=[self._tool(name) for name in stage.tools],
            base_url=url,
            api_key="none" if url else None,
        )
        by_session = stage.case["seed"] % 2 or any(tool.get("asks") for tool in stage.tools.values())
        self.session = Session(self.agent, uuid.uuid4().hex, loop=asyncio.get_running_loop()) if by_session else None
        self.held: aw.Run | None = None

    def _tool(self, name: str) -> Tool:
        stage, how = self.stage, self.stage.tools[name]

        async def tool(key: str) -> str:
            """Look something up."""
            return await stage.work(name, key)

        def tool_sync(key: str) -> str:
            """Look something up."""
            return stage.work_sync(name, key)

        async def ask(key: str) -> str:
            """Let another agent look something up."""
            child = aw.Agent(Scripted(stage, "child"), tools=[self._tool("slow")])

            async def answer() -> str:
                return (await child.reply(key)).text

            return await stage.ask_child(key, answer)

        function: Callable[..., Any] = ask if name == "ask" else tool_sync if how.get("sync") else tool
        sequential = stage.case.get("sequential", False)
        return aw.tool(name=name, confirm=how.get("asks", False), sequential=sequential)(function)

    def run(self, prompt: str | None) -> Coroutine[Any, Any, str]:
        if self.way == "naive":
            return self._consume(prompt)
        return self._reply(prompt) if self.session is None else self._end_of(self._submit(self.session, prompt))

    async def _reply(self, prompt: str | None) -> str:
        return (await self.agent.reply(prompt)).text

    def _submit(self, session: Session, prompt: str | None) -> tuple[aw.Run, asyncio.Event]:
        """Start a run, as ``chat`` does it; the event is set when it rests."""
        after: float | None = self.stage.case.get("approve_after_ms")
        rests = asyncio.Event()

        def heard(run: aw.Run, event: object) -> None:
            if after is not None and isinstance(event, RequireUserConfirmEvent):
                asyncio.get_running_loop().call_later(after / 1000, run.approve)
            if run.status not in ("queued", "running", "stopping", *(("paused",) if after is not None else ())):
                rests.set()

        def listen(run: aw.Run) -> None:
            run.listen(heard)

        self.held = session.run(prompt, before_start=listen)
        return self.held, rests

    async def _end_of(self, submitted: tuple[aw.Run, asyncio.Event]) -> str:
        run, rests = submitted
        await rests.wait()
        return "" if run.status == "paused" else (await run).text

    async def _consume(self, prompt: str | None) -> str:
        text = ""
        async for event in self.agent.reply_stream(prompt):
            if isinstance(event, TextBlockDeltaEvent):
                text += event.delta
            await asyncio.sleep(0.001)
        return text

    def go_on(self) -> Coroutine[Any, Any, str]:
        return self.run(None)

    @property
    def is_paused(self) -> bool:
        return bool(self.agent.state.waiting())

    def stop(self, task: asyncio.Task[str]) -> Awaitable[object] | None:
        level: Literal["now", "step"] = "step" if self.way == "step" else "now"
        if self.way == "naive" and not task.done():
            task.cancel()
        elif self.held is not None:
            self.held.stop(after=level)
            return asyncio.to_thread(self.held.ended.exception) if task.done() else None
        else:
            self.agent.interrupt(after=level)
        return None


serve(Player)
