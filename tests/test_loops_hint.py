"""A client that another loop has used: the error says what to do, wherever it was raised."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx  # noqa: ASYNC127 - what notebooks use
import pytest

from agent_widgets.agent import Agent
from agent_widgets.backends import Emit, Inputs, ModelDelta, ModelRequest
from agent_widgets.errors import ModelError, in_words
from agent_widgets.events import ReplyEndEvent
from agent_widgets.loops import LoopThread
from agent_widgets.messages import JsonObject
from agent_widgets.models.scripted import ScriptedModel, call, say
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.tools import tool

HINT = 'let the notebook\'s loop carry the agent: chat(…, loop="kernel")'


@pytest.fixture(autouse=True)
def loop_thread() -> Any:
    yield
    LoopThread.get().close()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that keeps its connections."""
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.2)  # a client that finds the answer there already does not notice where it is
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()
    for writer in connections:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def carried_elsewhere(agent: object) -> Run:
    """A run of this agent on the loop thread, to its end."""
    session = Session(agent)
    run = session.run("go")
    await asyncio.wrap_future(run.ended)
    session.close()
    return run


def error_of(run: Run) -> str:
    info = run.reply.error
    assert info is not None
    return info.message


class Bound:
    """A model, or a foreign agent, that does something before it answers."""

    name = "bound"

    def __init__(self, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._act = act

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelDelta]:
        await self._act()
        for delta in ():
            yield delta

    async def run(self, inputs: Inputs, emit: Emit, /) -> None:
        await self._act()

    def stop_after_step(self) -> bool:
        return False

    def dump(self) -> JsonObject:
        return {}

    def load(self, saved: JsonObject, /) -> None:
        pass


async def test_a_real_httpx_client_that_the_notebook_has_used_fails_on_the_loop_thread_with_a_hint(url: str) -> None:
    async with httpx.AsyncClient(limits=httpx.Limits(keepalive_expiry=None)) as client:  # a busy machine takes more than its 5 s
        assert (await client.get(url)).text == "ok"

        @tool
        async def fetch() -> str:
            """Fetch the page."""
            return (await client.get(url)).text

        model = ScriptedModel([[call("fetch")], [say("done")]])
        await carried_elsewhere(Agent(model, tools=[fetch]))
        (told,) = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
        assert isinstance(told, str)
        assert "is bound to a different event loop" in told or "Event loop is closed" in told
        assert HINT in told


async def test_carried_by_the_notebooks_loop_the_same_client_works(url: str) -> None:
    async with httpx.AsyncClient(limits=httpx.Limits(keepalive_expiry=None)) as client:  # a busy machine takes more than its 5 s
        assert (await client.get(url)).text == "ok"

        @tool
        async def fetch() -> str:
            """Fetch the page."""
            return (await client.get(url)).text

        model = ScriptedModel([[call("fetch")], [say("done")]])
        session = Session(Agent(model, tools=[fetch]), loop="kernel")
        await session.run("go")
        session.close()
        assert [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"] == ["ok"]


@pytest.mark.parametrize("kind", ["model", "backend"])
async def test_a_lock_that_is_contended_on_two_loops_gives_the_hint_in_a_models_and_a_foreign_agents_error(kind: str) -> None:
    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(0.1)

    async def contend() -> None:
        first = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        await hold()
        await first

    await contend()  # bound to this loop now
    bound = Bound(contend)
    run = await carried_elsewhere(Agent(bound) if kind == "model" else bound)
    assert run.status == "error"
    assert "is bound to a different event loop" in error_of(run)
    assert HINT in error_of(run)
    end = run.events[-1]  # what the card gets
    assert isinstance(end, ReplyEndEvent)
    assert end.error is not None
    assert HINT in end.error.message


@pytest.mark.parametrize(
    "said", ["Task got Future attached to a different loop", "Event loop is closed", "bound to a different event loop"]
)
def test_the_hint_is_given_for_each_of_asyncios_sentences_also_below_another_error(said: str) -> None:
    assert HINT in in_words(RuntimeError(said))
    error = ModelError("some-model", "the connection failed.")
    error.__cause__ = ConnectionError("outer")
    error.__cause__.__context__ = RuntimeError(said)
    assert in_words(error).startswith("some-model: the connection failed. [Something that this agent uses")


def test_other_errors_are_told_as_they_are() -> None:
    assert in_words(RuntimeError("no loop of ours")) == "RuntimeError: no loop of ours"
    assert in_words(ValueError("Event loop is closed")) == "ValueError: Event loop is closed"
    assert in_words(KeyError()) == "KeyError"
    around = RuntimeError("around")
    around.__context__ = around
    assert in_words(around) == "RuntimeError: around"
