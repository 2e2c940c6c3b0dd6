"""A sync function in a process of its own, which a stop really kills.

The process is new for each call, in a session of its own, so that ■ does not reach it and all that it starts is killed with it.
Its side is ``isolated.py``. Everything here blocks, in a worker thread. Not ``anyio.to_process``: that drops what is printed,
leaves a task on the loop and grandchildren in the system, hears ■, and runs a script's ``__main__`` again.

What holds: the process and its process group are killed with SIGKILL and reaped, on stop, on timeout and when the kernel dies. A
grandchild that has made a session of its own survives. On Windows only the process itself is killed.
"""

from __future__ import annotations

import codecs
import contextlib
import linecache
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

from agent_widgets.outcomes import Pieces, ToolOutcome, failed, sendable
from agent_widgets.threads import StopSignal

EXIT_SECONDS = 1.0
"""How long a process may take to end after its result."""

KILL_SECONDS = 2.0
"""How long a killed one may take to be gone, before its result says that it still runs."""

_dumps = cast("Callable[[object], bytes]", cloudpickle.dumps)  # pyright: ignore[reportUnknownMemberType]

Print = Callable[[str, str], None]
"""Takes ``"stdout"`` or ``"stderr"``, and text."""


def in_process(
    name: str, function: Callable[..., Any], given: dict[str, Any], *, pieces: Pieces, printed: Print, stop: StopSignal
) -> ToolOutcome:
    """Run ``function`` in a process, and give how it ended. ``stop`` kills it, and counts as noticed then.

    Args:
        name: What messages call it.
        function: Sync. It may be defined in a cell. What it refers to is copied.
        given: Its arguments, by name.
        pieces: Takes what it yields, if it is a generator function.
        printed: Takes what it and its children print, from two threads.
        stop: Kills it.
    """
    try:
        work = _dumps((function, given))
    except Exception as error:  # noqa: BLE001 - objects of users are taken apart here
        return _unsendable(name, f"it, or what it refers to, could not be sent ({error})")
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    job = pickle.dumps({"path": sys.path, "work": work, "file": file, "lines": linecache.getlines(file)})
    process = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-P", "-X", "faulthandler", str(Path(__file__).with_name("isolated.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    stop.kills(partial(_kill, process))
    raw = threading.Thread(target=_forward, args=(process.stderr, printed), name=f"agent-widgets {name}", daemon=True)
    raw.start()
    try:
        outcome = _converse(name, process, job, pieces, printed)
    finally:
        pieces.close()
        stop.kills(None)
        _end(process, raw)
    if outcome is None and stop.is_set:
        stop.noticed = True
    return outcome or failed(f"{name}: its process {_cause(process.returncode)} before it gave a result.")


def _converse(name: str, process: subprocess.Popen[bytes], job: bytes, pieces: Pieces, printed: Print) -> ToolOutcome | None:
    """Hand over the job and hear the frames. ``None``: the process died."""
    orders, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
        orders.write(job)
        orders.flush()
        while True:
            match pickle.load(answers):  # noqa: S301 - from the process that runs the user's own function
                case ("stdout" | "stderr" as kind, data):
                    printed(kind, data.decode(errors="backslashreplace"))
                case ("piece", data):
                    pieces.add(pickle.loads(data))  # noqa: S301 - likewise
                case ("result", data):
                    return _received(name, data, pieces)
                case ("raised", (error, message, told)):
                    return failed(f"{error}: {message}" if message else error, traceback=sendable(told))
                case frame:
                    return _unsendable(name, frame[1])
    return None


def _received(name: str, data: bytes, pieces: Pieces) -> ToolOutcome:
    try:
        result = pickle.loads(data)  # noqa: S301 - see above
    except Exception as error:  # noqa: BLE001 - classes of users are made here
        return _unsendable(name, f"its result could not be read here ({error})")
    return pieces.outcome(result)


def _end(process: subprocess.Popen[bytes], raw: threading.Thread) -> None:
    """Leave nothing behind: no process of the group, no zombie, no pipe."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(EXIT_SECONDS)
    _kill(process)
    process.wait()
    raw.join(EXIT_SECONDS)  # longer, if a grandchild in a session of its own holds the pipe
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            cast("IO[bytes]", pipe).close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _forward(pipe: IO[bytes], printed: Print) -> None:
    """What comes past Python: printed by other processes, by C code, and by the end of a crash."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    with pipe:
        while data := os.read(pipe.fileno(), 65536):
            printed("stderr", decoder.decode(data))


def _unsendable(name: str, why: str) -> ToolOutcome:
    return failed(
        f"{name} runs in a process of its own, and {why}. "
        "Hand over plain values, and open files, connections and locks inside the function."
    )


def _cause(code: int) -> str:
    if code >= 0:
        return f"ended itself with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"
