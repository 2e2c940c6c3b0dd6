"""Tools that stream, and tools that behave badly: every piece at once, every end told, every clean-up run."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agent_widgets import execution, threads
from agent_widgets.errors import ToolDefinitionError
from agent_widgets.events import Event
from agent_widgets.execution import Outlet
from agent_widgets.messages import Base64Source, DataBlock, TextBlock
from agent_widgets.outcomes import MAX_OUTPUT_CHARACTERS, ToolOutcome
from agent_widgets.threads import STILL_RUNNING, stop_requested
from agent_widgets.tools import Options, Tool, tool

IMAGE = DataBlock(Base64Source("AAAA", "image/png"))


class Heard:
    """Takes what an execution says."""

    def __init__(self) -> None:
        self.pieces: list[TextBlock | DataBlock | Event] = []
        self.late: list[ToolOutcome] = []
        self.changed = asyncio.Event()
        self.outlet = Outlet(emit=self._emit, late=self._late)

    @property
    def text(self) -> str:
        return "".join(piece.text if isinstance(piece, TextBlock) else "<image>" for piece in self.pieces)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 5)

    def _emit(self, piece: TextBlock | DataBlock | Event) -> None:
        self.pieces.append(piece)
        self.changed.set()

    def _late(self, outcome: ToolOutcome) -> None:
        self.late.append(outcome)
        self.changed.set()


async def carried(function: Callable[..., Any] | Tool, heard: Heard) -> ToolOutcome:
    return await (function if isinstance(function, Tool) else tool(function)).execute("{}", heard.outlet)


async def stopped(work: asyncio.Task[ToolOutcome]) -> tuple[Any, ...]:
    """Cancel it; gives what the cancel carried."""
    work.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await work
    return caught.value.args


def as_async(function: Callable[[], Iterator[object]]) -> Callable[[], AsyncIterator[object]]:
    @functools.wraps(function)
    async def made() -> AsyncIterator[object]:
        for piece in function():
            yield piece

    return made


def _as_it_is(function: Callable[[], Iterator[object]]) -> Callable[[], Iterator[object]]:
    return function


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a sync generator function what it shall be."""
    return as_async if request.param == "async" else _as_it_is


Kind = Callable[[Callable[[], Iterator[object]]], Any]


async def test_what_a_tool_yields_is_told_piece_by_piece(kind: Kind) -> None:
    def parts() -> Iterator[object]:
        """Give parts, one by one."""
        yield "one "
        yield "two"
        yield IMAGE
        yield TextBlock("three")
        yield {"four": 4}

    heard = Heard()
    outcome = await carried(kind(parts), heard)
    assert (outcome.state, outcome.content) == ("success", ())
    assert heard.text == 'one two<image>three\n{"four":4}'


async def test_a_piece_is_heard_before_the_next_is_made() -> None:
    gate, heard = asyncio.Event(), Heard()

    async def parts() -> AsyncIterator[str]:
        """Give parts, one by one."""
        yield "one"
        await gate.wait()
        yield "two"

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: heard.text == "one")
    gate.set()
    await work
    assert heard.text == "onetwo"


async def test_a_piece_of_a_thread_is_heard_before_the_next_is_made() -> None:
    gate, heard = threading.Event(), Heard()

    def parts() -> Iterator[str]:
        """Give parts, one by one."""
        yield "one"
        assert gate.wait(5)
        yield "two"

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: heard.text == "one")
    gate.set()
    await work
    assert heard.text == "onetwo"


async def test_a_generator_that_yields_nothing_says_so_and_one_that_fails_keeps_its_pieces(kind: Kind) -> None:
    def nothing() -> Iterator[object]:
        """Give nothing at all."""
        yield from ()

    def breaks() -> Iterator[object]:
        """Give one part, then fail."""
        yield "one"
        raise ValueError("no more")

    heard = Heard()
    assert (await carried(kind(nothing), heard)).text == "(done, no output)"
    outcome = await carried(kind(breaks), heard)
    assert (outcome.state, outcome.text, heard.text) == ("error", "ValueError: no more", "one")
    assert "in breaks" in str(outcome.metadata["traceback"])


async def test_what_a_sync_generator_returns_is_its_last_piece() -> None:
    def parts() -> Any:
        """Give parts, one by one."""
        yield "one "
        return "two"

    heard = Heard()
    await carried(parts, heard)
    assert heard.text == "one two"


async def test_an_endless_generator_is_cut_and_does_not_hold_the_loop(kind: Kind) -> None:
    ended: list[str] = []

    def parts() -> Iterator[object]:
        """Give parts for ever."""
        try:
            while True:
                yield "x" * 1_000
        finally:
            ended.append("finally")

    heard = Heard()
    work = asyncio.create_task(carried(kind(parts), heard))
    await heard.until(lambda: len(heard.text) >= MAX_OUTPUT_CHARACTERS)
    ticks = 0
    for _ in range(100):
        await asyncio.sleep(0)
        ticks += 1
    await stopped(work)
    await asyncio.sleep(0)
    assert ticks == 100
    assert ended == ["finally"]
    assert len(heard.text) < MAX_OUTPUT_CHARACTERS + 100
    assert heard.text.endswith("characters are shown]")


async def test_a_stopped_async_generator_runs_its_finally_in_its_own_task() -> None:
    finished, heard = list[object](), Heard()

    async def parts() -> AsyncIterator[str]:
        """Give one part, then wait for ever."""
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            finished.append(asyncio.current_task())

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: heard.text == "one")
    await stopped(work)
    assert (finished, heard.text) == ([work], "one")


async def test_a_generator_that_is_stopped_between_two_pieces_is_closed() -> None:
    finished, heard = list[str](), Heard()

    async def parts() -> AsyncIterator[str]:
        """Give parts for ever, and never wait."""
        try:
            while True:
                yield "x"
        finally:
            await asyncio.sleep(0)
            finished.append("finally")

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: len(heard.pieces) > 5)
    await stopped(work)
    assert finished == ["finally"]


async def test_a_generator_that_swallows_its_cancel_may_say_one_thing_more() -> None:
    heard = Heard()

    async def parts() -> AsyncIterator[str]:
        """Go on for ever, whatever happens."""
        while True:
            try:
                yield "x"
                await asyncio.Event().wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
                yield "no!"  # noqa: ASYNC104

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: heard.text == "x")
    await stopped(work)
    assert heard.text == "xno!"


async def test_the_clean_up_of_a_generator_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "CLOSE_SECONDS", 0.01)
    heard = Heard()

    async def parts() -> AsyncIterator[str]:
        """Never end cleaning up."""
        try:
            while True:
                yield "x"
        finally:
            await asyncio.Event().wait()

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: len(heard.pieces) > 5)
    await stopped(work)


async def test_a_stopped_sync_generator_is_closed_at_its_next_piece_without_asking() -> None:
    finished, gate, heard = list[str](), threading.Event(), Heard()

    def parts() -> Iterator[str]:
        """Give parts for ever."""
        try:
            while True:
                yield "x"
                gate.wait(0.01)
        finally:
            finished.append(threading.current_thread().name)

    work = asyncio.create_task(carried(parts, heard))
    await heard.until(lambda: len(heard.pieces) > 2)
    assert STILL_RUNNING not in await stopped(work)
    assert len(finished) == 1
    assert finished != [threading.current_thread().name]


async def test_a_sync_generator_that_ends_in_its_grace_keeps_its_result() -> None:
    begun, gate, heard = threading.Event(), threading.Event(), Heard()

    def parts() -> Iterator[str]:
        """Give one part, and end."""
        yield "all of it"
        begun.set()
        gate.wait(5)

    work = asyncio.create_task(carried(parts, heard))
    await asyncio.to_thread(begun.wait)
    work.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert (await work).state == "success"
    assert heard.text == "all of it"


@pytest.mark.parametrize("sync", [True, False])
async def test_a_timeout_keeps_the_pieces(sync: bool) -> None:
    heard = Heard()

    def parts() -> Iterator[str]:
        """Give two parts, then wait until told."""
        yield "one"
        yield "two"
        while not stop_requested():
            pass

    async def async_parts() -> AsyncIterator[str]:
        """Give two parts, then wait for ever."""
        yield "one"
        yield "two"
        await asyncio.Event().wait()

    outcome = await tool(timeout=0.2, name="parts")(parts if sync else async_parts).execute("{}", heard.outlet)
    assert (outcome.state, heard.text, outcome.text) == ("error", "onetwo", "parts exceeded its timeout of 0.2 s.")


async def test_a_function_that_gives_a_generator_streams_too() -> None:
    async def real() -> AsyncIterator[str]:
        """Give parts, one by one."""
        yield "one "
        yield "two"

    @functools.wraps(real)
    def wrapped() -> Any:
        return real()

    async def later() -> Any:
        """Give parts, one by one."""
        return real()

    heard = Heard()
    for function in (wrapped, later):
        await carried(function, heard)
    assert heard.text == "one two" * 2


# -- what comes late ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "state", "text"),
    [
        ("give", "success", "5"),
        ("raise", "error", "ValueError: gone"),
        ("notice", "interrupted", "5"),
        ("await", "interrupted", ""),
    ],
)
async def test_a_thread_that_was_left_behind_is_heard_once_when_it_ends(
    monkeypatch: pytest.MonkeyPatch, end: str, state: str, text: str
) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    begun, gate, heard = threading.Event(), threading.Event(), Heard()

    async def more() -> int:
        return 5

    def deaf() -> Any:
        """Wait for the gate only."""
        begun.set()
        gate.wait(5)
        if end == "raise":
            raise ValueError("gone")
        if end == "notice":
            assert stop_requested()
        return more() if end == "await" else 5

    work = asyncio.create_task(carried(deaf, heard))
    await asyncio.to_thread(begun.wait)
    assert await stopped(work) == (STILL_RUNNING,)
    assert heard.late == []
    gate.set()
    await heard.until(lambda: bool(heard.late))
    assert [(late.state, late.text) for late in heard.late] == [(state, text)]


@pytest.mark.parametrize("sync", [True, False])
async def test_a_tool_that_was_left_behind_by_its_timeout_is_heard_when_it_ends(
    monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(execution, "TIMEOUT_GRACE_SECONDS", 0.01)
    gate, heard = threading.Event(), Heard()

    def deaf() -> int:
        """Wait for the gate only."""
        gate.wait(5)
        return 5

    async def stubborn() -> int:
        """Swallow every cancel until the gate is open."""
        while not gate.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
                continue  # noqa: ASYNC104
        return 5

    outcome = await tool(timeout=0.3)(deaf if sync else stubborn).execute("{}", heard.outlet)  # long enough to begin
    assert outcome.metadata == {"still_running": True}
    gate.set()
    await heard.until(lambda: bool(heard.late))
    assert [(late.state, late.text) for late in heard.late] == [("success", "5")]


def test_a_thread_that_ends_after_its_loop_was_closed_is_heard_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    gate, late, told = threading.Event(), list[ToolOutcome](), threading.Event()

    def deaf() -> Iterator[str]:
        """Wait for the gate only."""
        gate.wait(5)
        yield "lost"

    def tell(outcome: ToolOutcome) -> None:
        late.append(outcome)
        told.set()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):  # long enough to begin
                await tool(deaf).execute("{}", Outlet(emit=lambda _: None, late=tell))

    asyncio.run(main())
    gate.set()
    assert told.wait(5)
    assert [outcome.state for outcome in late] == ["interrupted"]


# -- tools that behave badly ----------------------------------------------------------------------------------------


def raising(error: BaseException, kind: str) -> Callable[..., Any]:
    def sync_one() -> str:
        """Fail at once."""
        raise error

    async def async_one() -> str:
        """Fail at once."""
        raise error

    def sync_parts() -> Iterator[str]:
        """Fail at once."""
        yield ""
        raise error

    async def async_parts() -> AsyncIterator[str]:
        """Fail at once."""
        yield ""
        raise error

    return {"sync": sync_one, "async": async_one, "sync parts": sync_parts, "async parts": async_parts}[kind]


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), RecursionError("deep")], ids=repr)
@pytest.mark.parametrize("kind", ["sync", "async", "sync parts", "async parts"])
@pytest.mark.parametrize("limit", [None, 5.0])
async def test_whatever_a_tool_raises_of_its_own_is_a_failure_of_the_tool(
    error: BaseException, kind: str, limit: float | None
) -> None:
    outcome = await carried(tool(timeout=limit)(raising(error, kind)), Heard())
    assert outcome.state == "error"
    assert outcome.text.split(":")[0] in (type(error).__name__, outcome.text)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("kind", ["sync", "sync parts"])
async def test_a_keyboard_interrupt_that_a_thread_raises_is_a_failure_of_the_tool(kind: str) -> None:
    assert (await carried(raising(KeyboardInterrupt(), kind), Heard())).text == "KeyboardInterrupt"


def test_a_keyboard_interrupt_of_an_async_tool_ends_no_loop_thread() -> None:
    found: list[ToolOutcome] = []

    def thread() -> None:
        async def main() -> None:
            found.append(await carried(raising(KeyboardInterrupt(), "async"), Heard()))

        asyncio.run(main())

    carrier = threading.Thread(target=thread)
    carrier.start()
    carrier.join(5)
    assert [outcome.text for outcome in found] == ["KeyboardInterrupt"]


# -- what may be a tool ---------------------------------------------------------------------------------------------


class Counter:
    """Counts up."""

    def __init__(self, start: int) -> None:
        self.at = start

    def __call__(self, by: int = 1) -> int:
        """Count up by BY, and say where it is."""
        self.at += by
        return self.at

    async def later(self, by: int) -> int:
        """Count up by BY, in the next turn."""
        await asyncio.sleep(0)
        return self(by)

    def parts(self, number: int) -> Iterator[str]:
        """Count up NUMBER times."""
        for _ in range(number):
            yield f"{self()} "


def delete(table: str, where: str = "") -> str:
    """Delete rows of TABLE."""
    return f"{table} {where}"


@pytest.mark.parametrize(
    ("made", "name", "names", "arguments", "text"),
    [
        (lambda: Counter(3), "Counter", ["by"], '{"by": 2}', "5"),
        (lambda: Counter(3).later, "later", ["by"], '{"by": 2}', "5"),
        (lambda: Counter(3).parts, "parts", ["number"], '{"number": 2}', "4 5 "),
        (lambda: functools.partial(delete, "orders"), "delete", ["where"], '{"where": "x"}', "orders x"),
        (lambda: functools.partial(delete, table="orders"), "delete", ["where"], '{"where": "x"}', "orders x"),
        (lambda: functools.partial(Counter(3).later, by=4), "later", [], "{}", "7"),
    ],
)
async def test_methods_partials_and_objects_that_can_be_called_may_be_tools(
    made: Callable[[], Any], name: str, names: list[str], arguments: str, text: str
) -> None:
    heard = Heard()
    built = tool(made())
    properties: Any = built.spec.parameters["properties"]
    assert (built.name, list(properties)) == (name, names)
    assert "partial" not in built.description
    outcome = await built.execute(arguments, heard.outlet)
    assert heard.text + outcome.text == text


async def test_a_model_cannot_change_what_a_partial_has_bound() -> None:
    outcome = await tool(functools.partial(delete, table="staging")).execute('{"table": "prod"}', Heard().outlet)
    assert (outcome.state, outcome.text) == ("error", "The arguments do not fit delete: table: Extra inputs are not permitted")


def test_options_that_cannot_work_are_refused_when_the_tool_is_made() -> None:
    async def slow() -> None:
        """Do something slowly."""

    async def parts() -> AsyncIterator[str]:
        """Give parts, one by one."""
        yield ""

    wrong: Any = "thread"
    for function in (slow, parts):
        with pytest.raises(
            ToolDefinitionError, match=r"it is async, which a stop cancels where it is; isolate='process' is for a sync"
        ):
            tool(isolate="process")(function)
        with pytest.raises(ToolDefinitionError, match=r"async, which runs on the loop of its run; thread='main' is for a sync"):
            tool(thread="main")(function)
    with pytest.raises(ToolDefinitionError, match=r"thread is 'thread'; it must be 'main' or None"):
        tool(thread=wrong)(delete)
    with pytest.raises(ToolDefinitionError, match="cannot run on the main thread and in a process of its own"):
        tool(thread="main", isolate="process")(delete)
    with pytest.raises(ToolDefinitionError, match=r"isolate is 'thread'; it must be 'process' or None"):
        tool(isolate=wrong)(delete)
    useless: list[Options] = [
        {"external": True, "isolate": "process"},
        {"external": True, "thread": "main"},
        {"external": True, "sequential": True},
        {"external": True, "timeout": 5},
    ]
    for options in useless:
        with pytest.raises(ToolDefinitionError, match="it is external: nothing runs here"):
            tool(**options)(delete)
