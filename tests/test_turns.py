"""Every scenario, stopped at every turn of the loop, in every way; see ``tests.turns``."""

from __future__ import annotations

import pytest

from tests.turns.play import WAYS, Play
from tests.turns.scenarios import SCENARIOS


@pytest.mark.parametrize(
    ("scenario", "way"), [(name, way) for name, scenario in SCENARIOS.items() for way in WAYS if way not in scenario.without]
)
def test_a_stop_at_every_turn_keeps_the_contract(scenario: str, way: str) -> None:
    whole = Play(SCENARIOS[scenario], None, 0).carry()
    assert list(whole.faults(whole)) == []
    wrong: dict[int, list[str]] = {}
    for at in range(WAYS[way].first, whole.turns + 2):
        play = Play(SCENARIOS[scenario], WAYS[way], at).carry()
        if faults := list(play.faults(whole)):
            wrong[at] = faults
    assert not wrong
