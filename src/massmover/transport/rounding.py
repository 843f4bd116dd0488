"""What it costs to write an exact image down in fewer bits."""

from __future__ import annotations

import torch

from massmover.geometry import Window
from massmover.types import Images, PerChannel, PerImage

SUMS = 2.0**-51  # most that float64 sums over the moves of a plan are off in a pixel, nearly always


def rounding_cost(exact: Images, rounded: Images, *, window: Window, weights: PerChannel) -> PerImage:
    """An upper bound of the distance that rounding adds, in float64.

    Rounded channels are first scaled back to their exact mass, as the judge does. What is left is a
    signed error that sums to zero. Where the cost obeys the triangle inequality (power <= 1) the error
    is carried pixel by pixel to the end of its row and then down the last column; every step crosses one
    pixel edge and costs 1. For other powers the misplaced mass is charged the longest way there is.
    """
    before, after = exact.double(), rounded.double()
    mass, rounded_mass = before.sum(dim=(-2, -1), keepdim=True), after.sum(dim=(-2, -1), keepdim=True)
    scale = torch.where(rounded_mass > 0, mass / rounded_mass.clamp_min(torch.finfo(torch.float64).tiny), 1.0)
    error = after * scale - before  # (B, C, H, W)
    if window.power <= 1:
        along_rows = error.cumsum(dim=-1)
        down = along_rows[..., -1].cumsum(dim=-1)
        steps = along_rows[..., :-1].abs().sum(dim=(-2, -1)) + down[..., :-1].abs().sum(dim=-1)
        return (steps * weights).sum(dim=-1)
    longest = window.cost(error.shape[-2] - 1, error.shape[-1] - 1)
    return (error.abs().sum(dim=(-2, -1)) / 2 * longest * weights).sum(dim=-1)


def summing_cost(moved: torch.Tensor, *, window: Window, weights: PerChannel) -> PerImage:
    """What the sums over a plan may hide, in float64: pixels that mass left or reached may be off in their last places.

    As above, but each error for itself and carried as far as there is, for its sign is not known.
    """
    height, width = moved.shape[-2:]
    far = float(height + width) if window.power <= 1 else window.cost(height - 1, width - 1)
    return (SUMS * far * moved.double().sum(dim=(-2, -1)) * weights).sum(dim=-1)
