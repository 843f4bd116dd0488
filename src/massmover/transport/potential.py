"""Plans from potentials: any potential gives a feasible image (docs/algorithms.md, section 4).

Row i of the plan is x_i softmax_j(potential_j - price_c distance_ij): mass prefers high potential and pays for
distance. The price is the one number per image that makes the plan cost exactly its budget.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.geometry import Window, gather, reachable, scatter
from massmover.transport.plan import Plan
from massmover.transport.repair import Repaired, joined, repair, settled, without_swaps
from massmover.transport.roots import decreasing_root
from massmover.types import Flows, Images, PerChannel, PerImage

SEND_BACK_SWEEPS = 8  # in the search; the final repair sweeps until it is done
PROOF_NUMBERS = 2_000_000  # of a written-out plan at a time: 16 MB in float64


class Move(NamedTuple):
    """Where a potential sends the mass of each image."""

    images: Images  # after the move
    price: PerImage  # of a unit of distance
    crowding: Images  # by how much a pixel's potential would have to fall for it to be exactly full
    spent: PerImage  # cost of the move; less than the budget where pixels sent mass back


class Priced(NamedTuple):
    """A plan with exact rows and its price; its columns may still overflow."""

    plan: Plan
    price: PerImage


def priced_plan(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> Priced:
    """The plan of a potential, priced so that its cost is the budget, or less where the floor price suffices.

    Solves for price >= floor:  sum_c weight_c sum_i x_i mean_cost_i(price) = budget, where mean_cost_i is the
    expected cost of a unit of mass of pixel i. It falls as the price rises, so there is one root. Potentials count
    relative to the highest one in each pixel's window, so no range of them can overflow or vanish.
    """
    height, width = originals.shape[-2:]
    inside = reachable(window, height=height, width=width, like=potential)
    there = gather(potential, window=window).masked_fill(inside == 0, -torch.inf)  # (B, C, K, H, W)
    relative = relative_weights(weights, originals).to(potential)  # (B, C)
    costs = window.cost_tensor(there).view(1, 1, -1, 1, 1)
    paid = originals * weights.to(potential)[:, :, None, None]  # (B, C, H, W)

    def portions(at: PerImage) -> Tensor:
        """Which part of its mass each pixel sends along each move."""
        rate = (at.unsqueeze(-1) * relative)[..., None, None, None]  # (B, C, 1, 1, 1)
        return (there - rate * costs).softmax(dim=2)

    latest: tuple[PerImage, Tensor] | None = None  # the root finder's last plan is nearly always the answer

    def spent(extra: PerImage) -> tuple[PerImage, PerImage]:
        """Cost of the plan at the floor price plus an extra, and its derivative."""
        nonlocal latest
        part = portions(floor + extra)
        latest = floor + extra, part
        first, second = torch.zeros_like(originals), torch.zeros_like(originals)
        for k, cost in enumerate(window.costs):  # move by move: products with the whole plan would be written out
            first.add_(part[:, :, k], alpha=cost)
            second.add_(part[:, :, k], alpha=cost * cost)
        variance = (second - first.square()) * relative[..., None, None]
        return (paid * first).sum(dim=(1, 2, 3)), -(paid * variance).sum(dim=(1, 2, 3))

    guess = None if price is None else (price - floor).clamp_min(0)
    found = floor + decreasing_root(spent, target=budget.to(potential), guess=guess)
    part = latest[1] if latest is not None and torch.equal(latest[0], found) else portions(found)
    return Priced(plan=Plan(window=window, flows=originals.unsqueeze(2) * part), price=found)


def move_mass(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> Move:
    """The image a potential makes, its pixels in [0, 1]: overfull pixels send mass back where it came from.

    `price` is a first guess. On a CPU the fused kernel does the work where Numba is installed; elsewhere torch does.
    """
    if originals.device.type == "cpu" and originals.dtype == torch.float32 and fused_available():
        from massmover.transport.fused import move_mass_fused as move
    else:
        move = move_mass_torch
    return move(potential, originals=originals, budget=budget, weights=weights, window=window, price=price, floor=floor)


def move_mass_torch(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> Move:
    """`move_mass` in plain torch, on any device."""
    plan, price = priced_plan(
        potential, originals=originals, budget=budget, weights=weights, window=window, price=price, floor=floor
    )
    flows = send_back(plan.flows, originals=originals, window=window)
    return Move(
        images=scatter(flows, window=window).clamp(0, 1),
        price=price,
        crowding=crowding_of(plan.flows, originals=originals, window=window),
        spent=Plan(window=window, flows=flows).cost(weights).double(),
    )


def crowding_of(flows: Flows, *, originals: Images, window: Window) -> Images:
    """How far each potential is from the one that fills its pixel exactly, by one Newton step. Equation (7).

    Positive where a plan overfills the pixel. A pixel's mass grows with its potential at the rate
    sum_i P_ij (1 - p_ij), p_ij the part of pixel i's mass that goes there: mass that comes anyway does not count.
    """
    part = flows / originals.unsqueeze(2).clamp_min(torch.finfo(flows.dtype).tiny)
    mobile = scatter(flows * (1 - part), window=window)
    return (scatter(flows, window=window) - 1) / mobile.clamp_min(1e-6)


def send_back(flows: Flows, *, originals: Images, window: Window) -> Flows:
    """Let overfull pixels return mass, a few sweeps of it: good enough to search with, not yet a proof."""
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


def certified_move(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
    booked: PerImage | None = None,
) -> Repaired:
    """The image of a potential with its proof: the plan in float64, repaired, and rounded to the caller's dtype.

    `booked` is what the plan may cost before overfull pixels send mass back; without it, the budget. On a CPU a kernel
    finds the moves where Numba is installed; elsewhere torch does. Paying, rounding and proof are the same.
    """
    asked = budget if booked is None else booked
    if originals.device.type == "cpu" and fused_available():
        from massmover.transport.fused import kept_moves_fused

        kept, _ = kept_moves_fused(
            potential, originals=originals, budget=asked, weights=weights, window=window, price=price, floor=floor
        )
        return settled(kept, originals=originals, window=window, weights=weights, budget=budget)

    def prove(part: slice) -> Repaired:
        plan = priced_plan(
            potential[part].double(),
            originals=originals[part].double(),
            budget=asked[part].double(),
            weights=weights[part],
            window=window,
            price=None if price is None else price[part],
            floor=floor,
        ).plan
        return repair(plan, originals=originals[part], weights=weights[part], budget=budget[part])

    # Written out, a plan has as many numbers as pixels times moves, so images are taken a few at a time.
    size = max(1, PROOF_NUMBERS // (originals[:1].numel() * len(window.offsets) or 1))
    return joined([prove(slice(start, start + size)) for start in range(0, max(len(originals), 1), size)])


def relative_weights(weights: PerChannel, originals: Images) -> PerChannel:
    """Channel weights over the weight of the whole image: all 1 when mass is normalised per image."""
    return weights * originals.sum(dim=(1, 2, 3), dtype=torch.float64).unsqueeze(-1)


@lru_cache(maxsize=1)
def fused_available() -> bool:
    """Whether Numba is installed: pip install 'massmover[fast]'."""
    return find_spec("numba") is not None
