"""A kernel that is killed at any moment loses nothing that it had acknowledged: a few of the kills of ``make crash``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.__main__ import killed, killer
from tests.crash.story import Case

SEEDS = range(9_000, 9_025)


@pytest.mark.skipif("not hasattr(__import__('os'), 'fork')", reason="a child is forked for each kill")
def test_a_killed_kernel_loses_nothing_that_it_had_acknowledged(tmp_path: Path) -> None:
    with killer() as forks:
        verdicts = {seed: killed(forks, seed, tmp_path / str(seed)) for seed in SEEDS}
    assert {Case.of(seed): verdict.faults for seed, verdict in verdicts.items() if verdict.faults} == {}
    assert len({verdict.stood for verdict in verdicts.values()}) >= 3  # killed in different places
