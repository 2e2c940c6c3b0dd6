"""Tools: a function that a model may call, and its schema. How it is executed is ``execution``'s matter.

pydantic makes the schema from the signature and validates the arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, overload

import pydantic

from agent_widgets.backends import ToolSpec
from agent_widgets.errors import InputError, ToolDefinitionError
from agent_widgets.execution import Execution
from agent_widgets.outcomes import ToolOutcome, failed
from agent_widgets.schemas import arguments_of, faults


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
        return await Execution(self.name, self.function, given).perform(self.timeout)


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
