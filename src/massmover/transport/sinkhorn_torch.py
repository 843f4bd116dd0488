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
GENTLE = 100.0  # sharpness times spread of the wished image at which a cold problem is first solved
COOLING = 2.0  # then the sharpness grows by this factor
STAGE_TOLERANCE = 0.005  # column error at which a stage before the last is left, if the last allows less


class Sweep(NamedTuple):
    """The plan of a potential, and how far it is from what the duals say."""

    source: Images  # log of the source factor
    arriving: Images  # log of what a unit of target factor receives
    column: Images  # what the plan brings to each pixel
    price: PerImage
    cost: PerImage
    error: PerImage
    gap: PerImage
    dual: PerImage  # the objective that sweeps climb


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


def sweep(potential: Images, *, task: Task, window: Window, sharpness: PerImage, price: PerImage) -> Sweep:
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
    there = arriving > -torch.inf
    free = torch.where(there, task.wanted - potential / sharpness.view(-1, 1, 1, 1), 0.0)
    meant = torch.minimum(free, cap)
    over = torch.where(free > cap, free - cap, 0.0)
    room = torch.where(free > cap, cap, 0.0)  # no infinite cap is multiplied by 0
    quadratic = torch.where(there, (task.wanted - meant) * (task.wanted + meant) / 2, 0.0)
    entropy = (task.originals * torch.where(task.originals > 0, source, 0.0)).sum(dim=(1, 2, 3))
    return Sweep(
        source=source,
        arriving=arriving,
        column=column,
        price=price,
        cost=cost,
        error=(meant - column).abs().sum(dim=(1, 2, 3)),
        gap=((meant - column).square() / 2 + over * (room - column)).sum(dim=(1, 2, 3))
        + price * (task.budget - cost).clamp_min(0) / sharpness,
        dual=(quadratic - over * room).sum(dim=(1, 2, 3)) + (entropy - price * task.budget) / sharpness,
    )


def answer(arriving: Images, potential: Images, *, task: Task, sharpness: PerImage) -> Images:
    """The best target potential for a plan's source factors, cap included; unchanged where nothing arrives."""
    cap, sharp = task.cap.view(-1, 1, 1, 1), sharpness.view(-1, 1, 1, 1)
    wish = sharp * task.wanted
    full = cap.log() - arriving
    free = wish - wright_omega(sharp.log() + wish + arriving)
    best = torch.where(wish - sharp * cap > full, full, free)
    return torch.where(arriving > -torch.inf, best, potential)


class Past(NamedTuple):
    """What the extrapolation remembers of each image; zeros where there is nothing."""

    steps: Tensor  # (MEMORY, B, C, H, W) changes of the residual
    answers: Tensor  # (MEMORY, B, C, H, W) changes of the answer
    begin: Images  # where the last sweep began
    end: Images  # and what it answered
    dual: PerImage  # objective before it; minus infinity where the next sweep must be a plain one
    extrapolated: Tensor  # (B,) bool

    def select(self, keep: Tensor) -> Past:
        """The memory of some of the images."""
        steps, answers, *rest = self
        return Past(steps[:, keep], answers[:, keep], *(field[keep] for field in rest))


def solve(task: Task, *, window: Window, sharpness: float, limit: int, target: Images, price: PerImage) -> Solved:
    """Sweep until every image has converged; finished ones leave the batch, cold ones start from warmer ones."""
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
    stage = first_stage(task.select(active), window=window, sharpness=sharpness)
    potential = found.target[active] * (stage / sharpness).view(-1, 1, 1, 1)
    price = found.price[active] * stage / sharpness
    nothing = potential.new_zeros(MEMORY, *potential.shape)
    never = torch.zeros_like(price, dtype=torch.bool)
    past = Past(nothing, nothing, potential, potential, torch.full_like(price, -torch.inf), never)
    while len(active):
        these = task.select(active)
        current = sweep(potential, task=these, window=window, sharpness=stage, price=price)
        last = stage >= sharpness
        wanted = torch.where(last, these.tolerance, these.tolerance.clamp_min(STAGE_TOLERANCE))
        astray = past.extrapolated & ~(current.dual >= past.dual - 1e-12 * past.dual.abs())
        fits = ((current.error <= wanted) | (found.sweeps[active] >= limit)) & ~astray
        done = fits & last
        result = (current.source + 1, potential, current.price, current.column)
        numbers = (found.sweeps[active], current.error, current.gap, current.cost)
        for field, value in zip(found, (*result, *numbers), strict=True):
            field[active[done]] = value[done]
        found.sweeps[active[~fits]] += 1
        reply = answer(current.arriving, potential, task=these, sharpness=stage)
        potential, past = advance(potential, reply, current.dual, past, astray=astray, cooler=fits)
        growth = torch.where(fits, (stage * COOLING).clamp_max(sharpness) / stage, 1.0)
        potential, price, stage = potential * growth.view(-1, 1, 1, 1), current.price * growth, stage * growth
        stage = torch.where(stage > sharpness * (1 - 1e-12), sharpness, stage)
        go = ~done
        active, stage, potential, price, past = active[go], stage[go], potential[go], price[go], past.select(go)
    return found


def first_stage(task: Task, *, window: Window, sharpness: float) -> PerImage:
    """The sharpness at which each image is solved first: gentle, measured by the spread of what it can reach."""
    reached = log_rings(task.originals.log(), window=window).amax(dim=2) > -torch.inf
    high = torch.where(reached, task.wanted, -torch.inf).amax(dim=(1, 2, 3))
    low = torch.where(reached, task.wanted, torch.inf).amin(dim=(1, 2, 3))
    return (GENTLE / (high - low).clamp_min(1e-300)).clamp_max(sharpness)


def advance(
    potential: Images, reply: Images, dual: PerImage, past: Past, *, astray: Tensor, cooler: Tensor
) -> tuple[Images, Past]:
    """The next potential: extrapolated from the last sweeps; the plain answer where that went astray.

    Where a stage is complete (`cooler`) the potential stays, and the past is forgotten.
    """
    plain = astray | cooler | torch.isinf(past.dual)
    wide = (-1, 1, 1, 1)
    steps = torch.cat([((reply - potential) - (past.end - past.begin)).unsqueeze(0), past.steps[:-1]])
    answers = torch.cat([(reply - past.end).unsqueeze(0), past.answers[:-1]])
    steps, answers = (torch.where(plain.view(*wide), 0.0, memory) for memory in (steps, answers))
    moved = reply - correction(steps, answers, reply - potential)  # without a past there is no correction
    moved = torch.where(astray.view(*wide), past.end, moved)
    moved = torch.where(cooler.view(*wide), potential, moved)
    return moved, Past(steps, answers, potential, reply, torch.where(astray | cooler, -torch.inf, dual), ~plain)


def correction(steps: Tensor, answers: Tensor, residual: Images) -> Images:
    """What Anderson's step takes from a sweep's answer: the combination of the past that explains the residual."""
    flat = steps.flatten(2).transpose(0, 1)  # (B, MEMORY, pixels)
    matrix = flat @ flat.transpose(1, 2)
    ridge = 1e-10 * matrix.diagonal(dim1=1, dim2=2).sum(dim=1) + 1e-300
    matrix = matrix + ridge[:, None, None] * torch.eye(len(steps)).to(matrix)
    weights = torch.linalg.solve(matrix, flat @ residual.flatten(1).unsqueeze(2))  # (B, MEMORY, 1)
    return torch.einsum("bm,mbchw->bchw", weights.squeeze(2), answers)
