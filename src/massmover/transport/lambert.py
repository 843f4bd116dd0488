"""Lambert's function of an exponential, without the exponential."""

from __future__ import annotations

import torch
from torch import Tensor


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
