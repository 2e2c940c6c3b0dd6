"""agentling: ``session.interrupt()``, then ``run(task, reset=False)``; or ``task.cancel()``, which its documentation warns of."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agentling import Agent, Delta, OpenAIModel, Tool, ToolCallDelta, tool
from stage import Piece, Stage, serve

SPELLING = OpenAIModel("scripted", api_key="none")  # never called: it spells messages in OpenAI's form


class Scripted:
    """Streams deltas, as its ``OpenAIModel`` does."""

    def __init__(self, stage: Stage, who: str = "go") -> None:
        self.stage, self.who = stage, who

    def stream(self, messages: Any, tools: Any = None) -> AsyncIterator[Delta]:
        return self.stage.speak(SPELLING._to_openai_messages(messages), _delta, self.who)


def _delta(piece: Piece) -> Delta:
    match piece:
        case ("text", text):
            return Delta(content=text)
        case ("call", index, call_id, name):
            return Delta(tool_calls=[ToolCallDelta(index=index, id=call_id, name=name)])
        case (_, index, arguments):
            return Delta(tool_calls=[ToolCallDelta(index=index, arguments=arguments)])


def _model(stage: Stage, who: str) -> Scripted | OpenAIModel:
    url = stage.case.get("base_url")
    return OpenAIModel(stage.model_name, "none", url) if url else Scripted(stage, who)


class Player:
    """One session."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.session = self._agent("go", list(stage.tools)).start()

    def _agent(self, who: str, tools: list[str]) -> Agent:
        return Agent(
            _model(self.stage, who),
            tools=[self._tool(name) for name in tools],
            parallel_tools=not self.stage.case.get("sequential", False),
        )

    def _tool(self, name: str) -> Tool:
        stage = self.stage

        async def work(key: str) -> str:
            """Look something up.

            Args:
                key: What to look for.
            """
            return await stage.work(name, key)

        def work_sync(key: str) -> str:
            """Look something up.

            Args:
                key: What to look for.
            """
            return stage.work_sync(name, key)

        async def ask(key: str) -> str:
            """Let another agent look something up.

            Args:
                key: What to look for.
            """
            child = self._agent("child", ["slow"]).start()
            return await stage.ask_child(key, lambda: child.run(key))

        function = ask if name == "ask" else work_sync if stage.tools[name].get("sync") else work
        function.__name__ = name
        return tool(function)

    async def run(self, prompt: str) -> str:
        return await self.session.run(prompt, reset=False)

    async def go_on(self) -> str:
        return await self.session.run("go", reset=False)

    def stop(self, task: asyncio.Task[str]) -> None:
        if self.stage.case["way"] == "cancel":
            task.cancel()
        else:
            self.session.interrupt()


serve(Player)
