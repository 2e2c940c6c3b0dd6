"""Sessions on disk: one JSON file each, written whole or not at all, readable by its owner only.

The file is ``{"format": "agent-widgets session", "version": 1, "name": str, "state": {...}}``.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import cast

from agent_widgets.errors import SavedStateError
from agent_widgets.messages import JsonObject

FORMAT = "agent-widgets session"
FORMAT_VERSION = 1


def write_session(path: Path, name: str, state: JsonObject) -> None:
    """Write a session file; an existing one is replaced in one step, mode 0600."""
    text = json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "name": name, "state": state}, ensure_ascii=False)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        # A lone surrogate, which some models stream, becomes its JSON escape.
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_session(path: Path) -> tuple[str, JsonObject]:
    """The name and the state in a session file.

    Raises:
        FileNotFoundError: there is no such file.
        SavedStateError: it is damaged, of another kind, or of a newer version. The file is left alone.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SavedStateError(
            f"{path} is damaged: it is not JSON ({error}). It was left as it is; load another copy, or start a new session."
        ) from error
    if not isinstance(value, dict) or cast("JsonObject", value).get("format") != FORMAT:
        raise SavedStateError(f"{path} is not a session of agent-widgets. It was left as it is.")
    saved = cast("JsonObject", value)
    version, name, state = saved.get("version"), saved.get("name"), saved.get("state")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise SavedStateError(
            f"{path} was written by a newer agent-widgets (version {version}; this one reads up to {FORMAT_VERSION}). "
            "It was left as it is. Upgrade with:  pip install -U agent-widgets"
        )
    if not isinstance(name, str) or not isinstance(state, dict):
        raise SavedStateError(f"{path} is damaged: its name or state is missing. It was left as it is.")
    return name, state
