"""Linear classifiers, whose best attack is a linear programme, solved here with SciPy on the full plan."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, vstack
from torch import Tensor, nn

from massmover.geometry import Window


class Linear(nn.Module):
    """Two classes: the second wins when slope . image + offset > 0."""

    def __init__(self, slope: Tensor, offset: float) -> None:
        super().__init__()
        self.slope, self.offset = nn.Parameter(slope), offset

    def forward(self, images: Tensor) -> Tensor:
        score = (images * self.slope.to(images)).sum(dim=(1, 2, 3)) + self.offset
        return torch.stack([torch.zeros_like(score), score], dim=1)


def programme(image: Tensor, window: Window) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and cost of every allowed move of a one-channel image, and its pixels as a vector."""
    height, width = image.shape[-2:]
    arcs = [
        (y * width + x, (y + dy) * width + x + dx, window.cost(dy, dx))
        for y in range(height)
        for x in range(width)
        for dy, dx in window.offsets
        if 0 <= y + dy < height and 0 <= x + dx < width
    ]
    source, target, cost = (np.array(column) for column in zip(*arcs, strict=True))
    return source, target, cost, image.flatten().double().numpy()


def best_gain(image: Tensor, slope: Tensor, window: Window, radius: float) -> float:
    """The largest slope . (z - image) over the ball, pixel box included."""
    source, target, cost, x = programme(image, window)
    n, many = len(x), np.arange(len(cost))
    rows = coo_matrix((np.ones(len(cost)), (source, many)), shape=(n, len(cost)))
    columns = coo_matrix((np.ones(len(cost)), (target, many)), shape=(n, len(cost)))
    a = slope.flatten().double().numpy()
    found = linprog(
        -a[target],
        A_eq=rows.tocsr(),
        b_eq=x,
        A_ub=vstack([columns, coo_matrix(cost / x.sum())]).tocsr(),
        b_ub=np.concatenate([np.ones(n), [radius]]),
        method="highs",
    )
    assert found.status == 0
    return float(-found.fun - a @ x)


def least_radius(image: Tensor, slope: Tensor, offset: float, window: Window) -> float:
    """The smallest radius at which slope . z + offset reaches 0."""
    source, target, cost, x = programme(image, window)
    n, many = len(x), np.arange(len(cost))
    rows = coo_matrix((np.ones(len(cost)), (source, many)), shape=(n, len(cost)))
    columns = coo_matrix((np.ones(len(cost)), (target, many)), shape=(n, len(cost)))
    a = slope.flatten().double().numpy()
    found = linprog(
        cost / x.sum(),
        A_eq=rows.tocsr(),
        b_eq=x,
        A_ub=vstack([columns, coo_matrix(-a[target])]).tocsr(),
        b_ub=np.concatenate([np.ones(n), [offset]]),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)
