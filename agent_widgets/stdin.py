"""``input()`` and ``getpass()`` in a tool raise at once, and say how a tool asks; in cells they ask as ever.

Unanswered, they would block a thread that nobody can stop, and the question would appear in whichever cell runs just then.
"""

from __future__ import annotations

import builtins
import getpass
from collections.abc import Callable
from typing import Any

from agent_widgets.errors import InputError
from agent_widgets.execution import output_sink

_SENTENCE = (
    "A tool cannot ask by {name}(): nobody could stop it while it waits. To have a person allow the call use "
    "@tool(confirm=True); to ask for something use @tool(external=True), which waits for run.answer(call_id, …)."
)
_PLACES = (("input", builtins, "_sys_raw_input"), ("getpass", getpass, "_save_getpass"))
"""Python's own functions, and where ipykernel keeps them while a cell runs."""


class Stdin:
    """The guards of one kernel; of the process where there is no kernel."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._guards: dict[str, _Guard] = {}

    def install(self) -> None:
        """Guard what a cell calls, and what is there between cells."""
        if not self._guards:
            for name, home, kept in _PLACES:
                place, attribute = self._place(name, home, kept)
                guard = self._guards[name] = _Guard(name, getattr(place, attribute))
                setattr(place, attribute, guard)
            if hasattr(self._kernel, "_input_request"):  # under both, also in the cell that runs now
                guard = self._guards["input or getpass"] = _Guard("input", self._kernel._input_request)  # noqa: SLF001
                self._kernel._input_request = guard  # noqa: SLF001

    def uninstall(self) -> None:
        """Put back what was there, unless somebody has put something on top."""
        for name, home, kept in _PLACES:
            place, attribute = self._place(name, home, kept)
            guard = self._guards.pop(name, None)
            if guard is not None and getattr(place, attribute) is guard:
                setattr(place, attribute, guard.below)
        guard = self._guards.pop("input or getpass", None)
        if guard is not None and getattr(self._kernel, "_input_request", None) is guard:
            del self._kernel._input_request  # noqa: SLF001

    def _place(self, name: str, home: Any, kept: str) -> tuple[Any, str]:
        """Where Python's own function is just now: in its module, or kept by ipykernel until the cell ends."""
        is_forwarded = getattr(getattr(home, name), "__self__", None) is self._kernel is not None
        return (self._kernel, kept) if is_forwarded and hasattr(self._kernel, kept) else (home, name)


class _Guard:
    """A function that must not be called in a tool."""

    def __init__(self, name: str, below: Callable[..., Any]) -> None:
        self._name = name
        self.below = below

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if output_sink.get() is not None:
            raise InputError(_SENTENCE.format(name="getpass" if kwargs.get("password") else self._name))
        return self.below(*args, **kwargs)
