"""The defaults that a person sets for a kernel: ``%config AgentWidgets``, or ``c.AgentWidgets.model = "local"`` in the usual
config files (``ipython_config.py``, ``ipython_kernel_config.py``).

Module state with a documented life: one object for each shell, made when a default is first asked for, and taken out by
``%unload_ext``. In a script there is no shell, and the defaults are those below.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import traitlets
from traitlets import validate
from traitlets.config import Configurable

from agent_widgets.decisions import OnConfirm
from agent_widgets.models import resolving


class AgentWidgets(Configurable):
    """Defaults for the agents and the cards of this kernel. What is given in a call wins."""

    model = traitlets.Unicode(
        default_value=None,
        allow_none=True,
        help="The model of an Agent() that names none: a name as 'gpt-5-mini', 'demo' or 'local'.",
    ).tag(config=True)
    on_confirm = traitlets.Enum(
        get_args(OnConfirm),
        default_value="ask",
        help="Who decides about a call: 'ask' (a person; denied where nobody is there), 'deny', 'allow', 'raise'.",
    ).tag(config=True)
    deadline = traitlets.Float(
        default_value=None,
        allow_none=True,
        help="Seconds after which a run is stopped. None: no limit.",
    ).tag(config=True)
    answer_within = traitlets.Float(
        default_value=None,
        allow_none=True,
        help="Seconds after which a question is given up. None: never; where nobody is there, 60. inf: never.",
    ).tag(config=True)
    frames_a_second = traitlets.Float(
        default_value=13.0,
        min=1.0,
        max=20.0,
        help="How often a card shows streamed text, from 1 to 20. For cards made from now on.",
    ).tag(config=True)
    early_answers = traitlets.Bool(
        default_value=True,
        help="Whether a page that is reloaded while a cell runs gets all its widgets at once, not when the cell ends.",
    ).tag(config=True)
    remote_images = traitlets.Bool(
        default_value=False,
        help="Whether a page loads images at an address (https) in what a model writes: they can tell a server what was said.",
    ).tag(config=True)

    _one: ClassVar[AgentWidgets | None] = None

    @classmethod
    def get(cls) -> AgentWidgets:
        """The defaults now.

        Raises:
            TraitError: a config file sets something that cannot be.
        """
        shell = ipython_shell()
        if cls._one is None or cls._one.parent is not shell:
            cls._one = cls(parent=shell)
            if shell is not None:
                shell.configurables.append(cls._one)  # where %config looks
        return cls._one

    @classmethod
    def forget(cls) -> None:
        """Take it out of ``%config``; what was set there is lost, and a config file is read again."""
        one, cls._one = cls._one, None
        if one is not None and one.parent is not None:
            one.parent.configurables.remove(one)

    @validate("deadline", "answer_within")
    def _positive(self, proposal: Any) -> float | None:
        seconds: float | None = proposal["value"]
        if seconds is not None and not seconds > 0:
            name: str = proposal["trait"].name
            raise traitlets.TraitError(f"AgentWidgets.{name} is {seconds}; it must be a number of seconds above 0.")
        return seconds


def ipython_shell() -> Any:
    """IPython's shell; ``None`` in a script."""
    from IPython.core.getipython import get_ipython  # noqa: PLC0415 - slow to import, and not needed in a script

    return get_ipython()


resolving.configured_model = lambda: AgentWidgets.get().model
