"""The parts of the capture without a kernel: streams, threads, questions, figures. ``kernel/test_output.py`` has the whole."""

from __future__ import annotations

import builtins
import concurrent.futures
import contextlib
import contextvars
import functools
import getpass
import importlib
import io
import sys
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from agent_widgets import execution
from agent_widgets.capture import OutputCapture
from agent_widgets.errors import InputError
from agent_widgets.execution import output_sink


class Stream(io.TextIOBase):
    """A kernel's stream, as far as it matters."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def set_parent(self, parent: object) -> None: ...

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("write() argument must be str")
        self.parts.append(text)
        return len(text)


class Publisher:
    def __init__(self) -> None:
        self.published: list[Any] = []

    def publish(self, data: Any, metadata: Any = None, **kwargs: Any) -> None:
        self.published.append((data, kwargs))

    def clear_output(self, wait: bool = False) -> None:
        self.published.append(("clear", wait))


class Formatter:
    def __init__(self) -> None:
        self.deferred_printers: dict[Any, Any] = {}

    def for_type_by_name(self, module: str, name: str, function: Any) -> None:
        self.deferred_printers[module, name] = function


class Shell:
    """IPython with a kernel, as far as it matters."""

    def __init__(self) -> None:
        self.kernel = self
        self.display_pub = Publisher()
        self.display_formatter: Any = type("Formatters", (), {"formatters": {"image/png": Formatter()}})


class Sink:
    def __init__(self) -> None:
        self.taken: list[Any] = []

    def __call__(self, name: str, value: Any) -> None:
        self.taken.append((name, value))

    def run(self, work: Any, *args: Any) -> Any:
        """Call it as a tool."""
        context = contextvars.copy_context()
        context.run(output_sink.set, self)
        return context.run(work, *args)


@contextlib.contextmanager
def redirected(stdout: Any, stderr: Any) -> Generator[None, None, None]:
    """What pytest puts on top is there before each test begins: a fixture would be too early."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = stdout, stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@pytest.fixture
def streams() -> tuple[Stream, Stream]:
    return Stream(), Stream()


@pytest.fixture
def shell(streams: tuple[Stream, Stream]) -> Iterator[Shell]:
    shell = Shell()
    capture = OutputCapture(shell, lambda: False)
    with redirected(*streams):
        capture.install()
        capture.install()  # each chat() does
    yield shell
    capture.uninstall()
    assert [type(stream) for stream in streams] == [Stream, Stream]
    assert execution.at_end == []
    assert (builtins.input, getpass.getpass) == (ORIGINAL_INPUT, ORIGINAL_GETPASS)


ORIGINAL_INPUT, ORIGINAL_GETPASS = builtins.input, getpass.getpass


@pytest.mark.usefixtures("shell")
def test_whoever_puts_his_own_write_on_the_stream_and_the_old_one_back_changes_nothing(streams: tuple[Stream, Stream]) -> None:
    out, sink = streams[0], Sink()
    seen: list[str] = []

    for _ in range(1_500):  # as IPython 9 does in each cell
        before = out.write

        def tee(text: str, before: Any = before) -> int:
            seen.append(text)
            return before(text)

        out.write = tee  # type: ignore[method-assign] # pyright: ignore[reportAttributeAccessIssue]
        out.write("cell")
        sink.run(out.write, "tool")
        out.write = before  # type: ignore[method-assign]
    assert out.parts == ["cell"] * 1_500
    assert seen == ["cell"] * 1_500
    assert sink.taken == [("stdout", {"text": "tool"})] * 1_500


@pytest.mark.usefixtures("shell")
def test_who_writes_no_text_is_told_so_by_the_stream(streams: tuple[Stream, Stream]) -> None:
    with pytest.raises(TypeError, match="must be str"):
        Sink().run(streams[0].write, b"bytes")


def test_a_redirected_stream_is_left_alone_and_found_later(streams: tuple[Stream, Stream]) -> None:
    capture, sink, buffer = OutputCapture(Shell(), lambda: False), Sink(), io.StringIO()
    with redirected(buffer, streams[1]):
        capture.install()
        print("redirected")
    with redirected(*streams):
        capture.install()
    sink.run(streams[0].write, "tool")
    capture.uninstall()
    assert (buffer.getvalue(), streams[0].parts) == ("redirected\n", [])
    assert sink.taken == [("stdout", {"text": "tool"})]


def test_an_update_goes_where_the_display_was_made(shell: Shell) -> None:
    tool, publisher = Sink(), shell.display_pub
    tool.run(lambda: publisher.publish({"text/plain": "1"}, transient={"display_id": "tool's"}))
    publisher.publish({"text/plain": "1"}, transient={"display_id": "cell's"})
    publisher.publish({"text/plain": "2"}, transient={"display_id": "tool's"}, update=True)
    tool.run(lambda: publisher.publish({"text/plain": "2"}, transient={"display_id": "cell's"}, update=True))
    assert [value["data"]["text/plain"] for _, value in tool.taken] == ["1", "2"]
    assert tool.taken[1][1]["update"] is True
    assert [kwargs["transient"]["display_id"] for _, kwargs in publisher.published] == ["cell's", "cell's"]


def test_what_somebody_has_put_on_top_stays_and_ours_lets_everything_through() -> None:
    shell, sink = Shell(), Sink()
    capture = OutputCapture(shell, lambda: False)
    capture.install()
    ours, started = shell.display_pub.publish, threading.Thread.start
    shell.display_pub.publish = on_top = functools.partial(ours)  # type: ignore[method-assign]
    threading.Thread.start = start_on_top = _started_by(started)  # type: ignore[method-assign]
    try:
        capture.uninstall()
        assert shell.display_pub.publish is on_top
        assert threading.Thread.start is start_on_top
        sink.run(shell.display_pub.publish, {"text/plain": "1"})
        found: list[object] = []
        sink.run(lambda: started_and_joined(lambda: found.append(output_sink.get())))
        assert (sink.taken, found, len(shell.display_pub.published)) == ([], [None], 1)
    finally:
        threading.Thread.start = capture._threads._start  # type: ignore[method-assign]


def _started_by(start: Any) -> Any:
    def started(thread: threading.Thread) -> None:
        start(thread)

    return started


def started_and_joined(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.usefixtures("shell")
def test_threads_and_jobs_belong_to_who_has_started_them_and_a_shared_pool_to_nobody() -> None:
    one, two = Sink(), Sink()
    found: list[object] = []

    def look() -> None:
        found.append(output_sink.get())

    one.run(started_and_joined, look)
    started_and_joined(look)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        one.run(lambda: pool.submit(look).result())  # it starts the pool's thread
        two.run(lambda: pool.submit(look).result())
        pool.submit(look).result()
        one.run(lambda: [job.result() for job in [pool.submit(look)]])
    assert found == [one, None, one, two, None, one]


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("name", ["input", "getpass"])
def test_a_tool_that_asks_is_told_how_to_ask(name: str) -> None:
    ask = builtins.input if name == "input" else getpass.getpass
    with pytest.raises(InputError, match=rf"cannot ask by {name}\(\): .*@tool\(external=True\)"):
        Sink().run(ask, "Which? ")


@pytest.mark.usefixtures("shell")
def test_a_figure_that_cannot_be_drawn_is_said_and_hurts_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")

    sink = Sink()

    def plots() -> None:
        plt.figure()
        plt.gcf().canvas.print_figure = None  # type: ignore[method-assign,assignment]
        plt.figure()

    (show_open,) = execution.at_end
    sink.run(plots)
    sink.run(show_open, sink)
    assert [value["data"]["text/plain"] for _, value in sink.taken] == ["<Figure size 640x480 with 0 Axes>"]
    assert "a figure that was left open cannot be drawn" in caplog.text


def test_a_publisher_that_is_replaced_and_comes_back_has_one_layer_and_none_in_the_end() -> None:
    shell = Shell()
    first, second = shell.display_pub, Publisher()
    capture = OutputCapture(shell, lambda: False)
    for publisher in (first, second, first, second):
        shell.display_pub = publisher
        capture.install()
        publisher.publish({"text/plain": "a cell's"})
        assert "publish" in vars(publisher)
    assert "publish" not in vars(first)
    capture.uninstall()
    assert "publish" not in vars(second)
    assert [len(publisher.published) for publisher in (first, second)] == [2, 2]
