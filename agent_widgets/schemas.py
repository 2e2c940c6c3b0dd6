"""A function's signature as a schema: what a model is told about the arguments, and what validates those that it sends."""

from __future__ import annotations

import functools
import inspect
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import pydantic

from agent_widgets.errors import ToolDefinitionError


def arguments_of(function: Callable[..., Any], tool_name: str) -> type[pydantic.BaseModel]:
    """A pydantic model of the parameters: its schema goes to the model, and it validates what comes back.

    Raises:
        ToolDefinitionError: a parameter without an annotation, ``*args``, or a type that JSON cannot hold.
    """
    try:
        hints = typing.get_type_hints(plain_function(function), include_extras=True)
        parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in _bound(function)]
    except (NameError, TypeError, ValueError) as error:
        raise ToolDefinitionError(tool_name, f"its signature cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    for parameter in parameters:
        _check_parameter(parameter, hints, tool_name)
        fields[parameter.name] = (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
    try:
        with warnings.catch_warnings():
            # A parameter may be called json, schema or copy.
            warnings.filterwarnings("ignore", "Field name .* shadows", UserWarning)
            made = pydantic.create_model(tool_name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)
        made.model_json_schema()
    except (NameError, TypeError, ValueError, pydantic.errors.PydanticUserError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise ToolDefinitionError(tool_name, f"its annotations cannot be sent to a model as JSON: {reason}") from error
    return made


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a ``functools.partial`` or an object with ``__call__``: it has the annotations and the docstring."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _bound(function: Callable[..., Any]) -> Mapping[str, object]:
    """What a ``functools.partial`` gives by name: not for the model to change."""
    return cast("functools.partial[Any]", function).keywords if isinstance(function, functools.partial) else {}


def faults(error: pydantic.ValidationError) -> str:
    """What does not fit, and where, as one line for a model."""
    return "; ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
        for fault in error.errors(include_url=False)
    )


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, object], tool_name: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ToolDefinitionError(
            tool_name, f"a model gives arguments by name, so {parameter} cannot be filled. Name each parameter."
        )
    if parameter.name not in hints:
        raise ToolDefinitionError(
            tool_name,
            f"the parameter {parameter.name!r} has no annotation. "
            f"Write for example  {parameter.name}: str  to tell a model what to send.",
        )
