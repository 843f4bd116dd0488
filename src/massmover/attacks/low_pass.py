"""Gradients without their high frequencies: steps that push neighbouring pixels alike (Hu et al. 2020, appendix)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from massmover.types import Images

FARTHEST = 4.0  # standard deviations, where a Gaussian is cut off


def low_passed(gradient: Images, deviation: float) -> Images:
    """The gradient under a Gaussian filter of a standard deviation in pixels, channel by channel; 0 leaves it as it is.

    Beyond the border there is nothing, and what is there counts for more instead, so that a constant stays constant.
    """
    if deviation == 0:
        return gradient
    for axis in (2, 3):
        gradient = _along(gradient, axis, _gaussian(deviation, like=gradient))
    return gradient


def _gaussian(deviation: float, *, like: Tensor) -> Tensor:
    reach = math.ceil(FARTHEST * deviation)
    at = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    return (-0.5 * (at / deviation).square()).exp()


def _along(images: Images, axis: int, filter_: Tensor) -> Images:
    """A filter along rows or columns, over the part of it that lies inside the image."""
    lines = images.movedim(axis, -1)
    flat, size = lines.reshape(-1, 1, lines.shape[-1]), len(filter_) // 2
    weights = F.conv1d(torch.ones_like(flat[:1]), filter_.view(1, 1, -1), padding=size)
    filtered = F.conv1d(flat, filter_.view(1, 1, -1), padding=size) / weights
    return filtered.view(lines.shape).movedim(-1, axis)
