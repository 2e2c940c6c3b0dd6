"""What a person has to mend before a model can answer: said in one sentence, with what to do, and no key in it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from agent_widgets.backends import ModelDelta, ModelRequest
from agent_widgets.errors import ModelError, ModelSetupError
from agent_widgets.messages import UserMsg
from agent_widgets.models.openai_errors import explain
from agent_widgets.models.openai_model import OpenAIModel
from tests.models.chat_server import ChatServer
from tests.models.dialects import DIALECTS, Dialect
from tests.models.faults import KEY
from tests.models.judging import told

ASK = ModelRequest(context=(UserMsg("user", "Hello"),))


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


async def heard(model: OpenAIModel) -> list[ModelDelta]:
    return [delta async for delta in model.stream(ASK)]


async def failed(model: OpenAIModel) -> ModelSetupError:
    with pytest.raises(ModelError) as caught:
        await heard(model)
    await model.aclose()
    assert isinstance(caught.value, ModelSetupError)
    assert caught.value.model_name == "fake"
    assert caught.value.advice
    assert not caught.value.is_temporary
    assert not [text for text in told(caught.value) if KEY in text]
    return caught.value


def test_an_unknown_host_names_the_address() -> None:
    cause = OSError("All connection attempts failed")
    cause.__cause__ = socket.gaierror(-2, "Name or service not known")
    error = explain(cause, model="fake", address="http://me:secret@nowhere.invalid/v1", silence_s=1, secrets=[])
    assert str(error) == "fake: the address http://nowhere.invalid/v1 cannot be found. Check its spelling and the network."
    assert error.__cause__ is cause


@pytest.mark.parametrize("key", [f"{KEY}…", f"a{KEY} b\nc"])
async def test_a_key_with_a_wrong_character_is_not_shown(dialect: Dialect, key: str) -> None:
    async with ChatServer() as server:
        error = await failed(dialect.model("fake", base_url=server.base_url, api_key=key))
    assert "character" in str(error)


async def test_white_space_around_a_key_does_no_harm(dialect: Dialect) -> None:
    async with ChatServer(dialect.said("ok")) as server:
        model = dialect.model("fake", base_url=server.base_url, api_key=f" {KEY}\n")
        assert await heard(model)
        await model.aclose()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("address", ["localhost:8000/v1", "not an address", "http://"])
async def test_an_address_that_is_none_is_said(dialect: Dialect, address: str) -> None:
    await failed(dialect.model("fake", base_url=address, api_key=KEY))


async def test_a_plain_server_behind_https_is_said(dialect: Dialect) -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failed(dialect.model("fake", base_url=f"https://127.0.0.1:{port}/v1", api_key=KEY))
    assert "no secure connection" in str(error)


async def test_a_conversation_with_half_a_character_is_sent_all_the_same(dialect: Dialect) -> None:
    """File names and cut texts hold them; UTF-8 does not."""
    request = ModelRequest(context=(UserMsg("user", "a\ud83d and \ud83d\ude00"),))
    async with ChatServer(dialect.said("ok")) as server:
        model = dialect.model("fake", base_url=server.base_url)
        assert [delta async for delta in model.stream(request)]
        await model.aclose()
    assert dialect.prompts(server.bodies[0]) == ["a\ufffd and 😀"]
