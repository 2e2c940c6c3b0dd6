"""Builds the JavaScript before a wheel, an sdist or an editable install, when there is something to build.

In a source checkout the static files are made from ``js/`` when they are missing or older than their sources. An sdist has
no ``js/`` and carries the static files, so that installing it needs no Node.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC_FILES = ("card.js", "loader.js")


class JavaScriptBuildHook(BuildHookInterface[Any]):
    """Hatchling's build hook: called once for each target, before its files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        """Build the static files, or leave them alone when they are newer than every source."""
        build_static_files(Path(self.root))


def build_static_files(root: Path) -> None:
    """Run ``npm ci && npm run build`` in ``js/``, unless the static files are up to date.

    Raises:
        RuntimeError: the static files are missing and cannot be made: there is no ``js/``, or no npm.
    """
    static_files = [root / "agent_widgets" / "static" / name for name in STATIC_FILES]
    missing = [path.name for path in static_files if not path.is_file()]
    sources = _sources(root / "js")
    if not missing and not _older(static_files, sources):
        return
    npm = shutil.which("npm")
    if not sources or npm is None:
        if not missing:  # out of date, and whoever installs here has no Node: what is there works
            return
        lack = "npm was not found: install Node 20 or newer" if sources else "there is no js/ folder to build them from"
        raise RuntimeError(f"agent_widgets/static lacks {' and '.join(missing)}, and {lack}. A released wheel needs neither.")
    for command in ("ci", "run build"):
        subprocess.run([npm, *command.split()], cwd=root / "js", check=True)  # noqa: S603 (a fixed command)


def _sources(js: Path) -> list[Path]:
    """What the static files are made of: the sources, and the settings beside them."""
    return [path for path in (*js.glob("*.*"), *js.glob("src/**/*")) if path.is_file()]


def _older(made: list[Path], sources: list[Path]) -> bool:
    newest_source = max((path.stat().st_mtime for path in sources), default=0.0)
    return min(path.stat().st_mtime for path in made) < newest_source
