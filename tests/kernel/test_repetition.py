"""Stops again and again in one kernel: some of the presses of ``make test-kernels``, on a machine that does other work too."""

from __future__ import annotations

import statistics

import pytest

from tests.kernel.fakefront import Front
from tests.kernel.matrix.presses import Presser
from tests.kernel.page import SOON


@pytest.mark.timeout(400)
def test_twenty_five_stops_of_each_kind_are_handled_once_and_leave_the_order_of_cells(front: Front) -> None:
    presser = Presser(front)
    for cell, click in presser.kinds():
        presses = presser.press(cell, click, 25)
        assert presses.once, (cell, click)
        assert presses.in_order, (cell, click)
        assert statistics.median(presses.milliseconds) < SOON * 1000, (cell, click)
