"""The loop thread: made when needed, ended by close, and no trap for whoever is on it; and which loop carries a session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_widgets.agent import Agent
from agent_widgets.chat import LOOP_NOTE, chat
from agent_widgets.errors import InputError
from agent_widgets.loops import LoopThread, loop_named, threads_can_start
from agent_widgets.models.scripted import ScriptedModel, Turn, call, wait
from agent_widgets.sessions import Session, session_of, sessions
from agent_widgets.tools import tool


@pytest.fixture
def carrier() -> Iterator[LoopThread]:
    thread = LoopThread.get()
    yield thread
    thread.close()


def carried(thread: LoopThread, coroutine: Coroutine[object, object, Any]) -> Any:
    """What a coroutine gives that is run on the loop thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, thread.loop).result(5)


async def answer(value: int = 42) -> int:
    await asyncio.sleep(0)
    return value


def test_there_is_one_loop_thread_and_a_new_one_after_it_was_closed() -> None:
    first = LoopThread.get()
    assert LoopThread.get() is first
    first.close()
    first.close()
    second = LoopThread.get()
    assert second is not first
    assert carried(second, answer()) == 42
    second.close()


def test_threads_that_ask_at_once_get_the_same_one() -> None:
    gate, found = threading.Barrier(20), list[LoopThread]()

    def ask() -> None:
        gate.wait()
        found.append(LoopThread.get())

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    found[0].close()


def test_it_does_not_keep_the_process_alive(carrier: LoopThread) -> None:
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "agent-widgets loop"]
    assert thread.daemon


def test_a_coroutine_is_run_on_it_and_its_result_or_error_comes_back(carrier: LoopThread) -> None:
    async def where() -> tuple[bool, bool]:
        return carrier.is_here, asyncio.get_running_loop() is carrier.loop

    async def fails() -> None:
        raise KeyError("gone")

    assert carried(carrier, where()) == (True, True)
    assert not carrier.is_here
    with pytest.raises(KeyError, match="gone"):
        carried(carrier, fails())


async def test_it_can_be_waited_for_in_the_thread_of_another_running_loop(carrier: LoopThread) -> None:
    assert carried(carrier, answer(7)) == 7


def test_closing_cancels_what_runs() -> None:
    carrier, begun, ended = LoopThread.get(), threading.Event(), list[str]()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("finally")

    future = asyncio.run_coroutine_threadsafe(for_ever(), carrier.loop)
    assert begun.wait(5)
    carrier.close()
    assert (ended, future.cancelled(), carrier.loop.is_closed()) == (["finally"], True, True)


# -- which loop carries a session -----------------------------------------------------------------------------------


@pytest.fixture
def no_sessions() -> Iterator[None]:
    yield
    for session in sessions():
        session.close()


@tool(confirm=True)
async def delete_rows() -> str:
    """Delete all rows."""
    return "deleted"


def agent_of(*script: Turn) -> Agent:
    return Agent(ScriptedModel(list(script)), tools=[delete_rows])


async def test_a_loop_has_a_name(carrier: LoopThread) -> None:
    assert threads_can_start()
    assert loop_named("own") is carrier.loop
    assert loop_named("kernel") is asyncio.get_running_loop()
    with pytest.raises(InputError, match="loop is 'main'; it must be 'own' or 'kernel'"):
        loop_named("main")  # pyright: ignore[reportArgumentType]


def test_without_a_running_loop_there_is_no_kernels_loop_and_no_session_is_left() -> None:
    with pytest.raises(InputError, match="no event loop runs here"):
        chat(agent_of("x"), "go", loop="kernel")
    assert sessions() == ()


@pytest.mark.usefixtures("no_sessions")
async def test_chat_keeps_the_loop_of_the_session_and_says_once_what_it_costs(carrier: LoopThread) -> None:
    here, agent = asyncio.get_running_loop(), agent_of("one", "two", "three", "four", "five")
    runs = [chat(agent, "go", loop="kernel"), chat(agent, "go")]
    assert [(await run).text for run in runs] == ["one", "two"]
    assert [run.loop for run in runs] == [here, here]
    assert [run.note for run in runs] == [LOOP_NOTE, ""]
    moved = [await chat(agent, "go", loop="own"), await chat(agent, "go"), await chat(agent, "go", loop="kernel")]
    assert [reply.text for reply in moved] == ["three", "four", "five"]
    assert [run.loop for run in session_of(agent).runs] == [here, here, carrier.loop, carrier.loop, here]
    assert [run.note for run in session_of(agent).runs] == [LOOP_NOTE, "", "", "", ""]


@pytest.mark.usefixtures("no_sessions")
async def test_a_session_has_one_loop_while_a_run_is_running_or_waits(carrier: LoopThread) -> None:
    agent = agent_of([wait(threading.Event())])
    run = chat(agent, "go")
    with pytest.raises(InputError, match=r"has a run that is (queued|running).*await that run or stop it first"):
        chat(agent, "more", loop="kernel")
    run.stop()
    await run
    agent = agent_of(call("delete_rows"), "end")
    session = Session(agent, loop="kernel")
    paused = session.run("go")  # chat would deny: nobody is there
    reached = asyncio.Event()
    paused.listen(lambda run, _: reached.set() if run.status == "paused" else None)
    await asyncio.wait_for(reached.wait(), 5)
    with pytest.raises(InputError, match="has a run that is paused"):
        chat(agent, "more", loop="own")
    assert chat(agent, loop="kernel") is paused  # the same one: shown once more
    paused.approve()
    assert (await paused).text == "end"


@pytest.mark.usefixtures("no_sessions")
def test_a_session_on_a_loop_that_has_been_closed_asks_for_another_one(carrier: LoopThread) -> None:
    agent = agent_of("one", "two")

    async def first() -> str:
        return (await chat(agent, "go", loop="kernel")).text

    assert asyncio.run(first()) == "one"
    with pytest.raises(InputError, match=r"has been closed\. Give it another one"):
        chat(agent, "go")
    assert chat(agent, "go", loop="own").wait(5).text == "two"


@pytest.mark.usefixtures("no_sessions")
async def test_a_stored_session_is_opened_again_on_its_own_loop(carrier: LoopThread, tmp_path: Path) -> None:
    first, second = agent_of("one"), agent_of("two")
    Session.open(tmp_path / "kept", first).move_to("kernel")
    await chat(first, "go")
    Session.open(tmp_path / "kept", second).move_to("kernel")  # closes the other one, without waiting for its own loop
    await chat(second, "on")
    assert [message.text for message in second.state.context] == ["go", "one", "on", "two"]
