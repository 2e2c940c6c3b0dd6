"""Tools: a function, its schema, how it is executed, and how its printing finds its card.

pydantic makes the schema from the signature and validates the arguments. An async tool runs on the run's loop and is
cancelled there; a sync one runs in a worker thread, which nobody can kill: it may ask ``stop_requested()``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast, overload

import anyio.to_thread
import pydantic
import pydantic_core
from pydantic import JsonValue

from agent_widgets.backends import ToolSpec
from agent_widgets.errors import InputError, ToolDefinitionError
from agent_widgets.loops import within
from agent_widgets.messages import DataBlock, JsonObject, TextBlock, ToolResultState
from agent_widgets.schemas import arguments_of, faults

MAX_OUTPUT_CHARACTERS = 50_000
"""A longer result is cut, with its size said: it would fill the model's context."""

THREAD_GRACE_SECONDS = 0.2
"""How long a stopped sync tool may take to notice, before its result says that it still runs."""

Sink = Callable[[str, JsonObject], None]
"""Takes what a tool prints (``"stdout"`` or ``"stderr"``, ``{"text": str}``) or displays (``"display"``, ``{"data": {...}}``).
Any thread may call it."""

output_sink: contextvars.ContextVar[Sink | None] = contextvars.ContextVar("agent_widgets_sink", default=None)
"""Where this tool's printing goes. A context variable: worker threads that copy their context inherit it."""


TIMEOUT_GRACE_SECONDS = 2.0
"""How long a tool that has exceeded its timeout may take for its clean-up, before it is left behind."""


class _StopSignal:
    """Whether a tool is to stop, whether it has noticed, and whether its thread was left behind."""

    def __init__(self) -> None:
        self.is_set = self.noticed = self.left_behind = False


_stopping: contextvars.ContextVar[_StopSignal | None] = contextvars.ContextVar("agent_widgets_stopping", default=None)


def stop_requested() -> bool:
    """Whether the run that this tool works for is being stopped. Ask it in the loop of a long sync tool, and return.

    A tool that was told so has an interrupted result, whatever it returns.
    """
    signal = _stopping.get()
    if signal is None or not signal.is_set:
        return False
    signal.noticed = True
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """How an execution ended: the state, what the model reads, and what only the person sees."""

    state: ToolResultState
    content: tuple[TextBlock | DataBlock, ...]
    metadata: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a model may call. Calling it calls the function."""

    name: str
    description: str
    function: Callable[..., Any]
    arguments: type[pydantic.BaseModel]
    confirm: bool = False
    external: bool = False
    timeout: float | None = None

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 - whatever the function gives
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """As a model is told about it."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        for part in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).values():
            part.pop("title", None)
        return ToolSpec(name=self.name, description=self.description, parameters=schema)

    def misfit(self, arguments: str) -> ToolOutcome | None:
        """What the model is told when ``arguments``, JSON text, do not fit; ``None`` when they do."""
        read = self._read(arguments)
        return read if isinstance(read, ToolOutcome) else None

    def _read(self, arguments: str) -> pydantic.BaseModel | ToolOutcome:
        try:
            return self.arguments.model_validate_json(arguments or "{}")
        except pydantic.ValidationError as error:
            return failed(f"The arguments do not fit {self.name}: {faults(error)}")

    async def execute(self, arguments: str) -> ToolOutcome:
        """Run it with ``arguments``, JSON text. A failure is an outcome, not an exception; a cancel is raised."""
        values = self._read(arguments)
        if isinstance(values, ToolOutcome):
            return values
        given = {name: getattr(values, name) for name in type(values).model_fields}
        stopping = _StopSignal()
        _stopping.set(stopping)
        try:
            if self.timeout is None:
                return succeeded(await self._perform(given, stopping))
            return await self._perform_within(self.timeout, given, stopping)
        except asyncio.CancelledError:  # noqa: ASYNC103 - a tool's own, when nobody has cancelled this task
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return failed(f"{self.name} was cancelled from inside.")  # noqa: ASYNC104
        # Whatever a tool raises is a result that the model reads; exit() would end the loop.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return failed(f"{type(error).__name__}: {error}", traceback="".join(traceback.format_exception(error)))

    async def _perform(self, given: dict[str, Any], stopping: _StopSignal) -> object:
        if inspect.iscoroutinefunction(self.function):
            return await cast("Callable[..., Awaitable[object]]", self.function)(**given)
        result = await _in_thread(lambda: self.function(**given), stopping)
        return await result if inspect.isawaitable(result) else result  # a wrapper around an async function

    async def _perform_within(self, seconds: float, given: dict[str, Any], stopping: _StopSignal) -> ToolOutcome:
        task, late = await within(self._perform(given, stopping), seconds=seconds, patience=TIMEOUT_GRACE_SECONDS)
        if not late:
            return succeeded(task.result())
        text = f"{self.name} exceeded its timeout of {seconds:g} s."
        if stopping.left_behind or not task.done():
            return failed(f"{text} {STILL_RUNNING_TEXT}", still_running=True)
        if task.cancelled():
            return failed(text)
        if error := task.exception():
            return failed(f"{text} It ended with {type(error).__name__}: {error}")
        return failed(f"{text} It gave, too late: {_text_of(task.result())}")  # what it did is done: the model is to know


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, confirm: bool = False, external: bool = False, timeout: float | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    confirm: bool = False,
    external: bool = False,
    timeout: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool. Its signature is the schema, its docstring tells the model when and how to use it.

    Args:
        function: Async (cancelled on Stop) or sync (run in a thread; see ``stop_requested``).
        name: What the model calls it; the function's name if ``None``.
        confirm: Ask a person before each call.
        external: It is done elsewhere: the function has no body, and its signature is the schema. A call pauses the reply until
            ``run.answer(call_id, result)`` or an ``ExternalExecutionResultEvent`` brings the result.
        timeout: Seconds after which a call is ended with the state "error": an async function is cancelled, a thread is asked
            (``stop_requested``) and else left behind (``still_running``). ``None``: no limit.

    Raises:
        ToolDefinitionError: a parameter without an annotation, ``*args``, a docstring that says nothing, or a timeout that
            cannot work.
    """
    if function is None:
        return partial(_made, name=name, confirm=confirm, external=external, timeout=timeout)
    return _made(function, name, confirm=confirm, external=external, timeout=timeout)


def by_name(tools: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """The tools of an agent, by name; plain functions become tools.

    Raises:
        InputError: two have one name, or one is not a function.
    """
    found: dict[str, Tool] = {}
    if callable(tools):
        raise InputError(f"tools: {tools!r:.80} is one tool, and a list is needed: tools=[…].")
    for item in tools:
        if not callable(item):  # pyright: ignore[reportUnnecessaryComparison] - untyped callers exist
            raise InputError(f"tools: {item!r} is not a function. Give functions, or functions with @tool.")
        made = item if isinstance(item, Tool) else _made(item)
        if made.name in found:
            raise InputError(f"tools: two tools are called {made.name!r}; a model could not tell them apart. Use @tool(name=…).")
        found[made.name] = made
    return found


def _made(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    confirm: bool = False,
    external: bool = False,
    timeout: float | None = None,
) -> Tool:
    tool_name = name or getattr(function, "__name__", type(function).__name__)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ToolDefinitionError(tool_name, "it yields, and a tool gives one result. Gather the parts and return them.")
    _check_timeout(timeout, tool_name, external=external)
    description = inspect.getdoc(function) or ""
    if len(description.split()) < 2:  # noqa: PLR2004 - one word tells a model nothing
        raise ToolDefinitionError(
            tool_name,
            "its docstring says nothing, so a model cannot know when to use it. "
            "Write one sentence: what it does, and what it gives back.",
        )
    return Tool(
        name=tool_name,
        description=description,
        function=function,
        arguments=arguments_of(function, tool_name),
        confirm=confirm,
        external=external,
        timeout=timeout,
    )


def _check_timeout(timeout: object, tool_name: str, *, external: bool) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
        raise ToolDefinitionError(tool_name, f"its timeout is {timeout!r}; it must be a number of seconds above 0.")
    if external:
        raise ToolDefinitionError(tool_name, "it is external, so a timeout could end nothing. Give the run a deadline.")


async def _in_thread(call: Callable[[], object], stopping: _StopSignal) -> object:
    """Run in a worker thread with this context. When cancelled, give the thread a moment to notice; it cannot be killed.

    A thread that ends in that moment without having noticed has done its work: its result is kept. One that had not begun
    never does.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    result: concurrent.futures.Future[object] = concurrent.futures.Future()

    def work() -> object:
        if not result.set_running_or_notify_cancel():
            return None
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
            raise
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)
        return result.result()

    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except asyncio.CancelledError:  # noqa: ASYNC103 - who stopped this run was cancelled too: it ends, and loses no result
        stopping.is_set = True
        if result.cancel():  # the thread had not come to it
            raise
        try:
            async with asyncio.timeout(THREAD_GRACE_SECONDS):
                await ended.wait()
        except TimeoutError:
            if not result.done():  # it may have ended in the very moment in which the time was over
                stopping.left_behind = True
                raise asyncio.CancelledError(STILL_RUNNING) from None  # noqa: ASYNC104 - the same cancel, with what is known now
        if stopping.noticed:
            raise
        return result.result()  # noqa: ASYNC104


STILL_RUNNING_TEXT = "It could not be ended and is still running: its effects may still happen."

STILL_RUNNING = "the tool's thread is still running"
"""Carried by the ``CancelledError`` of a sync tool that did not notice the stop."""


def succeeded(result: object) -> ToolOutcome:
    """A result as a model reads it: text as it is, blocks as they are, everything else as JSON; cut when it is huge."""
    items: list[object] = list(cast("Sequence[object]", result)) if isinstance(result, list | tuple) else [result]
    blocks = [item for item in items if isinstance(item, TextBlock | DataBlock)]
    if items and len(blocks) == len(items):
        return ToolOutcome(
            state="success", content=tuple(replace(b, text=_cut(b.text)) if isinstance(b, TextBlock) else b for b in blocks)
        )
    return ToolOutcome(state="success", content=(TextBlock(_cut(_text_of(cast("object", result)))),))


def failed(message: str, **metadata: JsonValue) -> ToolOutcome:
    """A failure as a model reads it; ``metadata`` is for the person."""
    return ToolOutcome(state="error", content=(TextBlock(_cut(message)),), metadata=dict(metadata))


def _text_of(result: object) -> str:
    if result is None:
        return "(done, no output)"
    if isinstance(result, str):
        return result
    try:
        return pydantic_core.to_json(result).decode()
    except (pydantic_core.PydanticSerializationError, UnicodeDecodeError, ValueError):
        return str(result)


def _cut(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARACTERS:
        return text
    return f"{text[:MAX_OUTPUT_CHARACTERS]}\n[cut: {MAX_OUTPUT_CHARACTERS:,} of {len(text):,} characters are shown]"
