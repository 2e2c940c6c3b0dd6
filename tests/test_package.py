"""What is shipped: a wheel and an sdist that carry the built JavaScript, so that installing either needs no Node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hatch_build import STATIC_FILES, build_static_files

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = {"agent_widgets/py.typed", *(f"agent_widgets/static/{name}" for name in STATIC_FILES)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_carries_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= SHIPPED
    assert all(re.match(r"agent_widgets(-[\d.]+\.dist-info)?/", name) for name in names)
    assert not [name for name in names if name.endswith((".ts", ".map")) or "node_modules" in name or "tests" in name]


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel_without_node(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("agent_widgets-*")
    rebuilt = build("wheel", unpacked, tmp_path / "wheel", path=nowhere(tmp_path))
    assert contents(rebuilt) == contents(wheel)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel], check=True)
    program = "import agent_widgets; agent_widgets.Agent('demo'); print(agent_widgets.__file__)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


def test_the_static_files_are_built_when_they_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = checkout(tmp_path, monkeypatch)
    build_static_files(tmp_path)
    assert log.read_text().splitlines() == ["ci", "run build"]


def test_the_static_files_are_built_again_when_a_source_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = checkout(tmp_path, monkeypatch)
    made_at(tmp_path, 2_000_000_000)
    build_static_files(tmp_path)
    assert not log.exists()
    made_at(tmp_path, 1_000_000_000)
    build_static_files(tmp_path)
    assert log.exists()


def test_without_npm_old_static_files_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path, monkeypatch)
    made_at(tmp_path, 1_000_000_000)
    monkeypatch.setenv("PATH", nowhere(tmp_path))
    build_static_files(tmp_path)


def test_without_npm_missing_static_files_are_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", nowhere(tmp_path))
    with pytest.raises(RuntimeError, match="npm was not found: install Node 20"):
        build_static_files(tmp_path)


def test_without_static_files_and_sources_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no js/ folder"):
        build_static_files(tmp_path)


def build(target: str, root: Path, directory: Path, *, path: str | None = None) -> Path:
    env = {**os.environ, "PATH": path or os.environ["PATH"]}
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = directory.iterdir()
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one source and an npm that only writes down what it was asked. Returns where."""
    source = root / "js" / "src" / "card.ts"
    source.parent.mkdir(parents=True)
    source.write_text("export default {};\n")
    os.utime(source, (1_500_000_000, 1_500_000_000))
    log = root / "npm.log"
    npm = root / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent))
    return log


def made_at(root: Path, time: int) -> None:
    """Static files as if built at a time, in seconds since 1970. The source is from 1,500,000,000."""
    static = root / "agent_widgets" / "static"
    static.mkdir(parents=True, exist_ok=True)
    for name in STATIC_FILES:
        (static / name).touch()
        os.utime(static / name, (time, time))


def nowhere(root: Path) -> str:
    """A PATH on which nothing is found."""
    empty = root / "empty"
    empty.mkdir(exist_ok=True)
    return str(empty)
