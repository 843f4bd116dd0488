"""The constrained Sinkhorn projection in plain torch, on any device: the twin of `sinkhorn_kernel.py`.

Every sum is a log-sum-exp over rings of equal cost, so the range of the potentials does not matter. Finished images
leave the batch. Memory grows with pixels x rings.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from massmover.geometry import Window, shifted
from massmover.transport.lambert import wright_omega
from massmover.transport.roots import decreasing_root
from massmover.types import Images, PerChannel, PerImage

MEMORY = 6  # sweeps that the extrapolation remembers


class Sweep(NamedTuple):
    """The plan of a potential, and how far it is from what the duals say."""

    source: Images  # log of the source factor
    arriving: Images  # log of what a unit of target factor receives
    column: Images  # what the plan brings to each pixel
    price: PerImage
    cost: PerImage
    error: PerImage
    gap: PerImage


class Solved(NamedTuple):
    """What the solvers return, kernel and torch alike, in distribution space."""

    source: Images
    target: Images
    price: PerImage
    images: Images
    sweeps: PerImage
    error: PerImage
    gap: PerImage
    cost: PerImage


class Task(NamedTuple):
    """A batch of projections in distribution space."""

    wanted: Images
    originals: Images
    budget: PerImage
    relative: PerChannel
    cap: PerImage
    tolerance: PerImage

    def select(self, keep: Tensor) -> Task:
        """The projections of some of the images."""
        return Task(*(field[keep] for field in self))


def log_rings(values: Images, *, window: Window) -> Tensor:
    """The pixel itself, then log of the sum of exp(values) over each ring around it: (B, C, 1 + R, H, W)."""
    height, width = values.shape[-2:]
    border = (window.columns, window.columns, window.rows, window.rows)
    padded = F.pad(values, border, value=-torch.inf)
    rings = [values]
    for ring in window.rings:
        moves = {(sy * dy, sx * dx) for dy, dx in ring.pairs for sy in (1, -1) for sx in (1, -1)}
        views = [shifted(padded, dy, dx, window=window, height=height, width=width) for dy, dx in sorted(moves)]
        rings.append(torch.stack(views).logsumexp(dim=0))
    return torch.stack(rings, dim=2)


def sweep(potential: Images, *, task: Task, window: Window, sharpness: float, price: PerImage) -> Sweep:
    """Solve for source and budget duals given the target dual, and see what arrives."""
    costs = torch.cat([task.budget.new_zeros(1), window.ring_costs(task.budget)]).view(1, 1, -1, 1, 1)
    sums = log_rings(potential, window=window)
    paid = task.originals * task.relative[:, :, None, None]

    def unit(at: PerImage) -> Tensor:
        return at.view(-1, 1, 1, 1, 1) * task.relative[:, :, None, None, None]

    def spent(at: PerImage) -> tuple[PerImage, PerImage]:
        shares = (sums - unit(at) * costs).softmax(dim=2)
        mean = (shares * costs).sum(dim=2)
        variance = (shares * costs.square()).sum(dim=2) - mean.square()
        return (paid * mean).sum(dim=(1, 2, 3)), -(paid * variance * unit(torch.ones_like(at))[..., 0]).sum(
            dim=(1, 2, 3)
        )

    price = decreasing_root(spent, target=task.budget, guess=price, tolerance=1e-6, steps=200)
    source = task.originals.log() - (sums - unit(price) * costs).logsumexp(dim=2)
    arriving = (log_rings(source, window=window) - unit(price) * costs).logsumexp(dim=2)
    column = torch.where(arriving > -torch.inf, (potential + arriving).exp(), 0.0)
    cost, _ = spent(price)
    # The gap has a closed form in which nothing cancels.
    cap = task.cap.view(-1, 1, 1, 1)
    free = torch.where(arriving > -torch.inf, task.wanted - potential / sharpness, 0.0)
    miss = torch.minimum(free, cap) - column
    slack = torch.where(free > cap, (free - cap) * (cap - column), 0.0)
    return Sweep(
        source=source,
        arriving=arriving,
        column=column,
        price=price,
        cost=cost,
        error=miss.abs().sum(dim=(1, 2, 3)),
        gap=(miss.square() / 2 + slack).sum(dim=(1, 2, 3)) + price * (task.budget - cost).clamp_min(0) / sharpness,
    )


def answer(arriving: Images, potential: Images, *, task: Task, sharpness: float) -> Images:
    """The best target potential for a plan's source factors, cap included; unchanged where nothing arrives."""
    cap = task.cap.view(-1, 1, 1, 1)
    wish = sharpness * task.wanted
    full = cap.log() - arriving
    free = wish - wright_omega(torch.log(task.cap.new_tensor(sharpness)) + wish + arriving)
    best = torch.where(wish - sharpness * cap > full, full, free)
    return torch.where(arriving > -torch.inf, best, potential)


class Past(NamedTuple):
    """What the extrapolation remembers of each image; zeros where there is nothing."""

    steps: Tensor  # (MEMORY, B, C, H, W) changes of the residual
    answers: Tensor  # (MEMORY, B, C, H, W) changes of the answer
    begin: Images  # where the last sweep began
    end: Images  # and what it answered
    error: PerImage  # before it; infinite where the next sweep must be a plain one

    def select(self, keep: Tensor) -> Past:
        """The memory of some of the images."""
        return Past(self.steps[:, keep], self.answers[:, keep], self.begin[keep], self.end[keep], self.error[keep])


def solve(
    task: Task, *, window: Window, sharpness: float, limit: int, target: Images, price: PerImage
) -> Solved:
    """Sweep until every image has converged; finished ones leave the batch."""
    idle = (task.budget <= 0) | (task.originals.flatten(1).amax(dim=1) <= 0) | (not window.rings)
    found = Solved(
        source=torch.full_like(task.originals, -torch.inf),
        target=torch.where(idle.view(-1, 1, 1, 1), 0.0, target),
        price=torch.where(task.budget > 0, torch.where(idle, 0.0, price), 1e300),
        images=task.originals.clone(),
        sweeps=torch.zeros_like(price, dtype=torch.int64),
        error=torch.zeros_like(price),
        gap=torch.zeros_like(price),
        cost=torch.zeros_like(price),
    )
    active = torch.nonzero(~idle).flatten()
    potential, price = found.target[active], found.price[active]
    nothing = potential.new_zeros(MEMORY, *potential.shape)
    past = Past(nothing, nothing, potential, potential, torch.full_like(price, torch.inf))
    extrapolated = torch.zeros_like(price, dtype=torch.bool)
    number = 0
    while len(active):
        current = sweep(potential, task=task.select(active), window=window, sharpness=sharpness, price=price)
        done = (current.error <= task.tolerance[active]) | ((number >= limit) & ~extrapolated)
        column = (current.source + 1, potential, current.price, current.column)
        row = (torch.full_like(active, number), current.error, current.gap, current.cost)
        for field, value in zip(found, (*column, *row), strict=True):
            field[active[done]] = value[done]
        go = ~done
        active, price, past = active[go], current.price[go], past.select(go)
        number += 1
        reply = answer(current.arriving[go], potential[go], task=task.select(active), sharpness=sharpness)
        potential, extrapolated, past = advance(
            potential[go], reply, current.error[go], extrapolated[go], past, accelerate=accelerate and number < limit
        )
    return found


def advance(
    potential: Images, reply: Images, error: PerImage, extrapolated: Tensor, past: Past, *, accelerate: bool
) -> tuple[Images, Tensor, Past]:
    """The next potential: extrapolated from the last sweeps, or a plain step where that went astray."""
    astray = extrapolated & ~(error <= 2 * past.error)
    plain = astray | torch.isinf(past.error)
    wide = (-1, 1, 1, 1)
    steps = torch.cat([((reply - potential) - (past.end - past.begin)).unsqueeze(0), past.steps[:-1]])
    answers = torch.cat([(reply - past.end).unsqueeze(0), past.answers[:-1]])
    steps, answers = (torch.where(plain.view(*wide), 0.0, memory) for memory in (steps, answers))
    extrapolate = ~plain & accelerate
    extrapolation = reply - correction(steps, answers, reply - potential)
    moved = torch.where(extrapolate.view(*wide), extrapolation, reply)
    # Where the last extrapolation went astray, go back to where the plain sweep would have led.
    moved = torch.where(astray.view(*wide), past.end, moved)
    remembered = Past(steps, answers, potential, reply, torch.where(astray, torch.inf, error))
    return moved, extrapolate, remembered


def correction(steps: Tensor, answers: Tensor, residual: Images) -> Images:
    """What Anderson's step takes from a sweep's answer: the combination of the past that explains the residual."""
    flat = steps.flatten(2).transpose(0, 1)  # (B, MEMORY, pixels)
    matrix = flat @ flat.transpose(1, 2)
    ridge = 1e-10 * matrix.diagonal(dim1=1, dim2=2).sum(dim=1) + 1e-300
    matrix = matrix + ridge[:, None, None] * torch.eye(len(steps)).to(matrix)
    weights = torch.linalg.solve(matrix, flat @ residual.flatten(1).unsqueeze(2))  # (B, MEMORY, 1)
    return torch.einsum("bm,mbchw->bchw", weights.squeeze(2), answers)
