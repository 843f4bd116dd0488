"""How steep a potential is, over all pairs of pixels: the check that a certificate rests on.

Training, the c-transform and the networks use none of these lines, and these lines use none of theirs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from massmover.types import Ground, MassmoverError


def steepness(potentials: NDArray[np.floating], *, ground: Ground, power: float = 1.0) -> NDArray[np.float64]:
    """The Lipschitz constant of each array over its last two axes: the largest |phi_i - phi_j| / d_ij ** power.

    Every pair of pixels is looked at, one offset between them at a time. The differences are exact or rounded once in
    float64, the quotient is rounded up, so the constant returned is never too small by rounding.
    """
    phi = np.asarray(potentials, dtype=np.float64)
    height, width = phi.shape[-2:]
    if not np.isfinite(phi).all():
        raise MassmoverError("a potential holds NaN or infinity, so nothing can be certified with it: train it again")
    side_by_side = np.ascontiguousarray(
        np.moveaxis(phi.reshape(-1, height, width), 0, 2)
    )  # (H, W, P): quick to compare
    steepest = np.zeros(side_by_side.shape[2])
    for dy in range(height):
        for dx in range(width):
            if dy or dx:
                distance = {"euclidean": (dy * dy + dx * dx) ** 0.5, "manhattan": dy + dx, "chebyshev": max(dy, dx)}
                down, up = (side_by_side[dy:, dx:], side_by_side[: height - dy, : width - dx])
                left, right = (side_by_side[dy:, : width - dx], side_by_side[: height - dy, dx:])
                rise = np.maximum(_largest(down - up), _largest(left - right))
                steepest = np.maximum(steepest, rise / distance[ground] ** power)
    found = np.where(steepest > 0, steepest * (1 + 4 * np.finfo(np.float64).eps), 0.0)
    return found.reshape(phi.shape[:-2])


def _largest(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest absolute value over the pixels (H, W, P)."""
    found: NDArray[np.float64] = np.maximum(differences.max((0, 1)), -differences.min((0, 1)))
    return found
