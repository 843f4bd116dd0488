"""The plan of a target potential for one image in Numba: source factors, price, and what arrives where.

While exponentials of the potential fit into a float64, sums over rings of equal cost do all the work; beyond that
range every sum becomes a log-sum-exp over the window, and nothing underflows. Only pixels that hold mass have a source
factor, and only cells that mass can reach have a target potential.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from massmover.transport.sinkhorn_rings import add_pair, log_ring, log_total, pair_columns

VANISHING = 1e-250  # row sums below this are taken in logarithms
STEEP = 300.0  # price times cost above which exp(-price cost) is taken in logarithms
PRICE_ACCURACY = 1e-6  # relative, of the budget


class Problem(NamedTuple):
    """One image's projection in distribution space; pixels and cells are numbered through all channels."""

    mass: Any  # (P,) of the pixels that hold any
    paid: Any  # (P,) mass times the channel's weight
    channel: Any  # (P,)
    place: Any  # (P,) number of the pixel
    starts: Any  # (C + 1,) first pixel of each channel
    cells: Any  # (N,) number of the pixel that mass can reach
    cell_channel: Any  # (N,)
    wanted: Any  # (N,) the image to project
    relative: Any  # (C,) channel weights
    pairs: Any  # (M, 3) abs(dy), abs(dx), ring
    costs: Any  # (R,)
    rows: int
    columns: int
    height: int
    width: int
    budget: float
    cap: float  # the largest a pixel may be


class Scratch(NamedTuple):
    """Memory that every sweep uses again."""

    sums: Any  # (P, 1 + R) what stays, then each ring around a pixel that holds mass
    decay: Any  # (C, R) exp(-price cost)
    padded: Any
    paired: Any
    ring: Any  # (H, W)
    target: Any  # (C, H, W) exp(potential - top), or the potential
    source: Any  # (C, H, W) the source factor, or its logarithm
    arriving: Any  # (N,) logarithm of what a unit of target factor receives
    column: Any  # (N,) what the plan brings to each cell
    log_source: Any  # (P,) logarithm of the source factor


@njit(cache=True)
def set_up(wish, originals, budget, relative, cap, moves):  # type: ignore[no-untyped-def]
    """List the pixels that hold mass and the cells that mass can reach."""
    pairs, costs, rows, columns = moves
    channels, height, width = originals.shape
    flat, flat_wish, pixels = originals.reshape(-1), wish.reshape(-1), height * width
    found = np.zeros((channels, height, width), dtype=np.bool_)
    starts = np.zeros(channels + 1, dtype=np.int64)
    for c in range(channels):
        starts[c + 1] = starts[c]
        for y in range(height):
            for x in range(width):
                if originals[c, y, x] > 0.0:
                    starts[c + 1] += 1
                    found[c, max(y - rows, 0) : y + rows + 1, max(x - columns, 0) : x + columns + 1] = True
    place, cells = np.empty(starts[-1], dtype=np.int64), np.empty(found.sum(), dtype=np.int64)
    mass, wanted, held, reached = np.empty(place.size), np.empty(cells.size), 0, 0
    flat_found = found.reshape(-1)
    for n in range(flat.size):
        if flat[n] > 0.0:
            place[held], mass[held] = n, flat[n]
            held += 1
        if flat_found[n]:
            cells[reached], wanted[reached] = n, flat_wish[n]
            reached += 1
    channel, cell_channel = place // pixels, cells // pixels
    paid = mass.copy()
    for i in range(held):
        paid[i] *= relative[channel[i]]
    return Problem(
        mass, paid, channel, place, starts, cells, cell_channel, wanted,
        relative, pairs, costs, rows, columns, height, width, budget, cap,
    )  # fmt: skip


@njit(cache=True)
def scratch_for(problem, channels):  # type: ignore[no-untyped-def]
    """Memory for the sweeps of one image."""
    height, width, rings, reached = problem.height, problem.width, problem.costs.shape[0], problem.cells.shape[0]
    return Scratch(
        np.empty((problem.mass.shape[0], rings + 1)),
        np.empty((channels, rings)),
        np.zeros(width + 2 * problem.columns),
        np.zeros((problem.columns + 1, height + 2 * problem.rows, width)),
        np.empty((height, width)),
        np.zeros((channels, height, width)),
        np.zeros((channels, height, width)),
        np.empty(reached),
        np.empty(reached),
        np.empty(problem.mass.shape[0]),
    )


@njit(cache=True, error_model="numpy")
def _spent(problem, sums, price, decay):  # type: ignore[no-untyped-def]
    """Cost at a price, its derivative and the smallest row sum."""
    costs, relative, paid, channel = problem.costs, problem.relative, problem.paid, problem.channel
    rings = costs.shape[0]
    for c in range(relative.shape[0]):
        for r in range(rings):
            decay[c, r] = math.exp(-price * relative[c] * costs[r])
    cost, slope, smallest = 0.0, 0.0, 1e300
    for i in range(paid.shape[0]):
        c = channel[i]
        total, first, second = sums[i, 0], 0.0, 0.0
        for r in range(rings):
            s = decay[c, r] * sums[i, 1 + r]
            total += s
            s *= costs[r]
            first += s
            second += s * costs[r]
        smallest = min(smallest, total)
        share = 1.0 / max(total, 1e-300)
        mean = first * share
        cost += paid[i] * mean
        slope -= paid[i] * relative[c] * (second * share - mean * mean)
    return cost, slope, smallest


@njit(cache=True)
def _spent_in_logarithms(problem, sums, price):  # type: ignore[no-untyped-def]
    """`_spent` when the sums are logarithms: every row is divided by its largest term first."""
    costs = problem.costs
    rings = costs.shape[0]
    cost, slope = 0.0, 0.0
    for i in range(problem.paid.shape[0]):
        relative = problem.relative[problem.channel[i]]
        top = sums[i, 0]
        for r in range(rings):
            top = max(top, sums[i, 1 + r] - price * relative * costs[r])
        total, first, second = math.exp(sums[i, 0] - top), 0.0, 0.0
        for r in range(rings):
            s = math.exp(sums[i, 1 + r] - price * relative * costs[r] - top)
            total += s
            first += costs[r] * s
            second += costs[r] * costs[r] * s
        mean = first / total
        cost += problem.paid[i] * mean
        slope -= problem.paid[i] * relative * (second / total - mean * mean)
    return cost, slope, 1.0


@njit(cache=True)
def _price(problem, sums, guess, logarithms, decay):  # type: ignore[no-untyped-def]
    """The price >= 0 at which the plan costs its budget, the cost there, and the smallest row sum.

    Newton's method on the logarithm of the cost, kept in a bracket. A cold problem has a cost that falls in
    steps: then the bracket is halved, and the answer is the affordable end of the step.
    """
    budget = problem.budget
    low, high = 0.0, math.inf
    best, best_cost, smallest = math.inf, 0.0, 1.0
    point = guess
    for step in range(200):
        if logarithms:
            cost, slope, least = _spent_in_logarithms(problem, sums, point)
        else:
            cost, slope, least = _spent(problem, sums, point, decay)
        if cost <= budget * (1.0 + PRICE_ACCURACY):
            high = point
            best, best_cost, smallest = point, cost, least
            if point == 0.0 or cost >= budget * (1.0 - PRICE_ACCURACY):
                break
        else:
            low = point
        if high - low <= 1e-13 * low:
            break
        newton = point
        if slope < 0.0 and cost > 0.0:
            newton = point + math.log(cost / budget) * cost / -slope
        if low == 0.0 and newton <= 0.0:
            point = 0.0
        elif high == math.inf:  # on a plateau Newton's step is as good as infinite
            point = min(newton, 8.0 * low + 1.0) if newton > low else 8.0 * low + 1.0
        elif step < 25 and newton > low and newton < high:
            point = newton
        else:
            point = math.sqrt(low * high) if high > 4.0 * low > 0.0 else 0.5 * (low + high)
    return best, best_cost, smallest


@njit(cache=True)
def _gather_rings(problem, scratch):  # type: ignore[no-untyped-def]
    """The target factor added up over each ring around every pixel that holds mass."""
    pairs, rows = problem.pairs, problem.rows
    paired, ring, sums = scratch.paired, scratch.ring, scratch.sums
    height, width = ring.shape
    flat_target, flat_ring = scratch.target.reshape(-1), ring.reshape(-1)
    for c in range(scratch.target.shape[0]):
        start, stop, first = problem.starts[c], problem.starts[c + 1], c * height * width
        if start == stop:
            continue
        for i in range(start, stop):
            sums[i, 0] = flat_target[problem.place[i]]
        pair_columns(scratch.target[c], rows, problem.columns, scratch.padded, paired)
        p = 0
        for r in range(problem.costs.shape[0]):
            ring[:] = 0.0
            while p < pairs.shape[0] and pairs[p, 2] == r:
                add_pair(paired, pairs[p, 0], pairs[p, 1], rows, 1.0, ring)
                p += 1
            for i in range(start, stop):
                sums[i, 1 + r] = flat_ring[problem.place[i] - first]


@njit(cache=True)
def plan(problem, scratch, potential, price):  # type: ignore[no-untyped-def]
    """Solve for source factors and price; fills what arrives at each cell. Returns price, cost, and if it fitted."""
    top = potential.max()
    flat_target = scratch.target.reshape(-1)
    for n in range(potential.shape[0]):
        fall = potential[n] - top
        flat_target[problem.cells[n]] = math.exp(fall) if fall > -700.0 else 0.0
    _gather_rings(problem, scratch)
    price, cost, smallest = _price(problem, scratch.sums, price, False, scratch.decay)
    rings = problem.costs.shape[0]
    if not (smallest >= VANISHING and price * problem.costs[rings - 1] * problem.relative.max() <= STEEP):
        return price, cost, False
    decay, sums, flat_source = scratch.decay, scratch.sums, scratch.source.reshape(-1)
    for c in range(decay.shape[0]):
        for r in range(rings):
            decay[c, r] = math.exp(-price * problem.relative[c] * problem.costs[r])
    scratch.source[:] = 0.0
    for i in range(problem.mass.shape[0]):
        total = sums[i, 0]
        for r in range(rings):
            total += decay[problem.channel[i], r] * sums[i, 1 + r]
        flat_source[problem.place[i]] = problem.mass[i] / total
        scratch.log_source[i] = math.log(problem.mass[i] / total) - top
    n, flat_ring, pixels = 0, scratch.ring.reshape(-1), scratch.ring.size
    for c in range(decay.shape[0]):
        if problem.starts[c] == problem.starts[c + 1]:
            continue
        pair_columns(scratch.source[c], problem.rows, problem.columns, scratch.padded, scratch.paired)
        scratch.ring[:] = 0.0
        for p in range(problem.pairs.shape[0]):
            dy, dx, r = problem.pairs[p]
            add_pair(scratch.paired, dy, dx, problem.rows, decay[c, r], scratch.ring)
        while n < potential.shape[0] and problem.cell_channel[n] == c:
            cell = problem.cells[n]
            total = flat_ring[cell - c * pixels] + flat_source[cell]
            scratch.column[n] = flat_target[cell] * total
            scratch.arriving[n] = math.log(total) - top
            n += 1
    return price, cost, True


@njit(cache=True)
def plan_in_logarithms(problem, scratch, potential, price):  # type: ignore[no-untyped-def]
    """`plan` at any range of potentials and any price."""
    costs, pairs, width, height = problem.costs, problem.pairs, problem.width, problem.height
    flat_target, flat_source = scratch.target.reshape(-1), scratch.source.reshape(-1)
    scratch.target[:] = -math.inf
    scratch.source[:] = -math.inf
    for n in range(potential.shape[0]):
        flat_target[problem.cells[n]] = potential[n]
    for i in range(problem.mass.shape[0]):
        y, x = problem.place[i] // width % height, problem.place[i] % width
        scratch.sums[i, 0] = flat_target[problem.place[i]]
        for r in range(costs.shape[0]):
            scratch.sums[i, 1 + r] = log_ring(scratch.target[problem.channel[i]], y, x, r, pairs)
    price, cost, _ = _price(problem, scratch.sums, price, True, scratch.decay)
    for i in range(problem.mass.shape[0]):
        total = log_total(scratch.sums[i], price * problem.relative[problem.channel[i]], costs)
        scratch.log_source[i] = math.log(problem.mass[i]) - total
        flat_source[problem.place[i]] = scratch.log_source[i]
    terms = np.empty(1 + costs.shape[0])
    for n in range(potential.shape[0]):
        c, y, x = problem.cell_channel[n], problem.cells[n] // width % height, problem.cells[n] % width
        terms[0] = scratch.source[c, y, x]
        for r in range(costs.shape[0]):
            terms[1 + r] = log_ring(scratch.source[c], y, x, r, pairs)
        scratch.arriving[n] = log_total(terms, price * problem.relative[c], costs)
        scratch.column[n] = math.exp(potential[n] + scratch.arriving[n])
    return price, cost
