"""`move_mass` for CPUs, one image per task, everything in cache.

The same arithmetic as `potential.move_mass`, fused into one pass per image with Numba. Rows without mass are left out
of the price search, which on digits is most of them. Finished images cost nothing, for they are not in the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit, prange

from massmover.geometry import Window
from massmover.transport.potential import SEND_BACK_SWEEPS, Move, relative_weights
from massmover.types import Images, PerChannel, PerImage


def move_mass_fused(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
) -> Move:
    """`move_mass` for float32 images on the CPU."""
    pairs, costs = ring_table(window)
    relative = relative_weights(weights, originals)
    guess = torch.ones_like(budget) if price is None else price
    images, prices = move_batch(
        potential.contiguous().numpy(),
        originals.contiguous().numpy(),
        budget.double().numpy(),
        weights.double().contiguous().numpy(),
        relative.double().contiguous().numpy(),
        pairs,
        costs,
        window.rows,
        window.columns,
        guess.double().numpy(),
        SEND_BACK_SWEEPS,
    )
    return Move(images=torch.from_numpy(images), price=torch.from_numpy(prices))


@lru_cache(maxsize=64)
def ring_table(window: Window) -> tuple[Any, Any]:
    """The rings as arrays: pairs (P, 3) of (abs(dy), abs(dx), ring), and the costs (R,)."""
    pairs = [(dy, dx, number) for number, ring in enumerate(window.rings) for dy, dx in ring.pairs]
    costs = np.array([ring.cost for ring in window.rings], dtype=np.float64)
    return np.array(pairs, dtype=np.int64).reshape(-1, 3), costs


@njit(cache=True, fastmath=True, inline="always")
def _pair_columns(values, rows, columns, padded, paired):  # type: ignore[no-untyped-def]
    """paired[dx, rows + y, x] = the two pixels dx columns left and right of (y, x); rows stay padded with zeros."""
    height, width = values.shape
    for y in range(height):
        for x in range(width):
            padded[columns + x] = values[y, x]
        for x in range(width):
            paired[0, rows + y, x] = padded[columns + x]
        for dx in range(1, columns + 1):
            for x in range(width):
                paired[dx, rows + y, x] = padded[columns + x + dx] + padded[columns + x - dx]


@njit(cache=True, fastmath=True, inline="always")
def _add_around(paired, pairs, decay, rows, out):  # type: ignore[no-untyped-def]
    """out = sum over rings of decay times the ring's sum."""
    height, width = out.shape
    for y in range(height):
        for x in range(width):
            out[y, x] = 0.0
        for p in range(pairs.shape[0]):
            dy, dx, k = pairs[p, 0], pairs[p, 1], decay[pairs[p, 2]]
            if dy == 0:
                for x in range(width):
                    out[y, x] += k * paired[dx, rows + y, x]
            else:
                for x in range(width):
                    out[y, x] += k * (paired[dx, rows + y + dy, x] + paired[dx, rows + y - dy, x])


@njit(cache=True, fastmath=True)
def _spent(sums, stay, paid, relative, costs, price):  # type: ignore[no-untyped-def]
    """Cost at a price and its derivative, over the pixels of one channel that hold mass."""
    rings, pixels = sums.shape
    decay = np.empty(rings, dtype=sums.dtype)
    for r in range(rings):
        decay[r] = math.exp(-price * relative * costs[r])
    cost = 0.0
    slope = 0.0
    block = 64
    total = np.empty(block, dtype=sums.dtype)
    first = np.empty(block, dtype=sums.dtype)
    second = np.empty(block, dtype=sums.dtype)
    for start in range(0, pixels, block):
        count = min(block, pixels - start)
        for i in range(count):
            total[i] = stay[start + i]
            first[i] = 0.0
            second[i] = 0.0
        for r in range(rings):
            k = decay[r]
            kd = k * sums.dtype.type(costs[r])
            kdd = kd * sums.dtype.type(costs[r])
            for i in range(count):
                s = sums[r, start + i]
                total[i] += k * s
                first[i] += kd * s
                second[i] += kdd * s
        partial = sums.dtype.type(0.0)
        partial_slope = sums.dtype.type(0.0)
        for i in range(count):
            mean = first[i] / total[i]
            partial += paid[start + i] * mean
            partial_slope += paid[start + i] * (second[i] / total[i] - mean * mean)
        cost += partial
        slope -= partial_slope * relative
    return cost, slope


@njit(cache=True, fastmath=False)
def _price(sums, stay, paid, starts, relative, costs, budget, guess, accuracy):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget: Newton on the logarithm, kept in a bracket."""
    channels = relative.shape[0]
    low, high = 0.0, math.inf
    best = math.inf
    point = guess
    for _ in range(100):
        cost = 0.0
        slope = 0.0
        for c in range(channels):
            if starts[c + 1] > starts[c]:
                a, b = starts[c], starts[c + 1]
                part, part_slope = _spent(sums[:, a:b], stay[a:b], paid[a:b], relative[c], costs, point)
                cost += part
                slope += part_slope
        if cost > budget:
            low = point
        else:
            high = point
            best = min(best, point)
            if point == 0.0:
                return 0.0
        if abs(cost - budget) <= accuracy * budget:
            return point
        if high - low <= accuracy * low:
            break
        newton = point
        if slope < 0.0 and cost > 0.0 and budget > 0.0:
            newton = point + math.log(cost / budget) * cost / -slope
            if high == math.inf:
                newton = min(newton, 4.0 * low + 8.0)
        if newton <= 0.0 and low == 0.0:
            point = 0.0
        elif newton > low and newton < high:
            point = newton
        elif high == math.inf:
            point = 2.0 * low + 1.0
        else:
            point = 0.5 * (low + high)
    return min(best, high)


@njit(cache=True, fastmath=False)
def _move_one(potential, originals, budget, weights, relative, pairs, costs, rows, columns, guess, sweeps, images):  # type: ignore[no-untyped-def]  # noqa: E501
    channels, height, width = originals.shape
    kind = originals.dtype.type
    rings = costs.shape[0]
    pixels = height * width
    top = -math.inf
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                top = max(top, potential[c, y, x])
    target = np.empty((channels, height, width), dtype=originals.dtype)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                target[c, y, x] = math.exp(max(potential[c, y, x] - kind(top), kind(-80.0)))

    padded = np.zeros(width + 2 * columns, dtype=originals.dtype)
    paired = np.zeros((columns + 1, height + 2 * rows, width), dtype=originals.dtype)
    ring = np.empty((height, width), dtype=originals.dtype)
    unit = np.zeros(rings, dtype=originals.dtype)
    # Ring sums, kept only where there is mass to send.
    sums = np.empty((rings, channels * pixels), dtype=originals.dtype)
    stay = np.empty(channels * pixels, dtype=originals.dtype)
    paid = np.empty(channels * pixels, dtype=originals.dtype)
    place = np.empty(channels * pixels, dtype=np.int64)
    starts = np.zeros(channels + 1, dtype=np.int64)
    count = 0
    for c in range(channels):
        first = count
        for y in range(height):
            for x in range(width):
                if originals[c, y, x] > 0:
                    stay[count] = target[c, y, x]
                    paid[count] = originals[c, y, x] * kind(weights[c])
                    place[count] = y * width + x
                    count += 1
        starts[c + 1] = count
        if count == first:
            continue
        _pair_columns(target[c], rows, columns, padded, paired)
        for r in range(rings):
            unit[:] = 0.0
            unit[r] = 1.0
            ring[:] = 0.0
            for p in range(pairs.shape[0]):
                if pairs[p, 2] != r:
                    continue
                dy, dx = pairs[p, 0], pairs[p, 1]
                for y in range(height):
                    if dy == 0:
                        for x in range(width):
                            ring[y, x] += paired[dx, rows + y, x]
                    else:
                        for x in range(width):
                            ring[y, x] += paired[dx, rows + y + dy, x] + paired[dx, rows + y - dy, x]
            flat = ring.ravel()
            for i in range(first, count):
                sums[r, i] = flat[place[i]]
    price = _price(sums[:, :count], stay[:count], paid[:count], starts, relative, costs, budget, guess, 1e-6)

    source = np.zeros((height, width), dtype=originals.dtype)
    inflow = np.empty((height, width), dtype=originals.dtype)
    leaving = np.empty((height, width), dtype=originals.dtype)
    share = np.empty((height, width), dtype=originals.dtype)
    kept = np.empty((height, width), dtype=originals.dtype)
    decay = np.empty(rings, dtype=originals.dtype)
    for c in range(channels):
        for r in range(rings):
            decay[r] = math.exp(-price * relative[c] * costs[r])
        source[:] = 0.0
        flat_source, flat_original = source.ravel(), originals[c].ravel()
        for i in range(starts[c], starts[c + 1]):
            total = stay[i]
            for r in range(rings):
                total += decay[r] * sums[r, i]
            flat_source[place[i]] = flat_original[place[i]] / total
        _pair_columns(source, rows, columns, padded, paired)
        _add_around(paired, pairs, decay, rows, inflow)
        overfull = False
        for y in range(height):
            for x in range(width):
                staying = source[y, x] * target[c, y, x]
                inflow[y, x] *= target[c, y, x]
                leaving[y, x] = originals[c, y, x] - staying
                share[y, x] = 1.0
                wished = staying + inflow[y, x]
                if wished > 1.0 + 1e-6:
                    overfull = True
        sweep = 0
        while overfull and sweep < sweeps:
            for y in range(height):
                for x in range(width):
                    room = max(1 - originals[c, y, x] + leaving[y, x], kind(0.0))
                    if share[y, x] * inflow[y, x] > room + 1e-6:
                        share[y, x] = room / inflow[y, x]
                    kept[y, x] = share[y, x] * target[c, y, x]
            _pair_columns(kept, rows, columns, padded, paired)
            _add_around(paired, pairs, decay, rows, leaving)
            overfull = False
            for y in range(height):
                for x in range(width):
                    leaving[y, x] *= source[y, x]
                    if share[y, x] * inflow[y, x] > 1 - originals[c, y, x] + leaving[y, x] + 1e-6:
                        overfull = True
            sweep += 1
        for y in range(height):
            for x in range(width):
                pixel = originals[c, y, x] - leaving[y, x] + share[y, x] * inflow[y, x]
                images[c, y, x] = min(max(pixel, kind(0.0)), kind(1.0))
    return price


@njit(cache=True, parallel=True)
def move_batch(potential, originals, budget, weights, relative, pairs, costs, rows, columns, guess, sweeps):  # type: ignore[no-untyped-def]  # noqa: E501
    """Move the mass of every image of a batch; returns images and prices."""
    batch = originals.shape[0]
    images = np.empty_like(originals)
    price = np.empty(batch, dtype=np.float64)
    for b in prange(batch):
        price[b] = _move_one(
            potential[b], originals[b], budget[b], weights[b], relative[b], pairs, costs, rows, columns, guess[b],
            sweeps, images[b],
        )  # fmt: skip
    return images, price
