"""AgentScope 2: ``task.cancel()`` on the consumer of ``reply_stream`` while it runs, ``UserInterruptEvent`` while it is paused.

Source: "Interrupt Agent" and "Human-in-the-Loop" of its documentation. Two consumers: one that awaits nothing of its own in
its loop's body, and one that does (here 1 ms, as for a page or a queue), which is what ``...`` in the documented sample becomes.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agentscope.agent import Agent, InjectionConfig
from agentscope.credential import CredentialBase, OpenAICredential
from agentscope.event import ConfirmResult, UserConfirmResultEvent, UserInterruptEvent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock, ToolCallBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse, OpenAIChatModel
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, Toolkit
from stage import Piece, Stage, serve

ALLOW = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")


class Scripted(ChatModelBase):
    """Streams deltas, as its ``OpenAIChatModel`` does."""

    def __init__(self, stage: Stage, who: str = "go") -> None:
        super().__init__(CredentialBase(), "scripted", self.Parameters(), stream=True, max_retries=0)
        self.formatter = OpenAIChatFormatter()
        self.stage, self.who = stage, who

    async def _call_api(self, model_name: str, messages: list[Msg], *_: Any, **__: Any) -> AsyncIterator[ChatResponse]:
        return self.stage.speak(await self.formatter.format(messages), Spelling(), self.who)


class Spelling:
    """Deltas: each piece of a call carries its id and name."""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[str, str]] = {}

    def __call__(self, piece: Piece) -> ChatResponse:
        kind, *rest = piece
        if kind == "text":
            return ChatResponse(content=[TextBlock(text=rest[0], id="text")], is_last=False)
        if kind == "call":
            self.heads[rest[0]] = rest[1], rest[2]
        call_id, name = self.heads[rest[0]]
        arguments = rest[1] if kind == "arguments" else ""
        return ChatResponse(content=[ToolCallBlock(id=call_id, name=name, input=arguments)], is_last=False)


def _model(stage: Stage, who: str) -> ChatModelBase:
    url = stage.case.get("base_url")
    return OpenAIChatModel(OpenAICredential(api_key="none", base_url=url), stage.model_name) if url else Scripted(stage, who)


class Player:
    """One agent, and its consumer."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.consumer_awaits = stage.case["way"] == "naive"
        self.decided: asyncio.Task[str] | None = None
        self.agent = self._agent(stage, Toolkit(tools=[self._tool(name) for name in stage.tools]))

    def _agent(self, stage: Stage, toolkit: Toolkit, who: str = "go") -> Agent:
        return Agent(
            who, "Be brief.", _model(stage, who), toolkit=toolkit, injection_config=InjectionConfig(inject_runtime_state=False)
        )

    def _tool(self, name: str) -> FunctionTool:
        stage, how = self.stage, self.stage.tools[name]

        async def tool(key: str) -> str:
            """Look something up.

            Args:
                key (str): What to look for.
            """
            return await stage.work(name, key)

        def tool_sync(key: str) -> str:
            """Look something up.

            Args:
                key (str): What to look for.
            """
            return stage.work_sync(name, key)

        async def ask(key: str) -> str:
            """Let another agent look something up.

            Args:
                key (str): What to look for.
            """
            child = self._agent(stage, Toolkit(tools=[self._tool("slow")]), "child")

            async def answer() -> str:
                return (await child.reply(UserMsg(name="user", content=key))).get_text_content() or ""

            return await stage.ask_child(key, answer)

        function = ask if name == "ask" else tool_sync if how.get("sync") else tool
        function.__name__ = name
        permission = {} if how.get("asks") else {"permission": ALLOW}
        return FunctionTool(function, is_concurrency_safe=not stage.case.get("sequential", False), **permission)

    async def _consume(self, inputs: Any) -> str:
        text = ""
        async for event in self.agent.reply_stream(inputs, yield_final_msg=True):
            if isinstance(event, Msg):
                text = event.get_text_content() or ""
            elif event.type == "REQUIRE_USER_CONFIRM" and self.stage.case.get("approve_after_ms") is not None:
                self.decided = asyncio.create_task(self._approve(event))
            if self.consumer_awaits:
                await asyncio.sleep(0.001)
        return text

    async def _approve(self, event: Any) -> str:
        """A person who clicks so long after the question came."""
        await asyncio.sleep(self.stage.case["approve_after_ms"] / 1000)
        results = [ConfirmResult(confirmed=True, tool_call=call.model_copy(deep=True)) for call in event.tool_calls]
        return await self._consume(UserConfirmResultEvent(reply_id=event.reply_id, confirm_results=results))

    async def run(self, prompt: str) -> str:
        text = await self._consume(UserMsg(name="user", content=prompt))
        decided, self.decided = self.decided, None
        return text if decided is None else await decided

    async def go_on(self) -> str:
        return await self.run("Please continue where you left off.")

    @property
    def is_paused(self) -> bool:
        return self.agent.state.has_awaiting_tool_calls(self.agent.name)

    async def stop(self, task: asyncio.Task[str]) -> None:
        if not task.done():
            task.cancel()
        elif self.is_paused:
            await self._consume(UserInterruptEvent(reply_id=self.agent.state.reply_id))


serve(Player)
