"""Each test here runs on each supported generation of ipykernel, in a kernel of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import environment
from tests.kernel.fakefront import Front

KERNELS = {"ipykernel-7.4": None, "ipykernel-7.0": "k70", "ipykernel-6.31": "k6"}
"""The kernels by their environment in ``.venvs``. ``None``: the one that the tests run in."""


@pytest.fixture(scope="session", params=KERNELS)
def kernel_python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of the kernel under test."""
    name = KERNELS[request.param]
    return Path(sys.executable) if name is None else environment(name, made_by="kernels-env")


@pytest.fixture
def front(kernel_python: Path) -> Iterator[Front]:
    """A front-end with a fresh kernel."""
    with Front(kernel_python) as front:
        yield front
