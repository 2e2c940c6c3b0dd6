"""``make compare [STOPS]``: the same scripts, stopped at the same places, on five systems. ``STOPS``: presses per scenario."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.compare.scenarios import (
    DRIVERS,
    LONG,
    ROOT,
    SCENARIOS,
    WAYS,
    Case,
    Way,
    approvals,
    case,
    does_not_apply,
    early_cases,
    http_cases,
    long_cases,
    shares,
)
from tests.compare.scoring import Told, lost
from tests.compare.server import SlowServer
from tests.compare.table import Results, report

STOPS = 150
"""Presses per scenario and way."""

PAUSES_AFTER_MS = 30.0
"""About: when the reply of the scenario ``pause`` waits for its decision."""

AT_A_TIME = 5

EARLY = 20

WARM_UP = 5
"""Undisturbed runs before the first stop of a scenario; later one before every tenth."""


class Driver:
    """A system in a process of its own."""

    def __init__(self, way: Way) -> None:
        if not way.python.exists():
            sys.exit(f"{way.environment} is missing: run make compare-env")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [way.python, DRIVERS / f"drive_{way.driver}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def __call__(self, case: Case) -> Told:
        """Play one case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"The driver has ended:\n{self._errors.read()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=20)
        self._errors.close()


def measure(way: Way, stops: int, server: SlowServer) -> Results:
    """All scenarios on one system."""
    driver = Driver(way)
    results = Results(way)
    for name in SCENARIOS:
        if does_not_apply(way, name):
            continue
        _stop_at_many_moments(driver, results, name, stops)
    for name in LONG:
        for each in long_cases(way, name, max(8, stops // 10)):
            results.long[name].add(driver(each))
    for each in early_cases(way, EARLY):
        results.early.add(driver(each))
    for each in http_cases(way, server.url, max(8, stops // 20)):
        told = driver(each)
        gone = server.gone(told["model"])
        if gone is not None:
            results.closed_ms.append((gone - told["zero"]) * 1000 - told["stop_ms"])
    for each in approvals(way, stops) if way.approvals and way.mode != "step" else ():
        results.approved.add(driver(each))
    driver.close()
    return results


def _stop_at_many_moments(driver: Driver, results: Results, name: str, stops: int) -> None:
    """One scenario. How long it takes undisturbed is measured again and again, because machines change their speed."""
    played = case(results.way, SCENARIOS[name], name, 0)
    times: deque[float] = deque(maxlen=WARM_UP)
    anyway: set[str] = set()
    for seed, share in enumerate(shares(name, stops)):
        for _ in range(WARM_UP if not times else seed % 10 == 0):
            told = driver(played) if name != "pause" else None
            times.append(told["end_ms"] if told else PAUSES_AFTER_MS)
            if told:
                anyway.update(lost(told))
                results.version = told["version"]
        stop_at_ms = share * statistics.median(times)
        resumes = seed % 2 == 1
        results.stopped[name].add(driver({**played, "seed": seed, "resumes": resumes, "stop_at_ms": stop_at_ms}), anyway)
    if anyway:
        results.lost_anyway[name] = sorted(anyway)


def main() -> None:
    """Several systems at a time: nearly all of the time they wait for a timer of the script."""
    stops = int(sys.argv[1]) if len(sys.argv) > 1 else STOPS
    begin = time.monotonic()
    with SlowServer() as server, ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(partial(measure, stops=stops, server=server), WAYS))
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    for line in (*report(results, stops), "", f"{where}; {time.monotonic() - begin:.0f} s"):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
