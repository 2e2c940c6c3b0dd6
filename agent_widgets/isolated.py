"""The process of a tool with ``isolate="process"``: run as a file, never imported by the package.

It reads one job from stdin (pickled: ``path``, for ``sys.path``; ``work``, a function and its arguments, cloudpickled; ``file``
and ``lines``, its source), runs it, and answers on stdout with frames: pickled pairs of a kind and a value.

* ``"stdout"``, ``"stderr"``: bytes that it printed
* ``"piece"``: a cloudpickled value that a generator yielded
* ``"result"``: the cloudpickled result; the last frame
* ``"raised"``: ``(type's name, message, traceback)``; the last frame
* ``"unsendable"``: why the job could not be read, or the result not be sent; the last frame

What other processes and C code print goes to stderr as it is. When its stdin is closed the kernel is gone, and so is this.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import linecache
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any


class _Printed(io.RawIOBase):
    """The bytes under ``sys.stdout`` or ``sys.stderr``: frames. A process that was forked from here writes past them."""

    def __init__(self, kind: str, descriptor: int, answers: _Answers) -> None:
        self._kind, self._descriptor, self._answers, self._pid = kind, descriptor, answers, os.getpid()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:  # noqa: ANN401 - its type, Buffer, is in no module before Python 3.12
        if os.getpid() != self._pid:
            return os.write(self._descriptor, data)
        self._answers.send(self._kind, bytes(data))
        return len(data)


class _Answers:
    """The frames, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._lock = threading.Lock()

    def send(self, kind: str, value: object) -> None:
        with self._lock:
            pickle.dump((kind, value), self._file)
            self._file.flush()


def main() -> None:
    """Read, run, answer."""
    orders, answers = os.dup(0), _Answers(os.dup(1))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what is printed past Python must not get among the frames
    with os.fdopen(orders, "rb", closefd=False) as file:
        job: dict[str, Any] = pickle.load(file)  # noqa: S301 - from the kernel that started us
    threading.Thread(target=_end_with_the_kernel, args=(orders,), daemon=True).start()
    sys.path[:] = job["path"]
    linecache.cache[job["file"]] = (0, None, job["lines"], job["file"])  # a cell is in no file: so a traceback can show it
    for number, kind in ((1, "stdout"), (2, "stderr")):
        printed = io.TextIOWrapper(_Printed(kind, number, answers), "utf-8", "backslashreplace", line_buffering=True)  # pyright: ignore[reportArgumentType]
        setattr(sys, kind, printed)
    _work(job["work"], job["file"], answers)


def _work(work: bytes, file: str, answers: _Answers) -> None:
    cloudpickle: Any = importlib.import_module("cloudpickle")  # the path to it came with the job
    try:
        function, given = pickle.loads(work)  # noqa: S301 - see above
    except Exception as error:  # noqa: BLE001 - classes of users are made here
        answers.send("unsendable", f"it could not be read there ({type(error).__name__}: {error})")
        return
    with contextlib.suppress(AttributeError):
        function.__code__ = function.__code__.replace(co_filename=file)  # cloudpickle has dropped it
    try:
        result = function(**given)
        if inspect.isgenerator(result):
            result = _streamed(result, lambda piece: answers.send("piece", cloudpickle.dumps(piece)))
        _flush()
    except BaseException as error:  # noqa: ASYNC103, BLE001 - told, whatever it is
        _flush()
        told = traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        answers.send("raised", (type(error).__name__, _text_of(error), "".join(told)))
        return  # noqa: ASYNC104
    try:
        answer = cloudpickle.dumps(result)
    except Exception as error:  # noqa: BLE001 - objects of users are taken apart here
        answers.send("unsendable", f"its result, a {type(result).__name__}, could not be sent back ({error})")
        return
    answers.send("result", answer)


def _flush() -> None:
    """What was printed comes before the last frame: nobody reads after it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # they may be the user's own by now
            stream.flush()


def _streamed(pieces: Generator[object, Any, object], tell: Callable[[object], None]) -> object:
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return end.value
        tell(piece)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - some errors cannot even say what they are
        return ""


def _end_with_the_kernel(orders: int) -> None:
    os.read(orders, 1)  # nothing comes any more, until the other end is closed
    if hasattr(os, "killpg"):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
