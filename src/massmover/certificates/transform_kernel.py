"""The c-transform for Numba: potentials lie side by side, so that the inner loop runs over them.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 64  # potentials at a time: with 784 pixels in float32 a block stays in the second-level cache


@njit(cache=True)
def transform(columns, distances):  # type: ignore[no-untyped-def]
    """Lower and upper transform of every column (N, P) under the distances (N, N)."""
    pixels, count = columns.shape
    lower, upper = columns.copy(), columns.copy()
    for start in range(0, count, BLOCK):
        end = min(count, start + BLOCK)
        block = columns[:, start:end].copy()
        for i in range(pixels):
            low, high = block[i].copy(), block[i].copy()
            for j in range(pixels):
                distance, other = distances[i, j], block[j]
                for p in range(end - start):
                    longer = other[p] + distance
                    low[p] = longer if longer < low[p] else low[p]
                    shorter = other[p] - distance
                    high[p] = shorter if shorter > high[p] else high[p]
            lower[i, start:end] = low
            upper[i, start:end] = high
    return lower, upper


@njit(cache=True)
def relax(columns, size, offsets, distances):  # type: ignore[no-untyped-def]
    """Mean of lower and upper transform by way of neighbours, in place."""
    pixels, count = columns.shape
    for start in range(0, count, BLOCK):
        end = min(count, start + BLOCK)
        lower = columns[:, start:end].copy()
        upper = -lower
        for array in (lower, upper):
            _sweep(array, size, offsets, distances, 1)
            _sweep(array, size, offsets, distances, -1)
        for i in range(pixels):
            for p in range(end - start):
                columns[i, start + p] = (lower[i, p] - upper[i, p]) * np.float32(0.5)


@njit(cache=True)
def _sweep(array, size, offsets, distances, direction):  # type: ignore[no-untyped-def]
    """Let every pixel hear of the neighbours before it, in reading order or (direction -1) against it."""
    height, width = size
    for step in range(height * width):
        i = step if direction > 0 else height * width - 1 - step
        y, x = i // width, i % width
        here = array[i]
        for k in range(len(distances)):
            v, u = y + direction * offsets[k, 0], x + direction * offsets[k, 1]
            if 0 <= v < height and 0 <= u < width:
                there, distance = array[v * width + u], distances[k]
                for p in range(len(here)):
                    longer = there[p] + distance
                    here[p] = longer if longer < here[p] else here[p]
