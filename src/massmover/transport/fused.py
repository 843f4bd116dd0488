"""`move_mass` for float32 images on CPUs: one image per task, everything in cache.

The same arithmetic as `potential.move_mass_torch`, fused with Numba. Only pixels that hold mass have a row, which
on digits is one in five; finished images cost nothing, for they are not in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit

from massmover.geometry import Window
from massmover.transport.potential import SEND_BACK_SWEEPS, Move, relative_weights
from massmover.types import Images, PerChannel, PerImage

LOG2_E = np.float32(1.4426950408889634)
SPECK = np.float32(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow
ROOT_ACCURACY = 1e-6  # of the budget; the certificate solves it to float64


class Table(NamedTuple):
    """A window's moves but "stay" (K - 1, 2), the ring of each, and the cost of each ring, as arrays."""

    moves: Any
    ring_of: Any
    costs: Any


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


class Rows(NamedTuple):
    """The rows of one image's plan: one for each pixel that holds mass, channel after channel."""

    place: Any  # pixel number of each row, within its channel
    starts: Any  # first row of each channel
    shares: Any  # part of the row along each move, later the mass
    stay: Any  # part of the row that stays
    paid: Any  # weighted mass of the row
    sums: Any  # shares added up over rings


def move_mass_fused(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> Move:
    """`move_mass` for float32 images on the CPU."""
    table = table_of(window)
    moved = torch.empty_like(originals, memory_format=torch.contiguous_format)
    crowding, prices = torch.empty_like(moved), torch.empty_like(budget)
    batch = Batch(
        potential.contiguous().numpy(),
        originals.contiguous().numpy(),
        budget.double().numpy(),
        weights.double().contiguous().numpy(),
        relative_weights(weights, originals).double().contiguous().numpy(),
        (torch.ones_like(budget) if price is None else price).double().numpy(),
    )
    answer = Answer(moved.numpy(), crowding.numpy(), prices.numpy())

    def work(part: slice) -> None:
        mine, out = Batch(*(array[part] for array in batch)), Answer(*(array[part] for array in answer))
        _move_images(mine, out, table, floor)

    in_parallel(work, count=len(originals))
    return Move(images=moved, price=prices, crowding=crowding)


def in_parallel(work: Callable[[slice], None], *, count: int) -> None:
    """Do work that releases Python's lock on slices of a batch, on as many threads as torch uses.

    Plain threads that sleep while they wait: the busy waiting of OpenMP is ruinous where cores are shared.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        work(slice(0, count))
        return
    size = -(-count // (4 * threads))  # smaller slices than threads: some images take longer than others
    list(_pool(threads).map(work, [slice(start, start + size) for start in range(0, count, size)]))


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="massmover")


@lru_cache(maxsize=64)
def table_of(window: Window) -> Table:
    """The moves of a window in the order of their rings."""
    number = {pair: r for r, ring in enumerate(window.rings) for pair in ring.pairs}
    moves = sorted(window.offsets[1:], key=lambda move: number[abs(move[0]), abs(move[1])])
    rings = [number[abs(dy), abs(dx)] for dy, dx in moves]
    costs = [ring.cost for ring in window.rings]
    return Table(
        np.array(moves, dtype=np.int64).reshape(-1, 2),
        np.array(rings, dtype=np.int64),
        np.array(costs, dtype=np.float64),
    )


@njit(cache=True, nogil=True)
def _move_images(batch, answer, table, floor):  # type: ignore[no-untyped-def]
    for b in range(batch.originals.shape[0]):
        answer.price[b] = _move_one(batch, b, answer, table, floor)


@njit(cache=True)
def _move_one(batch, b, answer, table, floor):  # type: ignore[no-untyped-def]
    originals = batch.originals[b]
    channels, height, width = originals.shape
    count = 0
    for c in range(channels):
        for p in range(height * width):
            count += originals[c].ravel()[p] > SPECK
    moves = table.moves.shape[0]
    rows = Rows(
        np.empty(count, dtype=np.int64),
        np.zeros(channels + 1, dtype=np.int64),
        np.empty((count, moves), dtype=np.float32),
        np.empty(count, dtype=np.float32),
        np.empty(count, dtype=np.float32),
        np.empty((table.costs.shape[0], count), dtype=np.float32),
    )
    price, reference = _price(batch, b, rows, table, floor)
    target = np.empty((count, moves), dtype=np.int64)
    for c in range(channels):
        rate = (price - reference) * batch.relative[b, c]
        _flows(originals[c], rows, target, table, c, rate)
        images, crowding = answer.images[b, c].ravel(), answer.crowding[b, c].ravel()
        _arrive(originals[c].ravel(), rows, target, c, images, crowding)
    return price


@njit(cache=True, fastmath=True)
def _write_rows(batch, b, rows, table, price):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    potential, originals = batch.potential[b], batch.originals[b]
    channels, height, width = originals.shape
    moves, shares, sums = table.moves, rows.shares, rows.sums
    count = moves.shape[0]
    scores = np.empty(count + 1, dtype=np.float32)
    power = np.empty(count + 1, dtype=np.int32)
    scale = power.view(np.float32)
    toll = np.empty(count, dtype=np.float32)
    sums[:] = 0.0
    row = 0
    for c in range(channels):
        for k in range(count):
            toll[k] = price * batch.relative[b, c] * table.costs[table.ring_of[k]]
        for y in range(height):
            for x in range(width):
                if originals[c, y, x] <= SPECK:
                    continue
                here = potential[c, y, x]
                top = here
                for k in range(count):
                    v, u = y + moves[k, 0], x + moves[k, 1]
                    inside = 0 <= v < height and 0 <= u < width
                    scores[k] = potential[c, v, u] - toll[k] if inside else np.float32(-1e30)
                    top = max(top, scores[k])
                scores[count] = here
                # exp, by splitting off the power of two: the exponent goes straight into the bits of a float.
                for k in range(count + 1):
                    t = max((scores[k] - top) * LOG2_E, np.float32(-125.0))
                    whole = np.floor(t)
                    f = t - whole
                    power[k] = (np.int32(whole) + np.int32(127)) << np.int32(23)
                    scores[k] = np.float32(1.0) + f * (
                        np.float32(0.6931471806) + f * (np.float32(0.2402265070) + f * (np.float32(0.0555041087)
                        + f * (np.float32(0.0096181291) + f * (np.float32(0.0013333558) + f * np.float32(0.000154)))))
                    )  # fmt: skip
                for k in range(count):
                    share = scores[k] * scale[k]
                    shares[row, k] = share
                    sums[table.ring_of[k], row] += share
                rows.stay[row] = scores[count] * scale[count]
                rows.paid[row] = originals[c, y, x] * np.float32(batch.weights[b, c])
                rows.place[row] = y * width + x
                row += 1
        rows.starts[c + 1] = row


@njit(cache=True, fastmath=True)
def _spent(rows, c, rate, costs):  # type: ignore[no-untyped-def]
    """Cost of one channel's rows at a rate per distance, and minus its derivative by the rate."""
    sums, stay, paid, start, end = rows.sums, rows.stay, rows.paid, rows.starts[c], rows.starts[c + 1]
    rings = sums.shape[0]
    decay = np.empty(rings, dtype=np.float32)
    for r in range(rings):
        decay[r] = math.exp(-rate * costs[r])
    size = 64
    total = np.empty(size, dtype=np.float32)
    first = np.empty(size, dtype=np.float32)
    second = np.empty(size, dtype=np.float32)
    cost, spread = np.float64(0.0), np.float64(0.0)
    for begin in range(start, end, size):
        count = min(size, end - begin)
        for i in range(count):
            total[i] = stay[begin + i]
            first[i] = np.float32(0.0)
            second[i] = np.float32(0.0)
        for r in range(rings):
            k, d = decay[r], np.float32(costs[r])
            for i in range(count):
                s = k * sums[r, begin + i]
                total[i] += s
                first[i] += d * s
                second[i] += d * d * s
        part = np.float32(0.0)
        part_spread = np.float32(0.0)
        for i in range(count):
            mean = first[i] / total[i]
            part += paid[begin + i] * mean
            part_spread += paid[begin + i] * (second[i] / total[i] - mean * mean)
        cost += part
        spread += part_spread
    return cost, spread


@njit(cache=True)
def _price(batch, b, rows, table, floor):  # type: ignore[no-untyped-def]
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
            _write_rows(batch, b, rows, table, reference)
        cost = 0.0
        slope = 0.0
        for c in range(relative.shape[0]):
            if rows.starts[c + 1] > rows.starts[c]:
                part, spread = _spent(rows, c, (point - reference) * relative[c], costs)
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
        _write_rows(batch, b, rows, table, reference)
    return point, reference


@njit(cache=True, fastmath=True)
def _flows(original, rows, target, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass sent along each move, and note where it goes."""
    height, width = original.shape
    moves, costs, place, shares = table.moves, table.costs, rows.place, rows.shares
    rings = costs.shape[0]
    decay = np.empty(rings, dtype=np.float32)
    for r in range(rings):
        decay[r] = math.exp(-rate * costs[r])
    for row in range(rows.starts[c], rows.starts[c + 1]):
        total = rows.stay[row]
        for r in range(rings):
            total += decay[r] * rows.sums[r, row]
        y, x = place[row] // width, place[row] % width
        source = original[y, x] / total
        for k in range(moves.shape[0]):
            v, u = y + moves[k, 0], x + moves[k, 1]
            inside = 0 <= v < height and 0 <= u < width
            target[row, k] = v * width + u if inside else place[row]
            shares[row, k] *= source * decay[table.ring_of[k]] if inside else np.float32(0.0)


@njit(cache=True, fastmath=True)
def _arrive(originals, rows, target, c, images, crowding):  # type: ignore[no-untyped-def]
    """Let mass arrive; pixels that overflow send it back, and their share of the inflow falls until all fit."""
    flows, place, start, end = rows.shares, rows.place, rows.starts[c], rows.starts[c + 1]
    pixels = originals.shape[0]
    mobile = np.full(pixels, np.float32(1e-6))  # how fast a pixel's mass grows with its potential
    inflow = np.zeros(pixels, dtype=np.float32)
    leaving = np.zeros(pixels, dtype=np.float32)
    share = np.ones(pixels, dtype=np.float32)
    for row in range(start, end):
        total = np.float32(0.0)
        there = originals[place[row]]
        for k in range(flows.shape[1]):
            inflow[target[row, k]] += flows[row, k]
            mobile[target[row, k]] += flows[row, k] * (np.float32(1.0) - flows[row, k] / there)
            total += flows[row, k]
        leaving[place[row]] = total
        mobile[place[row]] += total * (np.float32(1.0) - total / there)
    for p in range(pixels):
        crowding[p] = (originals[p] - leaving[p] + inflow[p] - np.float32(1.0)) / mobile[p]
    for _ in range(SEND_BACK_SWEEPS):
        overfull = False
        for p in range(pixels):
            room = max(np.float32(1.0) - originals[p] + leaving[p], np.float32(0.0))
            if share[p] * inflow[p] > room + np.float32(1e-6):
                share[p] = room / inflow[p]
                overfull = True
        if not overfull:
            break
        for row in range(start, end):
            total = np.float32(0.0)
            for k in range(flows.shape[1]):
                total += flows[row, k] * share[target[row, k]]
            leaving[place[row]] = total
    for p in range(pixels):
        images[p] = min(max(originals[p] - leaving[p] + share[p] * inflow[p], np.float32(0.0)), np.float32(1.0))
