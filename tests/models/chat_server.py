"""A Chat Completions server on a loopback port that sends exactly the bytes that a test wrote down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
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


End = Literal["done", "no [DONE]", "hold", "cut", "reset"]


@dataclass
class Answer:
    """What one request gets: chunks (dicts), raw bytes, and how it ends.

    ``end``: ``hold`` goes silent, ``cut`` closes the connection, ``reset`` resets it. Without ``has_head`` this happens before
    the first byte. ``pause_s``: how long the server waits before each part.
    """

    parts: Sequence[dict[str, Any] | bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    end: End = "done"
    has_head: bool = True
    pause_s: float = 0

    def bytes(self, part: dict[str, Any] | bytes) -> bytes:
        return part if isinstance(part, bytes) else sse(part)


def sse(value: Any) -> bytes:
    """A value as one event; a lone surrogate, which UTF-8 does not have, is escaped."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace") + b"\n\n"


def stream(*parts: dict[str, Any] | bytes, end: End = "done", pause_s: float = 0) -> Answer:
    """A stream of events."""
    return Answer(parts, headers={"content-type": "text/event-stream"}, end=end, pause_s=pause_s)


def refusal(status: int, body: dict[str, Any] | str, **headers: str) -> Answer:
    """An answer that is no stream."""
    text = body if isinstance(body, str) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([text.encode()], status, {"content-type": "application/json", **named}, end="no [DONE]")


class ChatServer:
    """``async with ChatServer(answer, ...) as server``: each request gets the next answer, and ``otherwise`` after the last.

    Attributes:
        answers: Those that are still to come.
        bodies: What was asked, parsed. ``headers``: likewise.
        open: How many connections are open.
        answering: How many of them are in the middle of a request or its answer.
        holding: Set when an answer has gone silent.
        left: Set when the client has closed a connection. ``left_at``: when, on the clock of ``time.monotonic``.
    """

    def __init__(self, *answers: Answer, otherwise: Answer | None = None, port: int = 0) -> None:
        self.answers = list(answers)
        self._otherwise = otherwise
        self._port = port
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.answering = 0
        self.holding = asyncio.Event()
        self.left = asyncio.Event()
        self.left_at = 0.0
        self._changed = asyncio.Event()
        self.base_url = ""
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def until(self, is_so: Callable[[], bool], within_s: float = 10) -> None:
        """Wait until it is so, looking again at every request and at every connection that opens, ends or is answered."""
        async with asyncio.timeout(within_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        self.open += 1
        self._changed.set()
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self._say_left()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.open -= 1
            self._changed.set()

    def _say_left(self) -> None:
        self.left_at = time.monotonic()
        self.left.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.answering += 1
        try:
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            self.headers.append(headers)
            self.bodies.append(json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}"))
            answer = self._otherwise if self._otherwise and not self.answers else self.answers.pop(0)
            self._changed.set()
            if answer.has_head:
                await self._write(answer, reader, writer)
            return await self._end(answer, reader, writer)
        finally:
            self.answering -= 1
            self._changed.set()

    async def _write(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = {"transfer-encoding": "chunked", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in sent.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for part in (*answer.parts, *([b"data: [DONE]\n\n"] if answer.end == "done" else [])):
            if answer.pause_s:
                await asyncio.sleep(answer.pause_s)
                if reader.at_eof():
                    raise ConnectionResetError("the client has left")
            if data := answer.bytes(part):  # an empty one would be the end
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()

    async def _end(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        match answer.end:
            case "hold":
                self.holding.set()
                await reader.read()
                self._say_left()
                return False
            case "cut":
                writer.transport.abort()
                return False
            case "reset":
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return False
            case "done" | "no [DONE]":
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return True
