"""Turn any near-feasible plan into one that is feasible in rows, box and budget at once.

Every repair lets mass stay home that would have moved, so off-diagonal flow only ever falls, and with
it the cost. The equations are numbered as in docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from massmover.ball import Balls
from massmover.geometry import Window, gather, pad, scatter, shifted
from massmover.transport.coherence import scatter_of
from massmover.transport.plan import SCATTER_ROUND_OFF, Certificate, Plan, certify
from massmover.types import Flows, Images, PerImage

PROPORTIONAL_SWEEPS = 64  # then overfull columns are closed outright; see `returned_share`
CACHED_NUMBERS = 300_000  # of a written-out plan at a time while it is proved
SUMS = 2.0**-51  # most that float64 sums over the moves of a plan are off in a pixel, nearly always
HALVINGS = 30  # of the share of a plan's moves that scatters no more than it may
AGREEMENTS = 4  # between what scatter and what rounding leave of a plan
OVERFLOW = 1e-13  # a column may hold this much over 1 in float64 before anything is sent back


class Repaired(NamedTuple):
    """A feasible plan, the image it makes in the caller's dtype, and the proof that they belong together."""

    plan: Plan
    images: Images
    certificate: Certificate
    sweeps: PerImage  # how often mass was sent back before no column was overfull


class Kept(NamedTuple):
    """The moves of a plan that pixels can pay for and have room for; they may still cost too much."""

    flows: Flows  # rows are exact
    change: Images  # of each pixel
    sweeps: PerImage


def repair(plan: Plan, balls: Balls) -> Repaired:
    """Make a plan feasible: its rows are the original, its image is in [0, 1], its cost is within budget.

    The idea: keep what can be kept of the plan's moves, send back what overfills a pixel, and let a
    share of all mass stay home if the rest still costs too much. The image is rounded to the dtype
    of the originals and the rounding is paid for from the same budget, so the bound of the
    certificate holds for the very image that is returned.
    """
    return settled(kept_moves(plan, balls), balls)


def kept_moves(plan: Plan, balls: Balls) -> Kept:
    """The moves of a plan that can be kept, in float64. Equations (1), (1b) and (2)."""
    if balls.closed is not None:
        open_ = gather((~balls.closed).to(plan.flows.dtype), window=plan.window)
        plan = Plan(window=plan.window, flows=plan.flows * open_)
    if balls.backend == "numba":
        from massmover.transport.kernels.repair import kept_moves_numba

        mine = plan.flows.to(torch.float64, copy=True).contiguous()
        return kept_moves_numba(Plan(window=plan.window, flows=mine), balls)
    x, window = balls.originals.double(), plan.window
    moving = without_swaps(sendable(plan.flows.double(), x, window=window), window=window)
    share, sweeps = returned_share(moving, x, window=window)
    moving *= gather(share, window=window)[..., 1:, :, :]
    flows = _with_stay(moving, (x - moving.sum(dim=-3)).clamp_min(0))
    return Kept(flows=flows, change=scatter(flows, window=window) - x, sweeps=sweeps)


def settled(kept: Kept, balls: Balls) -> Repaired:
    """Pay for the moves that can be kept, round the image, and prove it. Equations (3) and (4).

    Takes the flows over and scales them where they are. A few images at a time, for every pass over a plan that is
    still in cache is worth several over one that is not.
    """
    size = max(1, CACHED_NUMBERS // (kept.flows[:1].numel() or 1))
    parts = [slice(start, start + size) for start in range(0, max(len(balls), 1), size)]
    images, proofs = zip(
        *(_settle(Kept(*(whole[part] for whole in kept)), balls.select(part)) for part in parts), strict=True
    )
    plan = Plan(window=balls.window, flows=kept.flows)
    return Repaired(plan=plan, images=torch.cat(images), certificate=_one_certificate(proofs), sweeps=kept.sweeps)


def _settle(kept: Kept, balls: Balls) -> tuple[Images, Certificate]:
    """The images and the certificates of some plans, whose flows are scaled to what can be paid."""
    plan = Plan(window=balls.window, flows=kept.flows)
    cost = plan.cost(balls.weights)
    share, images, rounding = affordable_share(kept.change, balls, cost=cost)
    if balls.coherence is not None:
        share, images, rounding = _coherent(kept, balls, cost=cost, most=share)
    if bool((share < 1).any()):
        part, x, staying = share.view(-1, 1, 1, 1), balls.originals.double(), kept.flows[..., 0, :, :]
        staying.copy_((x + part * (staying - x)).clamp_min(0))
        kept.flows[..., 1:, :, :].mul_(part.unsqueeze(-1))
    return images, certify(plan, balls, returned=images, rounding=rounding)


def _coherent(kept: Kept, balls: Balls, *, cost: PerImage, most: PerImage) -> tuple[PerImage, Images, PerImage]:
    """`affordable_share` of plans that also may not scatter.

    A smaller share may scatter more and rounds otherwise, so neither bound implies the other: asked in turn until both
    say yes to the same share. Nothing moves where they never do.
    """
    for _ in range(AGREEMENTS):
        share = coherent_share(kept.flows, balls, most=most)
        most, images, rounding = affordable_share(kept.change, balls, cost=cost, most=share)
        if bool((most == share).all()):
            return share, images, rounding
    return affordable_share(kept.change, balls, cost=cost, most=torch.where(most == share, share, 0.0))


def joined(parts: Sequence[Repaired]) -> Repaired:
    """Repaired plans of several batches as one."""
    if len(parts) == 1:
        return parts[0]
    return Repaired(
        plan=Plan(window=parts[0].plan.window, flows=torch.cat([part.plan.flows for part in parts])),
        images=torch.cat([part.images for part in parts]),
        certificate=_one_certificate([part.certificate for part in parts]),
        sweeps=torch.cat([part.sweeps for part in parts]),
    )


def _one_certificate(parts: Sequence[Certificate]) -> Certificate:
    return Certificate(*map(torch.cat, zip(*parts, strict=True)))


def coherent_share(flows: Flows, balls: Balls, *, most: PerImage) -> PerImage:
    """A share of all moves, up to a largest one, with which a plan does not scatter more than it may.

    Scatter need not fall as more mass stays home, so no root is assumed: every share that is returned was measured,
    and with 0 nothing moves, nothing scatters.
    """
    assert balls.coherence is not None
    allowed, x = max(balls.coherence.scatter, SCATTER_ROUND_OFF / 2), balls.originals.double()
    low, high, share = torch.zeros_like(most), most.clone(), most.clone()
    for _ in range(HALVINGS):
        mixed = flows * share.view(-1, 1, 1, 1, 1)
        mixed[:, :, 0] += (1 - share).view(-1, 1, 1, 1) * x
        fits = scatter_of(mixed, balls) <= allowed
        low, high = torch.where(fits, share, low), torch.where(fits, high, share)
        if bool((low == most).all()):
            break
        share = torch.where(low == most, most, (low + high) / 2)
    return low


def affordable_share(
    change: Images, balls: Balls, *, cost: PerImage, most: PerImage | None = None
) -> tuple[PerImage, Images, PerImage]:
    """The largest share t of all moves, nearly, whose cost and rounding are within budget. Equations (3) and (4).

    Cost and image are linear in t. Rounding is not, so twice what it took is put aside, then four times, and so on; if
    the budget is smaller than a rounding error nothing moves, and nothing is rounded. Returns the share, the image in
    the caller's dtype, and what rounding it costs at most.
    """
    x, budget = balls.originals.double(), balls.budget

    def rounded(share: PerImage) -> tuple[Images, PerImage]:
        return rounded_image(x + share.view(-1, 1, 1, 1) * change, balls)

    share = torch.ones_like(budget) if most is None else most
    for attempt in range(4):
        images, rounding = rounded(share)
        over = share * cost + rounding > budget
        if not over.any():
            return share, images, rounding
        # A unit in the fourteenth place is left over, for sums over a plan are no more exact than that.
        spend = (budget - 2.0 ** (attempt + 1) * rounding) * (1 - 1e-14)
        scale = spend / cost.clamp_min(torch.finfo(torch.float64).tiny)
        share = torch.where(over, scale.clamp(0, 1).minimum(share), share)
    share = torch.where(over, 0.0, share)
    return share, *rounded(share)


def sendable(flows: Flows, originals: Images, *, window: Window) -> Flows:
    """The moves of a plan that its pixels can pay for: (B, C, K - 1, H, W), "stay" left out. Equation (1).

    Negative and non-finite flows are dropped, flows that leave the image too; a row that sends more than its
    pixel holds is scaled down. A row that sends less keeps the rest at home.
    """
    clean = torch.nan_to_num(flows, nan=0.0, posinf=0.0, neginf=0.0).clamp_min(0)
    leaving = clean.sum(dim=-3)  # staying mass included, so that proportions are kept
    scale = torch.where(leaving > originals, originals / leaving.clamp_min(torch.finfo(leaving.dtype).tiny), 1.0)
    inside = gather(torch.ones_like(originals[:1, :1]), window=window)
    return (clean * inside * scale.unsqueeze(-3))[..., 1:, :, :]


def without_swaps(moving: Flows, *, window: Window) -> Flows:
    """Moves that make the same image for less: what two pixels would exchange stays. Equation (1b).

    Takes the moves over, (B, C, K - 1, H, W), "stay" left out, and changes them where they are.
    """
    height, width = moving.shape[-2:]
    moves = window.offsets[1:]
    place = {move: k for k, move in enumerate(moves)}
    for k, (dy, dx) in enumerate(moves):
        if (dy, dx) < (0, 0) or dy >= height or abs(dx) >= width:  # a move and the one that undoes it are done once
            continue
        left, right = max(-dx, 0), max(dx, 0)
        there = moving[..., k, : height - dy, left : width - right]
        back = moving[..., place[-dy, -dx], dy:, right : width - left]
        both = torch.minimum(there, back)
        there -= both
        back -= both
    return moving


def returned_share(moving: Flows, originals: Images, *, window: Window) -> tuple[Images, PerImage]:
    """For each pixel the share of its inflow that it may keep, so that no pixel overflows. Equation (2).

    With s_j the share pixel j keeps, a column holds z_j = x_j - sum_k F_jk s_k + s_j sum_i F_ij. Each sweep
    lowers s_j where z_j > 1 to what fits now. The map is monotone and s = 0 always fits, so the shares
    fall towards the largest solution; how fast depends on how far mass sent back cascades, and on a closed loop of full
    pixels it is only geometric. After PROPORTIONAL_SWEEPS every column still overfull is closed, s_j = 0: it then
    holds at most x_j <= 1 for good. So at most one closing sweep per pixel follows, and the loop ends.
    """
    inflow = scatter(_with_stay(moving, torch.zeros_like(originals)), window=window)
    share = torch.ones_like(originals)
    sweeps = torch.zeros(originals.shape[0], dtype=torch.int64, device=originals.device)
    active = torch.arange(originals.shape[0], device=originals.device)
    flows, x, arriving = moving, originals, inflow  # of the images that are still active
    sweep = 0
    while active.numel():
        kept = share[active]
        room = 1 - x + _leaving(flows, kept, window=window)
        overfull = (kept * arriving > room + OVERFLOW) & (kept > 0)  # a closed column is done with, whatever it holds
        still = overfull.flatten(1).any(dim=1)
        if not still.all():
            active, flows, x, arriving = active[still], flows[still], x[still], arriving[still]
            overfull, kept, room = overfull[still], kept[still], room[still]
        fits = (
            room.clamp_min(0) / arriving.clamp_min(OVERFLOW) if sweep < PROPORTIONAL_SWEEPS else torch.zeros_like(room)
        )
        share[active] = torch.where(overfull, torch.minimum(kept, fits), kept)
        sweep += 1
        sweeps[active] = sweep
    return share, sweeps


def _leaving(moving: Flows, share: Images, *, window: Window) -> Images:
    """Mass that really leaves each pixel when every target keeps only its share."""
    height, width = share.shape[-2:]
    padded = pad(share, window=window)
    total = torch.zeros_like(share)
    for k, (dy, dx) in enumerate(window.offsets[1:]):
        total.addcmul_(moving[..., k, :, :], shifted(padded, dy, dx, window=window, height=height, width=width))
    return total


def _with_stay(moving: Flows, staying: Images) -> Flows:
    """The moves with what stays put before them."""
    return torch.cat([staying.unsqueeze(-3), moving], dim=-3)


def rounded_image(exact: Images, balls: Balls) -> tuple[Images, PerImage]:
    """The image in the caller's dtype, and the most that rounding it added to its distance."""
    inside = exact.clamp(0, 1)  # only round-off is clamped: the columns fit already
    # A pixel no mass left or reached keeps its very bits.
    originals = balls.originals
    moved = inside != originals.double()
    images = torch.where(moved, inside.to(originals.dtype), originals)
    return images, rounding_cost(exact, images, balls) + summing_cost(moved, balls)


def rounding_cost(exact: Images, rounded: Images, balls: Balls) -> PerImage:
    """An upper bound of the distance that rounding adds, in float64.

    Rounded channels, with the mass that may not move, are first scaled back to their exact mass, as the judge
    does. What is left is a signed error that sums to zero. Where the cost obeys the triangle inequality
    (power <= 1) the error is carried pixel by pixel to the end of its row and then down the last column; every
    step crosses one pixel edge and costs 1. For other powers the misplaced mass is charged the longest way there is.
    """
    before, after = balls.whole(exact.double()), balls.whole(rounded.double())
    mass, rounded_mass = before.sum(dim=(-2, -1), keepdim=True), after.sum(dim=(-2, -1), keepdim=True)
    scale = torch.where(rounded_mass > 0, mass / rounded_mass.clamp_min(torch.finfo(torch.float64).tiny), 1.0)
    error = after * scale - before  # (B, C, H, W)
    if balls.window.power <= 1:
        along_rows = error.cumsum(dim=-1)
        down = along_rows[..., -1].cumsum(dim=-1)
        steps = along_rows[..., :-1].abs().sum(dim=(-2, -1)) + down[..., :-1].abs().sum(dim=-1)
        return (steps * balls.weights).sum(dim=-1)
    longest = balls.window.cost(error.shape[-2] - 1, error.shape[-1] - 1)
    return (error.abs().sum(dim=(-2, -1)) / 2 * longest * balls.weights).sum(dim=-1)


def summing_cost(moved: torch.Tensor, balls: Balls) -> PerImage:
    """What the sums over a plan may hide, in float64: pixels that mass left or reached may be off in their last places.

    As above, but each error for itself and carried as far as there is, for its sign is not known.
    """
    height, width = moved.shape[-2:]
    far = float(height + width) if balls.window.power <= 1 else balls.window.cost(height - 1, width - 1)
    return (SUMS * far * moved.double().sum(dim=(-2, -1)) * balls.weights).sum(dim=-1)
