"""Wilson's interval: a known answer, an independent reference, and the equation it solves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from massmover.report.intervals import NORMAL_95, percent, wilson

PAIRS = st.integers(1, 2000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def test_known_answers() -> None:
    assert wilson(30, 100) == pytest.approx((0.2189, 0.3958), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4) and wilson(0, 10).low == 0
    assert wilson(10, 10).high == 1
    assert wilson(0, 0) == (0, 1)
    assert percent(wilson(30, 100)) == "21.9 to 39.6 %"


@given(PAIRS)
def test_it_agrees_with_scipy(pair: tuple[int, int]) -> None:
    right, total = pair
    reference = binomtest(right, total).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson(right, total) == pytest.approx((reference.low, reference.high), abs=1e-12)


@given(PAIRS)
def test_both_ends_are_as_surprising_as_allowed(pair: tuple[int, int]) -> None:
    right, total = pair
    interval = wilson(right, total)
    assert 0 <= interval.low <= right / total <= interval.high <= 1
    for end in interval:
        if 0 < end < 1:
            assert abs(right / total - end) == pytest.approx(NORMAL_95 * (end * (1 - end) / total) ** 0.5, abs=1e-9)
