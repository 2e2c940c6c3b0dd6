"""What every test gets: no key of the person who runs it, and the interpreters that ``make`` has prepared."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test must neither spend money nor behave differently where a key is set."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def agentscope_python() -> Path:
    """An interpreter with AgentScope 2.0.11, whose events ours must decode as and be decoded by."""
    return environment("agentscope", made_by="agentscope-env")


def environment(name: str, *, made_by: str) -> Path:
    """The interpreter of ``.venvs/<name>``. One that is missing is an error, because a skipped test is a test not made."""
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not python.exists():
        pytest.fail(f".venvs/{name} is missing: run make {made_by}", pytrace=False)
    return python
