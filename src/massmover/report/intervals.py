"""How far a share measured on few images can be from the share of all."""

from __future__ import annotations

import math
from typing import NamedTuple

NORMAL_95 = 1.959963984540054  # standard deviations that hold 95 % of a normal distribution


class Interval(NamedTuple):
    """From a lower to an upper share, both in [0, 1]."""

    low: float
    high: float


def wilson(right: int, total: int) -> Interval:
    """The 95 % interval of a share by Wilson's score: the shares from which `right` of `total` is no surprise.

    The two ends solve |right / total - p| = 1.96 sqrt(p (1 - p) / total). Unlike the usual plus or minus it stays
    within [0, 1] and has a width at 0 and at 1.
    """
    if total <= 0:
        return Interval(0.0, 1.0)
    share, square = right / total, NORMAL_95**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / total + square / (4 * total**2)) / (1 + square / total)
    low = 0.0 if right <= 0 else middle - half  # arithmetic alone would leave 1e-17
    high = 1.0 if right >= total else middle + half
    return Interval(max(0.0, low), min(1.0, high))


def percent(interval: Interval) -> str:
    """An interval in words short enough for a table."""
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"
