"""Models: what an ``Agent`` asks. One file for each vendor; a vendor's package is imported at the first call."""

from __future__ import annotations

from agent_widgets.models.resolving import DEFAULT_MODEL, resolve

__all__ = ["DEFAULT_MODEL", "resolve"]
