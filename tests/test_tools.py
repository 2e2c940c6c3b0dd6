"""Tools: what a function must be, how it is executed, and that its failure is a result."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import pydantic
import pytest

from agent_widgets import execution, threads
from agent_widgets.errors import InputError, ToolDefinitionError
from agent_widgets.execution import Outlet
from agent_widgets.messages import Base64Source, DataBlock, TextBlock
from agent_widgets.outcomes import MAX_OUTPUT_CHARACTERS, ToolOutcome, failed, succeeded
from agent_widgets.threads import STILL_RUNNING, stop_requested
from agent_widgets.tools import Tool, by_name, tool

DEAF = Outlet(emit=lambda _: None, late=lambda _: None)
"""Nobody listens."""


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    They may be negative.
    """
    return a + b


class Point(pydantic.BaseModel):
    x: int


def text_of(outcome: ToolOutcome) -> str:
    return "".join(block.text for block in outcome.content if isinstance(block, TextBlock))


async def done(function: Callable[..., Any], arguments: str = "{}") -> tuple[str, str]:
    """Execute it, and give the state and the text."""
    outcome = await tool(function).execute(arguments, DEAF)
    return outcome.state, text_of(outcome)


# -- definition -----------------------------------------------------------------------------------------------------


def test_a_tool_is_told_to_a_model_by_its_name_its_docstring_and_its_signature() -> None:
    spec = add.spec
    assert (spec.name, spec.description) == ("add", "Add two numbers.\n\nThey may be negative.")
    assert spec.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_annotations_may_say_more() -> None:
    def find(
        word: Annotated[str, pydantic.Field(description="what to look for")], kind: Literal["a", "b"], at: Point | None = None
    ) -> str:
        """Find a word."""
        return f"{word}{kind}{at}"

    properties: Any = tool(find).spec.parameters["properties"]
    assert properties["word"] == {"type": "string", "description": "what to look for"}
    assert properties["kind"] == {"type": "string", "enum": ["a", "b"]}


async def test_arguments_arrive_as_the_annotated_types() -> None:
    def find(at: Point, names: list[str]) -> str:
        """Find a point."""
        return f"{type(at).__name__} {at.x} {names}"

    assert await done(find, '{"at": {"x": "3"}, "names": ["a"]}') == ("success", "Point 3 ['a']")


async def test_parameters_may_have_the_names_of_pydantics_own_methods() -> None:
    def find(json: str, schema: str, copy: int) -> str:
        """Find a thing."""
        return f"{json} {schema} {copy}"

    assert await done(find, '{"json": "a", "schema": "b", "copy": 3}') == ("success", "a b 3")


def test_a_tool_can_be_named_and_needs_confirmation_if_it_says_so() -> None:
    def find(word: str) -> str:
        """Find a word."""
        return word

    made = tool(name="look_up", confirm=True)(find)
    assert (made.name, made.confirm, made("x")) == ("look_up", True, "x")
    assert (tool(find).name, tool(find).confirm) == ("find", False)


def no_annotation(word) -> str:  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]  # noqa: ANN001
    """Find a word."""
    return str(word)  # pyright: ignore[reportUnknownArgumentType]


def variadic(*words: str) -> str:
    """Find some words."""
    return " ".join(words)


def keywords(**words: str) -> str:
    """Find some words."""
    return " ".join(words)


def positional(word: str, /) -> str:
    """Find a word."""
    return word


def not_json(word: Callable[[], int]) -> str:
    """Find a word."""
    return str(word)


def undefined(word: NoSuchType) -> str:  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
    """Find a word."""
    return str(word)  # pyright: ignore[reportUnknownArgumentType]


def silent(word: str) -> str:
    return word


def one_word(word: str) -> str:
    """Finds."""
    return word


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (cast("Any", no_annotation), "@tool no_annotation: the parameter 'word' has no annotation. Write for example  word: str"),
        (variadic, "@tool variadic: a model gives arguments by name, so *words"),
        (keywords, "@tool keywords: a model gives arguments by name, so **words"),
        (positional, "@tool positional: a model gives arguments by name"),
        (not_json, "@tool not_json: its annotations cannot be sent to a model as JSON"),
        (
            cast("Any", undefined),
            "@tool undefined: its signature cannot be read: name 'NoSuchType' is not defined",
        ),
        (max, "@tool max: its signature cannot be read: no signature found"),
        (silent, "@tool silent: its docstring says nothing, so a model cannot know when to use it. Write one sentence"),
        (one_word, "@tool one_word: its docstring says nothing"),
    ],
)
def test_a_function_that_cannot_become_a_tool_says_why_in_one_line(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.tool_name == function.__name__


def test_the_tools_of_an_agent_are_found_by_name_and_plain_functions_become_tools() -> None:
    found = by_name([add, positional_free])
    assert list(found) == ["add", "positional_free"]
    assert found["add"] is add
    assert isinstance(found["positional_free"], Tool)


def positional_free(word: str) -> str:
    """Find a word."""
    return word


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"two tools are called 'add'; a model could not tell them apart. Use @tool\(name=…\)"):
        by_name([add, tool(name="add")(positional_free)])


@pytest.mark.parametrize("wrong", [["add"], [None], [{"name": "add"}]])
def test_what_is_not_a_function_is_refused(wrong: list[Any]) -> None:
    with pytest.raises(InputError, match=r"is not a function. Give functions, or functions with @tool"):
        by_name(wrong)


@pytest.mark.parametrize("wrong", [add, positional_free])
def test_one_tool_that_is_not_in_a_list_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"is one tool, and a list is needed: tools=\[…\]"):
        by_name(wrong)


# -- execution ------------------------------------------------------------------------------------------------------


async def test_a_result_is_text_as_it_is_and_everything_else_as_json() -> None:
    assert await done(lambda_of("plain ☕")) == ("success", "plain ☕")
    assert await done(lambda_of({"a": [1, None]})) == ("success", '{"a":[1,null]}')
    assert await done(lambda_of(None)) == ("success", "(done, no output)")
    assert await done(lambda_of([])) == ("success", "[]")
    assert await done(lambda_of(3.5)) == ("success", "3.5")


def lambda_of(value: object) -> Callable[..., Any]:
    def give() -> object:
        """Give a thing."""
        return value

    return give


def test_a_result_that_is_no_json_is_its_text() -> None:
    assert text_of(succeeded(object)) == str(object)
    circle: list[object] = [0]
    circle.append(circle)
    assert text_of(succeeded(circle)) == "[0, [...]]"
    assert text_of(succeeded(b"\xff")) == r"b'\xff'"


def test_blocks_are_a_result_as_they_are() -> None:
    image = DataBlock(Base64Source("AAAA", "image/png"))
    assert succeeded([TextBlock("a", id="1"), image]).content[1] is image
    assert succeeded(image).content == (image,)


@pytest.mark.parametrize("result", ["x" * 60_000, [TextBlock("x" * 60_000)], ["x" * 60_000]])
def test_a_huge_result_is_cut_and_its_size_is_said(result: object) -> None:
    text = text_of(succeeded(result))
    assert len(text) < MAX_OUTPUT_CHARACTERS + 100
    assert text.endswith("characters are shown]")
    assert "[cut: 50,000 of 60," in text


def test_a_huge_failure_is_cut_too() -> None:
    assert "[cut: 50,000 of 70,000 characters are shown]" in text_of(failed("x" * 70_000))


@pytest.mark.parametrize("arguments", ['{"a": "x"}', "{}", '{"a": 1, "c": 2}', '{"a": 1', "", "null", "[]", "rm -rf"])
async def test_arguments_that_do_not_fit_are_a_result_that_says_which(arguments: str) -> None:
    outcome = await add.execute(arguments, DEAF)
    assert outcome.state == "error"
    assert text_of(outcome).startswith("The arguments do not fit add: ")
    assert "http" not in text_of(outcome)


async def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert await done(lambda_of("x"), "") == ("success", "x")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_failure_is_a_result_with_the_traceback_for_the_person(kind: str) -> None:
    def sync_broken() -> str:
        """Fail at once."""
        raise KeyError("gone")

    async def async_broken() -> str:
        """Fail at once."""
        raise KeyError("gone")

    outcome = await tool(sync_broken if kind == "sync" else async_broken).execute("{}", DEAF)
    assert (outcome.state, text_of(outcome)) == ("error", "KeyError: 'gone'")
    assert f"in {kind}_broken" in str(outcome.metadata["traceback"])
    assert "Traceback" not in text_of(outcome)


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), StopIteration(), TimeoutError("late"), asyncio.CancelledError(), ExceptionGroup("two", [ValueError("a")])],
)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_whatever_a_tool_raises_is_a_result(kind: str, error: BaseException) -> None:
    def sync_broken() -> str:
        """Fail at once."""
        raise error

    async def async_broken() -> str:
        """Fail at once."""
        raise error

    outcome = await tool(sync_broken if kind == "sync" else async_broken).execute("{}", DEAF)
    assert outcome.state == "error"
    assert text_of(outcome) != ""


async def test_a_result_that_cannot_even_be_printed_is_a_failure_of_the_tool() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    assert await done(lambda_of(Broken())) == ("error", "ValueError: no repr")


async def test_a_sync_tool_runs_in_a_thread_with_the_context_of_the_caller() -> None:
    execution.output_sink.set(print_nothing)

    def where() -> list[bool]:
        """Say where this runs."""
        return [threading.current_thread() is threading.main_thread(), execution.output_sink.get() is print_nothing]

    assert await done(where) == ("success", "[false,true]")


def print_nothing(name: str, value: Any) -> None:
    raise AssertionError(name, value)


async def test_more_sync_tools_than_any_thread_limit_run_side_by_side() -> None:
    gate = threading.Barrier(60)

    def meet() -> int:
        """Wait for all the others."""
        return gate.wait(10)

    outcomes = await asyncio.gather(*(done(meet) for _ in range(60)))
    assert {state for state, _ in outcomes} == {"success"}


async def test_a_wrapper_around_an_async_function_is_awaited() -> None:
    async def real() -> str:
        """Give a thing."""
        await asyncio.sleep(0)
        return "real"

    @functools.wraps(real)
    def wrapped() -> Any:
        return real()

    assert await done(wrapped) == ("success", "real")


def test_an_external_tool_has_a_schema_and_says_what_does_not_fit_it() -> None:
    @tool(external=True)
    def ask_person(question: str) -> str:  # pyright: ignore[reportReturnType] - it has no body
        """Ask a person a question."""

    assert (ask_person.external, add.external) == (True, False)
    assert ask_person.spec.parameters["required"] == ["question"]
    assert ask_person.misfit('{"question": "Why?"}') is None
    wrong = ask_person.misfit("{}")
    assert wrong is not None
    assert (wrong.state, text_of(wrong)) == ("error", "The arguments do not fit ask_person: question: Field required")


# -- stopping -------------------------------------------------------------------------------------------------------


async def test_a_cancelled_async_tool_runs_its_finally_and_the_cancel_goes_on() -> None:
    begun, finished = asyncio.Event(), list[str]()

    async def slow() -> None:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            finished.append("finally")

    task = asyncio.create_task(done(slow))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finished == ["finally"]


async def test_a_cancelled_sync_tool_that_asks_is_told_and_ends() -> None:
    begun, told = threading.Event(), list[bool]()

    def slow() -> None:
        """Wait until told."""
        begun.set()
        while not stop_requested():
            pass
        told.append(True)

    task = asyncio.create_task(done(slow))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert told == [True]
    assert STILL_RUNNING not in caught.value.args


async def test_a_cancelled_sync_tool_that_does_not_ask_is_said_to_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def deaf() -> None:
        """Wait for the gate only."""
        begun.set()
        gate.wait(10)
        ended.set()

    task = asyncio.create_task(done(deaf))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == (STILL_RUNNING,)
    assert not ended.is_set()
    gate.set()
    assert await asyncio.to_thread(ended.wait, 5)


def test_nobody_asks_for_a_stop_outside_a_tool() -> None:
    assert stop_requested() is False


async def test_the_stop_of_one_tool_is_not_the_stop_of_the_next() -> None:
    begun = threading.Event()

    def first() -> None:
        """Wait until told."""
        begun.set()
        while not stop_requested():
            pass

    task = asyncio.create_task(done(first))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    def second() -> bool:
        """Say whether it was asked to stop."""
        return stop_requested()

    assert await done(second) == ("success", "false")


async def test_a_sync_tool_whose_thread_has_not_begun_is_stopped_at_once_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker threads take work over a moment after it was handed to them, and skip what was cancelled meanwhile."""
    handed_over, ran = asyncio.Event(), list[str]()
    thread: list[Callable[[], object]] = []

    async def hand_over(work: Callable[[], object], **options: object) -> None:
        thread.append(work)
        handed_over.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(threads.anyio.to_thread, "run_sync", hand_over)

    def work() -> None:
        """Do the work."""
        ran.append("work")

    task = asyncio.create_task(tool(work).execute("{}", DEAF))
    await handed_over.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await asyncio.wait_for(task, threads.THREAD_GRACE_SECONDS / 2)
    assert STILL_RUNNING not in cancelled.value.args
    with contextlib.suppress(asyncio.CancelledError):
        thread[0]()  # it comes to it now
    assert ran == []


async def test_a_sync_tool_that_ends_while_it_is_cancelled_keeps_its_result() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @tool
    def work() -> str:
        """Work until told to end."""
        begun.set()
        go_on.wait(5)
        return "all of it"

    task = asyncio.create_task(work.execute("{}", DEAF))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    go_on.set()
    outcome = await task
    assert outcome.state == "success"
    assert [block.text for block in outcome.content if isinstance(block, TextBlock)] == ["all of it"]


# -- timeouts -------------------------------------------------------------------------------------------------------


async def timed_out(function: Callable[..., Any], timeout: float = 0.01) -> ToolOutcome:  # noqa: ASYNC109
    outcome = await tool(timeout=timeout)(function).execute("{}", DEAF)
    assert outcome.state == "error"
    return outcome


async def test_an_async_tool_that_exceeds_its_timeout_is_cancelled_and_cleans_up() -> None:
    finished: list[str] = []

    async def slow() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            finished.append("finally")

    outcome = await timed_out(slow)
    assert (text_of(outcome), outcome.metadata) == ("slow exceeded its timeout of 0.01 s.", {})
    assert finished == ["finally"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_tool_in_time_gives_its_result_its_failure_and_its_own_timeout_error() -> None:
    @tool(timeout=60)
    async def work(fails: str = "") -> str:
        """Work, or fail with an error of its own."""
        if fails:
            raise TimeoutError(fails)
        return "worked"

    assert text_of(await work.execute("{}", DEAF)) == "worked"
    outcome = await work.execute('{"fails": "the server was slow"}', DEAF)
    assert (outcome.state, text_of(outcome)) == ("error", "TimeoutError: the server was slow")
    assert "traceback" in outcome.metadata


async def test_a_tool_with_a_timeout_that_raises_a_cancel_of_its_own_stops_nothing_else() -> None:
    @tool(timeout=60)
    async def odd() -> None:
        """Cancel oneself."""
        raise asyncio.CancelledError

    assert text_of(await odd.execute("{}", DEAF)) == "odd was cancelled from inside."


async def test_what_a_tool_gives_or_raises_after_its_timeout_is_told_and_is_no_success() -> None:
    async def stubborn() -> str:
        """Answer the cancel with a result."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
            return "half of it"  # noqa: ASYNC104
        return ""

    async def breaks() -> None:
        """Fail while cleaning up."""
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("dirty")

    assert text_of(await timed_out(stubborn)) == "stubborn exceeded its timeout of 0.01 s. It gave, too late: half of it"
    assert text_of(await timed_out(breaks)) == "breaks exceeded its timeout of 0.01 s. It ended with ValueError: dirty"


async def test_an_async_tool_that_does_not_end_is_left_behind_and_said_to_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "TIMEOUT_GRACE_SECONDS", 0.01)
    gate, ended = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        """Wait for the gate only."""
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:  # noqa: ASYNC103 - some tools are like this
                continue  # noqa: ASYNC104
        ended.set()
        raise ValueError("nobody looks")

    outcome = await timed_out(deaf)
    assert outcome.metadata == {"still_running": True}
    assert text_of(outcome).startswith("deaf exceeded its timeout of 0.01 s. It could not be ended and is still running")
    gate.set()
    await ended.wait()


async def test_a_sync_tool_that_exceeds_its_timeout_is_asked_and_else_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    gate, ended = threading.Event(), threading.Event()

    def deaf() -> None:
        """Wait for the gate only."""
        gate.wait(10)
        ended.set()

    outcome = await timed_out(deaf, 0.2)  # long enough for the thread to begin
    assert outcome.metadata == {"still_running": True}
    gate.set()
    assert await asyncio.to_thread(ended.wait, 5)
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 5)

    def hears() -> None:
        """Wait until told."""
        while not stop_requested():
            pass

    outcome = await timed_out(hears, 0.2)
    assert (text_of(outcome), outcome.metadata) == ("hears exceeded its timeout of 0.2 s.", {})


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_stop_of_a_tool_with_a_timeout_is_the_stop_it_was(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_GRACE_SECONDS", 0.01)
    begun, gate = threading.Event(), threading.Event()

    async def slow() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    def deaf() -> None:
        """Wait for the gate only."""
        begun.set()
        gate.wait(10)

    made = tool(timeout=60)(slow if kind == "async" else deaf)
    task = asyncio.create_task(made.execute("{}", DEAF))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert (STILL_RUNNING in caught.value.args) is (kind == "sync")
    gate.set()


async def test_a_foreign_timeout_around_a_tool_with_a_timeout_is_a_timeout_error() -> None:
    @tool(timeout=60)
    async def slow() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await slow.execute("{}", DEAF)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_timeout_that_cannot_work_is_refused(timeout: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"its timeout is .*; it must be a number of seconds above 0"):
        tool(timeout=timeout)(add.function)
    with pytest.raises(ToolDefinitionError, match="it is external"):
        tool(external=True, timeout=5)(add.function)
