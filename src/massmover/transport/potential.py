"""Plans from potentials: any potential gives a feasible image (docs/algorithms.md, section 4).

Row i of the plan is x_i softmax_j(potential_j - price_c distance_ij): mass prefers high potential and pays for distance.
The price is the one number per image that makes the plan cost exactly its budget. Nothing of size pixels x window
is ever written out: distances take few values, so sums over rings of equal distance are enough.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.geometry import Window, gather, ring_sums
from massmover.transport.plan import Plan
from massmover.transport.repair import Repaired, repair
from massmover.transport.roots import decreasing_root
from massmover.types import Images, PerChannel, PerImage

SEND_BACK_SWEEPS = 8  # in the search; the final repair sweeps until it is done


class Move(NamedTuple):
    """Where a potential sends the mass of each image."""

    images: Images  # after the move
    price: PerImage  # of a unit of distance; 0 where the budget is not exhausted


class Factors(NamedTuple):
    """A plan in factors: from i to j at ring r go source_i decay_r target_j; source_i target_i stays."""

    source: Images  # (B, C, H, W)
    target: Images  # (B, C, H, W)
    decay: Tensor  # (B, C, R), exp(-price_c cost_r)
    price: PerImage


def factor(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
) -> Factors:
    """The plan of a potential, priced so that its cost is the budget (or less where no price is needed).

    Solves for price >= 0:  sum_c weight_c sum_i x_i mean_cost_i(price) = budget, where mean_cost_i is the
    expected cost of a unit of mass of pixel i. It falls as the price rises, so there is one root.
    """
    # Only differences of potentials count. Beyond this range a float32 exponential would vanish.
    reach = 80.0 if potential.dtype == torch.float32 else 690.0
    top = potential.amax(dim=(1, 2, 3), keepdim=True)
    target = (potential - top).clamp_min(-reach).exp()
    sums = ring_sums(target, window=window)  # (B, C, R, H, W)
    costs = window.ring_costs(potential)
    relative = relative_weights(weights, originals).to(potential)  # (B, C)
    paid = (originals * weights.to(potential)[:, :, None, None]).unsqueeze(2)  # (B, C, 1, H, W)

    def spent(at: PerImage) -> tuple[PerImage, PerImage]:
        """Cost of the plan at a price, and its derivative."""
        decay = torch.exp(-at.view(-1, 1, 1) * relative.unsqueeze(-1) * costs)[..., None, None]
        shares = sums * decay  # (B, C, R, H, W)
        total = target.unsqueeze(2) + shares.sum(dim=2, keepdim=True)
        first = (shares * costs.view(1, 1, -1, 1, 1)).sum(dim=2, keepdim=True) / total
        second = (shares * costs.square().view(1, 1, -1, 1, 1)).sum(dim=2, keepdim=True) / total
        variance = (second - first.square()) * relative[:, :, None, None, None]
        return (paid * first).sum(dim=(1, 2, 3, 4)), -(paid * variance).sum(dim=(1, 2, 3, 4))

    root = decreasing_root(spent, target=budget.to(potential), guess=price)
    decay = torch.exp(-root.view(-1, 1, 1) * relative.unsqueeze(-1) * costs)
    total = target + torch.einsum("bcr,bcrhw->bchw", decay, sums)
    return Factors(source=originals / total, target=target, decay=decay, price=root)


def move_mass(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
) -> Move:
    """The image a potential makes, its pixels in [0, 1]: overfull pixels send mass back where it came from.

    `price` is a first guess. On a CPU the fused kernel does the work where Numba is installed; elsewhere torch does.
    """
    if originals.device.type == "cpu" and originals.dtype == torch.float32 and fused_available():
        from massmover.transport.fused import move_mass_fused as move
    else:
        move = move_mass_torch
    return move(potential, originals=originals, budget=budget, weights=weights, window=window, price=price)


def move_mass_torch(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
) -> Move:
    """`move_mass` in plain torch, on any device."""
    plan = factor(potential, originals=originals, budget=budget, weights=weights, window=window, price=price)
    inflow = plan.target * around(plan.source, plan.decay, window=window)
    leaving = originals - plan.source * plan.target
    share = torch.ones_like(inflow)
    for _ in range(SEND_BACK_SWEEPS):
        room = (1 - originals + leaving).clamp_min(0)
        overfull = share * inflow > room + 1e-6
        if not overfull.any():
            break
        share = torch.where(overfull, torch.minimum(share, room / inflow.clamp_min(1e-30)), share)
        leaving = plan.source * around(plan.target * share, plan.decay, window=window)
    return Move(images=(originals - leaving + share * inflow).clamp(0, 1), price=plan.price)


@lru_cache(maxsize=1)
def fused_available() -> bool:
    """Whether Numba is installed: pip install 'massmover[fast]'."""
    return find_spec("numba") is not None


def around(values: Images, decay: Tensor, *, window: Window) -> Images:
    """Each pixel's neighbours, weighted by the decay of their ring and added up."""
    return torch.einsum("bcr,bcrhw->bchw", decay, ring_sums(values, window=window))


def relative_weights(weights: PerChannel, originals: Images) -> PerChannel:
    """Channel weights over the weight of the whole image: all 1 when mass is normalised per image."""
    return weights * originals.double().sum(dim=(1, 2, 3)).unsqueeze(-1)


def write_out(factors: Factors, *, window: Window) -> Plan:
    """The plan with all its entries, pixels x window of them."""
    ring_of = {pair: number for number, ring in enumerate(window.rings) for pair in ring.pairs}
    stay = factors.decay.new_ones(*factors.decay.shape[:-1], 1)
    numbers = [ring_of[abs(dy), abs(dx)] for dy, dx in window.offsets[1:]]
    decay = torch.cat([stay, factors.decay[..., numbers]], dim=-1)[..., None, None]  # (B, C, K, 1, 1)
    return Plan(window=window, flows=factors.source.unsqueeze(2) * decay * gather(factors.target, window=window))


def certified_move(
    potential: Images, *, originals: Images, budget: PerImage, weights: PerChannel, window: Window
) -> Repaired:
    """The image of a potential with its proof: the plan in float64, repaired, and rounded to the caller's dtype."""
    factors = factor(
        potential.double(), originals=originals.double(), budget=budget.double(), weights=weights, window=window
    )
    return repair(write_out(factors, window=window), originals=originals, weights=weights, budget=budget)
