"""The dumb twin: plans as full pixel x pixel matrices, built by loops. Used to check the fast geometry."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from massmover.geometry import Window

Matrix = NDArray[np.float64]


def cost_matrix(height: int, width: int, *, ground: str = "euclidean", power: float = 1.0) -> Matrix:
    """Cost of moving a unit of mass from pixel i to pixel j, pixels numbered row by row."""
    pixels = list(itertools.product(range(height), range(width)))
    costs = np.zeros((len(pixels), len(pixels)))
    for i, (y, x) in enumerate(pixels):
        for j, (v, u) in enumerate(pixels):
            dy, dx = abs(y - v), abs(x - u)
            distance = {"euclidean": math.hypot(dy, dx), "manhattan": dy + dx, "chebyshev": max(dy, dx)}[ground]
            costs[i, j] = distance**power
    return costs


def dense_plan(flows: Matrix, window: Window) -> Matrix:
    """One channel's local plan (K, H, W) as a matrix; flow that leaves the image must be zero."""
    _, height, width = flows.shape
    plan = np.zeros((height * width, height * width))
    for k, (dy, dx) in enumerate(window.offsets):
        for y, x in itertools.product(range(height), range(width)):
            v, u = y + dy, x + dx
            if 0 <= v < height and 0 <= u < width:
                plan[y * width + x, v * width + u] += flows[k, y, x]
            else:
                assert flows[k, y, x] == 0
    return plan
