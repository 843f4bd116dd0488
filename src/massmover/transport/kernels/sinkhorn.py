"""The constrained Sinkhorn projection in Numba: one image per task, everything in cache.

The arithmetic of `sinkhorn.solve`, fused. Each image sweeps until it has converged itself, so nobody waits for the
slowest. While exponentials of the potential fit into a float64, sums over rings of equal cost do all the work; beyond
that range every sum becomes a log-sum-exp over the window, and nothing underflows. Only pixels that hold mass have a
source factor, and only cells that mass can reach have a target potential.

The code is as frugal as that of `kernels.plan`, and for its reasons. Numba infers the types of what it compiles and
reads no annotations, so the kernels carry none. Its cache watches this file alone: every constant and every function
that a kernel uses stands here.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from massmover.compiling import kernel, part
from massmover.geometry import Window
from massmover.threads import in_parallel
from massmover.transport.sinkhorn import Solved, Task
from massmover.types import Images, PerImage

VANISHING = 1e-250  # row sums below this are taken in logarithms
STEEP = 300.0  # price times cost above which exp(-price cost) is taken in logarithms
PRICE_ACCURACY = 1e-6  # relative, of the budget
MEMORY, GENTLE, COOLING, STAGE_TOLERANCE = 6, 100.0, 2.0, 0.005  # as in `sinkhorn`


class Single(NamedTuple):
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
    most: float  # the largest of them
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


def solve_numba(task: Task, window: Window, *, target: Images, price: PerImage) -> Solved:
    """`sinkhorn.solve` on the CPU. An image without mass, budget or moves stays as it is."""
    moves = (*ring_table(window), window.rows, window.columns)
    arrays = [field.contiguous().numpy() for field in task[:6]]
    wanted, originals, budget, relative, cap, tolerance = arrays
    potential, guess = target.contiguous().numpy(), price.numpy()
    source, images = np.full_like(originals, -np.inf), originals.copy()
    numbers = np.zeros((len(images), 5))

    def work(part: slice) -> None:
        for b in range(part.start, part.stop):
            if budget[b] <= 0 or not window.rings or not originals[b].any():
                potential[b] = 0
                numbers[b, 0] = 1e300 if budget[b] <= 0 else 0
                continue
            these = (wanted[b], originals[b], budget[b], relative[b], cap[b], tolerance[b])
            out = (source[b], images[b], numbers[b])
            project_image(these, task.sharpness, moves, task.limit, potential[b], guess[b], out)

    in_parallel(work, count=len(images))
    found_price, sweeps, error, gap, cost = torch.from_numpy(numbers).unbind(dim=1)
    return Solved(
        source=torch.from_numpy(source),
        target=torch.from_numpy(potential),
        price=found_price,
        images=torch.from_numpy(images),
        sweeps=sweeps.long(),
        error=error,
        gap=gap,
        cost=cost,
    )


@lru_cache(maxsize=64)
def ring_table(window: Window) -> tuple[Any, Any]:
    """The rings as arrays: pairs (M, 3) of abs(dy), abs(dx) and ring, ring by ring, and the cost of each ring (R,)."""
    pairs = [(dy, dx, number) for number, ring in enumerate(window.rings) for dy, dx in ring.pairs]
    costs = np.array([ring.cost for ring in window.rings], dtype=np.float64)
    return np.array(pairs, dtype=np.int64).reshape(-1, 3), costs


@part()
def _fill(values, number):  # type: ignore[no-untyped-def]
    """Write one number into every place of a flat array."""
    for n in range(values.shape[0]):
        values[n] = number


@part()
def _copy(source, target):  # type: ignore[no-untyped-def]
    """Write one flat array into another."""
    for n in range(target.shape[0]):
        target[n] = source[n]


@part(error_model="numpy")
def _pair_columns(values, rows, columns, padded, paired):  # type: ignore[no-untyped-def]
    """Add the two pixels dx columns left and right of (y, x) into paired[dx, rows + y, x]; its border stays 0."""
    height, width = values.shape
    for y in range(height):
        for x in range(width):
            padded[columns + x] = values[y, x]
            paired[0, rows + y, x] = values[y, x]
        for dx in range(1, columns + 1):
            for x in range(width):
                paired[dx, rows + y, x] = padded[columns + x + dx] + padded[columns + x - dx]


@part(error_model="numpy")
def _add_pair(paired, dy, dx, rows, factor, out):  # type: ignore[no-untyped-def]
    """Add factor times the pixels at (+-dy, +-dx) to out."""
    height, width = out.shape
    for y in range(height):
        if dy == 0:
            for x in range(width):
                out[y, x] += factor * paired[dx, rows + y, x]
        else:
            for x in range(width):
                out[y, x] += factor * (paired[dx, rows + y + dy, x] + paired[dx, rows + y - dy, x])


@part()
def _log_ring(plane, y, x, r, pairs):  # type: ignore[no-untyped-def]
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


@part()
def _log_total(terms, unit, costs):  # type: ignore[no-untyped-def]
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


@kernel()
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


@part()
def _set_up(wish, originals, budget, relative, cap, moves):  # type: ignore[no-untyped-def]
    """List the pixels that hold mass and the cells that mass can reach."""
    pairs, costs, rows, columns = moves
    channels, height, width = originals.shape
    flat, flat_wish, pixels = originals.reshape(-1), wish.reshape(-1), height * width
    found = np.zeros((channels, height, width), dtype=np.int64)
    starts, reached = np.zeros(channels + 1, dtype=np.int64), 0
    for c in range(channels):
        starts[c + 1] = starts[c]
        for y in range(height):
            for x in range(width):
                if originals[c, y, x] > 0.0:
                    starts[c + 1] += 1
                    for v in range(max(y - rows, 0), min(y + rows + 1, height)):
                        for u in range(max(x - columns, 0), min(x + columns + 1, width)):
                            reached += 1 - found[c, v, u]
                            found[c, v, u] = 1
    place, cells = np.empty(starts[channels], dtype=np.int64), np.empty(reached, dtype=np.int64)
    channel, cell_channel = np.empty(place.size, dtype=np.int64), np.empty(reached, dtype=np.int64)
    mass, paid, wanted, held, reached = np.empty(place.size), np.empty(place.size), np.empty(reached), 0, 0
    flat_found = found.reshape(-1)
    for n in range(flat.size):
        if flat[n] > 0.0:
            place[held], channel[held], mass[held] = n, n // pixels, flat[n]
            paid[held] = flat[n] * relative[n // pixels]
            held += 1
        if flat_found[n]:
            cells[reached], cell_channel[reached], wanted[reached] = n, n // pixels, flat_wish[n]
            reached += 1
    most = relative[0]
    for c in range(channels):
        most = max(most, relative[c])
    return Single(
        mass, paid, channel, place, starts, cells, cell_channel, wanted,
        relative, most, pairs, costs, rows, columns, height, width, budget, cap,
    )  # fmt: skip


@part()
def _scratch_for(problem, channels):  # type: ignore[no-untyped-def]
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


@part(error_model="numpy")
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


@part()
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


@part()
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


@part()
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
        _pair_columns(scratch.target[c], rows, problem.columns, scratch.padded, paired)
        p = 0
        for r in range(problem.costs.shape[0]):
            _fill(flat_ring, 0.0)
            while p < pairs.shape[0] and pairs[p, 2] == r:
                _add_pair(paired, pairs[p, 0], pairs[p, 1], rows, 1.0, ring)
                p += 1
            for i in range(start, stop):
                sums[i, 1 + r] = flat_ring[problem.place[i] - first]


@part()
def _plan(problem, scratch, potential, price):  # type: ignore[no-untyped-def]
    """Solve for source factors and price; fills what arrives at each cell. Returns price, cost, and if it fitted."""
    top = potential[0]
    for n in range(potential.shape[0]):
        top = max(top, potential[n])
    flat_target = scratch.target.reshape(-1)
    for n in range(potential.shape[0]):
        fall = potential[n] - top
        flat_target[problem.cells[n]] = math.exp(fall) if fall > -700.0 else 0.0
    _gather_rings(problem, scratch)
    price, cost, smallest = _price(problem, scratch.sums, price, np.bool_(False), scratch.decay)
    rings = problem.costs.shape[0]
    if not (smallest >= VANISHING and price * problem.costs[rings - 1] * problem.most <= STEEP):
        return price, cost, False
    decay, sums, flat_source = scratch.decay, scratch.sums, scratch.source.reshape(-1)
    for c in range(decay.shape[0]):
        for r in range(rings):
            decay[c, r] = math.exp(-price * problem.relative[c] * problem.costs[r])
    _fill(flat_source, 0.0)
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
        _pair_columns(scratch.source[c], problem.rows, problem.columns, scratch.padded, scratch.paired)
        _fill(flat_ring, 0.0)
        for p in range(problem.pairs.shape[0]):
            dy, dx, r = problem.pairs[p, 0], problem.pairs[p, 1], problem.pairs[p, 2]
            _add_pair(scratch.paired, dy, dx, problem.rows, decay[c, r], scratch.ring)
        while n < potential.shape[0] and problem.cell_channel[n] == c:
            cell = problem.cells[n]
            total = flat_ring[cell - c * pixels] + flat_source[cell]
            scratch.column[n] = flat_target[cell] * total
            scratch.arriving[n] = math.log(total) - top
            n += 1
    return price, cost, True


@part()
def _plan_in_logarithms(problem, scratch, potential, price):  # type: ignore[no-untyped-def]
    """`plan` at any range of potentials and any price."""
    costs, pairs, width, height = problem.costs, problem.pairs, problem.width, problem.height
    flat_target, flat_source = scratch.target.reshape(-1), scratch.source.reshape(-1)
    _fill(flat_target, -math.inf)
    _fill(flat_source, -math.inf)
    for n in range(potential.shape[0]):
        flat_target[problem.cells[n]] = potential[n]
    for i in range(problem.mass.shape[0]):
        y, x = problem.place[i] // width % height, problem.place[i] % width
        scratch.sums[i, 0] = flat_target[problem.place[i]]
        for r in range(costs.shape[0]):
            scratch.sums[i, 1 + r] = _log_ring(scratch.target[problem.channel[i]], y, x, r, pairs)
    price, cost, _ = _price(problem, scratch.sums, price, np.bool_(True), scratch.decay)
    for i in range(problem.mass.shape[0]):
        total = _log_total(scratch.sums[i], price * problem.relative[problem.channel[i]], costs)
        scratch.log_source[i] = math.log(problem.mass[i]) - total
        flat_source[problem.place[i]] = scratch.log_source[i]
    terms = np.empty(1 + costs.shape[0])
    for n in range(potential.shape[0]):
        c, y, x = problem.cell_channel[n], problem.cells[n] // width % height, problem.cells[n] % width
        terms[0] = scratch.source[c, y, x]
        for r in range(costs.shape[0]):
            terms[1 + r] = _log_ring(scratch.source[c], y, x, r, pairs)
        scratch.arriving[n] = _log_total(terms, price * problem.relative[c], costs)
        scratch.column[n] = math.exp(potential[n] + scratch.arriving[n])
    return price, cost


class Past(NamedTuple):
    """What the extrapolation remembers."""

    steps: Any  # (MEMORY, N) changes of the residual
    answers: Any  # (MEMORY, N) changes of the sweep's answer
    products: Any  # (MEMORY, MEMORY) of the steps
    potential: Any  # (N,) where the last sweep began
    answer: Any  # (N,) and where it ended
    residual: Any  # (N,) what the sweep before this one changed
    matrix: Any  # (MEMORY, MEMORY), scratch
    weights: Any  # (MEMORY,)


@part()
def _misfit(problem, scratch, sharpness, potential, price, cost):  # type: ignore[no-untyped-def]
    """How far the plan's columns are from what the duals say, the duality gap and the dual objective.

    In the gap nothing cancels: it is a square, and the slack of each inequality times its dual.
    """
    error, gap, dual = 0.0, price * max(problem.budget - cost, 0.0) / sharpness, -price * problem.budget / sharpness
    cap = problem.cap
    for n in range(potential.shape[0]):
        wanted, column = problem.wanted[n], scratch.column[n]
        free = wanted - potential[n] / sharpness
        meant = min(free, cap)
        miss = meant - column
        error += abs(miss)
        gap += 0.5 * miss * miss
        dual += 0.5 * (wanted - meant) * (wanted + meant)
        if free > cap:
            gap += (free - cap) * (cap - column)
            dual -= (free - cap) * cap
    for i in range(problem.mass.shape[0]):
        dual += problem.mass[i] * scratch.log_source[i] / sharpness
    return error, gap, dual


@part()
def _answer(problem, arriving, sharp, answer):  # type: ignore[no-untyped-def]
    """The best target potential for a plan's source factors, cap included: Hu et al. 2020, appendix."""
    cap, log_cap, log_sharp = problem.cap, math.log(problem.cap), math.log(sharp)
    for n in range(answer.shape[0]):
        wish = sharp * problem.wanted[n]
        full = log_cap - arriving[n]
        if wish - sharp * cap > full:
            answer[n] = full
        else:
            answer[n] = wish - wright_omega(log_sharp + wish + arriving[n])


@part(error_model="numpy")
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@part()
def _solve(matrix, right):  # type: ignore[no-untyped-def]
    """Solve a small positive definite system in place, by elimination without pivots."""
    size = right.shape[0]
    for k in range(size):
        for a in range(k + 1, size):
            share = matrix[a, k] / matrix[k, k]
            for b in range(k, size):
                matrix[a, b] -= share * matrix[k, b]
            right[a] -= share * right[k]
    for k in range(size - 1, -1, -1):
        for b in range(k + 1, size):
            right[k] -= matrix[k, b] * right[b]
        right[k] /= matrix[k, k]


@part()
def _extrapolate(past, count, potential, answer):  # type: ignore[no-untyped-def]
    """Anderson's step: the combination of remembered sweeps whose residual is smallest, written into the potential.

    `count` sweeps have been remembered before this one. The last one replaces the oldest.
    """
    slot, size = count % MEMORY, min(count + 1, MEMORY)
    step, change, weights = past.steps[slot], past.answers[slot], past.weights[:size]
    for n in range(potential.shape[0]):
        past.residual[n] = answer[n] - potential[n]
        change[n] = answer[n] - past.answer[n]
        step[n] = past.residual[n] - (past.answer[n] - past.potential[n])
    for a in range(size):
        past.products[a, slot] = past.products[slot, a] = _dot(past.steps[a], step)
    ridge = 0.0
    for a in range(size):
        ridge += 1e-10 * past.products[a, a]
        weights[a] = _dot(past.steps[a], past.residual)
    for a in range(size):
        for b in range(size):
            past.matrix[a, b] = past.products[a, b]
        past.matrix[a, a] += ridge + 1e-300
    _solve(past.matrix, weights)
    _copy(potential, past.potential)
    _copy(answer, past.answer)
    _copy(answer, potential)
    for a in range(size):
        for n in range(potential.shape[0]):
            potential[n] -= weights[a] * past.answers[a, n]


@part()
def _sweep(problem, scratch, sharpness, limit, tolerance, logarithms, beta, price):  # type: ignore[no-untyped-def]
    """Sweep at one temperature until the columns fit, writing the potential; returns price, mode and how it went.

    Plain sweeps never lower the dual objective. An extrapolation that does is taken back, so neither do they together.
    """
    reached = beta.shape[0]
    answer = np.empty(reached)
    past = Past(
        np.zeros((MEMORY, reached)), np.zeros((MEMORY, reached)), np.zeros((MEMORY, MEMORY)), np.empty(reached),
        np.empty(reached), np.empty(reached), np.empty((MEMORY, MEMORY)), np.empty(MEMORY),
    )  # fmt: skip
    extrapolated, count, before, sweep = False, np.int64(0), -math.inf, 0
    while True:
        fitted = False
        if not logarithms:
            price, cost, fitted = _plan(problem, scratch, beta, price)
            logarithms = not fitted
        if logarithms:
            price, cost = _plan_in_logarithms(problem, scratch, beta, price)
        error, gap, dual = _misfit(problem, scratch, sharpness, beta, price, cost)
        astray = extrapolated and not dual >= before - 1e-12 * abs(before)
        if (error <= tolerance or sweep >= limit) and not astray:
            return price, logarithms, sweep, error, gap, cost
        sweep += 1
        if astray:  # go where the plain sweep would have led
            _copy(past.answer, beta)
            extrapolated, count, before = False, np.int64(0), -math.inf
            continue
        _answer(problem, scratch.arriving, sharpness, answer)
        extrapolated = before > -math.inf
        before = dual
        if extrapolated:
            _extrapolate(past, count, beta, answer)
            count += 1
        else:
            _copy(beta, past.potential)
            _copy(answer, past.answer)
            _copy(answer, beta)


@kernel(nogil=True)
def project_image(task, sharpness, moves, limit, potential, price, out):  # type: ignore[no-untyped-def]
    """Project one image (C, H, W); writes the potential and `out`: source dual, image, and five numbers.

    `task` holds wish, originals, budget, channel weights, cap and tolerance of one image, `moves` the pairs and costs
    of the rings and how far they reach; the numbers are price, sweeps, error, gap and cost. Cold problems are
    approached from warmer ones: duals grow in proportion to the sharpness, so each is a good start for the next.
    """
    wish, originals, budget, relative, cap, tolerance = task
    source, images, numbers = out
    problem = _set_up(wish, originals, budget, relative, cap, moves)
    flat_potential, flat_images, flat_source = potential.reshape(-1), images.reshape(-1), source.reshape(-1)
    scratch = _scratch_for(problem, potential.shape[0])
    most, least = problem.wanted[0], problem.wanted[0]
    for n in range(problem.wanted.shape[0]):
        most, least = max(most, problem.wanted[n]), min(least, problem.wanted[n])
    stage = min(sharpness, GENTLE / max(most - least, 1e-300))
    beta = np.empty(problem.cells.size)
    for n in range(beta.size):
        beta[n] = flat_potential[problem.cells[n]] * (stage / sharpness)
    price *= stage / sharpness
    logarithms, sweeps = np.bool_(False), np.int64(0)  # a literal would be a type, and its callees compiled twice
    while True:
        last = stage >= sharpness
        enough = tolerance if last else max(tolerance, STAGE_TOLERANCE)
        price, logarithms, done, error, gap, cost = _sweep(
            problem, scratch, stage, limit - sweeps, enough, logarithms, beta, price
        )
        sweeps += done
        if last:
            break
        following = min(sharpness, stage * COOLING)
        for n in range(beta.shape[0]):
            beta[n] *= following / stage
        price *= following / stage
        stage = following
    for n in range(beta.shape[0]):
        flat_potential[problem.cells[n]] = beta[n]
        flat_images[problem.cells[n]] = scratch.column[n]
    for i in range(problem.mass.shape[0]):
        flat_source[problem.place[i]] = 1.0 + scratch.log_source[i]  # the 1 is the paper's: K = exp(-price cost - 1)
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = price, sweeps, error, gap, cost
