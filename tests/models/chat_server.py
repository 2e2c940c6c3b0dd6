"""A Chat Completions server on a loopback port that sends exactly the bytes that a test wrote down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self


def chunk(delta: Any = None, *, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk with one choice; ``delta`` may also be a text."""
    delta = {"content": delta} if isinstance(delta, str) else delta
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "fake", "choices": choices, **more}


def tool(index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    """A chunk with a piece of one tool call; what is ``None`` is not sent."""
    return chunk({"tool_calls": [entry(index, call_id, name, arguments)]})


def entry(index: int | None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    """A piece of one tool call; what is ``None`` is not sent."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {key: value for key, value in (("index", index), ("id", call_id), ("function", function)) if value is not None}


STOP = chunk({}, finish="stop")
CALLS = chunk({}, finish="tool_calls")
USAGE: dict[str, Any] = {
    **chunk(),
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}},
}


@dataclass
class Answer:
    """What one request gets: chunks (dicts), raw bytes, and how it ends."""

    parts: Sequence[dict[str, Any] | bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    end: Literal["done", "no [DONE]", "hold", "cut"] = "done"

    def bytes(self, part: dict[str, Any] | bytes) -> bytes:
        return part if isinstance(part, bytes) else b"data: " + json.dumps(part, ensure_ascii=False).encode() + b"\n\n"


def stream(*parts: dict[str, Any] | bytes, end: Literal["done", "no [DONE]", "hold", "cut"] = "done") -> Answer:
    """A stream of events. ``hold``: it does not end; ``cut``: the connection is reset."""
    return Answer(parts, headers={"content-type": "text/event-stream"}, end=end)


def refusal(status: int, body: dict[str, Any] | str, **headers: str) -> Answer:
    """An answer that is no stream."""
    text = body if isinstance(body, str) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([text.encode()], status, {"content-type": "application/json", **named}, end="no [DONE]")


class ChatServer:
    """``async with ChatServer(answer, ...) as server``: each request gets the next answer."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.holding = asyncio.Event()
        self.left = asyncio.Event()
        self.base_url = ""
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        self.headers.append(headers)
        self.bodies.append(json.loads(await reader.readexactly(int(headers["content-length"]))))
        answer = self._answers.pop(0)
        sent = {"transfer-encoding": "chunked", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in sent.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for part in (*answer.parts, *([b"data: [DONE]\n\n"] if answer.end == "done" else [])):
            data = answer.bytes(part)
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        if answer.end == "hold":
            self.holding.set()
            await reader.read()
            self.left.set()
            return False
        if answer.end == "cut":
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
