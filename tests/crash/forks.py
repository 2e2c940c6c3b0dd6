"""``python -m tests.crash.forks``: forks a child for each line that it reads, kills it, and says when it is dead.

It has imported everything, so that a child costs milliseconds, and it has one thread, so that it may fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.crash.story import Case, live

LONGEST = 8.0
"""Seconds after which also a child that was to die in a write is killed."""


def kill(folder: Path, case: Case) -> str:
    """One child, from birth to death. Gives where it died."""
    child = os.fork()
    if child == 0:
        try:
            live(folder, case)
        except BaseException:  # noqa: ASYNC103, BLE001 - a forked child must not go on as its parent
            (folder / "failed.txt").write_text(traceback.format_exc())
        finally:
            os._exit(1)
    end = time.monotonic() + (LONGEST if case.seconds is None else case.seconds)
    acks = folder / "acks.jsonl"
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return "in a write"
        if case.seconds is None and acks.exists() and b'"finished"' in acks.read_bytes()[-60:]:
            break
        time.sleep(min(0.01, max(0.0, end - time.monotonic())))
    os.kill(child, signal.SIGKILL)  # it is not waited for yet, so this is nobody else's number
    os.waitpid(child, 0)
    return "at a moment"


def main() -> None:
    for line in sys.stdin:
        seed, folder = json.loads(line)
        sys.stdout.write(f"{kill(Path(folder), Case.of(seed))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
