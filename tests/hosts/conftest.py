"""One Chromium for all hosts; each test starts the host that it is about. What was measured is printed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.jlab import chromium

HERE = Path(__file__).parent
FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A host may take half a minute until its first page stands."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; each host gets a context of its own in it."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes one line of figures for the table at the end."""
    figures = request.config.stash.setdefault(FIGURES, [])
    return lambda line: figures.append(f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print them."""
    if FIGURES in config.stash:
        terminalreporter.section("measured in the page")
        for line in config.stash[FIGURES]:
            terminalreporter.line(line)
