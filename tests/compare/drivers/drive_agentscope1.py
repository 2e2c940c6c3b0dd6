"""AgentScope 1: ``await agent.interrupt()``; the next message goes on."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agentscope._utils._common import _json_loads_with_repair
from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock, ToolUseBlock
from agentscope.model import ChatModelBase, ChatResponse, OpenAIChatModel
from agentscope.tool import Toolkit, ToolResponse
from stage import Piece, Stage, serve


class Scripted(ChatModelBase):
    """Streams the whole answer so far, as its ``OpenAIChatModel`` does."""

    def __init__(self, stage: Stage, who: str = "go") -> None:
        super().__init__("scripted", stream=True)
        self.stage, self.who = stage, who

    async def __call__(self, messages: list[dict[str, Any]], **_: Any) -> AsyncIterator[ChatResponse]:
        return self.stage.speak(messages, Spelling(), self.who)


class Spelling:
    """What has come so far, with half arguments mended."""

    def __init__(self) -> None:
        self.text, self.calls = "", {}

    def __call__(self, piece: Piece) -> ChatResponse:
        kind, *rest = piece
        if kind == "text":
            self.text += rest[0]
        elif kind == "call":
            self.calls[rest[0]] = [rest[1], rest[2], ""]
        else:
            self.calls[rest[0]][2] += rest[1]
        content: list[Any] = [TextBlock(type="text", text=self.text)] if self.text else []
        for call_id, name, arguments in self.calls.values():
            given = _json_loads_with_repair(arguments or "{}")
            content.append(ToolUseBlock(type="tool_use", id=call_id, name=name, input=given, raw_input=arguments))
        return ChatResponse(content=content)


def _model(stage: Stage, who: str) -> ChatModelBase:
    url = stage.case.get("base_url")
    return OpenAIChatModel(stage.model_name, "none", client_kwargs={"base_url": url}) if url else Scripted(stage, who)


class Player:
    """One ReActAgent."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.agent = self._agent("go", list(stage.tools))

    def _agent(self, who: str, tools: list[str]) -> ReActAgent:
        toolkit = Toolkit()
        for name in tools:
            toolkit.register_tool_function(self._tool(name))
        agent = ReActAgent(
            name=who,
            sys_prompt="Be brief.",
            model=_model(self.stage, who),
            formatter=OpenAIChatFormatter(),
            toolkit=toolkit,
            memory=InMemoryMemory(),
            parallel_tool_calls=not self.stage.case.get("sequential", False),
        )
        agent.set_console_output_enabled(False)
        return agent

    def _tool(self, name: str) -> Any:
        stage = self.stage

        async def tool(key: str) -> ToolResponse:
            """Look something up.

            Args:
                key (str): What to look for.
            """
            return _response(await stage.work(name, key))

        def tool_sync(key: str) -> ToolResponse:
            """Look something up.

            Args:
                key (str): What to look for.
            """
            return _response(stage.work_sync(name, key))

        async def ask(key: str) -> ToolResponse:
            """Let another agent look something up.

            Args:
                key (str): What to look for.
            """
            child = self._agent("child", ["slow"])

            async def answer() -> str:
                return (await child(Msg("user", key, "user"))).get_text_content() or ""

            return _response(await stage.ask_child(key, answer))

        function = ask if name == "ask" else tool_sync if stage.tools[name].get("sync") else tool
        function.__name__ = name
        return function

    async def run(self, prompt: str) -> str:
        return (await self.agent(Msg("user", prompt, "user"))).get_text_content() or ""

    async def go_on(self) -> str:
        return await self.run("Please continue where you left off.")

    async def stop(self, task: asyncio.Task[str]) -> None:
        await self.agent.interrupt()


def _response(text: str) -> ToolResponse:
    return ToolResponse(content=[TextBlock(type="text", text=text)])


serve(Player)
