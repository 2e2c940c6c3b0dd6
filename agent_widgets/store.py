"""Sessions on disk: a file that is written whole or not at all, and a folder that takes every change as it happens.

A file is ``{"format": "agent-widgets session", "version": 1, "name": str, "state": {...}}``. A folder, a ``Store``, holds

* ``state.json``: such a file with one field more, ``"log": N``;
* ``log-N.jsonl``: a first line ``{"whole": true, "format": "agent-widgets log", "version": 1}``, then one line for each change
  since that state;
* ``lock``: empty; locked by the process that has the store open, and free when that process has ended, however it ended.

All are the owner's only. ``renew`` begins the log N + 1 with a new state, so a log grows to the size of its state and not
beyond, and is read once. Nothing here knows what a line says.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import cast

from agent_widgets.errors import SavedStateError
from agent_widgets.messages import JsonObject

FORMAT = "agent-widgets session"
LOG_FORMAT = "agent-widgets log"
FORMAT_VERSION = 1
_HEADER = json.dumps({"whole": True, "format": LOG_FORMAT, "version": FORMAT_VERSION}).encode() + b"\n"
_STATE, _LOCK, _LOG = "state.json", "lock", "log-{}.jsonl"


def write_session(path: Path, name: str, state: JsonObject, log: int | None = None) -> int:
    """Write a session file; an existing one is replaced in one step, mode 0600. Gives its size."""
    value: JsonObject = {"format": FORMAT, "version": FORMAT_VERSION, "name": name, "state": state}
    text = json.dumps(value if log is None else {**value, "log": log}, ensure_ascii=False)
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
    return len(text)


def read_session(path: Path) -> tuple[str, JsonObject]:
    """The name and the state in a session file.

    Raises:
        FileNotFoundError: there is no such file.
        SavedStateError: it is damaged, of another kind, or of a newer version. The file is left alone.
    """
    name, state, _ = _read(path)
    return name, state


def _read(path: Path) -> tuple[str, JsonObject, int | None]:
    if path.is_dir():
        raise SavedStateError(f"{path} is a folder. If it keeps a session: Session.open(path, agent).")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SavedStateError(
            f"{path} is damaged: it is not JSON ({error}). It was left as it is; load another copy, or start a new session."
        ) from error
    if not isinstance(value, dict) or cast("JsonObject", value).get("format") != FORMAT:
        raise SavedStateError(f"{path} is not a session of agent-widgets. It was left as it is.")
    saved = cast("JsonObject", value)
    _check_version(path, saved)
    name, state, log = saved.get("name"), saved.get("state"), saved.get("log")
    if not isinstance(name, str) or not isinstance(state, dict):
        raise SavedStateError(f"{path} is damaged: its name or state is missing. It was left as it is.")
    return name, state, log if isinstance(log, int) else None


def _check_version(path: Path, saved: JsonObject) -> None:
    version = saved.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise SavedStateError(
            f"{path} was written by a newer agent-widgets (version {version}; this one reads up to {FORMAT_VERSION}). "
            "It was left as it is. Upgrade with:  pip install -U agent-widgets"
        )


class Store:
    """A session's folder, open in this process. Not thread-safe: its owner locks.

    What was appended survives the death of the process at any moment. The state, and lines written with ``sync``, also survive
    that of the machine.
    """

    def __init__(self, path: Path) -> None:
        """Open the folder, or make it; ``renew`` must come before ``append``.

        Raises:
            SavedStateError: it is open in another process, or it is no store; nothing was changed.
            OSError: it cannot be made or written.
        """
        self.path = path
        self.log_size = self.state_size = 0
        self._number = 0
        self._log = -1
        if path.is_dir():
            if any(path.iterdir()) and not (path / _STATE).exists() and not (path / _LOCK).exists():
                raise SavedStateError(f"{path} is a folder with other files in it. It was left as it is; choose another name.")
        elif path.exists():
            raise SavedStateError(f"{path} is a file. It was left as it is. If it is a saved session: Session.load(path, agent).")
        else:
            path.mkdir(mode=0o700)
        self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock)
        except (BlockingIOError, PermissionError) as error:
            self.close()
            raise SavedStateError(
                f"{path} is open in another kernel. Close the session there (session.close(), or end that kernel): "
                "two kernels would write over each other."
            ) from error

    def read(self) -> tuple[str, JsonObject, list[bytes], bool] | None:
        """The name, the state, the whole lines that came after it, and whether these are all; ``None`` for a new store.

        A last line without its end is what a crash leaves: it was never acted on, and is left out. The flag is ``False`` when a
        failing disk has kept changes out of the log.

        Raises:
            SavedStateError: a file is damaged, or of a newer version. All files are left alone.
        """
        if not (self.path / _STATE).exists():
            return None
        name, state, number = _read(self.path / _STATE)
        if number is None:
            raise SavedStateError(f"{self.path / _STATE} is damaged: it names no log. It was left as it is.")
        log = self.path / _LOG.format(number)
        if not log.exists():
            raise SavedStateError(f"{log} is missing: what happened last is in it. The rest was left as it is.")
        self._number = number
        header, *lines = log.read_bytes().split(b"\n")
        if not lines:  # not even the header was finished
            return name, state, [], True
        return name, state, lines[:-1], _checked_header(log, header)

    def append(self, data: bytes, *, sync: bool = False) -> None:
        """Add whole lines to the log.

        Raises:
            OSError: the disk refuses. The log ends with its last whole line, as far as the disk allows.
        """
        try:
            if not os.fstat(self._log).st_nlink:
                raise FileNotFoundError(f"{self.path} has been removed")
            _write(self._log, data)
            if sync:
                os.fsync(self._log)
        except OSError:
            with suppress(OSError):  # shortening and overwriting need no room
                os.ftruncate(self._log, self.log_size)
            with suppress(OSError):
                os.lseek(self._log, _HEADER.index(b"true"), os.SEEK_SET)
                os.write(self._log, b"null")
                os.lseek(self._log, 0, os.SEEK_END)
            raise
        self.log_size += len(data)

    def renew(self, name: str, state: JsonObject, data: bytes = b"") -> None:
        """Write the whole state, begin a new log with these lines, and drop the old one.

        Raises:
            OSError: the disk refuses. What was there counts as before.
        """
        number = self._number + 1
        path = self.path / _LOG.format(number)
        log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        try:
            os.fchmod(log, 0o600) if sys.platform != "win32" else None  # a left-over may have had another mode
            first = _HEADER + data
            _write(log, first)
            os.fsync(log)
            self.state_size = write_session(self.path / _STATE, name, state, log=number)
        except OSError:
            os.close(log)
            with suppress(OSError):
                path.unlink()
            raise
        self._close_log()
        self._log, self._number, self.log_size = log, number, len(first)
        self._tidy(path)

    def close(self) -> None:
        """Let it go: another process may open it."""
        self._close_log()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_log(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _tidy(self, current: Path) -> None:
        """Remove older logs, and what a crash left half-written."""
        with suppress(OSError):
            self.path.chmod(0o700)  # the folder may have been made by a person, or come out of an archive
        for path in [*self.path.glob(_LOG.format("*")), *self.path.glob(f".{_STATE}.*")]:
            if path != current:
                with suppress(OSError):
                    path.unlink()


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _checked_header(log: Path, line: bytes) -> bool:
    """Whether nothing is missing in this log.

    Raises:
        SavedStateError: it is not a log, or of a newer version.
    """
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or cast("JsonObject", header).get("format") != LOG_FORMAT:
        raise SavedStateError(f"{log} is damaged in line 1: it is not a log of agent-widgets. It was left as it is.")
    saved = cast("JsonObject", header)
    _check_version(log, saved)
    return saved.get("whole") is True


def _lock(descriptor: int) -> None:
    """Take the lock of this process, or raise ``OSError``. The system frees it when the process ends, also by ``kill -9``.

    On Linux and macOS a record lock: a child that was forked does not inherit it, so a worker that outlives its kernel does not
    keep the store locked. On Windows ``msvcrt.locking``, which refuses other processes likewise.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - on Windows only

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        try:
            from fcntl import LOCK_EX, LOCK_NB, lockf  # noqa: PLC0415 - not on Windows
        except ImportError:
            return  # JupyterLite has an empty one: there is one process, and nobody to lock out
        lockf(descriptor, LOCK_EX | LOCK_NB)
