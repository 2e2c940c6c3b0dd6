"""``python -m tests.crash [N] [SEED]``: N kills from this seed on, a table, and every kill after which something was wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.judging import Verdict, judge
from tests.crash.story import Case


@contextmanager
def killer() -> Generator[subprocess.Popen[str]]:
    """The process that forks and kills."""
    command = [sys.executable, "-m", "tests.crash.forks"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:
        try:
            yield forks
        finally:
            forks.kill()


def killed(forks: subprocess.Popen[str], seed: int, folder: Path) -> Verdict:
    """Let a child live and die in ``folder``, and judge what it has left."""
    folder.mkdir()
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps([seed, str(folder)]) + "\n")
    forks.stdin.flush()
    died = forks.stdout.readline().strip()
    assert died
    verdict = judge(folder)
    verdict.died = died
    return verdict


def main() -> int:
    """The exit status is 1 when something was wrong."""
    count, first = ([int(text) for text in sys.argv[1:]] + [500, 0][len(sys.argv) - 1 :])[:2]
    stood: Counter[str] = Counter()
    wrong = 0
    with killer() as forks, tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            verdict = killed(forks, seed, Path(folder) / str(seed))
            stood[verdict.stood] += 1
            stood[f"killed {verdict.died}"] += 1
            if verdict.faults:
                wrong += 1
                sys.stdout.write("\n".join([f"{Case.of(seed)}: {verdict.stood}", *(f"  {f}" for f in verdict.faults[:5])]) + "\n")
                sys.stdout.flush()
    lines = [f"{'kills':<24}{count:>8}", *(f"{f'  {how}':<24}{times:>8}" for how, times in stood.most_common())]
    sys.stdout.write("\n".join([*lines, f"{'went wrong':<24}{wrong:>8}\n"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
