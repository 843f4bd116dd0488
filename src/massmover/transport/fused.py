"""`move_mass` for float32 images on CPUs: one image per task, everything in cache.

The same arithmetic as `potential.move_mass_torch`, fused with Numba. Only pixels that hold mass have a row, which
on digits is one in five; finished images cost nothing, for they are not in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit

from massmover.geometry import Window
from massmover.transport.potential import SEND_BACK_SWEEPS, Move, relative_weights
from massmover.types import Images, PerChannel, PerImage

LOG2_E = np.float32(1.4426950408889634)
ROOT_ACCURACY = 1e-6  # of the budget; the certificate solves it to float64


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
    moves, ring_of, costs = move_table(window)
    guess = torch.ones_like(budget) if price is None else price
    moved, prices = torch.empty_like(originals, memory_format=torch.contiguous_format), torch.empty_like(budget)
    crowding = torch.empty_like(moved)
    arrays = (
        potential.contiguous().numpy(),
        originals.contiguous().numpy(),
        budget.double().numpy(),
        weights.double().contiguous().numpy(),
        relative_weights(weights, originals).double().contiguous().numpy(),
        guess.double().numpy(),
        moved.numpy(),
        crowding.numpy(),
        prices.numpy(),
    )

    def work(part: slice) -> None:
        _move_images(*(array[part] for array in arrays), moves, ring_of, costs, floor, SEND_BACK_SWEEPS)

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
def move_table(window: Window) -> tuple[Any, Any, Any]:
    """The moves but "stay" (K - 1, 2) in the order of their rings, the ring of each, and the cost of each ring."""
    number = {pair: r for r, ring in enumerate(window.rings) for pair in ring.pairs}
    moves = sorted(window.offsets[1:], key=lambda move: number[abs(move[0]), abs(move[1])])
    rings = [number[abs(dy), abs(dx)] for dy, dx in moves]
    costs = [ring.cost for ring in window.rings]
    return (
        np.array(moves, dtype=np.int64).reshape(-1, 2),
        np.array(rings, dtype=np.int64),
        np.array(costs, dtype=np.float64),
    )


@njit(cache=True, nogil=True)
def _move_images(
    potential,
    originals,
    budget,
    weights,
    relative,
    guess,
    images,
    crowding,
    price,
    moves,
    ring_of,
    costs,
    floor,
    sweeps,
):  # type: ignore[no-untyped-def]
    for b in range(originals.shape[0]):
        price[b] = _move_one(
            potential[b], originals[b], budget[b], weights[b], relative[b], moves, ring_of, costs, guess[b], floor,
            sweeps, images[b], crowding[b],
        )  # fmt: skip


@njit(cache=True)
def _move_one(
    potential, originals, budget, weights, relative, moves, ring_of, costs, guess, floor, sweeps, images, crowding
):  # type: ignore[no-untyped-def]
    channels, height, width = originals.shape
    pixels = height * width
    rows = 0
    for c in range(channels):
        for p in range(pixels):
            rows += originals[c].ravel()[p] > 0
    place = np.empty(rows, dtype=np.int64)  # pixel number of each row, within its channel
    starts = np.zeros(channels + 1, dtype=np.int64)  # first row of each channel
    shares = np.empty((rows, moves.shape[0]), dtype=np.float32)  # exp(potential there - highest in the window)
    stay = np.empty(rows, dtype=np.float32)
    paid = np.empty(rows, dtype=np.float32)
    sums = np.empty((costs.shape[0], rows), dtype=np.float32)
    price, reference = _price(
        potential, originals, weights, relative, moves, ring_of, costs, budget, guess, floor, place, starts, shares,
        stay, paid, sums,
    )  # fmt: skip

    target = np.empty((rows, moves.shape[0]), dtype=np.int64)
    for c in range(channels):
        _flows(originals[c].ravel(), moves, ring_of, costs, (price - reference) * relative[c], place, shares, stay,
               sums, target, starts[c], starts[c + 1], height, width)  # fmt: skip
        _arrive(originals[c].ravel(), shares, target, place, starts[c], starts[c + 1], sweeps, images[c].ravel(),
                crowding[c].ravel())  # fmt: skip
    return price


@njit(cache=True, fastmath=True)
def _rows(
    potential, originals, weights, relative, moves, ring_of, costs, price, place, starts, shares, stay, paid, sums
):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    channels, height, width = originals.shape
    count = moves.shape[0]
    scores = np.empty(count + 1, dtype=np.float32)
    power = np.empty(count + 1, dtype=np.int32)
    scale = power.view(np.float32)
    toll = np.empty(count, dtype=np.float32)
    sums[:] = 0.0
    row = 0
    for c in range(channels):
        for k in range(count):
            toll[k] = price * relative[c] * costs[ring_of[k]]
        for y in range(height):
            for x in range(width):
                if originals[c, y, x] <= 0:
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
                    sums[ring_of[k], row] += share
                stay[row] = scores[count] * scale[count]
                paid[row] = originals[c, y, x] * np.float32(weights[c])
                place[row] = y * width + x
                row += 1
        starts[c + 1] = row


@njit(cache=True, fastmath=True)
def _spent(sums, stay, paid, start, end, rate, costs):  # type: ignore[no-untyped-def]
    """Cost of one channel's rows at a rate per distance, and minus its derivative by the rate."""
    rings = sums.shape[0]
    decay = np.empty(rings, dtype=np.float32)
    for r in range(rings):
        decay[r] = math.exp(-rate * costs[r])
    size = 64
    total = np.empty(size, dtype=np.float32)
    first = np.empty(size, dtype=np.float32)
    second = np.empty(size, dtype=np.float32)
    cost = 0.0
    spread = 0.0
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
def _price(
    potential,
    originals,
    weights,
    relative,
    moves,
    ring_of,
    costs,
    budget,
    guess,
    floor,
    place,
    starts,
    shares,
    stay,
    paid,
    sums,
):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget, and the price its shares are written at.

    Newton on the logarithm of the cost, kept in a bracket. Shares hold for prices near the one they were written at
    (float32 exponentials reach no further) and are written anew when the search leaves that neighbourhood.
    """
    low, high, point = floor, math.inf, max(guess, floor)
    reference = math.inf
    farthest = costs[-1] if costs.shape[0] else 1.0
    most = 0.0
    for c in range(relative.shape[0]):
        most = max(most, relative[c])
    for attempt in range(200):
        if not abs(point - reference) * farthest * most <= 40.0:
            reference = point
            _rows(potential, originals, weights, relative, moves, ring_of, costs, reference, place, starts, shares,
                  stay, paid, sums)  # fmt: skip
        cost = 0.0
        slope = 0.0
        for c in range(relative.shape[0]):
            if starts[c + 1] > starts[c]:
                rate = (point - reference) * relative[c]
                part, spread = _spent(sums, stay, paid, starts[c], starts[c + 1], rate, costs)
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
        _rows(potential, originals, weights, relative, moves, ring_of, costs, reference, place, starts, shares,
              stay, paid, sums)  # fmt: skip
    return point, reference


@njit(cache=True, fastmath=True)
def _flows(originals, moves, ring_of, costs, rate, place, shares, stay, sums, target, start, end, height, width):  # type: ignore[no-untyped-def]
    """Turn shares into mass sent along each move, and note where it goes."""
    rings = costs.shape[0]
    decay = np.empty(rings, dtype=np.float32)
    for r in range(rings):
        decay[r] = math.exp(-rate * costs[r])
    for row in range(start, end):
        total = stay[row]
        for r in range(rings):
            total += decay[r] * sums[r, row]
        source = originals[place[row]] / total
        y, x = place[row] // width, place[row] % width
        for k in range(moves.shape[0]):
            v, u = y + moves[k, 0], x + moves[k, 1]
            inside = 0 <= v < height and 0 <= u < width
            target[row, k] = v * width + u if inside else place[row]
            shares[row, k] *= source * decay[ring_of[k]] if inside else np.float32(0.0)


@njit(cache=True, fastmath=True)
def _arrive(originals, flows, target, place, start, end, sweeps, images, crowding):  # type: ignore[no-untyped-def]
    """Let mass arrive; pixels that overflow send it back, and their share of the inflow falls until all fit."""
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
    for _ in range(sweeps):
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
