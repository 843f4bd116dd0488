"""The learning rate over a run."""

from __future__ import annotations

import math


def one_cycle(share: float, *, peak: float, warm_up: float) -> float:
    """Return the learning rate after a share of the run: a cosine up from peak/25, then one down to almost nothing."""
    low_start, low_end = peak / 25, peak / 10_000
    if share < warm_up:
        return low_start + (peak - low_start) * (1 - math.cos(math.pi * share / warm_up)) / 2
    return low_end + (peak - low_end) * (1 + math.cos(math.pi * (share - warm_up) / (1 - warm_up))) / 2
