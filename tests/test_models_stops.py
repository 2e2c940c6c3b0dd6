"""Stops, silence and slowness on a real server, in both languages: what is closed, how soon, and what is left (C6, C7, C26)."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent_widgets import events as ev
from agent_widgets.agent import Agent
from agent_widgets.loops import LoopThread
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from tests.models.chat_server import Answer, ChatServer, refusal
from tests.models.dialects import DIALECTS, Dialect
from tests.models.faults import HALF
from tests.models.judging import Stage, tries_again

STOPS = 200


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


def sockets() -> int:
    """How many this process holds."""
    return sum(1 for entry in Path("/proc/self/fd").iterdir() if _is_socket(entry))


def _is_socket(entry: Path) -> bool:
    try:
        return entry.readlink().name.startswith("socket:")
    except FileNotFoundError:  # the one that lists them
        return False


async def seen(run: Run, is_it: Callable[[ev.Event], bool]) -> None:
    """Until the run says it."""
    said = asyncio.Event()
    forget = run.listen(lambda _, event: said.set() if event is not None and is_it(event) else None)
    if not any(is_it(event) for event in run.events):
        await asyncio.wait_for(said.wait(), 10)
    forget()


# -- stops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [refusal(429, "", retry_after="3600"), Answer(has_head=False, end="reset")])
async def test_a_stop_while_a_retry_waits_ends_the_run_within_three_turns_and_nothing_is_asked_again(
    dialect: Dialect, answer: Answer
) -> None:
    async with ChatServer(answer, dialect.said("healed"), dialect.said("more")) as server:
        stage = Stage(dialect, server)
        assert stage.session is not None
        run = stage.session.run("go")
        await seen(run, lambda event: isinstance(event, ev.CustomEvent))
        run.stop()
        turns = 0
        while not run.is_over:
            await asyncio.sleep(0)
            turns += 1
        assert turns <= 4  # the stop arrives and cancels; the cancel is met; the task is over; the run is told
        assert (run.status, len(server.bodies), len(tries_again(run))) == ("interrupted", 1, 1)
        stage.judge(run, "")
        again = await stage.carry(None)
        assert (again.status, again.text) == ("completed", "healed")
        stage.judge_request(["go"])
        await stage.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("where", ["before the headers", "after the headers", "in mid-stream", "within a call", "in a refusal"])
async def test_a_stop_while_the_server_is_silent_closes_the_connection(dialect: Dialect, where: str) -> None:
    answers = {
        "before the headers": Answer(has_head=False, end="hold"),
        "after the headers": dialect.answer(end="hold"),
        "in mid-stream": dialect.answer(dialect.text(HALF), end="hold"),
        "within a call": dialect.answer(dialect.text(HALF), *dialect.call("c1", '{"a": 1}')[:2], end="hold"),
        "in a refusal": Answer([b'{"error":'], 503, end="hold"),
    }
    kept = HALF if where in ("in mid-stream", "within a call") else ""
    async with ChatServer(answers[where], dialect.said("healed")) as server:
        stage = Stage(dialect, server)
        assert stage.session is not None
        run = stage.session.run("go")
        await server.holding.wait()
        if kept:
            await seen(run, lambda event: isinstance(event, ev.TextBlockDeltaEvent))
        pressed = time.monotonic()
        await asyncio.to_thread(run.stop)  # from any thread
        await asyncio.wait_for(server.left.wait(), 10)
        assert server.left_at - pressed < 2  # a millisecond, where nothing else keeps the machine busy
        await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
        assert (run.status, run.text, stage.ran) == ("interrupted", kept, [])
        stage.judge(run, "")
        again = await stage.carry(None)
        assert (again.status, again.text) == ("completed", "healed")
        stage.judge_request(["go"])
        assert not kept or dialect.count(server.bodies[-1], kept) == 1
        await stage.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_two_hundred_stops_in_a_row_leave_nothing_open(dialect: Dialect) -> None:
    """At random moments of answers of all lengths, carried on the loop thread as in a notebook, stopped from this thread."""
    chance = random.Random(1)
    kinds = (
        dialect.answer(*[dialect.text("word ")] * 10_000, pause_s=0.0005),
        dialect.answer(*[dialect.text("word ")] * 20, *dialect.call("c1", '{"a": 1}')[:2], end="hold"),
        Answer(has_head=False, end="hold"),
    )
    async with ChatServer(*(kinds[number % 3] for number in range(STOPS)), dialect.said("healed")) as server:
        stage = Stage(dialect, server)
        assert stage.session is not None
        stage.session.close()
        session, loop = Session(stage.agent), LoopThread.get().loop
        before, held = asyncio.all_tasks(loop), sockets()
        for number in range(STOPS):
            run = session.run(f"prompt {number}", reset=number % 20 == 0)
            await server.until(lambda number=number: len(server.bodies) > number)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            run.stop()
            await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
            assert (run.status, stage.ran) == ("interrupted", [])
            await server.until(lambda: server.open == 0)
            assert sockets() == held
        assert asyncio.all_tasks(loop) == before
        assert len(stage.model._clients._open) == 1
        assert stage.agent.state.check() == ()
        run = session.run("last")
        await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
        assert (run.status, run.text) == ("completed", "healed")
        stage.judge_request([*(f"prompt {number}" for number in range(STOPS - 20, STOPS)), "last"])
        session.close()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stage.model.aclose(), loop))
        await server.until(lambda: server.open == 0)


async def test_stops_before_a_request_is_sent_leave_nothing_open(dialect: Dialect) -> None:
    """Before the client is made, while it connects, while it sends: turn by turn."""
    async with ChatServer(dialect.said("ok"), otherwise=Answer(has_head=False, end="hold")) as server:
        stage = Stage(dialect, server)
        assert stage.session is not None
        await stage.carry("first")  # what is done once in a process is done
        await stage.model.aclose()
        asked = 0
        for turns in range(40):
            run = stage.session.run("go")
            for _ in range(turns):
                await asyncio.sleep(0)
            run.stop()
            await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
            assert run.status == "interrupted"
            await server.until(lambda: server.open == 0)
            await stage.model.aclose()
            asked = asked or (turns if len(server.bodies) > 1 else 0)
        assert 5 < asked < 40  # some came before the request, some after it
        await stage.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_models_that_nobody_holds_leave_no_connection_open(dialect: Dialect) -> None:
    async with ChatServer(*[dialect.said("ok")] * 20) as server:
        for _ in range(20):  # each cell of a notebook makes its agent anew
            assert (await Agent(dialect.model("fake", base_url=server.base_url)).reply("go")).text == "ok"
        gc.collect()
        await server.until(lambda: server.open == 0)


# -- silence and slowness -------------------------------------------------------------------------------------------


async def test_a_slow_server_is_not_cut_however_long_it_takes(dialect: Dialect) -> None:
    parts = [dialect.text("a"), b": still here\n\n", b": still here\n\n"] * 5
    async with ChatServer(dialect.answer(*parts, *dialect.end(False), pause_s=0.1)) as server:
        stage = Stage(dialect, server, timeout_s=0.25)
        run = await stage.carry("go")
        assert (run.status, run.text) == ("completed", "aaaaa")
        assert run.elapsed > 1.5
        await stage.leave()


async def test_a_slow_reader_is_not_silence(dialect: Dialect) -> None:
    async with ChatServer(dialect.said(HALF)) as server:
        stage = Stage(dialect, server, "reply", timeout_s=0.05)
        texts: list[str] = []
        async for event in stage.agent.reply_stream("go"):
            await asyncio.sleep(0.02)
            texts += [event.delta] if isinstance(event, ev.TextBlockDeltaEvent) else []
        assert texts == [HALF]
        await stage.leave()


@pytest.mark.parametrize("answer", [Answer(has_head=False, end="hold"), Answer(end="hold")])
async def test_silence_ends_after_the_stated_time(dialect: Dialect, answer: Answer) -> None:
    async with ChatServer(answer, dialect.said("healed")) as server:
        stage = Stage(dialect, server, timeout_s=0.2)
        began = time.monotonic()
        run = await stage.carry("go")
        assert (run.status, run.text) == ("completed", "healed")
        assert "was silent for 0.2 s" in tries_again(run)[0]
        assert 0.2 <= server.left_at - began < 2
        await stage.leave()


@pytest.fixture
async def deaf() -> AsyncIterator[str]:
    """The address of a server whose queue is full: nobody takes up the connection."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        for one in waiting:
            one.close()


async def test_a_server_that_never_takes_up_is_given_up_and_a_stop_ends_the_wait(dialect: Dialect, deaf: str) -> None:
    server = ChatServer()
    server.base_url = deaf
    stage = Stage(dialect, server, timeout_s=0.1)
    assert stage.session is not None
    run = stage.session.run("go")
    await seen(run, lambda event: isinstance(event, ev.CustomEvent))
    assert "does not answer" in tries_again(run)[0]
    run.stop()
    await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
    stage.judge(run, "")
    slow = Stage(dialect, server, timeout_s=60)
    assert slow.session is not None
    run = slow.session.run("go")
    await seen(run, lambda event: isinstance(event, ev.ModelCallStartEvent))
    run.stop()
    await asyncio.wait_for(asyncio.wrap_future(run.ended), 10)
    assert run.status == "interrupted"
    stage.session.close()
    slow.session.close()
    await asyncio.gather(stage.model.aclose(), slow.model.aclose())
