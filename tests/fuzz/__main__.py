"""``python -m tests.fuzz [N] [SEED]``: N stories from this seed on, a table, and every story that went wrong, shrunk.

``python -m tests.fuzz 1 SEED`` plays one of them again.
"""

from __future__ import annotations

import logging
import pprint
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.fuzz.checks import KINDS, Fault, Kind
from tests.fuzz.stage import play, shrunk
from tests.fuzz.stories import story_of


def report(count: int, first: int) -> Iterator[str]:
    """All lines; the last one is empty when nothing was wrong."""
    cases: Counter[Kind] = Counter()
    wrong: dict[int, tuple[Fault, ...]] = {}
    milliseconds: list[float] = []
    for seed in range(first, first + count):
        begin = time.perf_counter()
        faults = play(story_of(seed))
        milliseconds.append((time.perf_counter() - begin) * 1000)
        cases.update({fault.kind for fault in faults})
        if faults:
            wrong[seed] = faults
    yield f"{'cases':<24}{count:>8}   seeds {first} to {first + count - 1}"
    for kind in KINDS:
        yield f"{kind:<24}{cases[kind]:>8}"
    yield f"{'ms of a case':<24}{statistics.median(milliseconds):>8.1f}   median, {max(milliseconds):.0f} max"
    for seed, faults in list(wrong.items())[:10]:
        yield f"\npython -m tests.fuzz 1 {seed}"
        yield from (f"  {fault}" for fault in faults)
        yield pprint.pformat(shrunk(story_of(seed), faults[0].kind), width=130)
    yield f"\n{len(wrong)} cases went wrong: {' '.join(map(str, list(wrong)[:100]))}" if wrong else ""


def main() -> int:
    """The exit status is 1 when something was wrong."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what a hanging story leaves behind is reported here
    arguments = [int(text) for text in sys.argv[1:]]
    last = ""
    for line in report(*(arguments + [10_000, 0][len(arguments) :])):
        last = line
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 1 if last else 0


if __name__ == "__main__":
    sys.exit(main())
