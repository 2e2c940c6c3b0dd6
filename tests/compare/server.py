"""A Chat Completions server on loopback that speaks slowly, and notes when its listener has gone."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from tests.compare.drivers.stage import ANSWER

WORDS, WORD_S = 60, 0.02
NEVER = float("inf")


class SlowServer:
    """Streams for 1.2 s, whatever it is asked, but answers the prompt "next" at once. The model's name tells the cases apart."""

    def __init__(self) -> None:
        self.gone_at: dict[str, float] = {}
        """By model: when the listener of its first answer closed the connection (``perf_counter``); ``NEVER``: it heard all."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        """For a client's ``base_url``."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def gone(self, model: str) -> float | None:
        """When the listener of this model's first answer went, in ``perf_counter`` seconds; ``inf``: it heard everything.

        ``None``: nobody has asked, because the stop came before the request was sent.
        """
        deadline = time.perf_counter() + 2 * WORDS * WORD_S
        while model not in self.gone_at and time.perf_counter() < deadline:
            time.sleep(0.005)
        return self.gone_at.get(model)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            request: Mapping[str, Any] = json.loads(await reader.readexactly(int(size)))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            if "next" in json.dumps(request["messages"][-1]):
                writer.write(_event(ANSWER) + END)
            else:
                await self._speak(request["model"], reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _speak(self, model: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = asyncio.create_task(reader.read())
        for _ in range(WORDS):
            writer.write(_event("word "))
            await asyncio.wait([gone], timeout=WORD_S)
            if gone.done():
                gone.exception()  # a reset is no surprise
                self.gone_at.setdefault(model, time.perf_counter())
                return
        self.gone_at.setdefault(model, NEVER)
        writer.write(END)
        gone.cancel()


def _event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "slow", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


END = _event("", "stop") + b"data: [DONE]\n\n"
