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
    the expensive side: function(answer) <= target up to the tolerance. For a target of 0 it is 1e30.
    """
    tiny = torch.finfo(target.dtype).tiny
    accuracy = tolerance or (1e-12 if target.dtype == torch.float64 else 2e-6)  # what sums over a plan can resolve
    low, high = torch.zeros_like(target), torch.full_like(target, torch.inf)
    point = torch.ones_like(target) if guess is None else guess.to(target)
    found = torch.full_like(target, torch.inf)  # the lowest price known to be affordable
    done = target <= 0  # no price is high enough; the answer stays infinite
    for attempt in range(steps):
        value, slope = function(point)
        above = value > target
        close = (value - target).abs() <= accuracy * target
        low, high = torch.where(above, point, low), torch.where(above, high, point)
        found = torch.where(close | ~above, torch.minimum(found, point), found)
        done = done | close | (~above & (point == 0)) | (high - low <= accuracy * low)
        if done.all():
            break
        newton = point + (value.clamp_min(tiny) / target.clamp_min(tiny)).log() * value / (-slope).clamp_min(tiny)
        # Where nothing bounds the root from above yet, a flat slope must not throw it to infinity.
        newton = torch.where(torch.isinf(high), newton.clamp_max(4 * low + 8), newton)
        middle = torch.where(torch.isinf(high), 4 * low + 8, (low + high) / 2)
        # Ratios of vanishing numbers tell nothing, and along a cliff Newton creeps: then the bracket is halved.
        sound = (newton > low) & (newton < high) & (value > 1e6 * tiny)
        if attempt % 4 == 3:
            sound = sound & torch.isinf(high)
        inside = torch.where(sound, newton, middle)
        at_zero = (low == 0) & ~above & ((newton <= 0) | (newton >= point))  # perhaps nothing has to be paid: look
        point = torch.where(done, point, torch.where(at_zero, 0.0, inside))
    return found.clamp_max(1e30)
