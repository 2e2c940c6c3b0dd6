"""Chat Completions on the ``openai`` client: OpenAI, and every server that speaks its language (vLLM, llama.cpp, Ollama, ...)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_widgets.backends import ModelRequest
from agent_widgets.models.chat_stream import ChunkReader
from agent_widgets.models.openai_errors import CHAT_COMPLETIONS
from agent_widgets.models.openai_model import OpenAIModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIChat(OpenAIModel):
    """A model behind a Chat Completions server, streamed.

    One instance may be used on several event loops, also at the same time: it keeps one client for each, and closes it when
    that loop shuts down. Nothing is retried out of sight. Closing or cancelling a stream closes its HTTP response at once.

    Text, thinking (``reasoning_content`` or ``reasoning``, where a server sends it), parallel tool calls and usage are read.
    Options are ``temperature``, ``max_completion_tokens``, ``reasoning_effort``, ``extra_body``, ...
    """

    _wire = CHAT_COMPLETIONS
    _ours = ("model", "messages", "tools", "stream", "stream_options", "n")
    _without_usage = False

    def _reader(self) -> ChunkReader:
        return ChunkReader()

    def _may_use_tools(self) -> bool:
        return True

    async def _open(self, client: AsyncOpenAI, request: ModelRequest, /) -> Any:
        import openai

        body: dict[str, Any] = {"model": self._model, "messages": request.messages, "stream": True, **self._options}
        if request.tools and self._may_use_tools():
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        create = client.chat.completions.create
        if not self._without_usage:
            try:
                return await self._create(create, {**body, "stream_options": {"include_usage": True}})
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if not _may_be_about_usage(error):
                    raise
        response = await self._create(create, body)
        self._without_usage = True
        return response


def _may_be_about_usage(error: Any) -> bool:
    """Servers refuse an unknown ``stream_options`` in many words; a fault that names another field is something else."""
    param, code = str(error.param or ""), str(error.code or "")
    return (not param or "stream_options" in param) and "context" not in f"{code} {error}"
