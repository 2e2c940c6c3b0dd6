"""The Responses API on the ``openai`` client: OpenAI, and servers that offer ``/responses`` (vLLM, llama.cpp, Ollama, ...)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from agent_widgets.backends import ModelRequest, chat_messages
from agent_widgets.messages import Msg
from agent_widgets.models.openai_errors import RESPONSES
from agent_widgets.models.openai_model import NO_KEY, OpenAIModel, http_library
from agent_widgets.models.responses_stream import ResponseReader

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIResponses(OpenAIModel):
    """A model behind the Responses API, streamed: ``Agent(OpenAIResponses("gpt-5-mini"))``.

    One instance may be used on several event loops, also at the same time: it keeps one client for each, and closes it when
    that loop shuts down. Nothing is retried out of sight. Closing or cancelling a stream closes its HTTP response at once.

    Nothing is stored at the server: each call sends the whole conversation. Text, parallel function calls and usage are
    read, and thinking where it is sent: OpenAI sends summaries of it for ``reasoning={"summary": "auto"}``. Thinking is not
    sent back, so a model that reasons thinks anew after each tool. The server's own tools (web search, ...) are not offered.

    Options are ``temperature``, ``max_output_tokens``, ``reasoning``, ``text``, ``tool_choice``, ``extra_body``, ...
    """

    _wire = RESPONSES
    _ours = ("model", "input", "instructions", "tools", "stream", "store", "background", "conversation", "previous_response_id")

    def _reader(self) -> ResponseReader:
        return ResponseReader()

    async def _connect(self) -> AsyncOpenAI:
        client = await super()._connect()
        if not _learn_events.cache_info().currsize:
            await asyncio.to_thread(_learn_events)
        return client

    async def _open(self, client: AsyncOpenAI, request: ModelRequest, /) -> Any:
        body: dict[str, Any] = {"model": self._model, "input": input_items(request.context), "stream": True, "store": False}
        if request.instructions:
            body["instructions"] = request.instructions
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,  # left out, it means strict here: optional arguments would become required ones
                }
                for tool in request.tools
            ]
        return await self._create(client.responses.create, {**body, **self._options})


@functools.cache
def _learn_events() -> None:
    """Have the client read one event: its first takes it half a second, in which no other run could be stopped on the loop."""
    import openai

    http = http_library()

    def answer(_: object) -> Any:
        return http.Response(200, content=b'data: {"type": "response.queued"}\n\n', headers={"content-type": "text/event-stream"})

    http_client = openai.DefaultHttpxClient(transport=http.MockTransport(answer))
    with openai.OpenAI(api_key=NO_KEY, base_url="http://nobody", http_client=http_client) as client:
        for _ in client.responses.create(model="none", input="none", stream=True):
            pass


def input_items(context: Iterable[Msg]) -> list[dict[str, Any]]:
    """A conversation as input items, valid for a strict server whatever was interrupted in it.

    It is that of ``chat_messages``, said in other words, so that one place decides what of a cut reply is sent. Items have
    no ``id``: a server looks up those that it gave, and has stored none; and with the id of a call it wants the thinking
    before it, too.
    """
    return [item for message in chat_messages(context) for item in _items(cast("dict[str, Any]", message))]


def _items(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    role, content = message["role"], message["content"]
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
        return
    if content:
        yield {"type": "message", "role": role, "content": content if isinstance(content, str) else [*map(_part, content)]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {"type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    url: str = part["image_url"]["url"]
    media_type = url.removeprefix("data:").partition(";")[0] if url.startswith("data:") else "image/*"
    if media_type.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": url}
    return {"type": "input_file", "filename": f"file.{media_type.rpartition('/')[2]}", "file_data": url}
