"""The c-transform: any array of numbers becomes 1-Lipschitz over the pixels, and one that is stays as it is.

The lower transform of psi is `min_j (psi_j + d_ij)`, the largest 1-Lipschitz array below psi; the upper one is
`max_j (psi_j - d_ij)`, the smallest above. Both are fixed on 1-Lipschitz arrays, since d is a metric. Their mean is
1-Lipschitz too and favours neither side; that is what training projects with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from massmover.geometry import pixel_distance
from massmover.types import Ground, MassmoverError


@dataclass(frozen=True)
class PixelMetric:
    """The distances d ** power between the pixels of a grid; a metric, so power is at most 1."""

    height: int
    width: int
    ground: Ground = "euclidean"
    power: float = 1.0

    def __post_init__(self) -> None:
        """Refuse powers for which going by way of a third pixel could be cheaper."""
        if not 0 < self.power <= 1:
            raise MassmoverError(
                f"power is {self.power}: distance ** power is a metric for powers above 0 and at most 1 only, "
                "and the c-transform needs a metric"
            )

    def between(self, dy: int, dx: int) -> float:
        """The distance between pixels that are dy rows and dx columns apart."""
        return float(pixel_distance(dy, dx, ground=self.ground) ** self.power)

    def matrix(self) -> NDArray[np.float64]:
        """All distances, (H W, H W), pixels counted row by row."""
        return _matrix(self)

    def neighbours(self, reach: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The offsets (n, 2) to earlier neighbours that no chain of nearer ones replaces, and their distances (n,)."""
        return _neighbours(self, reach)

    def detour(self, reach: int) -> float:
        """How many times longer than the distance the way by such neighbours is, at worst."""
        return _detour(self, reach)


def lower_transform(arrays: Tensor, *, metric: PixelMetric) -> Tensor:
    """The largest 1-Lipschitz arrays below the given ones: `min_j (psi_j + d_ij)` over the last two axes."""
    return _exact(arrays, metric=metric)[0]


def upper_transform(arrays: Tensor, *, metric: PixelMetric) -> Tensor:
    """The smallest 1-Lipschitz arrays above the given ones: `max_j (psi_j - d_ij)` over the last two axes."""
    return _exact(arrays, metric=metric)[1]


def projected(arrays: Tensor, *, metric: PixelMetric) -> Tensor:
    """The mean of the lower and the upper transform: 1-Lipschitz over all pairs of pixels, up to rounding."""
    lower, upper = _exact(arrays, metric=metric)
    return (lower + upper) / 2


@torch.no_grad()
def relax_(columns: Tensor, *, metric: PixelMetric, reach: int = 2) -> None:
    """Bring arrays, given as columns (H W, P) of float32, near the 1-Lipschitz ones, in place and quickly.

    As `projected`, for the distance by way of neighbours within `reach` instead of the distance itself: two sweeps over
    the grid (as for distance transforms of pictures) instead of all pairs of pixels. For the Euclidean ground and
    reach 2 that distance is at most 2.8 % too long, for reach 3 1.4 %, so the result is nearly 1-Lipschitz. Training
    takes this after every step; what a certificate rests on goes through `projected` and is checked.
    """
    offsets, distances = metric.neighbours(reach)
    if find_spec("numba") is not None and columns.device.type == "cpu":
        from massmover.certificates import transform_kernel

        size = np.array([metric.height, metric.width])
        transform_kernel.relax(columns.numpy(), size, offsets, distances.astype(np.float32))
        return
    lower, upper = columns.clone(), -columns
    for _ in range(max(metric.height, metric.width)):
        changed = [_nearer(array, metric=metric, reach=reach) for array in (lower, upper)]
        if not any(changed):
            break
    columns.copy_((lower - upper) / 2)


def _nearer(columns: Tensor, *, metric: PixelMetric, reach: int) -> bool:
    """Let every pixel hear of its neighbours once, in place, without Numba; whether anything changed."""
    grid = columns.view(metric.height, metric.width, -1)
    before = columns.clone()
    offsets, distances = metric.neighbours(reach)
    for (dy, dx), distance in zip(offsets.tolist(), distances.tolist(), strict=True):
        for down, right in ((dy, dx), (-dy, -dx)):
            here = grid[max(0, -down) : metric.height - max(0, down), max(0, -right) : metric.width - max(0, right)]
            there = grid[max(0, down) : metric.height + min(0, down), max(0, right) : metric.width + min(0, right)]
            here.copy_(torch.minimum(here, there + distance))
    return not torch.equal(before, columns)


def _exact(arrays: Tensor, *, metric: PixelMetric) -> tuple[Tensor, Tensor]:
    """Lower and upper transform over all pairs of pixels, in the number type of the arrays."""
    columns = arrays.detach().reshape(-1, metric.height * metric.width).T.contiguous()  # (H W, P)
    matrix = metric.matrix()
    if find_spec("numba") is not None and columns.device.type == "cpu":
        from massmover.certificates import transform_kernel

        values = columns.numpy()
        lower, upper = (
            torch.from_numpy(part) for part in transform_kernel.transform(values, matrix.astype(values.dtype))
        )
    else:
        distances = torch.tensor(matrix).to(columns)
        lower = torch.stack([(columns + row[:, None]).amin(0) for row in distances])
        upper = torch.stack([(columns - row[:, None]).amax(0) for row in distances])
    return lower.T.reshape(arrays.shape), upper.T.reshape(arrays.shape)


@lru_cache(maxsize=8)
def _matrix(metric: PixelMetric) -> NDArray[np.float64]:
    apart = np.array([[metric.between(dy, dx) for dx in range(metric.width)] for dy in range(metric.height)])
    y, x = np.divmod(np.arange(metric.height * metric.width), metric.width)
    found: NDArray[np.float64] = apart[np.abs(y[:, None] - y), np.abs(x[:, None] - x)]
    found.setflags(write=False)
    return found


@lru_cache(maxsize=8)
def _neighbours(metric: PixelMetric, reach: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    # A power below 1 makes one long step cheaper than two short ones, so there every offset counts.
    offsets = [
        (dy, dx)
        for dy in range(-min(reach, metric.height - 1), 1)
        for dx in range(-min(reach, metric.width - 1), min(reach, metric.width - 1) + 1)
        if (dy < 0 or dx < 0) and (math.gcd(dy, dx) == 1 or metric.power < 1)
    ]
    distances = [metric.between(dy, dx) for dy, dx in offsets]
    return np.array(offsets, dtype=np.int64).reshape(-1, 2), np.array(distances)


@lru_cache(maxsize=8)
def _detour(metric: PixelMetric, reach: int) -> float:
    # From the first pixel to any other no way turns back, so each pixel hears from those above and to the left alone.
    offsets, distances = metric.neighbours(reach)
    steps = [(-dy, abs(dx), d) for (dy, dx), d in zip(offsets.tolist(), distances.tolist(), strict=True)]
    ways = np.zeros((metric.height, metric.width))
    worst = 1.0
    for y, x in np.ndindex(metric.height, metric.width):
        if y or x:
            ways[y, x] = min(ways[y - dy, x - dx] + d for dy, dx, d in steps if dy <= y and dx <= x)
            worst = max(worst, float(ways[y, x]) / metric.between(y, x))
    return worst
