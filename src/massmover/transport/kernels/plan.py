"""The plan of a potential in Numba, one image at a time: rows and price, the move, and the plan where it is wanted.

The arithmetic of `potential.move_mass_torch` (docs/algorithms.md, section 4), in float32. An image is laid out flat
with a border as wide as the window, so that a move is one shift for all pixels and every loop runs over a stretch of
memory. A plan that is written out for a proof is nearly feasible; `kernels.repair` makes it so in float64.

What is compiled is paid for by whoever calls first, so the code is frugal: one dtype, memory that Python hands in, no
assignment of one array to another (Numba would compile seconds of code for an error that cannot occur), and loops
instead of array expressions. Numba infers the types of what it compiles and reads no annotations, so the kernels carry
none. Its cache watches this file alone: every constant and every function that a kernel uses stands here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from massmover.ball import Balls
from massmover.compiling import kernel, part
from massmover.geometry import Window
from massmover.threads import in_parallel
from massmover.transport.plan import Plan
from massmover.transport.potential import Move, Pull

LOG2_E = np.float32(1.4426950408889634)
DEAREST = 1e30  # the price of an image without a budget
ACCURACY = 1e-6  # of the budget
LEAST_MOBILE = np.float32(1e-6)
SPECK = np.float32(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow
DUST = np.float32(1e-12)  # a flow below this stays at home when the plan is written out
LEAST_POWER = np.float32(-100.0)  # of two: what a share is never below; products of smaller ones would be subnormal
ONE, NOTHING = np.float32(1.0), np.float32(0.0)
# Nothing goes outside: there the potential is lower than anywhere inside, yet finite, for it will be subtracted.
LOWEST = np.finfo(np.float32).min / np.float32(4.0)
SEND_BACK_SWEEPS = 8  # as in `potential`
STRETCH = 128  # pixels whose cost is added up at a time: partial sums stay near, and float32 sums stay short
# Rows of scratch memory: as long as the field with its border, and as long as the part of it that holds mass.
INFLOW, LEAVING, MOBILE, SHARE, STAYS, FIELDS = range(6)
BEST, SCALE, SOURCE, PAYS, SAVED, STRETCHES = range(6)


class Table(NamedTuple):
    """A window's moves but "stay" (K - 1, 2), the ring of each, and the cost of each ring, as arrays."""

    moves: Any
    ring_of: Any
    costs: Any
    reach: Any  # rows, columns
    place: Any  # (K - 1,), of each move in the order of a written-out plan
    back: Any  # (K - 1,), the move that undoes each
    sweeps: (
        Any  # how often pixels send mass back; a loop whose length the compiler knows takes twice as long to compile
    )


class Given(NamedTuple):
    """Potentials and balls, as arrays."""

    potential: Any
    originals: Any
    budget: Any
    weights: Any
    relative: Any
    guess: Any
    box: Any  # (B, 4): the rows and columns that hold all mass, first and behind the last


class Moved(NamedTuple):
    """Where the answers go: `potential.Move` as arrays, and the plans, or an empty array where nobody wants them."""

    images: Any
    crowding: Any
    price: Any
    spent: Any
    flows: Any  # (B, C, K, H, W), float64


class Field(NamedTuple):
    """The box of one image that holds all its mass, laid out flat with a border as wide as the window.

    A move is then one shift for all pixels. Rows of the plan belong to the stretch of pixels that holds all mass; in
    between lie pixels without any, whose rows are zero. The memory serves one image after the other.
    """

    shift: Any  # (K - 1,), of each move
    potential: Any  # (C, size), border included
    mass: Any  # (C, size)
    shares: Any  # (C, K - 1, length), part of the row along each move, later the mass
    stay: Any  # (C, length), part of the row that stays
    sums: Any  # (C, R, length), shares added up over rings
    paid: Any  # (C, length), weighted mass
    decay: Any  # (R,)
    fields: Any  # (FIELDS, size), scratch
    stretches: Any  # (STRETCHES, length)


class Frame(NamedTuple):
    """Where a field lies in its image and in memory."""

    top: int  # row and column of the image where the field begins; negative where it begins outside
    left: int
    high: int
    wide: int
    start: int  # the stretch that holds all mass
    length: int


def move_mass_numba(pull: Pull, balls: Balls) -> Move:
    """`potential.move_mass` for images on the CPU."""
    return _moved(pull, balls, flows=np.empty((len(balls), 0, 0, 0, 0)))


def written_plan(pull: Pull, balls: Balls) -> Plan:
    """The plan behind the move, nearly feasible, in float64: for images on the CPU."""
    channels, height, width = balls.originals.shape[1:]
    # Plans are large, and NumPy, unlike torch, asks for large pages: new memory then costs next to nothing.
    flows = np.zeros((len(balls), channels, len(balls.window.offsets), height, width))
    _moved(pull, balls, flows=flows)
    return Plan(window=balls.window, flows=torch.from_numpy(flows))


def _moved(pull: Pull, balls: Balls, *, flows: Any) -> Move:
    shape, table, floor = balls.originals.shape, table_of(balls.window), float(pull.floor)
    guess = torch.ones_like(balls.budget) if pull.price is None else pull.price.double()
    tensors = (
        pull.potential.float(),
        balls.originals.float(),
        pull.budget(balls),
        balls.weights,
        balls.relative,
        guess,
    )
    potential, originals, budget, weights, relative, guesses = (tensor.contiguous().numpy() for tensor in tensors)
    given = Given(potential, originals, budget, weights, relative, guesses, boxes(originals))
    moved = torch.zeros(shape)
    answer = Move(
        moved,
        torch.full_like(moved, -1.0 / float(LEAST_MOBILE)),
        torch.empty_like(balls.budget),
        torch.zeros_like(balls.budget),
    )
    images, crowding, price, spent = (tensor.numpy() for tensor in answer)
    arrays = Moved(images, crowding, price, spent, flows)

    def work(part: slice) -> None:
        mine, out = Given(*(array[part] for array in given)), Moved(*(array[part] for array in arrays))
        move_images(mine, out, table, field_for(mine, table), floor)

    in_parallel(work, count=len(balls))
    return answer


def boxes(originals: Any) -> Any:
    """The rows and columns that hold all mass, first and behind the last, (B, 4); one pixel where there is no mass."""
    held = originals > 0
    ends = []
    for axis, size in ((3, originals.shape[2]), (2, originals.shape[3])):
        lit = held.any(axis=(1, axis))
        last = size - lit[:, ::-1].argmax(axis=1)
        ends += [lit.argmax(axis=1), np.where(lit.any(axis=1), last, 1)]
    return np.stack(ends, axis=1)


def field_for(given: Given, table: Table) -> Field:
    """Memory for the largest of some images."""
    channels, (rows, columns), moves, rings = given.originals.shape[1], table.reach, len(table.moves), len(table.costs)
    top, bottom, left, right = given.box.T
    wide = right - left + 2 * columns
    length = int(((bottom - top) * wide).max(initial=0))
    size = int(((bottom - top + 2 * rows) * wide).max(initial=0) + 2 * columns)

    def memory(*shape: int) -> Any:
        return np.empty(shape, dtype=np.float32)

    return Field(
        shift=np.empty(moves, dtype=np.int64),
        potential=memory(channels, size),
        mass=memory(channels, size),
        shares=memory(channels, moves, length),
        stay=memory(channels, length),
        sums=memory(channels, rings, length),
        paid=memory(channels, length),
        decay=memory(rings),
        fields=memory(FIELDS, size),
        stretches=memory(STRETCHES, max(length, STRETCH)),
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
        np.array([SEND_BACK_SWEEPS], dtype=np.int64),
    )


@kernel(nogil=True)
def move_images(given, answer, table, field, floor):  # type: ignore[no-untyped-def]
    """Move the mass of every image of a given."""
    for b in range(given.originals.shape[0]):
        frame = _lay_out(given, b, table, field)
        price, reference = _price_of(given, b, field, frame, table, floor)
        answer.price[b] = price
        for c in range(given.originals.shape[1]):
            _write_arrivals(field, frame, table, c, (price - reference) * given.relative[b, c])
            _write_crowding(field, frame, table, c, answer.crowding[b, c])
            _cancel_swaps(field, frame, table, c)
            _send_back(field, frame, table, c)
            answer.spent[b] += max(_add_up(field.stretches[PAYS], frame.length), NOTHING) * given.weights[b, c]
            _write_image(field, frame, table, c, answer.images[b, c])
            if answer.flows.shape[1] > 0:
                _write_plan(field, frame, table, c, answer.flows[b, c])


@part()
def _lay_out(given, b, table, field):  # type: ignore[no-untyped-def]
    """Lay out the part of the image that mass can reach; only the rows that hold mass get a plan."""
    height, width = given.originals.shape[2], given.originals.shape[3]
    rows, columns = table.reach[0], table.reach[1]
    top, bottom, left, right = given.box[b, 0], given.box[b, 1], given.box[b, 2], given.box[b, 3]
    high, wide = bottom - top + 2 * rows, right - left + 2 * columns
    frame = Frame(top - rows, left - columns, high, wide, columns + rows * wide, (bottom - top) * wide)
    for k in range(field.shift.shape[0]):
        field.shift[k] = table.moves[k, 0] * wide + table.moves[k, 1]
    for c in range(given.originals.shape[1]):
        edges, mass, weight = field.potential[c], field.mass[c], np.float32(given.weights[b, c])
        for p in range(high * wide + 2 * columns):
            edges[p], mass[p] = LOWEST, NOTHING
        for y in range(max(frame.top, 0), min(frame.top + high, height)):
            at = columns + (y - frame.top) * wide - frame.left
            for x in range(max(frame.left, 0), min(frame.left + wide, width)):
                edges[at + x] = min(max(given.potential[b, c, y, x], LOWEST / np.float32(2.0)), -LOWEST)
                mass[at + x] = given.originals[b, c, y, x]
        for i in range(frame.length):
            field.paid[c, i] = mass[frame.start + i] * weight
    return frame


@part(error_model="numpy")
def _write_rows(given, b, field, frame, table, price):  # type: ignore[no-untyped-def]
    """Shares of every row at a price, relative to the best move of the row, and their sums over rings."""
    start, count = frame.start, frame.length
    best = field.stretches[BEST]
    for c in range(field.potential.shape[0]):
        here = field.potential[c, start : start + count]
        for i in range(count):
            best[i] = here[i]
        for k in range(field.shift.shape[0]):
            toll = np.float32(price * given.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            for i in range(count):
                best[i] = max(best[i], there[i] - toll)
        for r in range(table.costs.shape[0]):
            total = field.sums[c, r]
            for i in range(count):
                total[i] = NOTHING
        for k in range(field.shift.shape[0]):
            toll = np.float32(price * given.relative[b, c] * table.costs[table.ring_of[k]])
            there = field.potential[c, start + field.shift[k] : start + field.shift[k] + count]
            share, total = field.shares[c, k], field.sums[c, table.ring_of[k]]
            _exponential(there, toll, field.stretches, share)
            for i in range(count):
                total[i] += share[i]
        _exponential(here, NOTHING, field.stretches, field.stay[c])


@part(error_model="numpy")
def _exponential(score, toll, stretches, out):  # type: ignore[no-untyped-def]
    """out = exp(score - toll - best), never below 2**-100: the power of two goes straight into a float's bits."""
    best, scale = stretches[BEST], stretches[SCALE]
    power = scale.view(np.int32)
    for i in range(score.shape[0]):
        t = max((score[i] - toll - best[i]) * LOG2_E, LEAST_POWER)
        whole = np.floor(t)
        f = t - whole
        power[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        out[i] = np.float32(1.0) + f * (
            np.float32(0.6931471806) + f * (np.float32(0.2402265070) + f * (np.float32(0.0555041087)
            + f * (np.float32(0.0096181291) + f * (np.float32(0.0013333558) + f * np.float32(0.000154)))))
        )  # fmt: skip
    for i in range(score.shape[0]):
        out[i] *= scale[i]


@part(error_model="numpy")
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


@part(error_model="numpy")
def _spent(field, frame, table, c, rate):  # type: ignore[no-untyped-def]
    """Cost of one channel's rows at a rate per distance, and minus its derivative by the rate."""
    total, first, second = field.stretches[BEST], field.stretches[SCALE], field.stretches[SOURCE]
    cost, spread, costs = 0.0, 0.0, table.costs
    for begin in range(0, frame.length, STRETCH):
        count = min(STRETCH, frame.length - begin)
        weight, stay = field.paid[c, begin : begin + count], field.stay[c, begin : begin + count]
        for i in range(count):
            total[i], first[i], second[i] = stay[i], NOTHING, NOTHING
        for r in range(costs.shape[0]):
            k, d = np.float32(math.exp(-rate * costs[r])), np.float32(costs[r])
            ring = field.sums[c, r, begin : begin + count]
            for i in range(count):
                s = k * ring[i]
                total[i] += s
                first[i] += d * s
                second[i] += d * d * s
        for i in range(count):
            one = ONE / total[i]
            mean = first[i] * one
            first[i] = weight[i] * mean
            second[i] = weight[i] * (second[i] * one - mean * mean)
        cost += _add_up(first, count)
        spread += _add_up(second, count)
    return cost, spread


@part()
def _price_of(given, b, field, frame, table, floor):  # type: ignore[no-untyped-def]
    """The price at which the plan costs its budget, and the price its shares are written at.

    Newton on the logarithm of the cost, kept in a bracket. Shares hold for prices near the one they were written at
    (float32 exponentials reach no further) and are written anew when the search leaves that neighbourhood.
    """
    budget, costs, channels = given.budget[b], table.costs, given.relative.shape[1]
    low, high, point = floor, math.inf, max(given.guess[b], floor)
    farthest = costs[costs.shape[0] - 1] if costs.shape[0] else 1.0
    most = 0.0
    for c in range(channels):
        most = max(most, given.relative[b, c])
    reference, found, attempt = math.inf, False, 0
    while True:
        if not abs(point - reference) * farthest * most <= 40.0:
            reference = point
            _write_rows(given, b, field, frame, table, reference)
        if found or attempt == 200:
            return point, reference
        cost, slope = 0.0, 0.0
        for c in range(channels):
            part, spread = _spent(field, frame, table, c, (point - reference) * given.relative[b, c])
            cost += part
            slope -= spread * given.relative[b, c]
        if cost > budget:
            low = point
        else:
            high = point
        newton = point
        if slope < 0.0 and cost > 0.0 and budget > 0.0:
            newton = point + math.log(cost / budget) * cost / -slope
        if high == math.inf:
            newton = min(newton, 4.0 * low + 8.0)
        if (point == floor and cost <= budget) or abs(cost - budget) <= ACCURACY * budget or point > DEAREST:
            found = True
        elif budget <= 0.0:
            point, found = DEAREST, True
        elif high - low <= 1e-9 * low:
            point, found = high, True  # a cliff: sums cannot meet the budget, so stay on the side that can be paid
        elif attempt % 4 == 3 and high < math.inf:
            point = 0.5 * (low + high)  # Newton may creep along a cliff
        elif low == floor and cost <= budget and (newton <= floor or newton >= point):
            point = floor
        elif newton > low and newton < high:
            point = newton
        elif high == math.inf:
            point = 4.0 * low + 8.0
        else:
            point = 0.5 * (low + high)
        attempt += 1


@part(error_model="numpy")
def _write_arrivals(field, frame, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass and let it arrive: inflow, what leaves, how mobile pixels are, and what each one pays."""
    start, count, mass = frame.start, frame.length, field.mass[c]
    inflow, leaving, mobile = field.fields[INFLOW], field.fields[LEAVING], field.fields[MOBILE]
    inverse, source, pays = field.stretches[BEST], field.stretches[SOURCE], field.stretches[PAYS]
    for p in range(frame.high * frame.wide + 2 * table.reach[1]):
        inflow[p], leaving[p], mobile[p] = NOTHING, NOTHING, LEAST_MOBILE
    left, mine, here = leaving[start : start + count], mobile[start : start + count], mass[start : start + count]
    for i in range(count):
        source[i], pays[i] = field.stay[c, i], NOTHING
        inverse[i] = ONE / here[i] if here[i] > SPECK else NOTHING
    for r in range(table.costs.shape[0]):
        field.decay[r] = math.exp(-rate * table.costs[r])
        k, d, ring = field.decay[r], np.float32(table.costs[r]), field.sums[c, r]
        for i in range(count):
            s = k * ring[i]
            source[i] += s
            pays[i] += d * s
    for i in range(count):
        source[i] = here[i] / source[i]
        pays[i] *= source[i]
    for k in range(field.shift.shape[0]):
        flow, at, d = field.shares[c, k], start + field.shift[k], field.decay[table.ring_of[k]]
        arriving, growing = inflow[at : at + count], mobile[at : at + count]
        least = SPECK / min(d, ONE)  # a smaller share stays: processors take a hundred times as long for such numbers
        for i in range(count):
            flow[i] = flow[i] * (d * source[i]) if flow[i] > least else NOTHING
        for i in range(count):
            f = flow[i]
            arriving[i] += f
            growing[i] += f * (ONE - f * inverse[i])  # how fast a pixel's mass grows with its potential
        for i in range(count):
            left[i] += flow[i]
    for i in range(count):
        mine[i] += left[i] * (ONE - left[i] * inverse[i])


@part(error_model="numpy")
def _write_crowding(field, frame, table, c, crowding):  # type: ignore[no-untyped-def]
    """How crowded pixels would be if none sent mass back."""
    inflow, leaving, mobile = field.fields[INFLOW], field.fields[LEAVING], field.fields[MOBILE]
    for y in range(max(frame.top, 0), min(frame.top + frame.high, crowding.shape[0])):
        at = table.reach[1] + (y - frame.top) * frame.wide - frame.left
        for x in range(max(frame.left, 0), min(frame.left + frame.wide, crowding.shape[1])):
            p = at + x
            crowding[y, x] = (field.mass[c, p] - leaving[p] + inflow[p] - ONE) / mobile[p]


@part(error_model="numpy")
def _cancel_swaps(field, frame, table, c):  # type: ignore[no-untyped-def]
    """Let stay what two pixels would exchange, as `repair.without_swaps`: it neither leaves nor arrives nor pays."""
    start, count = frame.start, frame.length
    stays, both, saved = field.fields[STAYS], field.stretches[SCALE], field.stretches[SAVED]
    size = frame.high * frame.wide + 2 * table.reach[1]
    for p in range(size):
        stays[p] = NOTHING
    for i in range(count):
        saved[i] = NOTHING
    for k in range(field.shift.shape[0]):
        shift = field.shift[k]
        if shift <= 0 or shift >= count:  # a move and the one that undoes it are dealt with once
            continue
        pairs, twice = count - shift, np.float32(2.0 * table.costs[table.ring_of[k]])
        there, back = field.shares[c, k], field.shares[c, table.back[k], shift:count]
        near, far = stays[start : start + pairs], stays[start + shift : start + count]
        for i in range(pairs):
            both[i] = min(there[i], back[i])
            there[i] -= both[i]
            back[i] -= both[i]
        for i in range(pairs):
            near[i] += both[i]
            saved[i] += twice * both[i]
        for i in range(pairs):
            far[i] += both[i]
    inflow, leaving, pays = field.fields[INFLOW], field.fields[LEAVING], field.stretches[PAYS]
    for p in range(size):
        inflow[p] = max(inflow[p] - stays[p], NOTHING)
        leaving[p] = max(leaving[p] - stays[p], NOTHING)
    for i in range(count):
        pays[i] -= saved[i]


@part(error_model="numpy")
def _send_back(field, frame, table, c):  # type: ignore[no-untyped-def]
    """Lower the share of its inflow that each pixel keeps, sweep by sweep, until all fit: what leaves and who pays."""
    start, count, mass = frame.start, frame.length, field.mass[c]
    inflow, leaving, share = field.fields[INFLOW], field.fields[LEAVING], field.fields[SHARE]
    left, pays = leaving[start : start + count], field.stretches[PAYS]
    size = frame.high * frame.wide + 2 * table.reach[1]
    for p in range(size):
        share[p] = ONE
    for _ in range(table.sweeps[0]):
        overfull = 0
        for p in range(size):
            room = max(ONE - mass[p] + leaving[p], NOTHING)
            if share[p] * inflow[p] > room + np.float32(1e-6):
                share[p] = room / inflow[p]
                overfull += 1
        if overfull == 0:
            break
        for i in range(count):
            left[i], pays[i] = NOTHING, NOTHING
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept, cost = share[at : at + count], np.float32(table.costs[table.ring_of[k]])
            for i in range(count):
                left[i] += flow[i] * kept[i]
                pays[i] += flow[i] * kept[i] * cost


@part()
def _write_image(field, frame, table, c, image):  # type: ignore[no-untyped-def]
    """The channel after the move."""
    inflow, leaving, share = field.fields[INFLOW], field.fields[LEAVING], field.fields[SHARE]
    for y in range(max(frame.top, 0), min(frame.top + frame.high, image.shape[0])):
        at = table.reach[1] + (y - frame.top) * frame.wide - frame.left
        for x in range(max(frame.left, 0), min(frame.left + frame.wide, image.shape[1])):
            p = at + x
            image[y, x] = min(max(field.mass[c, p] - leaving[p] + share[p] * inflow[p], NOTHING), ONE)


@part()
def _write_plan(field, frame, table, c, flows):  # type: ignore[no-untyped-def]
    """Copy the rows of the box that holds mass into the plan, (K, H, W), what stays among them."""
    rows, columns = table.reach[0], table.reach[1]
    share, left = field.fields[SHARE], frame.left + columns
    for row in range(frame.high - 2 * rows):
        y, at = frame.top + rows + row, row * frame.wide + columns
        for k in range(field.shift.shape[0]):
            flow, target = field.shares[c, k], frame.start + field.shift[k]
            for x in range(frame.wide - 2 * columns):
                kept = flow[at + x] * share[target + at + x]
                if kept > DUST:
                    flows[table.place[k], y, left + x] = kept
        for x in range(frame.wide - 2 * columns):
            p = frame.start + at + x
            flows[0, y, left + x] = max(field.mass[c, p] - field.fields[LEAVING, p], NOTHING)
