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


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--kernel 7.2.0=path/to/python``: run on this kernel instead (``make test-kernels``)."""
    parser.addoption("--kernel", action="append", default=[], metavar="NAME=PYTHON", help="instead of the usual kernels")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel_python" in metafunc.fixturenames:
        chosen: list[str] = metafunc.config.getoption("--kernel") or []
        given = dict(kernel.split("=", 1) for kernel in chosen)
        kernels = [Path(python).absolute() for python in given.values()] or list(KERNELS.values())
        metafunc.parametrize("kernel_python", kernels, ids=list(given or KERNELS), indirect=True, scope="session")


@pytest.fixture(scope="session")
def kernel_python(request: pytest.FixtureRequest) -> Path:
    """The interpreter of the kernel under test."""
    match request.param:
        case Path() as python:
            return python
        case None:
            return Path(sys.executable)
        case name:
            return environment(name, made_by="kernels-env")


@pytest.fixture
def front(kernel_python: Path) -> Iterator[Front]:
    """A front-end with a fresh kernel."""
    with Front(kernel_python) as front:
        yield front
