"""A failing server, through the real client, in both languages: every fault ends as the contract says (C26).

The faults are in ``tests/models``: those of both languages in ``faults.py``, those of one in ``chat_faults.py`` and
``responses_faults.py``. What must hold for all of them is here and in ``judging.py``.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import Iterator

import pytest

from agent_widgets import reasoning
from agent_widgets.errors import ModelError, ModelSetupError
from tests.models.chat_faults import CHAT_FAULTS, odd_chats
from tests.models.chat_server import Answer, ChatServer, sse
from tests.models.dialects import CHAT, DIALECTS, RESPONSES, Dialect
from tests.models.faults import HALF, Case, common
from tests.models.judging import Stage, Way, tries_again
from tests.models.responses_faults import RESPONSES_FAULTS, odd_responses

WAYS: tuple[Way, Way] = ("session", "reply")
CASES: dict[str, tuple[Dialect, Case, Way]] = {
    f"{dialect.name}: {name}": (dialect, case, WAYS[(number + turn) % 2])  # each common fault goes both ways
    for turn, (dialect, own) in enumerate(((CHAT, CHAT_FAULTS), (RESPONSES, RESPONSES_FAULTS)))
    for number, (name, case) in enumerate({**common(dialect), **own}.items())
}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for real: the longest wait before a retry is no wait."""
    monkeypatch.setattr(reasoning, "MAX_BACK_OFF_SECONDS", 0.001)


@pytest.fixture(scope="module", autouse=True)
def one_ssl_context() -> Iterator[None]:
    """Half of the time of a test would be the certificates of a client that needs none."""
    made = functools.cache(ssl.create_default_context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", made)
        yield


@pytest.fixture(autouse=True)
def nothing_failed_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []


@pytest.mark.parametrize("name", CASES)
async def test_every_fault_ends_as_the_contract_says(name: str, caplog: pytest.LogCaptureFixture) -> None:
    dialect, case, way = CASES[name]
    healed = dialect.said("healed")
    async with ChatServer(*case.answers, healed, healed) as server:
        stage = Stage(dialect, server, way, case.timeout_s)
        run = await stage.carry("go")
        assert (run.status, run.text) == (case.outcome, case.kept)
        stage.judge(run, caplog.text)
        if case.outcome == "error":
            assert isinstance(run.error, ModelError)
            assert (type(run.error), run.error.retry_after_s) == (case.kind, case.retry_after_s)
            assert re.search(case.says, str(run.error))
        assert len(tries_again(run)) == case.retries
        assert len(server.bodies) == len(case.answers)
        # the server is healed, and nobody has to say anything again
        prompts = ["go"] if case.outcome == "error" else ["go", "more"]
        again = await stage.carry(None if case.outcome == "error" else "more")
        assert (again.status, again.text) == ("completed", "healed")
        stage.judge(again, caplog.text)
        stage.judge_request(prompts)
        assert not case.kept or dialect.count(server.bodies[-1], case.kept) == 1
        await stage.carry("last")
        stage.judge_request([*prompts, "last"])
        assert stage.ran == [*case.ran]
        await stage.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("dialect", "answers"), [(CHAT, odd_chats()), (RESPONSES, odd_responses())], ids=["chat", "responses"])
async def test_a_value_of_any_type_in_any_place_ends_as_the_contract_says(
    dialect: Dialect, answers: Iterator[Answer], caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: dict[str, int] = {}
    async with ChatServer(otherwise=dialect.said("healed")) as server:
        stage = Stage(dialect, server)
        for number, odd in enumerate(answers):
            server.answers.append(odd)
            stage = Stage(dialect, server, WAYS[number % 2], used=stage.model)
            run = await stage.carry("go")
            stage.judge(run, caplog.text)
            assert run.text.startswith(HALF), odd
            assert stage.ran in ([], [{}], [{"a": 1}]), odd
            again = await stage.carry(None if run.status == "error" else "more")
            assert (again.status, again.text) == ("completed", "healed"), odd
            stage.judge_request(["go"] if run.status == "error" else ["go", "more"])
            await stage.rest()
            outcomes[run.status] = outcomes.get(run.status, 0) + 1
        await stage.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert set(outcomes) == {"completed", "error"}
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_server_that_is_started_late_is_asked_by_resume(
    dialect: Dialect, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    server = ChatServer(dialect.said("healed"), port=port)
    server.base_url = f"http://127.0.0.1:{port}/v1"
    stage = Stage(dialect, server, way)
    run = await stage.carry("go")
    stage.judge(run, caplog.text)
    assert isinstance(run.error, ModelSetupError)
    assert str(run.error) == f"fake: nothing listens at {server.base_url}. Start the server, or correct base_url."
    async with server:
        again = await stage.carry(None)
        assert (again.status, again.text, tries_again(again)) == ("completed", "healed", [])
        stage.judge_request(["go"])
        await stage.leave()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("hundreds", [50, pytest.param(1000, marks=pytest.mark.slow)])  # the client reads 4,000 a second
async def test_thousands_of_tiny_pieces_are_one_text(dialect: Dialect, hundreds: int) -> None:
    piece = dialect.text("ab")
    joined = (piece if isinstance(piece, bytes) else sse(piece)) * 100
    async with ChatServer(dialect.answer(*[joined] * hundreds, *dialect.end(False))) as server:
        stage = Stage(dialect, server)
        run = await stage.carry("go")
        assert (run.status, run.text) == ("completed", "ab" * 100 * hundreds)
        assert len(run.events) < 10
        stage.judge(run, "")
        await stage.leave()
