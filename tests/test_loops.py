"""The loop thread: made when needed, ended by close, and no trap for whoever is on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from agent_widgets.loops import LoopThread


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
