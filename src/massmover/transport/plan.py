"""A local transport plan written out, and the certificate it yields."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch

from massmover.ball import Balls, Coherence
from massmover.geometry import Window, reachable, scatter
from massmover.transport.coherence import scatter_of
from massmover.types import Flows, Images, PerChannel, PerImage

SCATTER_ROUND_OFF = 1e-7  # pixels: the root of what float64 makes of a plan that does not scatter at all


class Certificate(NamedTuple):
    """What a plan proves about an image, one entry per image, all in float64.

    The image is within `cost + rounding` of its original if the four errors are (round-off) zero. Scatter is a property
    of the plan, whose image is the returned one up to its rounding.
    """

    cost: PerImage  # weighted cost of the plan
    rounding: PerImage  # most that rounding the plan's image to the returned one can add
    row_error: PerImage  # largest |mass that leaves a pixel - mass that was there|
    column_error: PerImage  # largest |mass that arrives at a pixel - the returned pixel|
    below: PerImage  # how far the lowest flow or pixel lies below 0
    above: PerImage  # how far the highest pixel lies above 1
    mass_drift: PerImage  # largest relative change of a channel's mass, against the image's mass
    scatter: PerImage  # how far mass strays from a smooth field, in pixels; infinite where the ball does not ask

    @property
    def total(self) -> PerImage:
        """An upper bound of the distance between the original and the returned image."""
        return self.cost + self.rounding

    def holds(self, radius: PerImage, *, dtype: torch.dtype, coherence: Coherence | None = None) -> PerImage:
        """Where rows and columns add up, pixels are in range, and cost and scatter are within what is allowed.

        Columns may differ from pixels by the rounding to the images' dtype, and by what float64 sums cannot resolve.
        """
        unit = max(torch.finfo(dtype).eps, 1e-12)
        allowed = math.inf if coherence is None else max(coherence.scatter * (1 + 1e-9), SCATTER_ROUND_OFF)
        return (
            (self.scatter <= allowed)
            & (self.total <= radius * (1 + 1e-9) + 1e-15)
            & (self.row_error <= 1e-12)
            & (self.column_error <= unit)
            & (self.below <= 0)
            & (self.above <= 0)
            & (self.mass_drift <= 1e-6)
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """Mass sent from each pixel along each move of a window: flows (B, C, K, H, W).

    Row i is flows[..., :, i] and includes what stays (move 0); column j is everything that arrives.
    """

    window: Window
    flows: Flows

    def images(self) -> Images:
        """The image after all mass has moved."""
        return scatter(self.flows, window=self.window)

    def rows(self) -> Images:
        """The mass that left each pixel, staying included: the image before the move."""
        return self.flows.sum(dim=-3)

    def cost(self, weights: PerChannel) -> PerImage:
        """Weighted cost: sum over channels, pixels and moves."""
        per_move = self.flows.sum(dim=(-2, -1))  # (B, C, K)
        return torch.einsum("bck,k,bc->b", per_move, self.window.cost_tensor(per_move), weights.to(per_move))

    def select(self, keep: torch.Tensor) -> Plan:
        """The plans of some of the images."""
        return Plan(window=self.window, flows=self.flows[keep])


def certify(plan: Plan, balls: Balls, *, returned: Images, rounding: PerImage | None = None) -> Certificate:
    """Measure what a plan proves about the image that was returned with it, in float64."""
    flows = plan.flows.double()
    exact = Plan(window=plan.window, flows=flows)
    before, after = balls.originals.double(), returned.double()
    lost = flows.flatten(2)[..., leaving_image(plan.window, *before.shape[-2:]).to(flows.device)].abs()
    mass = before.sum(dim=(-2, -1))  # (B, C)
    drift = (after.sum(dim=(-2, -1)) - mass).abs().amax(dim=-1)
    total = mass.sum(dim=-1)
    return Certificate(
        cost=exact.cost(balls.weights),
        rounding=torch.zeros_like(total) if rounding is None else rounding,
        row_error=(exact.rows() - before).abs().amax(dim=(1, 2, 3)) + (lost.amax(dim=(1, 2)) if lost.numel() else 0),
        column_error=(exact.images() - after).abs().amax(dim=(1, 2, 3)),
        below=torch.maximum(-flows.amin(dim=(1, 2, 3, 4)), -after.amin(dim=(1, 2, 3))).clamp_min(0),
        above=(after.amax(dim=(1, 2, 3)) - 1).clamp_min(0),
        mass_drift=torch.where(total > 0, drift / total.clamp_min(torch.finfo(torch.float64).tiny), drift),
        scatter=torch.full_like(total, torch.inf) if balls.coherence is None else scatter_of(flows, balls),
    )


@lru_cache(maxsize=16)
def leaving_image(window: Window, height: int, width: int) -> torch.Tensor:
    """Which numbers of a plan, counted through moves, rows and columns, belong to moves that leave the image."""
    inside = reachable(window, height=height, width=width, like=torch.empty(0))
    return torch.nonzero(inside.flatten() == 0).flatten()
