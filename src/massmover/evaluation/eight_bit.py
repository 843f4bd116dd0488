"""Adversarial images that survive being saved as 8-bit pictures.

Rounding each pixel by itself changes the mass and may leave the ball. Rounding the running sum along a path instead
keeps the mass of every channel to the unit, moves each pixel by less than one level, and carries less than one level of
mass from a pixel to the next on the path, so it costs little distance. Where that little is too much, the image is
first drawn towards the original, which frees budget in proportion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from massmover.types import Images

LEVELS = 255
SHRINKS = (1.0, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)  # share of the way from the original that is kept
PHASES = (0.5, 0.3, 0.7)  # where the running sum is rounded up

Levels = NDArray[np.int64]  # (C, H, W), whole numbers in 0..255
Question = Callable[[Images], Tensor]  # answers yes or no for each image


def round_running_sum(values: NDArray[np.float64], *, columns_first: bool, phase: float) -> Levels:
    """Round one channel so that its sum stays the same whole number.

    Only pixels that are no whole number yet take part; the path runs to and fro through the rows or the columns.
    """
    grid = values.T if columns_first else values
    order = np.arange(grid.size).reshape(grid.shape)
    order[1::2] = order[1::2, ::-1]
    path = order.ravel()
    flat = grid.ravel()[path]
    rounded = np.round(flat)
    fractional = np.abs(flat - rounded) > 1e-4
    sums = np.cumsum(flat[fractional])
    if len(sums):
        sums *= np.round(sums[-1]) / sums[-1]  # float32 leaves a sum that is whole up to 1e-5
        ends = np.floor(sums + phase + 1e-9)
        rounded[fractional] = np.diff(ends, prepend=0.0)
    result = np.empty_like(flat)
    result[path] = rounded
    shaped = result.reshape(grid.shape).astype(np.int64)
    return shaped.T if columns_first else shaped


def candidates(original: Levels, adversarial: NDArray[np.float64]) -> Iterator[Levels]:
    """8-bit images near an adversarial one, the nearest first, all with the mass of the original."""
    mass = original.sum(axis=(1, 2))
    for shrink in SHRINKS:
        target = original + shrink * (adversarial - original)
        for phase in PHASES:
            for columns_first in (False, True):
                image = np.stack([round_running_sum(c, columns_first=columns_first, phase=phase) for c in target])
                if (image.sum(axis=(1, 2)) == mass).all() and image.min() >= 0 and image.max() <= LEVELS:
                    yield image


def survivor(original: Tensor, adversarial: Tensor, *, fools: Question, inside: Question) -> Tensor | None:
    """An exact 8-bit image (C, H, W) that still fools the classifier and is still inside the ball, or None.

    Both questions take a batch of images and answer for each. The first candidate that passes both is taken.
    """
    before = np.round(original.double().cpu().numpy() * LEVELS).astype(np.int64)
    options = list(candidates(before, adversarial.double().cpu().numpy() * LEVELS))
    if not options:
        return None
    images = torch.from_numpy(np.stack(options)).to(adversarial) / LEVELS  # (options, C, H, W)
    for option in torch.nonzero(fools(images)).flatten().tolist():
        if bool(inside(images[option : option + 1])[0]):
            return images[option]
    return None
