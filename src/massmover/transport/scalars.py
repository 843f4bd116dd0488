"""Equations in one unknown: a falling function's root for each image, and Wright's omega for each number."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.types import PerImage

NEVER = 1e30  # stands for an infinite price
SECTIONS = 4  # points at which a round of `sectioned_root` cuts each bracket
FIRST_LOOK = torch.tensor([0.0, 0.05, 0.5, 0.9, 0.98, 1.02, 1.1, 2.0, 30.0, 1e4], dtype=torch.float64)


class Root(NamedTuple):
    """Where a function meets its target, and for which images the steps sufficed to find out."""

    point: PerImage
    converged: PerImage  # bool


def decreasing_root(
    function: Callable[[PerImage], tuple[PerImage, PerImage]],
    *,
    target: PerImage,
    guess: PerImage,
    accuracy: float,
    steps: int = 100,
) -> Root:
    """The p >= 0 with function(p) = target, per image; 0 where function(0) is already below the target.

    The function is positive and falls roughly exponentially, so Newton's method is applied to its logarithm.
    Each root is kept in a bracket; a step that leaves it becomes a bisection. The answer is on the affordable side,
    function(answer) <= target up to the accuracy; for a target of 0, or where no step led to that side, it is 1e30.
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
        if bool(done.all()):
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
    return Root(found.clamp_max(NEVER), converged=done)


def sectioned_root(
    function: Callable[[Tensor], Tensor], *, target: PerImage, guess: PerImage, rounds: int = 4
) -> PerImage:
    """`decreasing_root` by cutting brackets into sections: a fixed number of operations, and never a wait.

    The function takes several points for each image, (B, P). The first look is at points around the guess, close
    beside it and far away; each round then cuts the bracket into SECTIONS + 1 parts, and a line through the logarithms
    at its ends gives the answer. Good to 1e-6 where the guess was good to a fifth; else on the affordable side.
    """
    first, cuts = FIRST_LOOK.to(target), torch.arange(1, SECTIONS + 1, device=target.device) / (SECTIONS + 1)
    points = guess.to(target).clamp_min(1e-3).unsqueeze(1) * first
    ends = torch.stack([torch.zeros_like(target), torch.full_like(target, NEVER)], dim=1)
    values = torch.stack([torch.full_like(target, torch.inf), torch.zeros_like(target)], dim=1)
    for _ in range(rounds + 1):
        points = torch.cat([ends[:, :1], points, ends[:, 1:]], dim=1)
        values = torch.cat([values[:, :1], function(points[:, 1:-1]), values[:, 1:]], dim=1)
        last = (values[:, :-1] > target.unsqueeze(1)).sum(dim=1, keepdim=True).clamp(1, points.shape[1] - 1)
        pair = torch.cat([last - 1, last], dim=1)  # the last point that costs too much, and the one behind it
        ends, values = points.gather(1, pair), values.gather(1, pair)
        points = torch.lerp(ends[:, :1], ends[:, 1:], cuts.to(target))
    (low, high), (above, below) = ends.unbind(dim=1), values.unbind(dim=1)
    share = (above / target).log() / (above / below.clamp_min(torch.finfo(below.dtype).tiny)).log()
    inside = (share > 0) & (share < 1)
    found = torch.where(inside, low + share * (high - low), high)
    return torch.where(target > 0, found, NEVER)


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
