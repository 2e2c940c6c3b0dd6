"""The pacer: when a card speaks, with the clock passed in."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agent_widgets import events as ev
from agent_widgets.pacing import (
    BOUNDARY_GAP_SECONDS,
    FRAMES_A_SECOND,
    LONGEST_WAIT_SECONDS,
    MESSAGES_A_SECOND,
    TURNS_A_SECOND,
    Airtime,
    Pacer,
)

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
    pacer = Pacer(frames_a_second=rate)
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


def spoken(
    cards: int, seconds: float, tokens_a_second: int = 100, *, said_before: int = 0, every: int = 1_000_000
) -> list[list[float]]:
    """When each of ``cards`` sends a frame, if all stream at once; each ``every``-th event is a boundary."""
    airtime = Airtime()
    airtime.count(0.0, said_before)
    pacers = [Pacer(airtime) for _ in range(cards)]
    due: list[float | None] = [None] * cards
    sent: list[list[float]] = [[] for _ in range(cards)]
    for tick in range(int(seconds * 1000)):
        now = tick / 1000
        for number, pacer in enumerate(pacers):
            if (tick + number) % (1000 // tokens_a_second) == 0:
                wanted = pacer.frame_due(BOUNDARY if tick % every == 0 else DELTA, now)
                before = due[number]
                due[number] = wanted if before is None else min(before, wanted)
            at = due[number]
            if at is None or at > now:
                continue
            turn = pacer.turn(now)
            due[number] = turn if turn > now else None
            if turn <= now:
                pacer.frame_sent(now)
                sent[number].append(now)
    return sent


def most_in_a_second(times: list[float]) -> int:
    return max(sum(at <= other < at + 1 for other in times) for at in times)


@pytest.mark.parametrize(("cards", "every"), [(1, 1_000_000), (5, 1_000_000), (10, 1_000_000), (10, 1), (40, 3)])
def test_however_many_cards_stream_the_kernel_stays_below_its_limit_in_every_second(cards: int, every: int) -> None:
    sent = spoken(cards, 4.0, every=every)
    assert most_in_a_second([at for card in sent for at in card]) <= MESSAGES_A_SECOND


def test_ten_cards_share_the_turns_fairly_and_evenly() -> None:
    sent = spoken(10, 5.0)
    frames = [len(card) for card in sent]
    assert max(frames) - min(frames) <= 1
    assert sum(frames) == pytest.approx(5 * TURNS_A_SECOND, rel=0.05)  # pyright: ignore[reportUnknownMemberType]
    gaps = [after - before for card in sent for before, after in pairwise(card)]
    assert max(gaps) < 1.2 * 10 / TURNS_A_SECOND


def test_a_card_alone_or_among_five_is_as_smooth_as_ever() -> None:
    for cards in (1, 5):
        for card in spoken(cards, 3.0):
            gaps = [after - before for before, after in pairwise(card)]
            assert max(gaps) <= 1 / FRAMES_A_SECOND + 1 / TURNS_A_SECOND * cards


def test_what_was_said_without_a_turn_is_made_room_for() -> None:
    sent = [at for card in spoken(10, 3.0, said_before=40) for at in card]
    assert sum(at < 1.0 for at in sent) == MESSAGES_A_SECOND - 40
    assert sum(1.0 <= at < 2.0 for at in sent) == pytest.approx(TURNS_A_SECOND, abs=2)  # pyright: ignore[reportUnknownMemberType]


def test_streamed_text_goes_on_where_others_say_more_than_the_limit() -> None:
    airtime, turns = Airtime(), list[float]()
    pacer = Pacer(airtime)
    for tick in range(5_000):
        now = tick / 1000
        if tick % 5 == 0:
            airtime.count(now, 1)  # 200 a second
        turn = pacer.turn(now)
        if turn <= now:
            pacer.frame_sent(now)
            turns.append(now)
    assert max(after - before for before, after in pairwise(turns)) <= LONGEST_WAIT_SECONDS + 0.1


def test_what_cannot_wait_takes_no_turn_and_gives_back_the_one_it_had() -> None:
    airtime = Airtime()
    first, second = Pacer(airtime), Pacer(airtime)
    assert first.turn(5.0) == 5.0
    assert second.turn(5.0) == 5.0 + 1 / TURNS_A_SECOND
    second.frame_sent(5.001)  # its run has ended
    assert second.turn(6.0) == 6.0
