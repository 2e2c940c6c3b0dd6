"""From what a user gives for ``model`` to a model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import cast

from agent_widgets.backends import Model
from agent_widgets.errors import InputError

DEFAULT_MODEL = "gpt-5-mini"
_NO_KEY = "demo model: no OPENAI_API_KEY was found, so nothing here thinks"
_WHAT_TO_GIVE = 'a name as "gpt-5-mini", "demo" (no key, no network), "local" (a small real model, no key), or a Model'


def _no_model() -> str | None:
    return None


configured_model: Callable[[], str | None] = _no_model
"""Names the model that is meant by ``None``, if a person has set one: ``settings.py`` puts itself here."""


def resolve(model: str | Model | None = None, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """The model that is meant.

    Nothing is imported from a vendor, opened or sent here: a missing key or package is said at the first call.

    Args:
        model: A ``Model`` is returned as it is. ``None`` is the configured one; else OpenAI's ``gpt-5-mini`` if there is a key;
            else the demo model, whose ``note`` says so. ``"demo"`` and ``"local"`` need no key; any other text is the name of a
            model behind Chat Completions.
        base_url: The address of such a server, if it is not OpenAI's; needs a name.
        api_key: Its key; ``None`` takes ``OPENAI_API_KEY``.

    Returns:
        A model. Those of this package have a ``note``: a sentence for the card, or ``""``.

    Raises:
        InputError: something else was given; the message says what to give.
    """
    if model is None and base_url is None:
        if configured := configured_model():
            return resolve(configured, api_key=api_key)
        if api_key or os.environ.get("OPENAI_API_KEY", "").strip():
            return resolve(DEFAULT_MODEL, api_key=api_key)
        from agent_widgets.models.demo import DemoModel

        return DemoModel(note=_NO_KEY)
    name = model.strip() if isinstance(model, str) else ""
    if base_url is not None and (not name or name in ("demo", "local")):
        raise InputError(f"base_url needs the name of a model that its server has; got model={model!r:.60}.")
    if name:
        return _named(name, base_url, api_key)
    if _is_model(model):
        if api_key is not None:
            raise InputError("api_key belongs to a model that is given by its name; this one was made with its own.")
        return cast("Model", model)
    raise InputError(f"model: got {_described(model)}; give {_WHAT_TO_GIVE}.")


def _named(name: str, base_url: str | None, api_key: str | None) -> Model:
    if name == "demo":
        from agent_widgets.models.demo import DemoModel

        return DemoModel()
    if name == "local":
        from agent_widgets.models.local import LocalModel

        return LocalModel()
    from agent_widgets.models.openai_chat import OpenAIChat

    return OpenAIChat(name, base_url=base_url, api_key=api_key)


def _is_model(value: object) -> bool:
    if inspect.isclass(value):
        return False
    return isinstance(getattr(value, "name", None), str) and callable(getattr(value, "stream", None))


def _described(value: object) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__} instead of an object of it"
    if type(value).__module__.partition(".")[0] == "openai":
        return f"an {type(value).__name__} client, which belongs into OpenAIChat(name, client=...)"
    return f"{type(value).__name__} {value!r:.60}"
