"""One Chromium for all browser tests, one JupyterLab and one Notebook 7; each test opens a notebook of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.jlab import Lab, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser, for tests that start a server of their own."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def lab(browser: Browser) -> Iterator[Lab]:
    """JupyterLab, whose kernel is the interpreter that runs the tests."""
    with Lab(browser) as lab:
        yield lab


@pytest.fixture(scope="session")
def notebook_app(browser: Browser) -> Iterator[Lab]:
    """Notebook 7, likewise."""
    with Lab(browser, "notebook") as app:
        yield app


@pytest.fixture(params=["lab", "notebook_app"])
def app(request: pytest.FixtureRequest) -> Lab:
    """JupyterLab, then Notebook 7."""
    return request.getfixturevalue(request.param)
