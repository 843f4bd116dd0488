"""Rows of a plan and their price, one image at a time, for Numba (docs/algorithms.md, section 4).

The arithmetic of `potential.priced_plan`. An image is laid out flat with a border as wide as the window, so that a move
is one shift for all pixels and every loop runs over a stretch of memory. The search calls these kernels with float32
arrays (`fused_kernel`), the proof with float64 (`proof_kernel`); the arrays of the batch decide.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

LOG2_E = 1.4426950408889634
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it to a small float64 leaves the nearest integer in the last bits
DEAREST = 1e30  # the price of an image without a budget


class Table(NamedTuple):
    """A window's moves but "stay" (K - 1, 2), the ring of each, and the cost of each ring, as arrays."""

    moves: Any
    ring_of: Any
    costs: Any
    reach: Any  # rows, columns
    place: Any  # (K - 1,), of each move in the order of a written-out plan
    back: Any  # (K - 1,), the move that undoes each


class Batch(NamedTuple):
    """The arguments of `priced_plan`, as arrays."""

    potential: Any
    originals: Any
    budget: Any
    weights: Any
    relative: Any
    guess: Any


class Field(NamedTuple):
    """The box of one image that holds all its mass, laid out flat with a border as wide as the window.

    A move is then one shift for all pixels. Full arrays have `size` numbers a channel, border included. Rows of the
    plan belong to the stretch of `length` pixels from `start` on, which holds all mass; in between lie pixels without
    any, whose rows are zero.
    """

    top: int  # row and column of the image where the field begins; negative where it begins outside
    left: int
    high: int
    wide: int
    shift: Any  # (K - 1,), of each move
    start: int
    length: int
    potential: Any  # (C, size)
    mass: Any  # (C, size)
    shares: Any  # (C, K - 1, length), part of the row along each move, later the mass
    stay: Any  # (C, length), part of the row that stays
    sums: Any  # (C, R, length), shares added up over rings
    paid: Any  # (C, length), weighted mass


@njit(cache=True)
def _box(image):  # type: ignore[no-untyped-def]
    """The rows and columns that hold all mass, first and behind the last; one pixel where there is no mass."""
    channels, height, width = image.shape
    top, bottom, left, right = height, 0, width, 0
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                if image[c, y, x] > 0:
                    top, bottom = min(top, y), max(bottom, y + 1)
                    left, right = min(left, x), max(right, x + 1)
    if bottom == 0:
        return 0, 1, 0, 1
    return top, bottom, left, right


@njit(cache=True)
def copy(source, target):  # type: ignore[no-untyped-def]
    """Write one array into another: to assign it would compile seconds of code for an error that cannot occur."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@njit(cache=True)
def lay_out(batch, b, table):  # type: ignore[no-untyped-def]
    """The part of the image that mass can reach, in one stretch; only the rows that hold mass get a plan."""
    originals, potential = batch.originals[b], batch.potential[b]
    channels, height, width = originals.shape
    kind = originals.dtype
    rows, columns = table.reach
    top, bottom, left, right = _box(originals)
    high, wide = bottom - top + 2 * rows, right - left + 2 * columns
    size, count = high * wide + 2 * columns, (bottom - top) * wide
    top, left, start = top - rows, left - columns, columns + rows * wide
    # Nothing goes outside: there the potential is lower than anywhere inside, yet finite, for it will be subtracted.
    lowest = np.finfo(kind).min / kind.type(4)
    edges = np.full((channels, size), lowest)
    mass = np.zeros((channels, size), dtype=kind)
    first, last = max(left, 0), min(left + wide, width)
    for c in range(channels):
        for y in range(max(top, 0), min(top + high, height)):
            at = columns + (y - top) * wide - left
            for x in range(first, last):
                edges[c, at + x] = min(max(potential[c, y, x], lowest / kind.type(2)), -lowest)
            copy(originals[c, y, first:last], mass[c, at + first : at + last])
    shift = np.empty(table.moves.shape[0], dtype=np.int64)
    for k in range(shift.shape[0]):
        shift[k] = table.moves[k, 0] * wide + table.moves[k, 1]
    shares = np.empty((channels, table.moves.shape[0], count), dtype=kind)
    stay = np.empty((channels, count), dtype=kind)
    sums = np.empty((channels, table.costs.shape[0], count), dtype=kind)
    paid = np.empty((channels, count), dtype=kind)
    for c in range(channels):
        weight = kind.type(batch.weights[b, c])
        for i in range(count):
            paid[c, i] = mass[c, start + i] * weight
    return Field(top, left, high, wide, shift, start, count, edges, mass, shares, stay, sums, paid)


@njit(cache=True, error_model="numpy")
def _write_rows(batch, b, field, table, price):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    start, count, kind = field.start, field.length, field.mass.dtype
    best, scale = np.empty(count, dtype=kind), np.empty(count, dtype=kind)
    for c in range(field.potential.shape[0]):
        here = field.potential[c, start : start + count]
        copy(here, best)
        for k in range(field.shift.shape[0]):
            toll = kind.type(price * batch.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            for i in range(count):
                best[i] = max(best[i], there[i] - toll)
        field.sums[c] = 0.0
        for k in range(field.shift.shape[0]):
            toll = kind.type(price * batch.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            share, total = field.shares[c, k], field.sums[c, table.ring_of[k]]
            _exponential(there, toll, best, scale, share)
            for i in range(count):
                total[i] += share[i]
        _exponential(here, kind.type(0.0), best, scale, field.stay[c])


def _exponential(score: Any, toll: Any, best: Any, scale: Any, out: Any) -> None:
    """out = exp(score - toll - best), by splitting off the power of two, which goes straight into a float's bits."""
    raise NotImplementedError("only compiled code calls this")


@overload(_exponential, jit_options={"error_model": "numpy"})
def _exponential_of(score, toll, best, scale, out):  # type: ignore[no-untyped-def]
    return _single if out.dtype == types.float32 else _double


def _single(score, toll, best, scale, out):  # type: ignore[no-untyped-def]
    """The exponential in float32, never below 2**-125."""
    power = scale.view(np.int32)
    for i in range(out.shape[0]):
        t = max((score[i] - toll - best[i]) * np.float32(LOG2_E), np.float32(-125.0))
        whole = np.floor(t)
        f = t - whole
        power[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        out[i] = np.float32(1.0) + f * (
            np.float32(0.6931471806) + f * (np.float32(0.2402265070) + f * (np.float32(0.0555041087)
            + f * (np.float32(0.0096181291) + f * (np.float32(0.0013333558) + f * np.float32(0.000154)))))
        )  # fmt: skip
    for i in range(out.shape[0]):
        out[i] *= scale[i]


def _double(score, toll, best, scale, out):  # type: ignore[no-untyped-def]
    """The exponential in float64, to a few units in the last place; 0 below 2**-1022."""
    power = scale.view(np.int64)
    for i in range(out.shape[0]):
        t = max((score[i] - toll - best[i]) * LOG2_E, -1023.0)
        scale[i] = t + ROUNDER
        f = (t - (scale[i] - ROUNDER)) * 0.6931471805599453  # at most 0.35 either way: eleven terms leave 1e-14
        out[i] = 1.0 + f * (
            1.0 + f * (1 / 2 + f * (1 / 6 + f * (1 / 24 + f * (1 / 120 + f * (1 / 720 + f * (1 / 5040
            + f * (1 / 40320 + f * (1 / 362880 + f * (1 / 3628800 + f * (1 / 39916800))))))))))
        )  # fmt: skip
    for i in range(out.shape[0]):
        power[i] = (power[i] + 1023) << 52
    for i in range(out.shape[0]):
        out[i] *= scale[i]


@njit(cache=True, error_model="numpy")
def add_up(values, count):  # type: ignore[no-untyped-def]
    """Sum of the first numbers of an array, by adding halves in place: an order that vector units like, and no other.

    Compilers may not choose an order of their own (fastmath): what they choose differs between a kernel that was just
    compiled and the same kernel from Numba's cache, and so would results.
    """
    while count > 1:
        half = count // 2
        upper = values[count - half : count]
        for i in range(half):
            values[i] += upper[i]
        count -= half
    return values[0]


@njit(cache=True, error_model="numpy")
def _spent(field, c, rate, costs):  # type: ignore[no-untyped-def]
    """Cost of one channel's rows at a rate per distance, and minus its derivative by the rate."""
    sums, stay, paid, kind = field.sums[c], field.stay[c], field.paid[c], field.mass.dtype
    rings = sums.shape[0]
    size = 128  # pixels at a time: the partial sums stay in registers' reach, and float32 sums stay short
    total = np.empty(size, dtype=kind)
    first = np.empty(size, dtype=kind)
    second = np.empty(size, dtype=kind)
    cost, spread = np.float64(0.0), np.float64(0.0)
    for begin in range(0, field.length, size):
        count = min(size, field.length - begin)
        weight = paid[begin : begin + count]
        copy(stay[begin : begin + count], total)
        first[:] = 0.0
        second[:] = 0.0
        for r in range(rings):
            k, d = kind.type(math.exp(-rate * costs[r])), kind.type(costs[r])
            ring = sums[r, begin : begin + count]
            for i in range(count):
                s = k * ring[i]
                total[i] += s
                first[i] += d * s
                second[i] += d * d * s
        for i in range(count):
            one = kind.type(1.0) / total[i]
            mean = first[i] * one
            first[i] = weight[i] * mean
            second[i] = weight[i] * (second[i] * one - mean * mean)
        cost += add_up(first, count)
        spread += add_up(second, count)
    return cost, spread


@njit(cache=True)
def price_of(batch, b, field, table, floor, accuracy):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget to an accuracy, and the price its shares are written at.

    Newton on the logarithm of the cost, kept in a bracket. Shares hold for prices near the one they were written at
    (float32 exponentials reach no further) and are written anew when the search leaves that neighbourhood.
    """
    relative, budget, costs = batch.relative[b], batch.budget[b], table.costs
    low, high, point = floor, math.inf, max(batch.guess[b], floor)
    reference = math.inf
    farthest = costs[-1] if costs.shape[0] else 1.0
    most = 0.0
    for c in range(relative.shape[0]):
        most = max(most, relative[c])
    for attempt in range(200):
        if not abs(point - reference) * farthest * most <= 40.0:
            reference = point
            _write_rows(batch, b, field, table, reference)
        cost = 0.0
        slope = 0.0
        for c in range(relative.shape[0]):
            part, spread = _spent(field, c, (point - reference) * relative[c], costs)
            cost += part
            slope -= spread * relative[c]
        if cost > budget:
            low = point
        else:
            high = point
        if point == floor and cost <= budget:
            break
        if abs(cost - budget) <= accuracy * budget or point > DEAREST:
            break
        if budget <= 0.0:
            point = DEAREST
            break
        if high - low <= min(accuracy, 1e-9) * low:
            point = high  # a cliff: sums cannot meet the budget, so stay on the side that can be paid
            break
        newton = point
        if slope < 0.0 and cost > 0.0 and budget > 0.0:
            newton = point + math.log(cost / budget) * cost / -slope
        if high == math.inf:
            newton = min(newton, 4.0 * low + 8.0)
        if attempt % 4 == 3 and high < math.inf:
            point = 0.5 * (low + high)  # Newton may creep along a cliff
        elif low == floor and cost <= budget and (newton <= floor or newton >= point):
            point = floor
        elif newton > low and newton < high:
            point = newton
        elif high == math.inf:
            point = 4.0 * low + 8.0
        else:
            point = 0.5 * (low + high)
    if not abs(point - reference) * farthest * most <= 40.0:
        reference = point
        _write_rows(batch, b, field, table, reference)
    return point, reference


@njit(cache=True, error_model="numpy")
def scale_of(field, table, c, rate):  # type: ignore[no-untyped-def]
    """What turns shares into mass: a factor for each ring and one for each pixel; and what each pixel then pays."""
    start, count, kind = field.start, field.length, field.mass.dtype
    mass = field.mass[c, start : start + count]
    source, paid = field.stay[c].copy(), np.zeros(count, dtype=kind)
    decay = np.empty(table.costs.shape[0], dtype=kind)
    for r in range(decay.shape[0]):
        decay[r] = math.exp(-rate * table.costs[r])
        k, d, ring = decay[r], kind.type(table.costs[r]), field.sums[c, r]
        for i in range(count):
            s = k * ring[i]
            source[i] += s
            paid[i] += d * s
    for i in range(count):
        source[i] = mass[i] / source[i]
        paid[i] *= source[i]
    return decay, source, paid


@njit(cache=True, error_model="numpy")
def write_flows(field, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass sent along each move."""
    decay, source, _ = scale_of(field, table, c, rate)
    for k in range(field.shift.shape[0]):
        d, share = decay[table.ring_of[k]], field.shares[c, k]
        for i in range(field.length):
            share[i] *= d * source[i]


@njit(cache=True, error_model="numpy")
def cancel_swaps(field, table, c):  # type: ignore[no-untyped-def]
    """Let stay what two pixels would exchange, as `repair.without_swaps`.

    Returns how much mass that is at each pixel, and what its moves would have cost (in sums that belong to no pixel).
    """
    start, count, kind = field.start, field.length, field.mass.dtype
    stays, both = np.zeros(field.mass.shape[1], dtype=kind), np.empty(count, dtype=kind)
    saved = np.zeros(count, dtype=kind)
    for k in range(field.shift.shape[0]):
        shift = field.shift[k]
        if shift <= 0:  # a move and the one that undoes it are dealt with once
            continue
        pairs, twice = max(count - shift, 0), kind.type(2.0 * table.costs[table.ring_of[k]])
        there, back = field.shares[c, k, :pairs], field.shares[c, table.back[k], count - pairs :]
        near, far = stays[start : start + pairs], stays[start + count - pairs : start + count]
        for i in range(pairs):
            both[i] = min(there[i], back[i])
            there[i] -= both[i]
            back[i] -= both[i]
        for i in range(pairs):
            near[i] += both[i]
            saved[i] += twice * both[i]
        for i in range(pairs):
            far[i] += both[i]
    return stays, saved
