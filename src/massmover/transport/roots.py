"""Roots in one unknown per image."""

from __future__ import annotations

from collections.abc import Callable

import torch

from massmover.types import PerImage


def decreasing_root(
    function: Callable[[PerImage], tuple[PerImage, PerImage]],
    *,
    target: PerImage,
    guess: PerImage | None = None,
    tolerance: float | None = None,
    steps: int = 100,
) -> PerImage:
    """The p >= 0 with function(p) = target, per image; 0 where function(0) is already below the target.

    The function is positive and falls roughly exponentially, so Newton's method is applied to its logarithm.
    Each root is kept in a bracket; a step that leaves it becomes a bisection. The answer is never on
    the expensive side: function(answer) <= target up to the tolerance.
    """
    tiny = torch.finfo(target.dtype).tiny
    accuracy = tolerance or (1e-12 if target.dtype == torch.float64 else 2e-6)  # what sums over a plan can resolve
    low = torch.zeros_like(target)
    high = torch.full_like(target, torch.inf)
    at_zero, slope_at_zero = function(low)
    free = at_zero <= target  # nothing has to be paid
    newton = low + (at_zero.clamp_min(tiny) / target.clamp_min(tiny)).log() * at_zero / (-slope_at_zero).clamp_min(tiny)
    point = newton.clamp(0, 8) if guess is None else guess.to(target)
    best = torch.full_like(target, torch.inf)
    for _ in range(steps):
        value, slope = function(point)
        above = value > target
        low, high = torch.where(above, point, low), torch.where(above, high, point)
        close = (value - target).abs() <= accuracy * target
        best = torch.where(close | ~above, torch.minimum(best, point), best)
        if (close | free | (high - low <= accuracy * low)).all():
            break
        newton = point + (value.clamp_min(tiny) / target.clamp_min(tiny)).log() * value / (-slope).clamp_min(tiny)
        middle = torch.where(torch.isinf(high), 2 * low + 1, (low + high) / 2)
        # Where nothing bounds the root from above yet, a flat slope must not throw it to infinity.
        newton = torch.where(torch.isinf(high), newton.clamp_max(4 * low + 8), newton)
        point = torch.where((newton > low) & (newton < high), newton, middle)
    return torch.where(free, 0.0, torch.where(torch.isinf(best), high.clamp_max(1e30), best))
