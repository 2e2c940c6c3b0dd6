"""The pacer: when a card speaks, with the clock passed in."""

from __future__ import annotations

import pytest

from agent_widgets import events as ev
from agent_widgets.pacing import BOUNDARY_GAP_SECONDS, FRAMES_A_SECOND, Pacer

DELTA = ev.TextBlockDeltaEvent(reply_id="r", block_id="b", delta="x")
BOUNDARY = ev.TextBlockEndEvent(reply_id="r", block_id="b")


@pytest.mark.parametrize("event", [DELTA, BOUNDARY, None])
def test_a_card_that_has_been_quiet_speaks_at_once(event: ev.Event | None) -> None:
    assert Pacer().frame_due(event, 5.0) == 5.0
    pacer = Pacer()
    pacer.frame_sent(4.0)
    assert pacer.frame_due(event, 5.0) == 5.0


def test_streamed_text_waits_for_the_next_frame_and_a_boundary_hardly() -> None:
    pacer = Pacer()
    pacer.frame_sent(5.0)
    assert pacer.frame_due(DELTA, 5.01) == 5.0 + 1 / FRAMES_A_SECOND
    assert pacer.frame_due(BOUNDARY, 5.01) == 5.0 + BOUNDARY_GAP_SECONDS
    assert pacer.frame_due(None, 5.01) == 5.0 + BOUNDARY_GAP_SECONDS


@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0])
def test_the_frame_rate_can_be_chosen(rate: float) -> None:
    pacer = Pacer(rate)
    pacer.frame_sent(10.0)
    assert pacer.frame_due(DELTA, 10.0) == 10.0 + 1 / rate


def test_ten_thousand_tokens_a_second_are_at_most_twenty_frames_a_second() -> None:
    pacer, sent, due = Pacer(), 0, None
    for tick in range(10_000):
        now = tick / 10_000
        event = BOUNDARY if tick % 7 == 0 else DELTA
        wanted = pacer.frame_due(event, now)
        due = wanted if due is None else min(due, wanted)
        if due <= now:
            pacer.frame_sent(now)
            sent, due = sent + 1, None
    assert 12 <= sent <= 20
