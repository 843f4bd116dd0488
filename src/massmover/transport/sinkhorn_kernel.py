"""The constrained Sinkhorn projection for CPUs: one image per task, everything in cache.

The arithmetic of `sinkhorn_torch.py`, fused with Numba. Each image sweeps until it has converged itself, so nobody
waits for the slowest.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from massmover.transport.sinkhorn_plan import plan, plan_in_logarithms, scratch_for, set_up
from massmover.transport.sinkhorn_rings import wright_omega
from massmover.transport.sinkhorn_torch import COOLING, GENTLE, MEMORY, STAGE_TOLERANCE


class Past(NamedTuple):
    """What the extrapolation remembers."""

    steps: Any  # (MEMORY, N) changes of the residual
    answers: Any  # (MEMORY, N) changes of the sweep's answer
    products: Any  # (MEMORY, MEMORY) of the steps
    potential: Any  # (N,) where the last sweep began
    answer: Any  # (N,) and where it ended


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True, error_model="numpy")
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit(cache=True)
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


@njit(cache=True)
def _extrapolate(past, count, potential, answer):  # type: ignore[no-untyped-def]
    """Anderson's step: the combination of remembered sweeps whose residual is smallest, written into the potential.

    `count` sweeps have been remembered before this one. The last one replaces the oldest.
    """
    slot, size = count % MEMORY, min(count + 1, MEMORY)
    step, change = past.steps[slot], past.answers[slot]
    residual = answer - potential
    for n in range(potential.shape[0]):
        change[n] = answer[n] - past.answer[n]
        step[n] = residual[n] - (past.answer[n] - past.potential[n])
    for a in range(size):
        past.products[a, slot] = past.products[slot, a] = _dot(past.steps[a], step)
    matrix = past.products[:size, :size].copy()
    weights = np.empty(size)
    ridge = 0.0
    for a in range(size):
        ridge += 1e-10 * matrix[a, a]
        weights[a] = _dot(past.steps[a], residual)
    for a in range(size):
        matrix[a, a] += ridge + 1e-300
    _solve(matrix, weights)
    past.potential[:] = potential
    past.answer[:] = answer
    potential[:] = answer
    for a in range(size):
        for n in range(potential.shape[0]):
            potential[n] -= weights[a] * past.answers[a, n]


@njit(cache=True)
def _sweep(problem, scratch, sharpness, limit, tolerance, logarithms, beta, price):  # type: ignore[no-untyped-def]
    """Sweep at one temperature until the columns fit, writing the potential; returns price, mode and how it went.

    Plain sweeps never lower the dual objective. An extrapolation that does is taken back, so neither do they together.
    """
    reached = beta.shape[0]
    answer = np.empty(reached)
    past = Past(
        np.zeros((MEMORY, reached)), np.zeros((MEMORY, reached)), np.zeros((MEMORY, MEMORY)), beta.copy(), beta.copy()
    )
    extrapolated, count, before, sweep = False, 0, -math.inf, 0
    while True:
        fitted = False
        if not logarithms:
            price, cost, fitted = plan(problem, scratch, beta, price)
            logarithms = not fitted
        if logarithms:
            price, cost = plan_in_logarithms(problem, scratch, beta, price)
        error, gap, dual = _misfit(problem, scratch, sharpness, beta, price, cost)
        astray = extrapolated and not dual >= before - 1e-12 * abs(before)
        if (error <= tolerance or sweep >= limit) and not astray:
            return price, logarithms, sweep, error, gap, cost
        sweep += 1
        if astray:  # go where the plain sweep would have led
            beta[:] = past.answer
            extrapolated, count, before = False, 0, -math.inf
            continue
        _answer(problem, scratch.arriving, sharpness, answer)
        extrapolated = before > -math.inf
        before = dual
        if extrapolated:
            _extrapolate(past, count, beta, answer)
            count += 1
        else:
            past.potential[:] = beta
            past.answer[:] = answer
            beta[:] = answer


@njit(cache=True, nogil=True)
def project_image(task, sharpness, moves, limit, potential, price, out):  # type: ignore[no-untyped-def]
    """Project one image (C, H, W); writes the potential and `out`: source dual, image, and five numbers.

    `task` holds wish, originals, budget, channel weights, cap and tolerance of one image, `moves` the pairs and costs
    of the rings and how far they reach; the numbers are price, sweeps, error, gap and cost. Cold problems are
    approached from warmer ones: duals grow in proportion to the sharpness, so each is a good start for the next.
    """
    wish, originals, budget, relative, cap, tolerance = task
    source, images, numbers = out
    problem = set_up(wish, originals, budget, relative, cap, moves)
    flat_potential, flat_images, flat_source = potential.reshape(-1), images.reshape(-1), source.reshape(-1)
    scratch = scratch_for(problem, potential.shape[0])
    spread = problem.wanted.max() - problem.wanted.min()
    stage = min(sharpness, GENTLE / max(spread, 1e-300))
    beta = np.empty(problem.cells.size)
    for n in range(beta.size):
        beta[n] = flat_potential[problem.cells[n]] * (stage / sharpness)
    price *= stage / sharpness
    logarithms, sweeps = False, 0
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
        beta *= following / stage
        price *= following / stage
        stage = following
    for n in range(beta.shape[0]):
        flat_potential[problem.cells[n]] = beta[n]
        flat_images[problem.cells[n]] = scratch.column[n]
    for i in range(problem.mass.shape[0]):
        flat_source[problem.place[i]] = 1.0 + scratch.log_source[i]  # the 1 is the paper's: K = exp(-price cost - 1)
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = price, sweeps, error, gap, cost
