"""Equations in one unknown: a falling function's root for each image, and Wright's omega for each number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from massmover.types import PerImage

NEVER = 1e30  # stands for an infinite price


def decreasing_root(
    function: Callable[[PerImage], tuple[PerImage, PerImage]],
    *,
    target: PerImage,
    guess: PerImage,
    accuracy: float,
    steps: int = 100,
    look: bool = True,
) -> PerImage:
    """The p >= 0 with function(p) = target, per image; 0 where function(0) is already below the target.

    The function is positive and falls roughly exponentially, so Newton's method is applied to its logarithm.
    Each root is kept in a bracket; a step that leaves it becomes a bisection. The answer is on the affordable side,
    function(answer) <= target up to the accuracy, wherever the steps led to that side; for a target of 0 it is 1e30.
    With `look` it stops when all are found; without, it takes all its steps and never waits for the device.
    """
    tiny = torch.finfo(target.dtype).tiny
    low, high = torch.zeros_like(target), torch.full_like(target, torch.inf)
    point = guess.to(target)
    found = torch.full_like(target, torch.inf)  # the lowest price known to be affordable
    done = target <= 0  # no price is high enough; the answer stays infinite
    for attempt in range(steps):
        value, slope = function(point)
        above = value > target
        close = (value - target).abs() <= accuracy * target
        low, high = torch.where(above, point, low), torch.where(above, high, point)
        found = torch.where(close | ~above, torch.minimum(found, point), found)
        done = done | close | (~above & (point == 0)) | (high - low <= accuracy * low)
        if look and bool(done.all()):
            break
        newton = point + (value.clamp_min(tiny) / target.clamp_min(tiny)).log() * value / (-slope).clamp_min(tiny)
        unbounded = torch.isinf(high)
        # Where nothing bounds the root from above yet, a flat slope must not throw it to infinity.
        newton = torch.where(unbounded, newton.clamp_max(4 * low + 8), newton)
        middle = torch.where(unbounded, 4 * low + 8, (low + high) / 2)
        # Ratios of vanishing numbers tell nothing, and along a cliff Newton creeps: then the bracket is halved.
        sound = (newton > low) & (newton < high) & (value > 1e6 * tiny)
        if attempt % 4 == 3:
            sound = sound & unbounded
        inside = torch.where(sound, newton, middle)
        at_zero = (low == 0) & ~above & ((newton <= 0) | (newton >= point))  # perhaps nothing has to be paid: look
        point = torch.where(done, point, torch.where(at_zero, 0.0, inside))
    if not look:  # steps ran out on the expensive side: the last point is the best there is
        found = torch.where(torch.isinf(found) & (target > 0), point, found)
    return found.clamp_max(NEVER)


def wright_omega(t: Tensor) -> Tensor:
    """The w >= 0 with w + log w = t, which is W(exp(t)); no t overflows, and minus infinity gives 0.

    Three first guesses cover the line; each step after them is of fourth order (Lawrence, Corless and Jeffrey,
    "Algorithm 917", 2012).
    """
    small = t.clamp(max=-2.0).exp()
    middle = t.clamp(-2.0, 4.0) - 1
    large = t.clamp_min(4.0)
    guess = torch.where(
        t < -2,
        small * (1 - small * (1 - 1.5 * small)),
        torch.where(
            t < 4,
            1 + middle * (0.5 + middle * (0.0625 - middle / 192)),
            large - large.log() + large.log() / large,
        ),
    )
    tiny = t < -36  # there w = exp(t) to the last bit, and w may be 0, which has no logarithm
    w = torch.where(tiny, 1.0, guess)
    for _ in range(3):
        residual = torch.where(tiny, 0.0, t) - w - w.log()
        residual = torch.where(tiny, 0.0, residual)
        a = 1 + w
        b = a * (a + 2 * residual / 3)
        w = w * (1 + (residual / a) * (b - residual / 2) / (b - residual))
    return torch.where(tiny, t.exp(), w)
