"""Projection onto the Wasserstein ball and the pixel box at once, by constrained Sinkhorn sweeps.

The programme, in distribution space (images divided by the mass of the original):

    minimise    |w - z|^2 / (2 temperature) + sum_ij P_ij log P_ij
    such that   sum_j P_ij = x_i,  sum_i P_ij = z_j,  cost(P) <= radius,  z_j <= 1 / mass.

Its dual is climbed in two blocks, each solved exactly. Given the target dual, the source dual and the price of the
budget are solved jointly, a monotone root in one unknown: every sweep's plan has exact rows and costs its budget. Given
these, the target and cap duals of each pixel have a closed form with Wright's omega. Anderson's extrapolation joins
the sweeps. Source: Hu, Yang, Swaminathan, Salman 2020, section 4; Wong, Schmidt, Kolter 2019 without the cap.

The solver here is plain torch: every sum is a log-sum-exp over rings of equal cost, so the range of the potentials does
not matter; finished images leave the batch; memory grows with pixels x rings. `kernels/sinkhorn.py` is its twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.ball import Balls
from massmover.geometry import Window, gather, log_rings, reachable
from massmover.transport.plan import Plan
from massmover.transport.potential import Rows
from massmover.transport.repair import Kept, kept_moves
from massmover.transport.scalars import decreasing_root, wright_omega
from massmover.types import Images, MassmoverError, PerChannel, PerImage

MEMORY = 6  # sweeps that the extrapolation remembers
GENTLE = 100.0  # sharpness times spread of the wished image at which a cold problem is first solved
COOLING = 2.0  # then the sharpness grows by this factor
STAGE_TOLERANCE = 0.005  # column error at which a stage before the last is left, if the last allows less
UNWANTED = 10.0  # how far below black a pixel is wished where nothing may arrive; the repair sends the rest back


class Tolerance(NamedTuple):
    """When a projection has converged: both errors are small.

    `budget` is how far the plan may cost more than the radius, as a share of it; every sweep solves for it, so it
    is met by construction. `mass` is how much mass may lie elsewhere than the duals say, as a share of all mass.
    """

    budget: float
    mass: float


ATTACK = Tolerance(budget=0.01, mass=0.01)  # section 4.2 of the paper
TRAINING = Tolerance(budget=0.1, mass=0.1)  # section 6: lenient, and faster


class Duals(NamedTuple):
    """Lagrange multipliers of the programme; target and budget are a warm start for the next projection."""

    source: Images  # of the rows; minus infinity where there is no mass
    target: Images  # of the columns
    budget: PerImage  # the price of a unit of distance
    cap: Images  # of the largest pixel

    @classmethod
    def at_home(cls, balls: Balls) -> Duals:
        """The duals at which no mass moves."""
        zeros = torch.zeros_like(balls.originals, dtype=torch.float64)
        return cls(zeros.clone(), zeros.clone(), torch.full_like(balls.budget, 1e300), zeros.clone())

    def select(self, keep: Tensor) -> Duals:
        """The duals of some of the images."""
        return Duals(*(field[keep] for field in self))

    def moves(self, balls: Balls) -> Kept:
        """The moves of the duals' plan that can be kept, in float64: for the proof."""
        return kept_moves(plan_of(self, balls), balls)


@dataclass(frozen=True, eq=False)
class Projection:
    """Projected images and how well it went, one entry per image.

    The images are the columns of the duals' plan, so they cost no more than their budget (up to 1e-6 of it); pixels may
    be over 1 by the tolerance until the plan is repaired.
    """

    images: Images  # float64, in the units of the originals
    duals: Duals
    converged: PerImage  # bool
    sweeps: PerImage
    gap: PerImage  # between the plan's objective and the dual's, in the unit of |w - z|^2 / 2
    column_error: PerImage  # mass elsewhere than the duals say, as a share of all mass
    cost: PerImage  # of the plan, comparable to the radius


@dataclass(frozen=True)
class ConstrainedSinkhorn:
    """The projection as a value: its fields are its settings.

    `temperature` is the weight of the entropy, 1 / lambda of the paper. Published code uses 1e-3 on digits, where at
    small radii the entropy spends most of the budget on blur; colder is sharper and slower. With `box=False` there
    is no cap, which is the projection of Wong et al. 2019.
    """

    temperature: float = 3e-4
    box: bool = True
    tolerance: Tolerance = ATTACK
    sweeps: int = 1000

    def __post_init__(self) -> None:
        """Refuse settings that project nothing."""
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise MassmoverError(f"temperature is {self.temperature}: it must be a positive number, such as 0.001")
        if self.sweeps < 1:
            raise MassmoverError(f"sweeps is {self.sweeps}: at least 1 is needed")
        if not (self.tolerance.mass > 0 and self.tolerance.budget >= 0):
            raise MassmoverError(f"tolerance is {self.tolerance}: mass must be positive and budget not negative")

    def project(self, images: Tensor, balls: Balls, *, duals: Duals | None = None) -> Projection:
        """Project each image onto its ball; any finite pixels will do. `duals` is a warm start.

        Computes in float64. Never fails to converge silently: see `converged` and `gap`.
        """
        x, wish = balls.originals.double(), images.double()
        if balls.closed is not None:  # a wish that no mass would come near
            wish = wish.masked_fill(balls.closed, -UNWANTED)
        mass = x.sum(dim=(1, 2, 3)).clamp_min(torch.finfo(torch.float64).tiny).view(-1, 1, 1, 1)
        task = Task(
            wanted=wish / mass,
            originals=x / mass,
            budget=balls.budget,
            relative=balls.relative,
            cap=(1 / mass).flatten() if self.box else torch.full_like(balls.budget, torch.inf),
            tolerance=torch.full_like(balls.budget, self.tolerance.mass),
            sharpness=1 / self.temperature,
            limit=self.sweeps,
        )
        target = torch.zeros_like(x) if duals is None else duals.target.clone()
        price = torch.ones_like(task.budget) if duals is None else duals.budget.clone()
        if balls.backend == "numba":
            from massmover.transport.kernels.sinkhorn import solve_numba

            found = solve_numba(task, balls.window, target=target, price=price)
        else:
            found = solve(task, balls.window, target=target, price=price)
        cap = (task.wanted - task.cap.view(-1, 1, 1, 1)) / self.temperature - found.target
        return Projection(
            images=found.images * mass,
            duals=Duals(source=found.source, target=found.target, budget=found.price, cap=cap.clamp_min(0)),
            converged=(found.error <= task.tolerance) & (found.cost <= task.budget * (1 + self.tolerance.budget)),
            sweeps=found.sweeps,
            gap=found.gap,
            column_error=found.error,
            cost=found.cost,
        )


def plan_of(duals: Duals, balls: Balls) -> Plan:
    """The plan of target and budget duals written out, in float64: row i is x_i softmax_j(target_j - price cost_ij).

    The softmax needs no range: nothing underflows at any temperature.
    """
    x, window = balls.originals.double(), balls.window
    unit = duals.budget.view(-1, 1) * balls.relative  # (B, C)
    inside = reachable(window, height=x.shape[-2], width=x.shape[-1], like=x)
    logits = gather(duals.target, window=window) - unit[:, :, None, None, None] * window.cost_tensor(x)[:, None, None]
    shares = logits.masked_fill(inside == 0, -torch.inf).softmax(dim=2)
    return Plan(window=window, flows=shares * x.unsqueeze(2))


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
    sharpness: float  # 1 / temperature
    limit: int  # of sweeps

    def select(self, keep: Tensor) -> Task:
        """The projections of some of the images."""
        wanted, originals, budget, relative, cap, tolerance = (field[keep] for field in self[:6])
        return Task(wanted, originals, budget, relative, cap, tolerance, self.sharpness, self.limit)


def sweep(potential: Images, task: Task, window: Window, *, sharpness: PerImage, price: PerImage) -> Sweep:
    """Solve for source and budget duals given the target dual, and see what arrives."""
    paid = task.originals * task.relative[:, :, None, None]
    rows = Rows(
        log_rings(potential, window=window), window.ring_moments(paid), paid, task.relative, torch.zeros_like(price)
    )
    root = decreasing_root(rows.spent, target=task.budget, guess=price, accuracy=1e-6, steps=200)
    price = root.point
    source = task.originals.log() - rows.scores(price).logsumexp(dim=2)
    arriving = rows._replace(sums=log_rings(source, window=window)).scores(price).logsumexp(dim=2)
    column = torch.where(arriving > -torch.inf, (potential + arriving).exp(), 0.0)
    cost, _ = rows.spent(price)
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
        error=torch.where(root.converged, (meant - column).abs().sum(dim=(1, 2, 3)), torch.inf),
        gap=((meant - column).square() / 2 + over * (room - column)).sum(dim=(1, 2, 3))
        + price * (task.budget - cost).clamp_min(0) / sharpness,
        dual=(quadratic - over * room).sum(dim=(1, 2, 3)) + (entropy - price * task.budget) / sharpness,
    )


def answer(arriving: Images, potential: Images, task: Task, *, sharpness: PerImage) -> Images:
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


def solve(task: Task, window: Window, *, target: Images, price: PerImage) -> Solved:
    """Sweep until every image has converged; finished ones leave the batch, cold ones start from warmer ones."""
    sharpness = task.sharpness
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
    stage = first_stage(task.select(active), window)
    potential = found.target[active] * (stage / sharpness).view(-1, 1, 1, 1)
    price = found.price[active] * stage / sharpness
    nothing = potential.new_zeros(MEMORY, *potential.shape)
    never = torch.zeros_like(price, dtype=torch.bool)
    past = Past(nothing, nothing, potential, potential, torch.full_like(price, -torch.inf), never)
    while len(active):
        these = task.select(active)
        current = sweep(potential, these, window, sharpness=stage, price=price)
        last = stage >= sharpness
        wanted = torch.where(last, these.tolerance, these.tolerance.clamp_min(STAGE_TOLERANCE))
        astray = past.extrapolated & ~(current.dual >= past.dual - 1e-12 * past.dual.abs())
        fits = ((current.error <= wanted) | (found.sweeps[active] >= task.limit)) & ~astray
        done = fits & last
        result = (current.source + 1, potential, current.price, current.column)
        numbers = (found.sweeps[active], current.error, current.gap, current.cost)
        for field, value in zip(found, (*result, *numbers), strict=True):
            field[active[done]] = value[done]
        found.sweeps[active[~fits]] += 1
        reply = answer(current.arriving, potential, these, sharpness=stage)
        potential, past = advance(potential, reply, current.dual, past, astray=astray, cooler=fits)
        growth = torch.where(fits, (stage * COOLING).clamp_max(sharpness) / stage, 1.0)
        potential, price, stage = potential * growth.view(-1, 1, 1, 1), current.price * growth, stage * growth
        stage = torch.where(stage > sharpness * (1 - 1e-12), sharpness, stage)
        go = ~done
        active, stage, potential, price, past = active[go], stage[go], potential[go], price[go], past.select(go)
    return found


def first_stage(task: Task, window: Window) -> PerImage:
    """The sharpness at which each image is solved first: gentle, measured by the spread of what it can reach."""
    reached = log_rings(task.originals.log(), window=window).amax(dim=2) > -torch.inf
    high = torch.where(reached, task.wanted, -torch.inf).amax(dim=(1, 2, 3))
    low = torch.where(reached, task.wanted, torch.inf).amin(dim=(1, 2, 3))
    return (GENTLE / (high - low).clamp_min(1e-300)).clamp_max(task.sharpness)


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
