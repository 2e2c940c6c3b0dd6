"""Tools in a process of their own: really killed, nothing left behind, and every way to end is told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pydantic
import pytest

from agent_widgets.execution import Outlet, output_sink
from agent_widgets.messages import DataBlock, TextBlock
from agent_widgets.outcomes import ToolOutcome
from agent_widgets.threads import stop_requested
from agent_widgets.tools import Tool, tool

isolated = tool(isolate="process")


class Heard:
    """Takes what an execution says and prints."""

    def __init__(self) -> None:
        self.text = ""
        self.printed: dict[str, str] = {"stdout": "", "stderr": ""}
        self.late: list[ToolOutcome] = []
        self._changed = threading.Condition()
        self.outlet = Outlet(emit=self._emit, late=self.late.append)

    async def carry(self, made: Tool, arguments: str = "{}") -> ToolOutcome:
        output_sink.set(self._print)
        return await made.execute(arguments, self.outlet)

    async def until_printed(self, kind: str = "stdout", lines: int = 1) -> list[str]:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self.printed[kind].count("\n") >= lines, 20)

        assert await asyncio.to_thread(wait), self.printed
        return self.printed[kind].splitlines()

    def _emit(self, piece: object) -> None:
        assert isinstance(piece, TextBlock | DataBlock)
        self.text += piece.text if isinstance(piece, TextBlock) else "<image>"

    def _print(self, kind: str, value: dict[str, Any]) -> None:
        with self._changed:
            self.printed[kind] += value["text"]
            self._changed.notify_all()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No process, no zombie, no open pipe, no thread but anyio's idle ones."""
    files, threads = set(Path("/proc/self/fd").iterdir()), set(threading.enumerate())
    yield
    assert psutil.Process().children(recursive=True) == []
    assert len(set(Path("/proc/self/fd").iterdir()) - files) <= 3  # a closed loop's own, until it is collected
    left = [thread for thread in set(threading.enumerate()) - threads if "worker thread" not in thread.name]
    assert [thread for thread in left if not thread.name.startswith("asyncio_")] == []


def is_gone(pid: int, within: float = 2) -> bool:
    """Not even a zombie."""
    end = time.monotonic() + within
    while psutil.pid_exists(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


async def test_a_tool_in_a_process_of_its_own_gives_its_result_and_prints_on_its_card() -> None:
    @isolated
    def add(a: int, b: int = 2) -> dict[str, int]:
        """Add two numbers, and say where."""
        print("first", end=" ")
        print("second")
        sys.stderr.write("é 漢字 🙂\n")
        sys.stdout.buffer.write(b"bytes\n")
        subprocess.run(["echo", "a child's"], check=True)
        print("no line", end="")
        return {"sum": a + b, "pid": os.getpid(), "ppid": os.getppid()}

    heard = Heard()
    outcome = await heard.carry(add, '{"a": 40}')
    assert outcome.state == "success"
    assert '"sum":42' in outcome.text
    assert f'"ppid":{os.getpid()}' in outcome.text
    assert f'"pid":{os.getpid()}' not in outcome.text
    assert heard.printed == {"stdout": "first second\nbytes\nno line", "stderr": heard.printed["stderr"]}
    assert sorted(heard.printed["stderr"].splitlines()) == ["a child's", "é 漢字 🙂"]


class Point(pydantic.BaseModel):
    x: int


async def test_what_it_refers_to_is_copied_and_comes_along() -> None:
    table = {"a": 1}

    class Local(pydantic.BaseModel):
        x: int

    def inner(value: int) -> int:
        table["a"] += value
        return table["a"]

    @isolated
    def work(at: Point) -> list[Any]:
        """Use what is around."""
        return [inner(at.x), Local(x=3), stop_requested()]

    assert (await Heard().carry(work, '{"at": {"x": 4}}')).text == '[5,{"x":3},false]'
    assert table == {"a": 1}


async def test_it_streams_what_it_yields() -> None:
    @isolated
    def parts(number: int) -> Any:
        """Give parts, one by one."""
        for at in range(number):
            yield f"{at} "
        yield TextBlock("block")
        return {"end": True}

    heard = Heard()
    outcome = await heard.carry(parts, '{"number": 3}')
    assert (outcome.state, outcome.content, heard.text) == ("success", (), '0 1 2 \nblock\n{"end":true}')


@pytest.mark.parametrize(
    "error", [ValueError("no such table"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr
)
async def test_what_it_raises_comes_back_with_its_traceback_and_source_lines(error: BaseException) -> None:
    @isolated
    def breaks() -> None:
        """Fail at once."""
        raise error

    outcome = await Heard().carry(breaks)
    assert outcome.state == "error"
    assert outcome.text == ": ".join(filter(None, [type(error).__name__, str(error)]))
    traceback = str(outcome.metadata["traceback"])
    assert "in breaks\n" in traceback
    assert "    raise error" in traceback
    assert "isolated.py" not in traceback


def cannot_be_sent() -> Callable[[], object]:
    lock = threading.Lock()

    def work() -> object:
        """Give a lock from outside."""
        return lock

    return work


def gives_a_lock() -> object:
    """Give a lock."""
    return threading.Lock()


def gives_a_coroutine() -> object:
    """Give what must be awaited."""

    async def later() -> None: ...

    coroutine = later()
    coroutine.close()
    return coroutine


async def test_what_cannot_be_sent_is_a_failure_that_says_what_to_do() -> None:
    for function, words in (
        (cannot_be_sent(), "it, or what it refers to, could not be sent (cannot pickle '_thread.lock' object)"),
        (gives_a_lock, "its result, a lock, could not be sent back (cannot pickle '_thread.lock' object)"),
        (gives_a_coroutine, "its result, a coroutine, could not be sent back"),
    ):
        outcome = await Heard().carry(isolated(function))
        assert outcome.state == "error"
        assert words in outcome.text
        assert outcome.text.endswith("Hand over plain values, and open files, connections and locks inside the function.")


class Unreadable:
    """Can be taken apart, and not be put together."""

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


async def test_what_cannot_be_read_on_the_other_side_is_a_failure_too() -> None:
    thing = Unreadable()

    @isolated
    def refers() -> str:
        """Refer to a thing."""
        return str(thing)

    @isolated
    def gives() -> Unreadable:
        """Give a thing."""
        return Unreadable()

    assert "it could not be read there (ValueError: invalid literal" in (await Heard().carry(refers)).text
    assert "its result could not be read here (invalid literal" in (await Heard().carry(gives)).text


def exits() -> None:
    """End the process."""
    print("last words")
    os._exit(3)


def segfaults() -> None:
    """Crash as C code does."""
    os.kill(os.getpid(), signal.SIGSEGV)


def is_killed() -> None:
    """Die as when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "cause"),
    [(exits, "ended itself with exit code 3"), (segfaults, "was killed by SIGSEGV"), (is_killed, "was killed by SIGKILL")],
)
async def test_a_process_that_dies_is_a_failure_that_says_so(function: Callable[[], None], cause: str) -> None:
    heard = Heard()
    outcome = await heard.carry(isolated(function))
    assert (outcome.state, outcome.text) == ("error", f"{function.__name__}: its process {cause} before it gave a result.")
    if function is exits:
        assert heard.printed["stdout"] == "last words\n"
    if function is segfaults:
        assert "in segfaults" in heard.printed["stderr"]


@isolated
def family() -> None:
    """Start a child and a grandchild, and wait."""
    child = subprocess.Popen(["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    print(os.getpid(), child.pid, child.stdout.readline().strip())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(10)


async def test_a_stop_kills_it_with_all_that_it_started() -> None:
    heard = Heard()
    work = asyncio.create_task(heard.carry(family))
    pids = [int(text) for text in (await heard.until_printed())[0].split()]
    assert all(psutil.pid_exists(pid) for pid in pids)
    work.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await work
    assert caught.value.args == ()  # not said to be still running
    assert [is_gone(pid) for pid in pids] == [True, True, True]
    assert heard.late == []


async def test_a_timeout_kills_it_and_keeps_what_it_has_yielded() -> None:
    @tool(isolate="process", timeout=2)
    def parts() -> Iterator[str]:
        """Give a part, then wait for ever."""
        yield f"{os.getpid()}"
        while True:
            time.sleep(10)

    heard = Heard()
    outcome = await heard.carry(parts)
    assert (outcome.state, outcome.text, outcome.metadata) == ("error", "parts exceeded its timeout of 2 s.", {})
    assert is_gone(int(heard.text))


@pytest.mark.parametrize("seconds", [0, 0.001, 0.01, 0.03, 0.06, 0.1])
async def test_a_stop_at_any_moment_of_its_start_leaves_nothing(seconds: float) -> None:
    work = asyncio.create_task(Heard().carry(family))
    await asyncio.sleep(seconds)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_what_it_leaves_running_ends_with_it() -> None:
    @isolated
    def leaves() -> int:
        """Leave a child running that holds the pipes."""
        return subprocess.Popen(["sleep", "300"]).pid

    assert is_gone(int((await Heard().carry(leaves)).text))


async def test_a_fork_of_it_prints_past_the_frames() -> None:
    @isolated
    def forks() -> str:
        """Fork, and print in both."""
        pid = os.fork()
        print("x" * 100_000)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "done"

    heard = Heard()
    assert (await heard.carry(forks)).text == "done"
    assert {kind: len(text) for kind, text in heard.printed.items()} == {"stdout": 100_001, "stderr": 100_001}


async def test_two_run_side_by_side() -> None:
    first, second = Heard(), Heard()
    work = [asyncio.create_task(heard.carry(family)) for heard in (first, second)]
    await first.until_printed()
    await second.until_printed()
    work[0].cancel()
    await asyncio.wait([work[0]])
    assert not work[1].done()
    assert psutil.pid_exists(int(second.printed["stdout"].split()[0]))
    work[1].cancel()
    await asyncio.wait(work)


KERNEL = """
import asyncio, os, sys, time
from agent_widgets.execution import Outlet
from agent_widgets.tools import tool

@tool(isolate="process")
def waits() -> None:
    "Wait for ever."
    print(os.getpid())
    time.sleep(300)

asyncio.run(waits.execute("{}", Outlet(emit=print, late=print)))
"""


def test_it_ends_when_the_kernel_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, bufsize=1, cwd=Path.cwd()) as kernel:
        assert kernel.stdout is not None
        pid = int(kernel.stdout.readline())
        assert psutil.pid_exists(pid)
        kernel.kill()
    assert is_gone(pid, 5)
