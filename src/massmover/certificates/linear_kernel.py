"""The two inner loops of the linear bounds for Numba: the best rate of a move, and the value of a price.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def best_rates(slope, images, distances):  # type: ignore[no-untyped-def]
    """For slopes (B, n, C, H, W), the best rate (B, n, C) of a move from where the images hold mass.

    `distances` (NEAR + 1, NEAR + 2) holds the lengths of the moves that are looked at, and in its last column, row 0,
    the least length of the others.
    """
    batch, count, channels, height, width = slope.shape
    near = len(distances) - 1
    rates = np.zeros((batch, count, channels))
    for b in range(batch):
        for c in range(channels):
            rows, columns = np.nonzero(images[b, c])
            for n in range(count):
                field = slope[b, n, c]
                best, highest, lowest = 0.0, -np.inf, field.min()
                for k in range(len(rows)):
                    y, x = rows[k], columns[k]
                    here = field[y, x]
                    highest = max(highest, here)
                    for v in range(max(0, y - near), min(height, y + near + 1)):
                        for u in range(max(0, x - near), min(width, x + near + 1)):
                            gain = here - field[v, u]
                            if gain > 0:
                                best = max(best, gain / distances[abs(v - y), abs(u - x)])
                rates[b, n, c] = max(best, (highest - lowest) / distances[0, near + 1])
    return rates


@njit(cache=True)
def priced(values, mass, cost, price):  # type: ignore[no-untyped-def]
    """What the best plan of one channel reaches at a price, the price included, and what it spends."""
    value, spent = 0.0, 0.0
    for i in range(len(mass)):
        least, paid = np.inf, 0.0
        for j in range(len(values)):
            here = values[j] + price * cost[i, j]
            if here < least:
                least, paid = here, cost[i, j]
        value += mass[i] * least
        spent += mass[i] * paid
    return value, spent
