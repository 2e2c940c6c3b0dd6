"""Adapters: one file per framework, each a ``Backend`` around somebody else's agent. They import their vendor lazily."""

from __future__ import annotations

from agent_widgets.backends import Backend
from agent_widgets.errors import InputError


def as_backend(agent: object) -> Backend:
    """What a run can drive for this agent: the agent itself if it is a ``Backend``.

    Raises:
        InputError: nothing here knows how to drive it.
    """
    if isinstance(agent, Backend):
        return agent
    raise InputError(
        f"{type(agent).__module__}.{type(agent).__qualname__} is not an agent that agent-widgets can drive. "
        "Give an agent_widgets.Agent, or an object with the methods of agent_widgets.backends.Backend."
    )
