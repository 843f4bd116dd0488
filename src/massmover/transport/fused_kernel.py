"""The fused kernel: one image per call, everything in cache (docs/algorithms.md, section 4).

The arithmetic of `potential.move_mass_torch`, written for Numba. An image is laid out flat with a border as wide as the
window, so that a move is one shift for all pixels and every loop runs over a stretch of memory.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from massmover.transport.potential import SEND_BACK_SWEEPS

LOG2_E = np.float32(1.4426950408889634)
LEAST_MOBILE = np.float32(1e-6)
SPECK = np.float32(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow
ROOT_ACCURACY = 1e-6  # of the budget; the certificate solves it to float64


class Table(NamedTuple):
    """A window's moves but "stay" (K - 1, 2), the ring of each, the cost of each ring, and its reach, as arrays."""

    moves: Any
    ring_of: Any
    costs: Any
    reach: Any  # rows, columns


class Batch(NamedTuple):
    """The arguments of `move_mass`, as arrays."""

    potential: Any
    originals: Any
    budget: Any
    weights: Any
    relative: Any
    guess: Any


class Answer(NamedTuple):
    """Where the answers go."""

    images: Any
    crowding: Any
    price: Any
    spent: Any


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


@njit(cache=True, nogil=True)
def move_images(batch, answer, table, floor):  # type: ignore[no-untyped-def]
    """Move the mass of every image of a batch."""
    for b in range(batch.originals.shape[0]):
        answer.price[b] = _move_one(batch, b, answer, table, floor)


@njit(cache=True)
def _move_one(batch, b, answer, table, floor):  # type: ignore[no-untyped-def]
    channels, height, width = batch.originals[b].shape
    field = _lay_out(batch, b, table)
    price, reference = _price(batch, b, field, table, floor)
    first, last = max(field.left, 0), min(field.left + field.wide, width)
    answer.images[b] = 0.0
    answer.crowding[b] = -1.0 / LEAST_MOBILE
    answer.spent[b] = 0.0
    for c in range(channels):
        _flows(field, table, c, (price - reference) * batch.relative[b, c])
        moved, crowding, spent = _arrive(field, table, c)
        answer.spent[b] += spent * batch.weights[b, c]
        for y in range(max(field.top, 0), min(field.top + field.high, height)):
            at = table.reach[1] + (y - field.top) * field.wide - field.left
            answer.images[b, c, y, first:last] = moved[at + first : at + last]
            answer.crowding[b, c, y, first:last] = crowding[at + first : at + last]
    return price


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
def _lay_out(batch, b, table):  # type: ignore[no-untyped-def]
    """The part of the image that mass can reach, in one stretch; only the rows that hold mass get a plan."""
    originals, potential = batch.originals[b], batch.potential[b]
    channels, height, width = originals.shape
    rows, columns = table.reach
    top, bottom, left, right = _box(originals)
    high, wide = bottom - top + 2 * rows, right - left + 2 * columns
    size, count = high * wide + 2 * columns, (bottom - top) * wide
    top, left, start = top - rows, left - columns, columns + rows * wide
    edges = np.full((channels, size), np.float32(-1e30))
    mass = np.zeros((channels, size), dtype=np.float32)
    first, last = max(left, 0), min(left + wide, width)
    for c in range(channels):
        for y in range(max(top, 0), min(top + high, height)):
            at = columns + (y - top) * wide - left
            edges[c, at + first : at + last] = potential[c, y, first:last]
            mass[c, at + first : at + last] = originals[c, y, first:last]
    shift = table.moves[:, 0] * wide + table.moves[:, 1]
    shares = np.empty((channels, table.moves.shape[0], count), dtype=np.float32)
    stay = np.empty((channels, count), dtype=np.float32)
    sums = np.empty((channels, table.costs.shape[0], count), dtype=np.float32)
    paid = np.empty((channels, count), dtype=np.float32)
    for c in range(channels):
        paid[c] = mass[c, start : start + count] * np.float32(batch.weights[b, c])
    return Field(top, left, high, wide, shift, start, count, edges, mass, shares, stay, sums, paid)


@njit(cache=True, error_model="numpy")
def _write_rows(batch, b, field, table, price):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    start, count = field.start, field.length
    best = np.empty(count, dtype=np.float32)
    power = np.empty(count, dtype=np.int32)
    for c in range(field.potential.shape[0]):
        here = field.potential[c, start : start + count]
        best[:] = here
        for k in range(field.shift.shape[0]):
            toll = np.float32(price * batch.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            for i in range(count):
                best[i] = max(best[i], there[i] - toll)
        field.sums[c] = 0.0
        for k in range(field.shift.shape[0]):
            toll = np.float32(price * batch.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            share, total = field.shares[c, k], field.sums[c, table.ring_of[k]]
            _exponential(there, toll, best, power, share)
            for i in range(count):
                total[i] += share[i]
        _exponential(here, np.float32(0.0), best, power, field.stay[c])


@njit(cache=True, error_model="numpy")
def _exponential(score, toll, best, power, out):  # type: ignore[no-untyped-def]
    """out = exp(score - toll - best), by splitting off the power of two, which goes straight into a float's bits."""
    scale = power.view(np.float32)
    for i in range(out.shape[0]):
        t = max((score[i] - toll - best[i]) * LOG2_E, np.float32(-125.0))
        whole = np.floor(t)
        f = t - whole
        power[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        out[i] = np.float32(1.0) + f * (
            np.float32(0.6931471806) + f * (np.float32(0.2402265070) + f * (np.float32(0.0555041087)
            + f * (np.float32(0.0096181291) + f * (np.float32(0.0013333558) + f * np.float32(0.000154)))))
        )  # fmt: skip
    for i in range(out.shape[0]):
        out[i] *= scale[i]


@njit(cache=True, error_model="numpy")
def _sum(values, count):  # type: ignore[no-untyped-def]
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
    sums, stay, paid = field.sums[c], field.stay[c], field.paid[c]
    rings = sums.shape[0]
    size = 128  # pixels at a time: the partial sums stay in registers' reach, and float32 sums stay short
    total = np.empty(size, dtype=np.float32)
    first = np.empty(size, dtype=np.float32)
    second = np.empty(size, dtype=np.float32)
    cost, spread = np.float64(0.0), np.float64(0.0)
    for begin in range(0, field.length, size):
        count = min(size, field.length - begin)
        weight = paid[begin : begin + count]
        total[:count] = stay[begin : begin + count]
        first[:] = 0.0
        second[:] = 0.0
        for r in range(rings):
            k, d = np.float32(math.exp(-rate * costs[r])), np.float32(costs[r])
            ring = sums[r, begin : begin + count]
            for i in range(count):
                s = k * ring[i]
                total[i] += s
                first[i] += d * s
                second[i] += d * d * s
        for i in range(count):
            one = np.float32(1.0) / total[i]
            mean = first[i] * one
            first[i] = weight[i] * mean
            second[i] = weight[i] * (second[i] * one - mean * mean)
        cost += _sum(first, count)
        spread += _sum(second, count)
    return cost, spread


@njit(cache=True)
def _price(batch, b, field, table, floor):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget, and the price its shares are written at.

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
        if abs(cost - budget) <= ROOT_ACCURACY * budget or point > 1e30:
            break
        if high - low <= 1e-9 * low:
            point = high  # a cliff: float32 sums cannot meet the budget, so stay on the side that can be paid
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
def _flows(field, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass sent along each move."""
    start, count = field.start, field.length
    mass = field.mass[c, start : start + count]
    source = field.stay[c].copy()
    decay = np.exp(-rate * table.costs).astype(np.float32)
    for r in range(decay.shape[0]):
        k, ring = decay[r], field.sums[c, r]
        for i in range(count):
            source[i] += k * ring[i]
    for i in range(count):
        source[i] = mass[i] / source[i]
    for k in range(field.shift.shape[0]):
        d, share = decay[table.ring_of[k]], field.shares[c, k]
        for i in range(count):
            share[i] *= d * source[i]


@njit(cache=True, error_model="numpy")
def _arrive(field, table, c):  # type: ignore[no-untyped-def]
    """Let mass arrive; pixels that overflow send it back, and their share of the inflow falls until all fit."""
    start, count, mass = field.start, field.length, field.mass[c]
    size = mass.shape[0]
    inflow, leaving = np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    mobile = np.full(size, LEAST_MOBILE)  # how fast a pixel's mass grows with its potential
    left, mine = leaving[start : start + count], mobile[start : start + count]
    inverse = np.empty(count, dtype=np.float32)
    for i in range(count):
        there = mass[start + i]
        inverse[i] = np.float32(1.0) / there if there > SPECK else np.float32(0.0)
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], start + field.shift[k]
        arriving, growing = inflow[at : at + count], mobile[at : at + count]
        for i in range(count):
            f = flow[i]
            arriving[i] += f
            growing[i] += f * (np.float32(1.0) - f * inverse[i])
        for i in range(count):
            left[i] += flow[i]
    for i in range(count):
        mine[i] += left[i] * (np.float32(1.0) - left[i] * inverse[i])
    crowding, share = np.empty(size, dtype=np.float32), np.ones(size, dtype=np.float32)
    for p in range(size):
        crowding[p] = (mass[p] - leaving[p] + inflow[p] - np.float32(1.0)) / mobile[p]
    for _ in range(SEND_BACK_SWEEPS):
        overfull = 0
        for p in range(size):
            room = max(np.float32(1.0) - mass[p] + leaving[p], np.float32(0.0))
            if share[p] * inflow[p] > room + np.float32(1e-6):
                share[p] = room / inflow[p]
                overfull += 1
        if overfull == 0:
            break
        left[:] = 0.0
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept = share[at : at + count]
            for i in range(count):
                left[i] += flow[i] * kept[i]
    spent = np.float64(0.0)
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], start + field.shift[k]
        kept = share[at : at + count]
        for i in range(count):
            flow[i] *= kept[i]
        spent += _sum(flow, count) * table.costs[table.ring_of[k]]
    moved = np.empty(size, dtype=np.float32)
    for p in range(size):
        moved[p] = min(max(mass[p] - leaving[p] + share[p] * inflow[p], np.float32(0.0)), np.float32(1.0))
    return moved, crowding, spent
