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
    steepest = np.zeros(phi.shape[:-2])
    for dy in range(height):
        for dx in range(width):
            if dy or dx:
                distance = {"euclidean": (dy * dy + dx * dx) ** 0.5, "manhattan": dy + dx, "chebyshev": max(dy, dx)}
                down, up = (phi[..., dy:, dx:], phi[..., : height - dy, : width - dx])
                left, right = (phi[..., dy:, : width - dx], phi[..., : height - dy, dx:])
                rise = np.maximum(np.abs(down - up).max((-2, -1)), np.abs(left - right).max((-2, -1)))
                steepest = np.maximum(steepest, rise / distance[ground] ** power)
    return np.where(steepest > 0, steepest * (1 + 4 * np.finfo(np.float64).eps), 0.0)
