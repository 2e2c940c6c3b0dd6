"""smolagents: ``agent.interrupt()`` while ``run`` works in another thread, then ``run(task, reset=False)``."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from smolagents import Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    Model,
    OpenAIModel,
    agglomerate_stream_deltas,
)
from stage import Piece, Stage, serve


class Scripted(Model):
    """Streams deltas, as its ``OpenAIModel`` does. A text alone is given to ``final_answer``, as its prompt demands."""

    def __init__(self, stage: Stage, who: str = "go") -> None:
        super().__init__(flatten_messages_as_text=True, model_id="scripted")
        self.stage, self.who = stage, who

    def generate_stream(self, messages: Any, **options: Any) -> Iterator[ChatMessageStreamDelta]:
        sent = self._prepare_completion_kwargs(messages, tool_choice=None)["messages"]
        text, acts = "", False
        for delta in self.stage.speak_sync(sent, _delta, self.who):
            text, acts = text + (delta.content or ""), acts or delta.tool_calls is not None
            yield delta
        if not acts:
            yield _call(0, "final", "final_answer", json.dumps({"answer": text}))

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        return agglomerate_stream_deltas(list(self.generate_stream(messages)))


def _delta(piece: Piece) -> ChatMessageStreamDelta:
    match piece:
        case ("text", text):
            return ChatMessageStreamDelta(content=text)
        case ("call", index, call_id, name):
            return _call(index, call_id, name, "")
        case (_, index, arguments):
            return _call(index, None, "", arguments)


def _call(index: int, call_id: str | None, name: str, arguments: str) -> ChatMessageStreamDelta:
    function = ChatMessageToolCallFunction(name=name, arguments=arguments)
    return ChatMessageStreamDelta(
        tool_calls=[ChatMessageToolCallStreamDelta(index=index, id=call_id, type="function", function=function)]
    )


class Work(Tool):
    """A tool; all of them block."""

    description = "Look something up."
    inputs = {"key": {"type": "string", "description": "What to look for."}}  # noqa: RUF012 - smolagents' own way
    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, player: Player, name: str) -> None:
        super().__init__()
        self.player, self.name = player, name

    def forward(self, key: str) -> str:
        if self.name != "ask":
            return self.player.stage.work_sync(self.name, key)
        child = self.player.agent_of("child", ["slow"])
        return self.player.stage.ask_child_sync(key, lambda: str(child.run(key)))


def _model(stage: Stage, who: str) -> Model:
    url = stage.case.get("base_url")
    return OpenAIModel(stage.model_name, url, api_key="none") if url else Scripted(stage, who)


class Player:
    """One ToolCallingAgent."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.agent = self.agent_of("go", list(stage.tools))

    def agent_of(self, who: str, tools: list[str]) -> ToolCallingAgent:
        return ToolCallingAgent(
            tools=[Work(self, name) for name in tools],
            model=_model(self.stage, who),
            stream_outputs=True,
            max_tool_threads=1 if self.stage.case.get("sequential") else None,
            verbosity_level=-1,
        )

    async def run(self, prompt: str) -> str:
        return str(await asyncio.to_thread(self.agent.run, prompt, reset=False))

    async def go_on(self) -> str:
        return await self.run("go")

    def stop(self, task: asyncio.Task[str]) -> None:
        self.agent.interrupt()


serve(Player)
