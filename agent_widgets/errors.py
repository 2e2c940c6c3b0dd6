"""The exceptions of agent_widgets. Stop, deny and pause are not errors: they are outcomes.

* AgentWidgetsError
    * InputError (also ValueError): an argument, a tool or an input that cannot work
        * ToolDefinitionError: a function that cannot become a tool
    * AgentBusyError: a second run asked for on an agent that is carrying one
    * ConfirmationRequiredError: a call needs a person, and ``on_confirm="raise"`` says that none is asked
    * NotWaitingError: a decision for a call that is not (or no longer) waiting for one
    * ModelError: a model call failed; says what to do next
        * ConversationTooLongError: the request is larger than what the model can read
        * ModelSetupError: the model cannot be reached as configured (no key, no package)
    * SavedStateError: a saved state that cannot be read; the file is left alone
    * MissingPackageError (also ImportError): an optional package that is not installed
* AgentInterruptedError: raised by ``reply`` when the agent was made with ``on_interrupt="raise"``
* AgentStopped: raised in a waiting cell after the kernel's interrupt button, so that Run All stops
"""

from __future__ import annotations


class AgentWidgetsError(Exception):
    """The root of this package's errors."""


class InputError(AgentWidgetsError, ValueError):
    """An argument or an input that cannot work. The message says what was found and what to give instead."""


class ToolDefinitionError(InputError):
    """A function that cannot become a tool."""

    def __init__(self, tool_name: str, problem: str) -> None:
        super().__init__(f"@tool {tool_name}: {problem}")
        self.tool_name = tool_name


class AgentBusyError(AgentWidgetsError):
    """A second run on an agent that is carrying one. Nothing was changed."""

    def __init__(self, agent_name: str, why: str = "") -> None:
        why = why or (
            "is already carrying a run. Await that run first, stop it with agent.interrupt(), "
            "or use chat(): it queues a second prompt by itself"
        )
        super().__init__(f"Agent {agent_name!r} {why}.")
        self.agent_name = agent_name


class NotWaitingError(AgentWidgetsError):
    """A decision or an input that does not fit what the reply is waiting for. Nothing was executed."""


class ConfirmationRequiredError(AgentWidgetsError):
    """A call needs a person's decision, and ``on_confirm="raise"`` says that none is asked. The call was not executed."""

    def __init__(self, call_names: tuple[str, ...]) -> None:
        super().__init__(f"{', '.join(call_names)} needs a confirmation, and on_confirm is 'raise'. Nothing was executed.")
        self.call_names = call_names


class ModelError(AgentWidgetsError):
    """A model call failed. The partial answer is kept, and ``resume()`` tries again.

    ``is_temporary`` says that the same request may succeed later; ``retry_after_s`` is when, if the server said so.
    """

    def __init__(
        self, model_name: str, problem: str, advice: str = "", *, is_temporary: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{model_name}: {problem}" + (f" {advice}" if advice else ""))
        self.model_name, self.problem, self.advice = model_name, problem, advice
        self.is_temporary, self.retry_after_s = is_temporary, retry_after_s


class ConversationTooLongError(ModelError):
    """The model's server refused the request, because it is longer than what the model can read."""


class ModelSetupError(ModelError):
    """The model cannot be used as configured: no key, no such address, a missing file."""


class SavedStateError(AgentWidgetsError):
    """A saved state that cannot be read. The file was not changed."""


class MissingPackageError(AgentWidgetsError, ImportError):
    """An optional package is missing; the message holds the pip command that brings it."""

    def __init__(self, package: str, command: str) -> None:
        super().__init__(f"This needs the package {package!r}. Install it with:  {command}")
        self.package, self.command = package, command


class AgentInterruptedError(Exception):
    """Raised by ``reply`` of an agent made with ``on_interrupt="raise"``. The state is the same as with "reply"."""


class AgentStopped(Exception):  # noqa: N818 - a person stopped it: a participle, not an error
    """Raised in the cell that waits for a run when the kernel is interrupted: the cells after it do not run."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a person who pressed stop wants one line, not a traceback."""
        return [f"AgentStopped: {self}"]


_OF_ANOTHER_LOOP = ("bound to a different event loop", "attached to a different loop", "Event loop is closed")
_LOOP_HINT = (
    "Something that this agent uses (an HTTP client, a connection pool, a lock) was used on another event loop before, such as "
    "the notebook's own. Make it inside the agent or the tool; or let the notebook's loop carry the agent: "
    'chat(…, loop="kernel").'
)


def in_words(error: BaseException) -> str:
    """An exception as it is told: our own by their message, others with their class name before it, and a hint if we have one."""
    text = str(error)
    if not isinstance(error, AgentWidgetsError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{text} [{_LOOP_HINT}]" if _is_about_loops(error) else text


def _is_about_loops(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from, is asyncio's complaint about an object of another loop."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RuntimeError) and any(said in str(error) for said in _OF_ANOTHER_LOOP):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
