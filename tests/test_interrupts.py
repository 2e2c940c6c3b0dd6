"""■ without a kernel: real signals in this process, and runs that only note what they are told."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from agent_widgets import interrupts as room
from agent_widgets.agent import Agent
from agent_widgets.cells import CellWaiter
from agent_widgets.decisions import StopSource
from agent_widgets.errors import AgentStopped, InputError
from agent_widgets.interrupts import Interrupts
from agent_widgets.loops import LoopThread
from agent_widgets.models.scripted import ScriptedModel, call, say, wait
from agent_widgets.tools import tool
from agent_widgets.waiting import CLEAN_UP_SECONDS, surroundings


class FakeRun:
    """Notes what it is told; ``end()`` ends it."""

    def __init__(self, *, ends_when_stopped: bool = False) -> None:
        self.ended: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.ended.set_running_or_notify_cancel()
        self.told: list[str] = []
        self.ends_when_stopped = ends_when_stopped
        self.is_carried_here = False

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    def stop(self, *, reason: str = "", source: StopSource = "code") -> None:
        self.told.append(source)
        if self.ends_when_stopped:
            self.end()

    def abandon(self) -> None:
        self.told.append("abandoned")

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


@pytest.fixture
def presses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What the handler below ours hears; each press here counts as a slow one, unless a test says how fast it is."""
    heard: list[int] = []

    def below(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, below)
    monkeypatch.setattr(room, "DOUBLE_CLICK_SECONDS", -1.0)
    yield heard
    assert signal.getsignal(signal.SIGINT) is below, "the handler was not given back"
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def nothing() -> None:
    pass


def test_the_first_press_stops_the_second_frees_and_the_third_goes_to_whoever_was_there(presses: list[int]) -> None:
    interrupts, run, freed = Interrupts(), FakeRun(), list[int]()
    wait = interrupts.add(run, lambda: freed.append(1))
    press()
    assert (run.told, freed, wait.is_freed, presses) == (["kernel"], [], False, [])
    press()
    assert (run.told, freed, wait.is_freed, presses) == (["kernel"], [1], True, [])
    press()
    assert (run.told, freed, presses) == (["kernel"], [1], [signal.SIGINT])
    press()
    assert presses == [signal.SIGINT, signal.SIGINT]
    interrupts.remove(wait)


def test_a_double_click_is_one_press_until_the_cell_has_ended(presses: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DOUBLE_CLICK_SECONDS", 60.0)
    interrupts, run, other = Interrupts(), FakeRun(), FakeRun()
    interrupts.begin_cell()
    wait = interrupts.add(run, nothing)
    press()
    press()
    assert (wait.presses, presses) == (1, [])
    interrupts.remove(wait)
    interrupts.end_cell()
    interrupts.begin_cell()
    wait = interrupts.add(other, nothing)
    press()
    assert other.told == ["kernel"]
    interrupts.remove(wait)
    interrupts.end_cell()


def test_a_second_click_in_the_middle_of_the_first_is_the_same_press(presses: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DOUBLE_CLICK_SECONDS", 60.0)

    class Loud(int):
        """Is compared while the handler runs, and presses again there."""

        asked = 0

        def __le__(self, other: int) -> bool:
            Loud.asked += 1
            if Loud.asked == 1:
                press()
            return int(self) <= other

    interrupts, run = Interrupts(), FakeRun()
    wait = interrupts.add(run, nothing, presses_to_free=Loud(2))
    press()
    assert (Loud.asked > 0, wait.presses, presses) == (True, 1, [])
    interrupts.remove(wait)


def test_a_task_that_outlived_its_cell_hears_nothing_and_does_not_deafen_the_next_one(presses: list[int]) -> None:
    interrupts, left, begun, fresh = Interrupts(), FakeRun(), FakeRun(), FakeRun()
    interrupts.begin_cell()
    context = contextvars.copy_context()
    interrupts.add(left, nothing)
    interrupts.end_cell()
    press()
    assert (left.told, presses) == ([], [signal.SIGINT])
    interrupts.begin_cell()
    late = context.run(interrupts.add, begun, nothing)  # the same task waits for its next run, while another cell executes
    press()
    assert (begun.told, presses) == ([], [signal.SIGINT] * 2)
    wait = interrupts.add(fresh, nothing)
    press()
    assert (left.told, begun.told, fresh.told, presses) == ([], [], ["kernel"], [signal.SIGINT] * 2)
    interrupts.remove(late)
    interrupts.remove(wait)
    interrupts.end_cell()


def test_a_cell_in_a_cell_is_followed_by_the_rest_of_the_outer_one(presses: list[int]) -> None:
    interrupts, run = Interrupts(), FakeRun()
    assert not interrupts.is_in_cell
    interrupts.begin_cell()
    interrupts.begin_cell()
    interrupts.end_cell()
    assert interrupts.is_in_cell
    wait = interrupts.add(run, nothing)
    press()
    assert run.told == ["kernel"]
    interrupts.remove(wait)
    interrupts.end_cell()
    assert not interrupts.is_in_cell


def test_a_handler_that_somebody_has_put_on_top_is_left_alone(presses: list[int]) -> None:
    interrupts, run, heard = Interrupts(), FakeRun(), list[int]()
    below = signal.getsignal(signal.SIGINT)
    wait = interrupts.add(run, nothing)

    def on_top(_number: int, _frame: FrameType | None) -> None:
        heard.append(1)

    theirs = signal.signal(signal.SIGINT, on_top)
    press()
    interrupts.remove(wait)
    press()
    assert (run.told, heard) == ([], [1, 1])
    assert theirs == interrupts.on_signal
    signal.signal(signal.SIGINT, below)


def test_nothing_is_heard_off_the_main_thread(presses: list[int]) -> None:
    interrupts, run = Interrupts(), FakeRun()
    thread = threading.Thread(target=lambda: interrupts.add(run, nothing, blocks=True))
    thread.start()
    thread.join()
    press()
    assert (run.told, presses) == ([], [signal.SIGINT])


def test_a_blocked_cell_is_stopped_and_a_second_press_frees_it(presses: list[int]) -> None:
    waiter, quick, slow = CellWaiter(Interrupts()), FakeRun(ends_when_stopped=True), FakeRun()
    threading.Timer(0.2, press_from_outside).start()
    with pytest.raises(AgentStopped, match="its state is kept"):
        waiter.block(quick, None)
    assert quick.told == ["kernel"]
    for delay in (0.2, 0.4):
        threading.Timer(delay, press_from_outside).start()
    with pytest.raises(AgentStopped, match="goes on without this cell"):
        waiter.block(slow, None)
    assert slow.told == ["kernel", "abandoned"]


async def test_an_awaiting_cell_is_stopped_and_a_second_press_frees_it(presses: list[int]) -> None:
    waiter, quick, slow = CellWaiter(Interrupts()), FakeRun(ends_when_stopped=True), FakeRun()
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, press)
    with pytest.raises(AgentStopped, match="its state is kept"):
        await waiter.wait(quick)
    loop.call_later(0.01, press)
    loop.call_later(0.02, press)
    with pytest.raises(AgentStopped, match="goes on without this cell"):
        await waiter.wait(slow)
    assert slow.told == ["kernel", "abandoned"]


async def test_a_cell_that_is_cancelled_waits_for_the_clean_up_and_one_press_frees_it(presses: list[int]) -> None:
    class PressedWhileStopping(FakeRun):
        def stop(self, *, reason: str = "", source: StopSource = "code") -> None:
            super().stop(reason=reason, source=source)
            asyncio.get_running_loop().call_later(0.01, press)

    run, begun = PressedWhileStopping(), time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await CellWaiter(Interrupts()).wait(run)
    assert run.told == ["code", "abandoned"]
    assert time.monotonic() - begun < CLEAN_UP_SECONDS


async def test_a_reader_is_told_at_the_first_press(presses: list[int]) -> None:
    waiter, run = CellWaiter(Interrupts()), FakeRun()
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.01, press)
    with pytest.raises(AgentStopped):
        await waiter.until(arrived, run)
    assert run.told == ["kernel"]
    arrived.set_result(None)
    await waiter.until(arrived, run)


@pytest.fixture
def in_a_cell(presses: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies without a card wait as a cell does."""
    waiter = CellWaiter(Interrupts())
    monkeypatch.setattr(surroundings, "notebook", lambda: waiter)


@pytest.mark.usefixtures("in_a_cell")
async def test_a_reader_in_a_cell_gets_the_closing_events_and_then_is_stopped() -> None:
    agent, types = Agent(ScriptedModel([[say(["half "]), wait(asyncio.Event())], [say("fine")]])), list[str]()

    async def read() -> None:
        async for event in agent.reply_stream("go"):
            types.append(event.type)
            if event.type == "TEXT_BLOCK_DELTA":
                asyncio.get_running_loop().call_later(0.01, press)

    with pytest.raises(AgentStopped):
        await read()
    assert types[-3:] == ["TEXT_BLOCK_END", "MODEL_CALL_END", "REPLY_END"]
    assert agent.state.context[-1].finished_reason == "interrupted"
    assert (await agent.reply("go on")).text == "fine"


@pytest.mark.usefixtures("in_a_cell")
async def test_a_second_press_frees_a_reader_and_the_next_reply_waits_for_the_clean_up() -> None:
    cleaned = list[str]()

    @tool
    async def work() -> None:
        """Work, and clean up for a while."""
        loop.call_later(0.01, press)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_later(0.05, press)
            await gate.wait()
            cleaned.append("cleaned")

    loop, gate = asyncio.get_running_loop(), asyncio.Event()
    agent = Agent(ScriptedModel([[call("work")], [say("fine")]]), tools=[work])
    with pytest.raises(AgentStopped):
        async for _ in agent.reply_stream("go"):
            pass
    assert cleaned == []
    loop.call_later(0.05, gate.set)
    assert (await agent.reply("go on")).text == "fine"
    assert (cleaned, agent.state.check()) == (["cleaned"], ())


@pytest.mark.usefixtures("in_a_cell")
def test_a_reply_that_waits_for_the_end_of_an_earlier_one_is_stopped_before_it_begins() -> None:
    @tool
    async def work() -> None:
        """Work, and clean up for a while."""
        for delay in (0.3, 0.4):
            threading.Timer(delay, press_from_outside).start()
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()

    gate = asyncio.Event()

    agent = Agent(ScriptedModel([[call("work")], [say("fine")]]), tools=[work])
    with pytest.raises(AgentStopped, match="goes on without"):
        agent.reply_sync("go")
    threading.Timer(0.3, press_from_outside).start()
    with pytest.raises(AgentStopped):
        agent.reply_sync("never begins")
    LoopThread.get().loop.call_soon_threadsafe(gate.set)
    assert agent.reply_sync("go on").text == "fine"
    assert [message.text for message in agent.state.context if message.role == "user"] == ["go", "go on"]


async def test_a_run_that_is_carried_here_is_not_blocked_for_without_a_way_to_nest(
    presses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nest_asyncio2", None)
    run = FakeRun()
    run.is_carried_here = True
    with pytest.raises(InputError, match="await run"):
        CellWaiter(Interrupts()).block(run, None)
    run.end()
    assert CellWaiter(Interrupts()).block(run, None)


def press_from_outside() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
