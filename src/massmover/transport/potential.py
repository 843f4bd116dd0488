"""Plans from potentials: any potential gives a feasible image (docs/algorithms.md, section 4).

Row i of the plan is x_i softmax_j(potential_j - price_c distance_ij): mass prefers high potential and pays for
distance. The price is the one number per image that makes the plan cost exactly its budget.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from massmover.ball import Balls
from massmover.geometry import gather, incoming, log_rings, neighbours, reachable, scatter
from massmover.transport.plan import Plan
from massmover.transport.repair import Kept, kept_moves, without_swaps
from massmover.transport.scalars import NEVER, decreasing_root, sectioned_root
from massmover.types import Flows, Images, PerChannel, PerImage

SEND_BACK_SWEEPS = 8  # in the search; the final repair sweeps until it is done. The kernels have their own copy
STEEPEST = 1e37  # potentials beyond this count as this: differences must not overflow
LEAST_MOBILE = 1e-6
PROOF_NUMBERS = 2_000_000  # of a written-out plan at a time: 16 MB in float64


class Pull(NamedTuple):
    """A potential, and what is known of the price that its plan pays for distance."""

    potential: Images
    price: PerImage | None = None  # a first guess
    floor: float = 0.0  # the lowest price
    booked: PerImage | None = None  # what the plan may cost before overfull pixels send mass back; else the budget

    def budget(self, balls: Balls) -> PerImage:
        """What the plan may cost before overfull pixels send mass back."""
        return balls.budget if self.booked is None else self.booked

    def select(self, index: Tensor | slice) -> Pull:
        """The potentials of some of the images."""
        price, booked = (None if value is None else value[index] for value in (self.price, self.booked))
        return self._replace(potential=self.potential[index], price=price, booked=booked)

    def barred(self, balls: Balls) -> Pull:
        """The same pull, but nothing wants to go where nothing may arrive."""
        if balls.closed is None:
            return self
        return self._replace(potential=self.potential.masked_fill(balls.closed, -STEEPEST))

    def moves(self, balls: Balls) -> Kept:
        """The moves of the plan that can be kept, in float64: for the proof."""
        if balls.backend == "numba":
            from massmover.transport.kernels.plan import written_plan
            from massmover.transport.kernels.repair import kept_moves_numba

            return kept_moves_numba(written_plan(self.barred(balls), balls), balls)
        # Written out, a plan has as many numbers as pixels times moves, so images are taken a few at a time.
        size = max(1, PROOF_NUMBERS // (balls.originals[:1].numel() * len(balls.window.offsets) or 1))
        parts = [slice(start, start + size) for start in range(0, max(len(balls), 1), size)]
        kept = [
            kept_moves(priced_plan(self.select(part), balls.select(part)).plan, balls.select(part)) for part in parts
        ]
        return Kept(*map(torch.cat, zip(*kept, strict=True)))


class Move(NamedTuple):
    """Where a potential sends the mass of each image; float32 but for the last two."""

    images: Images  # after the move
    crowding: Images  # by how much a pixel's potential would have to fall for it to be exactly full
    price: PerImage  # of a unit of distance
    spent: PerImage  # cost of the move; less than the budget where pixels sent mass back


class Priced(NamedTuple):
    """A plan with exact rows and its price; its columns may still overflow."""

    plan: Plan
    price: PerImage


class Rows(NamedTuple):
    """The rows of a potential's plan at any price, without writing them out.

    Row i sends x_i softmax_r(sums_ir - (price - near) cost_r) to ring r. The sums are logarithms, the potential of the
    pixel itself first and then the log-sum-exp over each ring, so no range of potentials can overflow or vanish. They
    are taken at a price near the one that is looked for: a toll rounded to float32 would make the cost a staircase.
    """

    sums: Tensor  # (B, C, 1 + R, H, W), at the price `near`
    costs: Tensor  # (2, 1 + R): the cost of each ring, and its square
    paid: Images  # mass times the weight of its channel
    relative: PerChannel
    near: PerImage

    @classmethod
    def of(cls, potential: Images, balls: Balls, *, near: PerImage | None = None) -> Rows:
        """The rows of some potentials, in their dtype."""
        plain = cls(
            sums=log_rings(potential, window=balls.window),
            costs=balls.window.ring_moments(potential),
            paid=balls.originals.to(potential) * balls.weights.to(potential)[:, :, None, None],
            relative=balls.relative,
            near=torch.zeros_like(balls.budget),
        )
        if near is None:
            return plain
        exact = plain._replace(sums=plain.sums.double(), costs=plain.costs.double()).scores(near)
        return plain._replace(sums=(exact - exact.amax(dim=2, keepdim=True)).to(potential), near=near)

    def unit(self, price: PerImage) -> Tensor:
        """What a unit of distance costs in each channel, in the dtype of the rows: (B, C, 1, 1)."""
        return (price.unsqueeze(-1) * self.relative).clamp(-NEVER, NEVER).to(self.sums)[..., None, None]

    def scores(self, price: PerImage) -> Tensor:
        """Logarithms of what each pixel would send to each ring, not yet divided by their sum."""
        return self.sums - self.unit(price - self.near).unsqueeze(2) * self.costs[0].view(-1, 1, 1)

    def costs_at(self, prices: Tensor) -> Tensor:
        """Cost of each plan at several prices, (B, P) for (B, P); added up in float64."""
        dear = (prices - self.near.unsqueeze(1)).unsqueeze(-1) * self.relative.unsqueeze(1)  # (B, P, C)
        tolls = dear.clamp(-NEVER, NEVER).to(self.sums)[..., None, None] * self.costs[0].unsqueeze(-1)
        shares = (self.sums.flatten(-2).unsqueeze(1) - tolls).softmax(dim=-2)  # (B, P, C, 1 + R, H W)
        means = torch.einsum("bpcrn,r->bpcn", shares, self.costs[0])
        return (means * self.paid.flatten(-2).unsqueeze(1)).sum(dim=(-2, -1), dtype=torch.float64)

    def spent(self, price: PerImage) -> tuple[PerImage, PerImage]:
        """Cost of the plan at a price, and its derivative by the price; added up in float64."""
        first, second = (self.costs @ self.scores(price).softmax(dim=2).flatten(-2)).unbind(dim=-2)  # (B, C, H W)
        paid = self.paid.flatten(-2)
        cost = (paid * first).sum(dim=-1, dtype=torch.float64)
        spread = (paid * (second - first.square())).sum(dim=-1, dtype=torch.float64)
        return cost.sum(dim=-1), -(spread * self.relative).sum(dim=-1)

    def price(self, pull: Pull, balls: Balls, *, wait: bool = True) -> PerImage:
        """The price >= floor at which the plan costs its budget, or the floor where the plan is cheaper there.

        The cost falls as the price rises, so there is one root. Without `wait` the host never waits for the device,
        and the root is as good as the guess.
        """
        budget, floor = pull.budget(balls), pull.floor
        guess = torch.ones_like(budget) if pull.price is None else (pull.price.to(budget) - floor).clamp_min(0)
        if not wait:
            return floor + sectioned_root(lambda extra: self.costs_at(floor + extra), target=budget, guess=guess)
        root = decreasing_root(
            lambda extra: self.spent(floor + extra),
            target=budget,
            guess=guess,
            accuracy=1e-12 if self.sums.dtype == torch.float64 else 1e-6,  # what sums over a plan can resolve
        )
        return (
            floor + root.point
        )  # where it did not converge the plan is a cheap one: costs are measured, never assumed


def priced_plan(pull: Pull, balls: Balls, *, dtype: torch.dtype = torch.float64) -> Priced:
    """The plan of a potential, priced so that its cost is the budget, or less where the floor price suffices."""
    potential = pull.barred(balls).potential.to(dtype)
    rows = Rows.of(potential, balls)
    price = rows.price(pull, balls)
    inside = reachable(balls.window, height=potential.shape[-2], width=potential.shape[-1], like=potential)
    there = gather(potential, window=balls.window).masked_fill(inside == 0, -torch.inf)  # (B, C, K, H, W)
    tolls = rows.unit(price).unsqueeze(2) * balls.window.cost_tensor(potential).view(-1, 1, 1)
    flows = balls.originals.to(dtype).unsqueeze(2) * (there - tolls).softmax(dim=2)
    return Priced(plan=Plan(window=balls.window, flows=flows), price=price)


def move_mass(pull: Pull, balls: Balls) -> Move:
    """The image a potential makes, its pixels in [0, 1]: overfull pixels send mass back where it came from.

    For the search, in float32 whatever the images' dtype; the proof is made anew in float64.
    """
    pull = pull.barred(balls)
    if balls.backend == "numba":
        from massmover.transport.kernels.plan import move_mass_numba

        return move_mass_numba(pull, balls)
    if balls.backend == "triton":
        from massmover.transport.kernels.triton import move_mass_triton

        return move_mass_triton(pull, balls)
    return move_mass_torch(pull, balls)


def move_mass_torch(pull: Pull, balls: Balls) -> Move:
    """`move_mass` in plain torch, on any device: nothing in it waits for the device.

    How many operations it takes does not depend on the window. Flows are laid out as by `geometry.neighbours`.
    """
    window, originals = balls.window, balls.originals.float()
    potential = pull.potential.float().clamp(-STEEPEST, STEEPEST)
    rows = Rows.of(potential, balls, near=pull.price)
    price = rows.price(pull, balls, wait=pull.price is None)
    tolls = rows.unit(price)[..., None, None] * window.cost_grid(potential)[..., None, None]
    scores = neighbours(potential, window=window, outside=-torch.inf) - tolls
    part = scores.flatten(2, 3).softmax(dim=2).view_as(scores)  # (B, C, 2 rows + 1, 2 columns + 1, H, W)
    flows = originals[:, :, None, None] * part
    received, growth = incoming(torch.stack([flows, flows * (1 - part)]), window=window)
    crowding = (received.sum(dim=(2, 3)) - 1) / (growth.sum(dim=(2, 3)) + LEAST_MOBILE)
    moving, arriving = _without_swaps(flows, received)
    share, leaving = _returned_share(moving, arriving, balls)
    kept = (moving * neighbours(share, window=window)).sum(dim=(-2, -1)) * window.cost_grid(potential)
    return Move(
        images=(originals - leaving + share * arriving).clamp(0, 1),
        crowding=crowding,
        price=price,
        spent=(kept.sum(dim=(-2, -1)).double() * balls.weights).sum(dim=-1),
    )


def _without_swaps(flows: Tensor, received: Tensor) -> tuple[Tensor, Images]:
    """The moves without what two pixels would exchange, and what then arrives; equation (1b). Takes the flows over."""
    rows, columns = flows.shape[2] // 2, flows.shape[3] // 2
    for ends in (flows, received):
        ends[:, :, rows, columns].zero_()  # what stays is no move
    exchanged = torch.minimum(flows, received)
    return flows - exchanged, (received - exchanged).sum(dim=(2, 3))


def _returned_share(moving: Tensor, arriving: Images, balls: Balls) -> tuple[Images, Images]:
    """The share of its inflow that each pixel keeps, and what then leaves it, after a few sweeps of equation (2)."""
    free = 1 - balls.originals.float()
    share, leaving = torch.ones_like(arriving), moving.sum(dim=(2, 3))
    for _ in range(SEND_BACK_SWEEPS):
        room = (free + leaving).clamp_min(0)
        fits = torch.minimum(share, room / arriving.clamp_min(1e-30))
        share = torch.where(share * arriving > room + 1e-6, fits, share)
        leaving = (moving * neighbours(share, window=balls.window)).sum(dim=(2, 3))
    return share, leaving


def send_back(flows: Flows, balls: Balls) -> Flows:
    """A written-out plan whose overfull pixels return mass, a few sweeps of it: good enough to search with."""
    window, originals = balls.window, balls.originals.to(flows)
    moving = flows.clone()
    moving[:, :, 0] = 0
    without_swaps(moving[:, :, 1:], window=window)
    inflow, leaving = scatter(moving, window=window), moving.sum(dim=2)
    share = torch.ones_like(inflow)
    for _ in range(SEND_BACK_SWEEPS):
        room = (1 - originals + leaving).clamp_min(0)
        overfull = share * inflow > room + 1e-6
        if not overfull.any():
            break
        share = torch.where(overfull, torch.minimum(share, room / inflow.clamp_min(1e-30)), share)
        leaving = (moving * gather(share, window=window)).sum(dim=2)
    kept = moving * gather(share, window=window)
    kept[:, :, 0] = originals - leaving
    return kept
