"""Linear classifiers in balls that bound scatter: linear programmes whose optimum no plan of the ball exceeds."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, vstack
from torch import Tensor

from linear import programme
from massmover import WassersteinBall

CELLS = tuple(itertools.product((-1, 0), repeat=2))  # in which means can lie in a window of 3


def coherent_optimum(image: Tensor, slope: Tensor, ball: WassersteinBall, cell: tuple[int, int]) -> float:
    """The largest slope . (z - image) by one linear programme, if pixels' means lie in one cell of the grid.

    Variables are the plan, the vector s and for each pixel and axis t >= |v - s|^2, by tangents: an upper bound, but
    for the gaps between tangents exact. Rows beyond the cell pay k (k - 1).
    """
    source, target, cost, x = programme(image, ball.moves(image))
    width, n, many = image.shape[-1], len(x), len(cost)
    steps = np.stack([target // width - source // width, target % width - source % width])
    held = np.flatnonzero(x > 0)
    place = {pixel: number for number, pixel in enumerate(held)}
    size = many + 2 + 2 * len(held)
    tau = float(ball.scatter or 0.0)
    points = np.unique(np.concatenate([sign * tau * np.geomspace(0.05, 30, 40) for sign in (-1, 1)] + [np.zeros(1)]))
    rows, columns, values, bounds = [], [], [], []
    leaving = [np.flatnonzero(source == pixel) for pixel in held]
    count = 0
    for axis, pixel, point in itertools.product(range(2), held, points):
        # point^2 + 2 point (v - s - point) <= t
        arcs = leaving[place[pixel]]
        entries = [*(2 * point * steps[axis][arcs] / x[pixel]), -2 * point, -1.0]
        at = [*arcs, many + axis, many + 2 + axis * len(held) + place[pixel]]
        rows += [count] * len(at)
        columns += at
        values += entries
        bounds.append(point**2)
        count += 1
    tangents = coo_matrix((values, (rows, columns)), shape=(count, size))
    k = steps - np.array(cell)[:, None]
    budget = np.concatenate([(k * (k - 1)).sum(axis=0), [0.0, 0.0], x[held], x[held]]) / x.sum()
    radius = np.concatenate([cost / x.sum(), np.zeros(size - many)])
    box = coo_matrix((np.ones(many), (target, np.arange(many))), shape=(n, size))
    exact_rows = coo_matrix((np.ones(many), (source, np.arange(many))), shape=(n, size))
    a = slope.flatten().double().numpy()
    found = linprog(
        np.concatenate([-a[target], np.zeros(size - many)]),
        A_eq=exact_rows.tocsr(),
        b_eq=x,
        A_ub=vstack([tangents, box, coo_matrix(radius), coo_matrix(budget)]).tocsr(),
        b_ub=np.concatenate([bounds, np.ones(n), [float(ball.radius), tau**2]]),
        bounds=[(0, None)] * many + [(None, None)] * 2 + [(0, None)] * (2 * len(held)),
        method="highs",
    )
    assert found.status == 0
    return float(-found.fun - a @ x)


class Rows:
    """Inequalities of a linear programme, gathered block by block."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 0
        self.entries: list[np.ndarray] = []
        self.most: list[np.ndarray] = []

    def add(self, most: np.ndarray, *blocks: tuple[np.ndarray, np.ndarray, np.ndarray | float]) -> None:
        """Some rows: for each block the row, the variable and the factor of its entries."""
        for row, variable, factor in blocks:
            self.entries.append(np.stack(np.broadcast_arrays(self.count + row, variable, factor)))
        self.most.append(most)
        self.count += len(most)

    def matrix(self) -> coo_matrix:
        row, variable, factor = np.concatenate(self.entries, axis=1)
        return coo_matrix((factor, (row.astype(int), variable.astype(int))), shape=(self.count, self.size)).tocsr()


def coherent_bound(image: Tensor, slope: Tensor, ball: WassersteinBall, vector: tuple[float, float]) -> float:
    """No less than the largest slope . (z - image) in a ball of window 3, if mass is to follow one vector s.

    Pixels may divide their mass among the cells of the grid that means can lie in, and each part pays for itself: a
    relaxation. A part with mass p, moments u = sum P d and m = sum P (d - s)_1 (d - s)_2 pays the larger of
    |u - p s|^2 / p, by tangents, and 2 |m|, which is at most that plus 2 |cov|; and k (k - 1) beyond its cell.
    """
    source, target, cost, x = programme(image, ball.moves(image))
    many, width, tau = len(cost), image.shape[-1], float(ball.scatter or 0.0)
    steps = np.stack([target // width - source // width, target % width - source % width])
    moves, parts = np.arange(len(CELLS) * many), np.arange(len(CELLS) * len(x))
    part = np.concatenate([cell * len(x) + source for cell in range(len(CELLS))])
    away = np.tile(steps, len(CELLS)) - np.array(vector)[:, None]
    pays = [len(moves) + block * len(parts) + parts for block in range(3)]  # along each axis, and in all
    rows, nothing = Rows(len(moves) + 3 * len(parts)), np.zeros(len(parts))
    tangents = tau * np.geomspace(0.15, 20, 12)
    for axis, point in itertools.product(range(2), (*tangents, *-tangents)):
        rows.add(nothing, (part, moves, 2 * point * away[axis] - point**2), (parts, pays[axis], -1.0))
    rows.add(nothing, (parts, pays[0], 1.0), (parts, pays[1], 1.0), (parts, pays[2], -1.0))
    for sign in (-2, 2):
        rows.add(nothing, (part, moves, sign * away[0] * away[1]), (parts, pays[2], -1.0))
    k = np.concatenate([steps - np.array(cell)[:, None] for cell in CELLS], axis=1)
    first = np.zeros(len(moves), dtype=int)
    rows.add(np.ones(len(x)), (np.tile(target, len(CELLS)), moves, 1.0))
    rows.add(np.array([float(ball.radius) * x.sum()]), (first, moves, np.tile(cost, len(CELLS))))
    rows.add(np.array([tau**2 * x.sum()]), (first, moves, (k * (k - 1)).sum(axis=0)), (0 * parts, pays[2], 1.0))
    leaving = coo_matrix((np.ones(len(moves)), (part % len(x), moves)), shape=(len(x), rows.size)).tocsr()
    a = slope.flatten().double().numpy()
    found = linprog(
        np.concatenate([-np.tile(a[target], len(CELLS)), np.zeros(3 * len(parts))]),
        A_eq=leaving,
        b_eq=x,
        A_ub=rows.matrix(),
        b_ub=np.concatenate(rows.most),
        method="highs-ipm",
    )
    assert found.status == 0
    return float(-found.fun - a @ x)
