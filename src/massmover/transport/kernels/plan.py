"""The plan of a potential in Numba, one image at a time: rows and price, then the search's move or the proof's moves.

The arithmetic of `potential.move_mass_torch` and, in float64, of `potential.priced_plan` with `repair.kept_moves`
(docs/algorithms.md, sections 2 and 4). An image is laid out flat with a border as wide as the window, so that a move
is one shift for all pixels and every loop runs over a stretch of memory. The search calls these kernels with float32
arrays, the proof with float64: the arrays decide. What a kernel returns for a proof is measured by `plan.certify`,
which shares no code with it.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none. Its cache watches this
file alone: every constant and every function that a kernel uses stands here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import types
from numba.extending import overload

from massmover.ball import Balls
from massmover.compiling import kernel
from massmover.geometry import Window
from massmover.threads import in_parallel
from massmover.transport.potential import Move, Pull
from massmover.transport.repair import Kept
from massmover.types import PerImage

LOG2_E = 1.4426950408889634
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it to a small float64 leaves the nearest integer in the last bits
DEAREST = 1e30  # the price of an image without a budget
SEARCH_ACCURACY, PROOF_ACCURACY = 1e-6, 1e-12  # of the budget
SEND_BACK_SWEEPS = 8  # in the search, as in `potential`
PROPORTIONAL_SWEEPS, OVERFLOW = 64, 1e-13  # in the proof, as in `repair`
LEAST_MOBILE = np.float32(1e-6)
SPECK = np.float32(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow


class Table(NamedTuple):
    """A window's moves but "stay" (K - 1, 2), the ring of each, and the cost of each ring, as arrays."""

    moves: Any
    ring_of: Any
    costs: Any
    reach: Any  # rows, columns
    place: Any  # (K - 1,), of each move in the order of a written-out plan
    back: Any  # (K - 1,), the move that undoes each


class Given(NamedTuple):
    """Potentials and balls, as arrays."""

    potential: Any
    originals: Any
    budget: Any
    weights: Any
    relative: Any
    guess: Any


class Moved(NamedTuple):
    """Where the search's answers go: `potential.Move` as arrays."""

    images: Any
    crowding: Any
    price: Any
    spent: Any


class Found(NamedTuple):
    """Where the proof's answers go: `repair.Kept` and the price, as arrays."""

    flows: Any  # (B, C, K, H, W)
    change: Any  # (B, C, H, W)
    sweeps: Any
    price: Any


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


def move_mass_numba(pull: Pull, balls: Balls) -> Move:
    """`potential.move_mass` for images on the CPU."""
    given = _given(pull, balls, dtype=torch.float32)
    moved = torch.empty(balls.originals.shape)
    answer = Move(moved, torch.empty_like(moved), torch.empty_like(balls.budget), torch.empty_like(balls.budget))
    arrays, table, floor = Moved(*(tensor.numpy() for tensor in answer)), table_of(balls.window), float(pull.floor)

    def work(part: slice) -> None:
        mine, out = Given(*(array[part] for array in given)), Moved(*(array[part] for array in arrays))
        move_images(mine, out, table, floor)

    in_parallel(work, count=len(balls))
    return answer


def kept_moves_numba(pull: Pull, balls: Balls) -> tuple[Kept, PerImage]:
    """The moves of a potential's plan that can be kept, and their price: for images on the CPU, in float64."""
    given, table, floor = _given(pull, balls, dtype=torch.float64), table_of(balls.window), float(pull.floor)
    shape = balls.originals.shape
    # Plans are large, and NumPy, unlike torch, asks for large pages: new memory then costs next to nothing.
    written_out = np.empty((*shape[:2], len(balls.window.offsets), *shape[2:]))
    found = Found(written_out, np.empty(shape), np.empty(shape[0], dtype=np.int64), np.empty(shape[0]))

    def work(part: slice) -> None:
        mine, out = Given(*(array[part] for array in given)), Found(*(array[part] for array in found))
        keep_moves(mine, out, table, floor)

    in_parallel(work, count=len(balls))
    flows, change, sweeps, prices = map(torch.from_numpy, found)
    return Kept(flows=flows, change=change, sweeps=sweeps), prices


def _given(pull: Pull, balls: Balls, *, dtype: torch.dtype) -> Given:
    guess = torch.ones_like(balls.budget) if pull.price is None else pull.price.double()
    return Given(
        pull.potential.to(dtype).contiguous().numpy(),
        balls.originals.to(dtype).contiguous().numpy(),
        pull.budget(balls).contiguous().numpy(),
        balls.weights.contiguous().numpy(),
        balls.relative.contiguous().numpy(),
        guess.contiguous().numpy(),
    )


@lru_cache(maxsize=64)
def table_of(window: Window) -> Table:
    """The moves of a window in the order of their rings."""
    number = {pair: r for r, ring in enumerate(window.rings) for pair in ring.pairs}
    moves = sorted(window.offsets[1:], key=lambda move: number[abs(move[0]), abs(move[1])])
    place = {move: k for k, move in enumerate(window.offsets)}
    order = {move: k for k, move in enumerate(moves)}
    return Table(
        np.array(moves, dtype=np.int64).reshape(-1, 2),
        np.array([number[abs(dy), abs(dx)] for dy, dx in moves], dtype=np.int64),
        np.array([ring.cost for ring in window.rings], dtype=np.float64),
        np.array([window.rows, window.columns], dtype=np.int64),
        np.array([place[move] for move in moves], dtype=np.int64),
        np.array([order[-dy, -dx] for dy, dx in moves], dtype=np.int64),
    )


@kernel()
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


@kernel()
def _copy(source, target):  # type: ignore[no-untyped-def]
    """Write one array into another: to assign it would compile seconds of code for an error that cannot occur."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel()
def _lay_out(given, b, table):  # type: ignore[no-untyped-def]
    """The part of the image that mass can reach, in one stretch; only the rows that hold mass get a plan."""
    originals, potential = given.originals[b], given.potential[b]
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
            _copy(originals[c, y, first:last], mass[c, at + first : at + last])
    shift = np.empty(table.moves.shape[0], dtype=np.int64)
    for k in range(shift.shape[0]):
        shift[k] = table.moves[k, 0] * wide + table.moves[k, 1]
    shares = np.empty((channels, table.moves.shape[0], count), dtype=kind)
    stay = np.empty((channels, count), dtype=kind)
    sums = np.empty((channels, table.costs.shape[0], count), dtype=kind)
    paid = np.empty((channels, count), dtype=kind)
    for c in range(channels):
        weight = kind.type(given.weights[b, c])
        for i in range(count):
            paid[c, i] = mass[c, start + i] * weight
    return Field(top, left, high, wide, shift, start, count, edges, mass, shares, stay, sums, paid)


@kernel(error_model="numpy")
def _write_rows(given, b, field, table, price):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    start, count, kind = field.start, field.length, field.mass.dtype
    best, scale = np.empty(count, dtype=kind), np.empty(count, dtype=kind)
    for c in range(field.potential.shape[0]):
        here = field.potential[c, start : start + count]
        _copy(here, best)
        for k in range(field.shift.shape[0]):
            toll = kind.type(price * given.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            for i in range(count):
                best[i] = max(best[i], there[i] - toll)
        field.sums[c] = 0.0
        for k in range(field.shift.shape[0]):
            toll = kind.type(price * given.relative[b, c] * table.costs[table.ring_of[k]])
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


@kernel(error_model="numpy")
def _add_up(values, count):  # type: ignore[no-untyped-def]
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


@kernel(error_model="numpy")
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
        _copy(stay[begin : begin + count], total)
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
        cost += _add_up(first, count)
        spread += _add_up(second, count)
    return cost, spread


@kernel()
def _price_of(given, b, field, table, floor, accuracy):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget to an accuracy, and the price its shares are written at.

    Newton on the logarithm of the cost, kept in a bracket. Shares hold for prices near the one they were written at
    (float32 exponentials reach no further) and are written anew when the search leaves that neighbourhood.
    """
    relative, budget, costs = given.relative[b], given.budget[b], table.costs
    low, high, point = floor, math.inf, max(given.guess[b], floor)
    reference = math.inf
    farthest = costs[-1] if costs.shape[0] else 1.0
    most = 0.0
    for c in range(relative.shape[0]):
        most = max(most, relative[c])
    for attempt in range(200):
        if not abs(point - reference) * farthest * most <= 40.0:
            reference = point
            _write_rows(given, b, field, table, reference)
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
        _write_rows(given, b, field, table, reference)
    return point, reference


@kernel(error_model="numpy")
def _scale_of(field, table, c, rate):  # type: ignore[no-untyped-def]
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


@kernel(error_model="numpy")
def _write_flows(field, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass sent along each move."""
    decay, source, _ = _scale_of(field, table, c, rate)
    for k in range(field.shift.shape[0]):
        d, share = decay[table.ring_of[k]], field.shares[c, k]
        for i in range(field.length):
            share[i] *= d * source[i]


@kernel(error_model="numpy")
def _cancel_swaps(field, table, c):  # type: ignore[no-untyped-def]
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


@kernel(nogil=True)
def move_images(given, answer, table, floor):  # type: ignore[no-untyped-def]
    """Move the mass of every image of a given."""
    height, width = given.originals.shape[2:]
    for b in range(given.originals.shape[0]):
        field = _lay_out(given, b, table)
        price, reference = _price_of(given, b, field, table, floor, SEARCH_ACCURACY)
        first, last = max(field.left, 0), min(field.left + field.wide, width)
        answer.price[b] = price
        answer.images[b] = 0.0
        answer.crowding[b] = -1.0 / LEAST_MOBILE
        answer.spent[b] = 0.0
        for c in range(given.originals.shape[1]):
            moved, crowding, spent = _arrive(field, table, c, (price - reference) * given.relative[b, c])
            answer.spent[b] += spent * given.weights[b, c]
            for y in range(max(field.top, 0), min(field.top + field.high, height)):
                at = table.reach[1] + (y - field.top) * field.wide - field.left
                _copy(moved[at + first : at + last], answer.images[b, c, y, first:last])
                _copy(crowding[at + first : at + last], answer.crowding[b, c, y, first:last])


@kernel(error_model="numpy")
def _arrive(field, table, c, rate):  # type: ignore[no-untyped-def]
    """The channel after the move, how crowded its pixels would be if none sent mass back, and what the move costs."""
    mass = field.mass[c]
    size = mass.shape[0]
    inflow, leaving, crowding, paid = _write_arrivals(field, table, c, rate)
    stays, saved = _cancel_swaps(field, table, c)
    for p in range(size):
        inflow[p] = max(inflow[p] - stays[p], np.float32(0.0))
        leaving[p] = max(leaving[p] - stays[p], np.float32(0.0))
    for i in range(field.length):
        paid[i] -= saved[i]
    share, sent_back = _send_back(field, c, inflow, leaving)
    if sent_back:
        _pay(field, table, c, share, paid)
    spent = np.float64(max(_add_up(paid, field.length), np.float32(0.0)))
    moved = np.empty(size, dtype=np.float32)
    for p in range(size):
        moved[p] = min(max(mass[p] - leaving[p] + share[p] * inflow[p], np.float32(0.0)), np.float32(1.0))
    return moved, crowding, spent


@kernel(error_model="numpy")
def _write_arrivals(field, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass and let it arrive: inflow, what leaves, crowding, and what each pixel pays."""
    start, count, mass = field.start, field.length, field.mass[c]
    size = mass.shape[0]
    inflow, leaving = np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    mobile = np.full(size, LEAST_MOBILE)  # how fast a pixel's mass grows with its potential
    left, mine = leaving[start : start + count], mobile[start : start + count]
    inverse = np.empty(count, dtype=np.float32)
    for i in range(count):
        there = mass[start + i]
        inverse[i] = np.float32(1.0) / there if there > SPECK else np.float32(0.0)
    decay, source, paid = _scale_of(field, table, c, rate)
    for k in range(field.shift.shape[0]):
        flow, at, d = field.shares[c, k], start + field.shift[k], decay[table.ring_of[k]]
        arriving, growing = inflow[at : at + count], mobile[at : at + count]
        for i in range(count):
            flow[i] *= d * source[i]
        for i in range(count):
            f = flow[i]
            arriving[i] += f
            growing[i] += f * (np.float32(1.0) - f * inverse[i])
        for i in range(count):
            left[i] += flow[i]
    for i in range(count):
        mine[i] += left[i] * (np.float32(1.0) - left[i] * inverse[i])
    crowding = np.empty(size, dtype=np.float32)
    for p in range(size):
        crowding[p] = (mass[p] - leaving[p] + inflow[p] - np.float32(1.0)) / mobile[p]
    return inflow, leaving, crowding, paid


@kernel(error_model="numpy")
def _send_back(field, c, inflow, leaving):  # type: ignore[no-untyped-def]
    """The share of its inflow each pixel keeps, lowered sweep by sweep until all fit. Updates `leaving`."""
    start, count, mass = field.start, field.length, field.mass[c]
    share, sent_back = np.ones(mass.shape[0], dtype=np.float32), False
    left = leaving[start : start + count]
    for _ in range(SEND_BACK_SWEEPS):
        overfull = 0
        for p in range(mass.shape[0]):
            room = max(np.float32(1.0) - mass[p] + leaving[p], np.float32(0.0))
            if share[p] * inflow[p] > room + np.float32(1e-6):
                share[p] = room / inflow[p]
                overfull += 1
        if overfull == 0:
            break
        sent_back = True
        left[:] = 0.0
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept = share[at : at + count]
            for i in range(count):
                left[i] += flow[i] * kept[i]
    return share, sent_back


@kernel(error_model="numpy")
def _pay(field, table, c, share, paid):  # type: ignore[no-untyped-def]
    """What each pixel pays for the mass that its targets keep."""
    paid[:] = 0.0
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], field.start + field.shift[k]
        kept, cost = share[at : at + field.length], np.float32(table.costs[table.ring_of[k]])
        for i in range(field.length):
            paid[i] += flow[i] * kept[i] * cost


@kernel(nogil=True)
def keep_moves(given, found, table, floor):  # type: ignore[no-untyped-def]
    """Price, plan and repair every image of a given."""
    for b in range(given.originals.shape[0]):
        field = _lay_out(given, b, table)
        price, reference = _price_of(given, b, field, table, floor, PROOF_ACCURACY)
        found.price[b] = price
        found.sweeps[b] = 0
        found.flows[b] = 0.0
        found.change[b] = 0.0
        for c in range(given.originals.shape[1]):
            _write_flows(field, table, c, (price - reference) * given.relative[b, c])
            leaving = _sendable(field, c)
            stays, _ = _cancel_swaps(field, table, c)
            leaving -= stays
            share, inflow, sweeps = _returned_share(field, c, leaving)
            found.sweeps[b] = max(found.sweeps[b], sweeps)
            _keep(field, c, share)
            _write_out(field, c, leaving, table, found.flows[b, c])
            _write_change(field, c, share, inflow, leaving, table.reach, found.change[b, c])


@kernel(error_model="numpy")
def _sendable(field, c):  # type: ignore[no-untyped-def]
    """What leaves each pixel, after rows that send more than they have are scaled down. Equation (1)."""
    start, count = field.start, field.length
    mass = field.mass[c, start : start + count]
    leaving = np.zeros(field.mass.shape[1])
    left = leaving[start : start + count]
    for k in range(field.shift.shape[0]):
        flow = field.shares[c, k]
        for i in range(count):
            f = flow[i]
            flow[i] = f if f >= 0.0 and f <= 2.0 else 0.0  # no pixel holds more than 1
            left[i] += flow[i]
    scale = np.empty(count)
    for i in range(count):
        scale[i] = 1.0
        if left[i] > mass[i]:
            scale[i] = mass[i] / left[i]
            left[i] = mass[i]
    for k in range(field.shift.shape[0]):
        flow = field.shares[c, k]
        for i in range(count):
            flow[i] *= scale[i]
    return leaving


@kernel(error_model="numpy")
def _returned_share(field, c, leaving):  # type: ignore[no-untyped-def]
    """The share of its inflow that each pixel may keep, as `repair.returned_share`; equation (2). Updates `leaving`."""
    start, count, mass = field.start, field.length, field.mass[c]
    size = mass.shape[0]
    inflow, share = np.zeros(size), np.ones(size)
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], start + field.shift[k]
        arriving = inflow[at : at + count]
        for i in range(count):
            arriving[i] += flow[i]
    left = leaving[start : start + count]
    sweep = 0
    while True:
        overfull = 0
        for p in range(size):
            room = max(1.0 - mass[p] + leaving[p], 0.0)
            if share[p] * inflow[p] > room + OVERFLOW:
                fits = room / max(inflow[p], OVERFLOW) if sweep < PROPORTIONAL_SWEEPS else 0.0
                share[p] = min(share[p], fits)
                overfull += 1
        if overfull == 0:
            return share, inflow, sweep
        sweep += 1
        left[:] = 0.0
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept = share[at : at + count]
            for i in range(count):
                left[i] += flow[i] * kept[i]


@kernel(error_model="numpy")
def _keep(field, c, share):  # type: ignore[no-untyped-def]
    """Send back what the targets do not keep."""
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], field.start + field.shift[k]
        kept = share[at : at + field.length]
        for i in range(field.length):
            flow[i] *= kept[i]


@kernel()
def _write_out(field, c, leaving, table, flows):  # type: ignore[no-untyped-def]
    """Copy the rows of the box that holds mass into the plan, (K, H, W), what stays among them."""
    rows, columns = table.reach
    count, left = field.wide - 2 * columns, field.left + columns
    for row in range(field.high - 2 * rows):
        y, at = field.top + rows + row, row * field.wide + columns
        for k in range(table.place.shape[0]):
            _copy(field.shares[c, k, at : at + count], flows[table.place[k], y, left : left + count])
        for x in range(count):
            p = field.start + at + x
            flows[0, y, left + x] = max(field.mass[c, p] - leaving[p], 0.0)


@kernel()
def _write_change(field, c, share, inflow, leaving, reach, change):  # type: ignore[no-untyped-def]
    """By how much each pixel of the image that mass can reach changes."""
    height, width = change.shape
    for y in range(max(field.top, 0), min(field.top + field.high, height)):
        at = reach[1] + (y - field.top) * field.wide - field.left
        for x in range(max(field.left, 0), min(field.left + field.wide, width)):
            change[y, x] = share[at + x] * inflow[at + x] - leaving[at + x]
