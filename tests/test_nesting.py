"""Waiting without await on the loop that one is on: with nest_asyncio2, whose changes end with the wait."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest

from agent_widgets import nesting
from agent_widgets.agent import Agent
from agent_widgets.errors import InputError
from agent_widgets.models.scripted import ScriptedModel, call, say
from agent_widgets.runs import Run
from agent_widgets.sessions import Session
from agent_widgets.tools import tool


async def answer(value: int = 42) -> int:
    await asyncio.sleep(0.01)
    return value


async def in_a_callback(function: Callable[[], object]) -> object:
    """Call it as a kernel calls a cell: on the running loop, in no task."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def call_it() -> None:
        try:
            done.set_result(function())
        except Exception as error:  # noqa: BLE001 - the caller's
            done.set_exception(error)

    asyncio.get_running_loop().call_soon(call_it)
    return await done


async def test_a_loop_is_run_inside_itself() -> None:
    loop = asyncio.get_running_loop()
    assert await in_a_callback(lambda: nesting.run_sync(answer(), loop)) == 42
    assert nesting.run_sync(answer(7), loop) == 7  # in a task, too


async def test_what_nest_asyncio2_changes_is_changed_back() -> None:
    loop = asyncio.get_running_loop()

    def asyncio_now() -> list[object]:
        names = ("Task", "Future", "run", "get_event_loop", "_nest_patched", "_nest_asyncio2")
        inner = [getattr(asyncio.tasks, name) for name in ("Task", "_CTask")] + [
            asyncio.futures.Future,
            asyncio.events.get_event_loop,
        ]
        methods = [vars(type(loop)).get(name) for name in ("run_forever", "_run_once", "_check_running", "_nest_patched")]
        return [*(getattr(asyncio, name, None) for name in names), *inner, *methods]

    async def inside() -> list[object]:
        return asyncio_now()

    before = asyncio_now()
    assert nesting.run_sync(inside(), loop) != before  # it did change something
    assert asyncio_now() == before


async def test_a_wait_inside_a_wait_keeps_the_changes_of_the_outer_one() -> None:
    loop = asyncio.get_running_loop()

    async def outer() -> tuple[int, int]:
        return nesting.run_sync(answer(1), loop), nesting.run_sync(answer(2), loop)

    assert nesting.run_sync(outer(), loop) == (1, 2)
    assert not hasattr(asyncio, "_nest_patched")


async def test_callbacks_that_were_due_in_the_same_turn_do_not_end_the_loop() -> None:
    loop, seen = asyncio.get_running_loop(), list[int]()
    waited = asyncio.ensure_future(in_a_callback(lambda: seen.append(nesting.run_sync(answer(), loop))))
    await asyncio.sleep(0)
    for number in range(20):  # in the same turn as the wait, and run inside it
        loop.call_soon(seen.append, number)
    await waited
    assert seen == [*range(20), 42]


async def test_an_exception_comes_back_and_an_interrupt_cancels_the_work() -> None:
    loop, ended = asyncio.get_running_loop(), list[str]()

    async def fails() -> None:
        raise KeyError("gone")

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("finally")

    with pytest.raises(KeyError, match="gone"):
        nesting.run_sync(fails(), loop)

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_later(0.01, interrupt)
    with pytest.raises(KeyboardInterrupt):
        nesting.run_sync(works(), loop)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == ["finally"]


async def test_another_thread_waits_as_ever() -> None:
    loop, found = asyncio.get_running_loop(), list[int]()
    thread = threading.Thread(target=lambda: found.append(nesting.run_sync(answer(), loop)))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert found == [42]


async def test_without_the_package_both_ways_out_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nest_asyncio2", None)
    with pytest.raises(InputError, match=r'await run .*pip install "agent-widgets\[nest\]"'):
        nesting.run_sync(answer(), asyncio.get_running_loop())


async def test_where_nest_asyncio_is_applied_it_is_refused_because_the_kernel_would_lose_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)
    with pytest.raises(InputError, match=r"make the kernel lose the cells .*apply nest_asyncio2 instead"):
        nesting.run_sync(answer(), asyncio.get_running_loop())


async def test_a_tool_cannot_wait_for_its_own_run() -> None:
    runs: list[Run] = []

    @tool
    async def impatient() -> str:
        """Wait for the run that runs this."""
        nesting.run_sync(answer(), runs[0].loop)
        return "unreachable"

    model = ScriptedModel([[call("impatient")], [say("ok")]])
    agent = Agent(model, tools=[impatient])
    session = Session(agent, loop="kernel")
    await session.run("go", before_start=runs.append)
    session.close()
    assert "In a tool or a callback use  await" in str(model.requests[-1].messages)


async def test_reply_sync_on_its_own_loop_is_refused_outside_a_notebook_and_leaves_nothing_behind() -> None:
    model = ScriptedModel([[say("one")], [say("two")]])
    agent = Agent(model)
    session = Session(agent, loop="kernel")
    await session.run("go")
    with pytest.raises(InputError, match="await"):
        agent.reply_sync("and")
    assert (await agent.reply("and then")).text == "two"
    assert [m["content"] for m in model.requests[-1].messages if m["role"] == "user"] == ["go", "and then"]
    session.close()
