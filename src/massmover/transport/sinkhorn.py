"""Projection onto the Wasserstein ball and the pixel box at once, by constrained Sinkhorn sweeps.

The programme, in distribution space (images divided by the mass of the original):

    minimise    |w - z|^2 / (2 temperature) + sum_ij P_ij log P_ij
    such that   sum_j P_ij = x_i,  sum_i P_ij = z_j,  cost(P) <= radius,  z_j <= 1 / mass.

Its dual is climbed in two blocks, each solved exactly. Given the target dual, the source dual and the price of the
budget are solved jointly, a monotone root in one unknown: every sweep's plan has exact rows and costs its budget. Given
these, the target and cap duals of each pixel have a closed form with Wright's omega. Anderson's extrapolation joins
the sweeps. Source: Hu, Yang, Swaminathan, Salman 2020, section 4; Wong, Schmidt, Kolter 2019 without the cap.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from massmover.geometry import Window, gather, reachable
from massmover.transport.plan import Plan
from massmover.transport.potential import fused_available, relative_weights
from massmover.transport.repair import Repaired, repair
from massmover.transport.sinkhorn_torch import Solved, Task, solve
from massmover.types import Images, MassmoverError, PerChannel, PerImage


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

    def select(self, keep: Tensor) -> Duals:
        """The duals of some of the images."""
        return Duals(*(field[keep] for field in self))


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

    def project(
        self,
        images: Tensor,
        *,
        originals: Images,
        budget: PerImage,
        weights: PerChannel,
        window: Window,
        duals: Duals | None = None,
    ) -> Projection:
        """Project each image onto its ball; any finite pixels will do. `duals` is a warm start.

        Computes in float64. Never fails to converge silently: see `converged` and `gap`.
        """
        mass = originals.double().sum(dim=(1, 2, 3)).clamp_min(torch.finfo(torch.float64).tiny).view(-1, 1, 1, 1)
        task = Task(
            wanted=images.double() / mass,
            originals=originals.double() / mass,
            budget=budget.double(),
            relative=relative_weights(weights, originals).double(),
            cap=(1 / mass).flatten() if self.box else torch.full_like(budget, torch.inf, dtype=torch.float64),
            tolerance=torch.full_like(budget, self.tolerance.mass, dtype=torch.float64),
        )
        target = torch.zeros_like(task.originals) if duals is None else duals.target.clone()
        price = torch.ones_like(task.budget) if duals is None else duals.budget.clone()
        on_kernel = originals.device.type == "cpu" and fused_available()
        found = (self._solve_fused if on_kernel else self._solve_torch)(task, window, target, price)
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

    def _solve_torch(self, task: Task, window: Window, target: Images, price: PerImage) -> Solved:
        return solve(
            task,
            window=window,
            sharpness=1 / self.temperature,
            limit=self.sweeps,
            target=target,
            price=price,
        )

    def _solve_fused(self, task: Task, window: Window, target: Images, price: PerImage) -> Solved:
        """One image per thread. An image without mass, budget or moves stays as it is."""
        from massmover.transport.sinkhorn_kernel import project_image
        from massmover.transport.sinkhorn_rings import ring_table

        moves = (*ring_table(window), window.rows, window.columns)
        wanted, originals, budget, relative, cap, tolerance = (field.contiguous().numpy() for field in task)
        potential, guess = target.contiguous().numpy(), price.numpy()
        source, images = np.full_like(originals, -np.inf), originals.copy()
        numbers = np.zeros((len(images), 5))

        def one(b: int) -> None:
            if budget[b] <= 0 or not window.rings or not originals[b].any():
                potential[b] = 0
                numbers[b, 0] = 1e300 if budget[b] <= 0 else 0
                return
            these = (wanted[b], originals[b], budget[b], relative[b], cap[b], tolerance[b])
            out = (source[b], images[b], numbers[b])
            project_image(these, 1 / self.temperature, moves, self.sweeps, potential[b], guess[b], out)

        # Numba's own threads would change how many PyTorch uses; the kernel works outside Python's lock instead.
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(one, range(len(images))))
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


def plan_of(duals: Duals, *, originals: Images, weights: PerChannel, window: Window) -> Plan:
    """The plan of target and budget duals written out, in float64: row i is x_i softmax_j(target_j - price cost_ij).

    The softmax needs no range: nothing underflows at any temperature.
    """
    height, width = originals.shape[-2:]
    x = originals.double()
    unit = duals.budget.view(-1, 1) * relative_weights(weights, originals)  # (B, C)
    inside = reachable(window, height=height, width=width, like=x)
    logits = gather(duals.target, window=window) - unit[:, :, None, None, None] * window.cost_tensor(x)[:, None, None]
    shares = logits.masked_fill(inside == 0, -torch.inf).softmax(dim=2)
    return Plan(window=window, flows=shares * x.unsqueeze(2))


def certified(duals: Duals, *, originals: Images, budget: PerImage, weights: PerChannel, window: Window) -> Repaired:
    """The image of a projection with its proof: its plan in float64, repaired, and rounded to the caller's dtype."""
    plan = plan_of(duals, originals=originals, weights=weights, window=window)
    return repair(plan, originals=originals, weights=weights, budget=budget)
