"""Session files: whole or not at all, the owner's only, and a clear word about one that cannot be read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent_widgets import store
from agent_widgets.errors import SavedStateError
from agent_widgets.store import read_session, write_session

GOOD: dict[str, Any] = {"format": "agent-widgets session", "version": 1, "name": "orders", "state": {"context": []}}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "größe ☕.json"
    state: Any = {"context": [{"text": "höher ☕ \u2028 😀"}], "cur_iter": 3}
    write_session(path, "orders", state)
    assert read_session(path) == ("orders", state)
    assert json.loads(path.read_text(encoding="utf-8")) == {**GOOD, "state": state}


def test_half_a_character_that_a_model_streamed_does_not_make_saving_fail(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_session(path, "orders", {"text": "a \ud83d b"})
    assert read_session(path) == ("orders", {"text": "a \ud83d b"})


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_file_is_the_owners_only_whatever_the_umask_and_whatever_was_there(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "s.json"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(umask)
    try:
        write_session(path, "orders", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_whole_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "s.json"
    write_session(path, "orders", {"n": 1})
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(*((store.os, "fsync") if step == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match="No space left"):
        write_session(path, "orders", {"n": 2})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_json_at_all_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_session(tmp_path / "s.json", "orders", {"x": object()})  # pyright: ignore[reportArgumentType]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_said_to_be_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_session(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged: it is not JSON"),
        (json.dumps(GOOD)[:-5], "is damaged: it is not JSON"),
        ("\x00" * 50, "is damaged: it is not JSON"),
        (b"\xff\xfe\x00", "is damaged: it is not JSON"),
        ("[]", "is not a session of agent-widgets"),
        ("null", "is not a session of agent-widgets"),
        ('{"cells": [], "nbformat": 4}', "is not a session of agent-widgets"),
        (
            json.dumps(GOOD | {"version": 2}),
            r"was written by a newer agent-widgets \(version 2; this one reads up to 1\).*pip install -U agent-widgets",
        ),
        (json.dumps(GOOD | {"name": 5}), "is damaged: its name or state is missing"),
        (json.dumps(GOOD | {"state": []}), "is damaged: its name or state is missing"),
        (json.dumps({key: GOOD[key] for key in ("format", "version")}), "is damaged: its name or state is missing"),
    ],
)
def test_a_file_that_cannot_be_read_says_which_why_and_is_left_alone(tmp_path: Path, content: str | bytes, words: str) -> None:
    path = tmp_path / "s.json"
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(raw)
    with pytest.raises(SavedStateError, match=words) as caught:
        read_session(path)
    assert str(path) in str(caught.value)
    assert "It was left as it is" in str(caught.value)
    assert path.read_bytes() == raw
