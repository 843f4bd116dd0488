"""Sums over rings of equal cost for one image in Numba, in plain numbers and in logarithms.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from massmover.geometry import Window


@lru_cache(maxsize=64)
def ring_table(window: Window) -> tuple[Any, Any]:
    """The rings as arrays: pairs (M, 3) of abs(dy), abs(dx) and ring, ring by ring, and the cost of each ring (R,)."""
    pairs = [(dy, dx, number) for number, ring in enumerate(window.rings) for dy, dx in ring.pairs]
    costs = np.array([ring.cost for ring in window.rings], dtype=np.float64)
    return np.array(pairs, dtype=np.int64).reshape(-1, 3), costs


@njit(cache=True, error_model="numpy")
def pair_columns(values, rows, columns, padded, paired):  # type: ignore[no-untyped-def]
    """Add the two pixels dx columns left and right of (y, x) into paired[dx, rows + y, x]; its border stays 0."""
    height, width = values.shape
    for y in range(height):
        for x in range(width):
            padded[columns + x] = values[y, x]
            paired[0, rows + y, x] = values[y, x]
        for dx in range(1, columns + 1):
            for x in range(width):
                paired[dx, rows + y, x] = padded[columns + x + dx] + padded[columns + x - dx]


@njit(cache=True, error_model="numpy")
def add_pair(paired, dy, dx, rows, factor, out):  # type: ignore[no-untyped-def]
    """Add factor times the pixels at (+-dy, +-dx) to out."""
    height, width = out.shape
    for y in range(height):
        if dy == 0:
            for x in range(width):
                out[y, x] += factor * paired[dx, rows + y, x]
        else:
            for x in range(width):
                out[y, x] += factor * (paired[dx, rows + y + dy, x] + paired[dx, rows + y - dy, x])


@njit(cache=True)
def log_ring(plane, y, x, r, pairs):  # type: ignore[no-untyped-def]
    """Log of the sum of exp(plane) over ring r around (y, x); minus infinity where nothing is there."""
    height, width = plane.shape
    top, total = -math.inf, 0.0
    for p in range(pairs.shape[0]):
        if pairs[p, 2] != r:
            continue
        dy, dx = pairs[p, 0], pairs[p, 1]
        for v in range(y - dy, y + dy + 1, max(2 * dy, 1)):
            for u in range(x - dx, x + dx + 1, max(2 * dx, 1)):
                if v < 0 or v >= height or u < 0 or u >= width or plane[v, u] == -math.inf:
                    continue
                if plane[v, u] > top:
                    total = total * math.exp(top - plane[v, u]) + 1.0
                    top = plane[v, u]
                else:
                    total += math.exp(plane[v, u] - top)
    return top + math.log(total) if total > 0.0 else -math.inf


@njit(cache=True)
def log_total(terms, unit, costs):  # type: ignore[no-untyped-def]
    """Log of exp(terms[0]) + sum_r exp(terms[1 + r] - unit costs[r])."""
    top = terms[0]
    for r in range(costs.shape[0]):
        top = max(top, terms[1 + r] - unit * costs[r])
    if top == -math.inf:
        return top
    total = math.exp(terms[0] - top)
    for r in range(costs.shape[0]):
        total += math.exp(terms[1 + r] - unit * costs[r] - top)
    return top + math.log(total)


@njit(cache=True)
def wright_omega(t):  # type: ignore[no-untyped-def]
    """`lambert.wright_omega` of one number."""
    if t < -36.0:  # w = exp(t) to the last bit
        return math.exp(t)
    if t < -2.0:
        x = math.exp(t)
        w = x * (1.0 - x * (1.0 - 1.5 * x))
    elif t < 4.0:
        s = t - 1.0
        w = 1.0 + s * (0.5 + s * (0.0625 - s / 192.0))
    else:
        logarithm = math.log(t)
        w = t - logarithm + logarithm / t
    for _ in range(3):
        r = t - w - math.log(w)
        a = 1.0 + w
        b = a * (a + 2.0 * r / 3.0)
        w *= 1.0 + (r / a) * (b - 0.5 * r) / (b - r)
        if abs(r) <= 1e-4 * a:  # the step is of fourth order: what it leaves is below one unit
            break
    return w
