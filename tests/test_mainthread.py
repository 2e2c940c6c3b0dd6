"""The queue of the main thread, without a kernel. ``kernel/test_mainthread.py`` has cells, a terminal and scripts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_widgets import mainthread
from agent_widgets.execution import Outlet, output_sink
from agent_widgets.loops import LoopThread
from agent_widgets.mainthread import MainThread
from agent_widgets.outcomes import ToolOutcome
from agent_widgets.threads import STILL_RUNNING
from agent_widgets.tools import tool

DEAF = Outlet(emit=lambda _: None, late=lambda _: None)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Iterator[MainThread]:
    fresh = MainThread()
    monkeypatch.setattr(MainThread, "_one", fresh)
    yield fresh
    assert not fresh._jobs
    assert not fresh._waiting


def elsewhere(function: Callable[..., Any], *, said: list[str] | None = None) -> concurrent.futures.Future[ToolOutcome]:
    """Call it as a tool with ``thread="main"`` of a run that another thread carries."""
    heard = [] if said is None else said

    async def call() -> ToolOutcome:
        output_sink.set(lambda name, value: heard.append(f"{name}: {value['text']}"))
        return await tool(thread="main")(function).execute("{}", DEAF)

    return asyncio.run_coroutine_threadsafe(call(), LoopThread.get().loop)


def where() -> str:
    """Say where this runs."""
    return "main" if threading.current_thread() is threading.main_thread() else "elsewhere"


def test_who_blocks_the_main_thread_carries_out_the_calls(main: MainThread) -> None:
    future = elsewhere(where)
    assert main.wait_for(future, 10)
    assert future.result().text == "main"


def test_who_waits_on_another_thread_carries_out_nothing(main: MainThread) -> None:
    future = elsewhere(where)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert not pool.submit(main.wait_for, future, 0.05).result()
    assert main.wait_for(future, 10)


async def test_a_loop_on_the_main_thread_carries_them_out(main: MainThread) -> None:
    with main.served_here(), main.served_here():
        outcome = await asyncio.wrap_future(elsewhere(where))
    assert outcome.text == "main"
    assert not main.is_attended


async def test_the_first_waiter_to_end_leaves_the_loop_to_the_others(main: MainThread) -> None:
    first, second = main.served_here(), main.served_here()
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert main.is_attended
        assert (await asyncio.wrap_future(elsewhere(where))).text == "main"
    assert not main.is_attended


async def test_a_run_that_the_main_threads_own_loop_carries_needs_nobody(main: MainThread) -> None:
    assert (await tool(thread="main")(where).execute("{}", DEAF)).text == "main"
    assert not main.is_attended


def test_a_call_that_waits_says_so_and_nobody_there_is_an_error(main: MainThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mainthread, "UNATTENDED_SECONDS", 0.3)
    monkeypatch.setattr(mainthread, "SILENT_SECONDS", 0.01)
    said: list[str] = []
    outcome = elsewhere(where, said=said).result(10)
    assert outcome.state == "error"
    assert outcome.text.startswith("This tool must run on the main thread, and for 0.3 s nothing there has waited for it.")
    assert said == ["waits: for the main thread, which is busy", "waits: "]
    assert not main._jobs


def test_a_stop_before_its_turn_takes_it_back(main: MainThread) -> None:
    called: list[int] = []

    def calls() -> None:
        """Say that it was called."""
        called.append(1)

    future = elsewhere(calls)
    waiting = threading.Event()
    while not main._jobs:
        waiting.wait(0.001)
    (job,) = main._jobs
    future.cancel()
    while main._jobs:
        waiting.wait(0.001)
    main._jobs.append(job)  # as if it had just been taken out of the queue
    main.run_pending()
    assert called == []


def test_a_stop_after_it_has_begun_leaves_it_behind(main: MainThread) -> None:
    late: list[ToolOutcome] = []
    told: list[object] = []

    def lasts() -> str:
        """Outlast its stop."""
        work.call_soon_threadsafe(tasks[0].cancel)
        ended.wait(10)
        return "too late"

    ended, tasks, work = threading.Event(), list[asyncio.Task[Any]](), LoopThread.get().loop

    async def call() -> None:
        tasks.append(asyncio.create_task(tool(thread="main")(lasts).execute("{}", Outlet(emit=lambda _: None, late=late.append))))
        try:
            await tasks[0]
        except asyncio.CancelledError as error:  # noqa: ASYNC103 - the test's own
            told.extend(error.args)
        ended.set()

    future = asyncio.run_coroutine_threadsafe(call(), work)
    assert main.wait_for(future, 10)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), work).result(10)
    assert told == [STILL_RUNNING]
    assert [outcome.text for outcome in late] == ["too late"]


@pytest.mark.parametrize("previous", [signal.SIG_IGN, signal.default_int_handler, "a waiting cell's"])
def test_an_interrupt_ends_the_function_and_the_handler_is_put_back(main: MainThread, previous: Any) -> None:
    pressed: list[int] = []

    def stops(*_: object) -> None:
        pressed.append(1)

    handler: Any = stops if isinstance(previous, str) else previous
    before = signal.signal(signal.SIGINT, handler)

    def works() -> None:
        """Work until it is interrupted."""
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(10)

    try:
        future = elsewhere(works)
        assert main.wait_for(future, 10)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert future.result().state == "interrupted"
    assert len(pressed) == isinstance(previous, str)


def test_a_call_that_blocks_for_another_one_carries_that_out(main: MainThread) -> None:
    def outer() -> str:
        """Wait for another call."""
        inner = elsewhere(where)
        assert main.wait_for(inner, 10)
        return f"outer of {inner.result().text}"

    future = elsewhere(outer)
    assert main.wait_for(future, 10)
    assert future.result().text == "outer of main"


def test_what_a_call_raises_is_its_result_and_the_next_one_runs(main: MainThread) -> None:
    def fails() -> None:
        """Fail in an unusual way."""
        raise SystemExit(3)

    first, second = elsewhere(fails), elsewhere(where)
    assert main.wait_for(first, 10)
    assert main.wait_for(second, 10)
    assert first.result().text == "SystemExit: 3"
    assert second.result().text == "main"


async def test_a_closed_loop_is_passed_over(main: MainThread) -> None:
    closed = asyncio.new_event_loop()
    main.serve(closed)
    closed.close()
    assert not main.is_attended
    with main.served_here():
        assert (await asyncio.wrap_future(elsewhere(where))).text == "main"
