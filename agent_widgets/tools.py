"""Tools: a function that a model may call, and its schema. How it is executed is ``execution``'s matter.

pydantic makes the schema from the signature and validates the arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import pydantic

from agent_widgets.backends import ToolSpec
from agent_widgets.errors import InputError, ToolDefinitionError
from agent_widgets.execution import Execution, Outlet
from agent_widgets.loops import threads_can_start
from agent_widgets.outcomes import ToolOutcome, failed
from agent_widgets.schemas import arguments_of, faults, plain_function


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
    isolate: Literal["process"] | None = None
    thread: Literal["main"] | None = None
    sequential: bool = False

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

    async def execute(self, arguments: str, outlet: Outlet) -> ToolOutcome:
        """Run it with ``arguments``, JSON text. A failure is an outcome, not an exception; a cancel is raised.

        ``outlet`` is told the pieces of a result that is streamed; the outcome holds what comes after them.
        """
        values = self._read(arguments)
        if isinstance(values, ToolOutcome):
            return values
        given = {name: getattr(values, name) for name in type(values).model_fields}
        execution = Execution(self.name, self.function, given, outlet, where=self.isolate or self.thread)
        return await (execution.perform() if self.timeout is None else execution.perform_within(self.timeout))


class Options(TypedDict, total=False):
    """What ``@tool`` may be told beside the name; see there."""

    confirm: bool
    external: bool
    timeout: float | None
    isolate: Literal["process"] | None
    thread: Literal["main"] | None
    sequential: bool


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str | None = None, **options: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    confirm: bool = False,
    external: bool = False,
    timeout: float | None = None,
    isolate: Literal["process"] | None = None,
    thread: Literal["main"] | None = None,
    sequential: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool. Its signature is the schema, its docstring tells the model when and how to use it.

    A generator, async or sync, streams: the person sees each piece (text, a ``TextBlock``, a ``DataBlock``) when it is yielded,
    and the model reads them joined. A stop closes it, so its ``finally`` runs, and what it has yielded is kept.

    In a notebook, what it prints, logs, warns and displays is shown on the call's card, never to the model: from the function,
    its tasks and the threads that it starts. Figures that it leaves open are shown at its end; ``input()`` raises. What other
    processes print (``subprocess.run(["ls"])``) goes to a cell: capture it and print it.

    Args:
        function: Async (cancelled on Stop) or sync (run in a thread; see ``stop_requested``).
        name: What the model calls it; the function's name if ``None``.
        confirm: Ask a person before each call.
        external: It is done elsewhere: the function has no body, and its signature is the schema. A call pauses the reply until
            ``run.answer(call_id, result)`` or an ``ExternalExecutionResultEvent`` brings the result.
        timeout: Seconds after which a call is ended with the state "error": an async function is cancelled, a thread is asked
            (``stop_requested``) and else left behind (``still_running``), a process is killed. ``None``: no limit.
        isolate: "process": each call of a sync function runs in a new process, which a stop, a timeout and a deadline kill, with
            all that it has started. What the function refers to is copied, so it changes nothing in the kernel; arguments and
            result are pickled. What it prints is shown, and what it displays as its text. It cannot ask ``stop_requested``.
        thread: "main": each call of a sync function runs on the main thread, for what may be used nowhere else (a GUI, a SQLite
            connection made in a cell). It waits while a cell is busy with something else, and then a stop takes it back; cells
            wait while it runs. A stop cannot end it once it has begun (``still_running``), ■ can: it raises KeyboardInterrupt.
        sequential: Its calls never run beside another call of the same answer: they wait for the calls before them, and those
            after them wait.

    Raises:
        ToolDefinitionError: a parameter without an annotation, ``*args``, a docstring that says nothing, or options that cannot
            work.
    """
    options = Options(confirm=confirm, external=external, timeout=timeout, isolate=isolate, thread=thread, sequential=sequential)
    if function is None:
        return partial(_made, name=name, **options)
    return _made(function, name, **options)


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


def _made(function: Callable[..., Any], name: str | None = None, **options: Unpack[Options]) -> Tool:
    inner = plain_function(function)
    tool_name = name or getattr(function, "__name__", None) or getattr(inner, "__name__", None) or type(function).__name__
    if tool_name == "__call__":
        tool_name = type(function).__name__
    _check(options, inner, tool_name)
    description = inspect.getdoc(inner) or inspect.getdoc(function) or ""
    if len(description.split()) < 2:  # noqa: PLR2004 - one word tells a model nothing
        raise ToolDefinitionError(
            tool_name,
            "its docstring says nothing, so a model cannot know when to use it. "
            "Write one sentence: what it does, and what it gives back.",
        )
    arguments = arguments_of(function, tool_name)
    return Tool(name=tool_name, description=description, function=function, arguments=arguments, **options)


def _check(options: Options, function: Callable[..., Any], tool_name: str) -> None:
    timeout: Any = options.get("timeout")
    isolate: Any = options.get("isolate")
    if timeout is not None:
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not is_number or not 0 < timeout < math.inf:
            raise ToolDefinitionError(tool_name, f"its timeout is {timeout!r}; it must be a number of seconds above 0.")
    if isolate not in (None, "process"):
        raise ToolDefinitionError(tool_name, f"isolate is {isolate!r}; it must be 'process' or None.")
    if isolate and not threads_can_start():
        raise ToolDefinitionError(
            tool_name,
            "isolate='process' needs a system that can start processes, and Pyodide (JupyterLite) cannot. Leave it out.",
        )
    if isolate and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        raise ToolDefinitionError(
            tool_name, "it is async, which a stop cancels where it is; isolate='process' is for a sync function. Write  def."
        )
    _check_thread(options, function, tool_name)
    if options.get("external") and (timeout is not None or isolate or options.get("thread") or options.get("sequential")):
        raise ToolDefinitionError(
            tool_name,
            "it is external: nothing runs here, so timeout, isolate, thread and sequential have no effect. "
            "Give the run a deadline.",
        )


def _check_thread(options: Options, function: Callable[..., Any], tool_name: str) -> None:
    thread: Any = options.get("thread")
    if thread not in (None, "main"):
        raise ToolDefinitionError(tool_name, f"thread is {thread!r}; it must be 'main' or None.")
    if thread and options.get("isolate"):
        raise ToolDefinitionError(tool_name, "it cannot run on the main thread and in a process of its own; leave one out.")
    if thread and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        raise ToolDefinitionError(
            tool_name, "it is async, which runs on the loop of its run; thread='main' is for a sync function. Write  def."
        )
