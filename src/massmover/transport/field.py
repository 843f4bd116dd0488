"""Plans from displacement fields: mass goes where its field says, split among the four pixels around that place.

A pixel's mass keeps the mean displacement that the field gives it and splits bilinearly, so the plan of a smooth field
does not scatter (transport/coherence.py). Where the field crowds a pixel beyond 1, the rows that reach it lean away:
their means give way a little, and they split bilinearly about these. docs/coherent.md, section "The attack".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.ball import Balls
from massmover.geometry import gather, scatter
from massmover.transport.coherence import scatter_of
from massmover.transport.plan import SCATTER_ROUND_OFF, Plan
from massmover.transport.repair import Kept, returned_share, rounded_image
from massmover.types import Images, PerImage

SEARCH_SWEEPS, PROOF_SWEEPS = 1, 16  # in which rows learn to lean away from full pixels
LEANEST = 12.0  # nepers: the most by which a full pixel is avoided
LEAST_MOBILE = 1e-6
CORNERS = ((False, False), (False, True), (True, False), (True, True))  # whether each lies below, and to the right
DUST = 1e-14  # of a pixel's mass
RESCALINGS = 3  # of a field that costs too much, in the search. The kernels have their own copy of these
ATTEMPTS = 12  # to find a share of a field whose plan is inside
STRAY_FIRST = 2  # attempts in which the smooth part is kept
PROPORTIONAL = 6  # attempts in which shares are taken in proportion
PROOF_NUMBERS = 2_000_000  # of a written-out plan at a time: 16 MB in float64


class Corners(NamedTuple):
    """Where a field leads: four pixels around each target, and how far along each axis the target lies between them."""

    base: Tensor  # (B, 2, N): the whole part of each displacement, in pixels
    between: Tensor  # (B, 2, N): the rest, from 0 to 1
    place: Tensor  # (B, 4, N): the pixels, counted through rows; upper left, upper right, lower left, lower right

    def bilinear(self) -> Tensor:
        """The part of its mass that each pixel sends to each corner, (B, 4, N), where nothing is full."""
        return _product(self.between, dim=1)


class Lean(NamedTuple):
    """How rows give way to full pixels; (B, C, N) each, down and right."""

    between: tuple[Tensor, Tensor]  # how far the mean lies between the corners now
    open_: tuple[Tensor, Tensor]  # what the odds of going further were multiplied by
    twist: Tensor  # how these change along the other axis

    @classmethod
    def of(cls, reached: Corners, avoided: Tensor) -> Lean:
        """The lean of rows whose corners are avoided by so many nepers, (B, C, N)."""
        f, g = reached.between.unsqueeze(1).unbind(dim=2)  # (B, 1, N)
        first, beside, below, last = around = _at(reached, avoided).unbind(dim=2)
        downhill, aside = ((-rise).exp() for rise in _rises(around, f, g))
        between = f * downhill / (1 - f + f * downhill), g * aside / (1 - g + g * aside)
        return cls(between, (downhill, aside), last - beside - below + first)

    def parts(self) -> Tensor:
        """The part of its mass that each pixel sends to each corner, (B, C, 4, N)."""
        return _product(torch.stack(self.between, dim=2), dim=2)


def _rises(around: Sequence[Tensor], down: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """How values at four corners, bilinear between them, rise along each axis."""
    first, beside, below, last = around
    return (
        (1 - right) * (below - first) + right * (last - beside),
        (1 - down) * (beside - first) + down * (last - below),
    )


def _product(between: Tensor, *, dim: int) -> Tensor:
    """The four parts of a bilinear split: along each axis by itself."""
    down, right = between.unbind(dim=dim)
    return torch.stack([(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], dim=dim)


class Carried(NamedTuple):
    """Mass after it went where a share of a field leads; for the search, in float32."""

    share: PerImage  # of the field, such that it can be paid for, nearly
    images: Images
    avoided: Tensor  # (B, C, N): by how many nepers a full pixel is avoided
    cost: PerImage  # float64
    scatter: PerImage  # of rows that split bilinearly


class Bounds(NamedTuple):
    """How far each pixel's mass may go along each axis, (2, N), and the cost of every move of the window."""

    least: Tensor
    most: Tensor
    costs: Tensor  # (2 rows + 1) x (2 columns + 1), counted through rows

    @classmethod
    def of(cls, balls: Balls, *, dtype: torch.dtype) -> Bounds:
        """The bounds that window and image set."""
        height, width = balls.originals.shape[-2:]
        like = balls.originals.new_empty(0, dtype=dtype)
        ends = _ends(height, width, balls.window.rows, balls.window.columns, dtype=dtype, device=like.device)
        return cls(*ends, balls.window.cost_grid(like).flatten())


@lru_cache(maxsize=16)
def _ends(
    height: int, width: int, rows: int, columns: int, *, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    at = torch.cartesian_prod(torch.arange(height), torch.arange(width)).T.to(device, dtype)  # (2, N)
    reach = torch.tensor([[rows], [columns]], dtype=dtype, device=device)
    last = torch.tensor([[height - 1], [width - 1]], dtype=dtype, device=device)
    return (-at).maximum(-reach), (last - at).minimum(reach)


def corners(field: Tensor, balls: Balls) -> Corners:
    """The four pixels around where a field (B, 2, N) leads; what would leave the window or the image stops there."""
    bounds, (height, width) = Bounds.of(balls, dtype=field.dtype), balls.originals.shape[-2:]
    inside = field.maximum(bounds.least).minimum(bounds.most)
    base = inside.floor().minimum(bounds.most - 1).maximum(bounds.least)
    pixel = torch.arange(height * width, device=field.device)
    upper_left = pixel + base[:, 0].long() * width + base[:, 1].long()
    down, right = ((bounds.most > base).long() * torch.tensor([[width], [1]], device=field.device)).unbind(dim=1)
    place = torch.stack([upper_left, upper_left + right, upper_left + down, upper_left + down + right], dim=1)
    return Corners(base, inside - base, place)


def carried(field: Tensor, smooth: Tensor, balls: Balls, *, avoided: Tensor | None = None) -> Carried:
    """The image that a displacement field (B, 2, N) with a given smooth part makes.

    Full and closed pixels are avoided, and what still overfills them is cut off. Of a field that costs too much a share
    is taken.
    """
    start = torch.zeros_like(balls.originals, dtype=torch.float32).flatten(2) if avoided is None else avoided
    if balls.backend == "numba":
        from massmover.transport.kernels.field import carried_numba

        return carried_numba(field, smooth, balls, start)
    return carried_torch(field, smooth, balls, start)


def carried_torch(field: Tensor, smooth: Tensor, balls: Balls, avoided: Tensor) -> Carried:
    """`carried` in plain torch, on any device."""
    x, share = balls.originals.to(field).flatten(2), torch.ones_like(balls.budget)  # (B, C, N)
    for _ in range(RESCALINGS):
        reached = corners(field * share.to(field).view(-1, 1, 1), balls)
        cost = _cost(reached, x, reached.bilinear().unsqueeze(1), balls)
        share = share * (balls.budget / cost.clamp_min(1e-300)).clamp_max(1)
    part, room = share.to(field).view(-1, 1, 1), room_in(balls, dtype=field.dtype)
    reached = corners(field * part, balls)
    for _ in range(SEARCH_SWEEPS):
        avoided = _avoiding(reached, x, avoided, room=room)
    lean = Lean.of(reached, avoided)
    return Carried(
        share=share.to(field),
        images=_arrived(reached, x, lean.parts()).minimum(room).view(balls.originals.shape),
        avoided=avoided,
        cost=_cost(reached, x, lean.parts(), balls),
        scatter=_strayed(reached, x, lean, smooth * part),
    )


def room_in(balls: Balls, *, dtype: torch.dtype) -> Tensor:
    """What each pixel may hold, (B, C, N): 1, and nothing where no mass may arrive."""
    if balls.closed is None:
        return torch.ones_like(balls.originals, dtype=dtype).flatten(2)
    return (~balls.closed).to(dtype).flatten(2)


def slope(gradient: Images, field: Tensor, avoided: Tensor, balls: Balls) -> Tensor:
    """How the loss rises as each pixel's mass goes further down and right, a unit of mass: (B, 2, N)."""
    if balls.backend == "numba":
        from massmover.transport.kernels.field import slope_numba

        return slope_numba(gradient, field, avoided, balls)
    return slope_torch(gradient, field, avoided, balls)


def slope_torch(gradient: Images, field: Tensor, avoided: Tensor, balls: Balls) -> Tensor:
    """`slope` in plain torch, on any device."""
    reached, x = corners(field, balls), balls.originals.to(field).flatten(2)
    lean = Lean.of(reached, avoided)
    gains = _rises(_at(reached, gradient.to(field).flatten(2)).unbind(dim=2), *lean.between)
    mobile, rises = [f * (1 - f) for f in lean.between], []
    for axis, f in enumerate(reached.between.unsqueeze(1).unbind(dim=2)):
        odds, other = lean.open_[axis], 1 - axis
        along = gains[axis] * odds / (1 - f + f * odds).square()
        rises.append(((along - gains[other] * mobile[other] * lean.twist) * x).sum(dim=1))
    mass = x.sum(dim=1)
    return torch.stack(rises, dim=1) / mass.clamp_min(1e-30).unsqueeze(1) * (mass > 0).unsqueeze(1)


def _at(reached: Corners, values: Tensor) -> Tensor:
    """Values (B, C, N) at the corners of each pixel: (B, C, 4, N)."""
    batch, channels, pixels = values.shape
    place = reached.place.flatten(1).unsqueeze(1).expand(batch, channels, 4 * pixels)
    return values.gather(2, place).view(batch, channels, 4, pixels)


def _arrived(reached: Corners, x: Tensor, parts: Tensor) -> Tensor:
    """What arrives at each pixel, (B, C, N), of parts (B, C, 4, N) of its mass."""
    place = reached.place.flatten(1).unsqueeze(1).expand(*x.shape[:2], -1)
    return torch.zeros_like(x).scatter_add_(2, place, (x.unsqueeze(2) * parts).flatten(2))


def _avoiding(reached: Corners, x: Tensor, avoided: Tensor, *, room: Tensor) -> Tensor:
    """Avoid overfull pixels more and others less, by a Newton step on each pixel's own mass."""
    lean = Lean.of(reached, avoided)
    parts, mobile = lean.parts(), _mobility(reached, lean)
    arrived, mobile = _arrived(reached, x, parts), _arrived(reached, x, parts * mobile)
    return (avoided + ((arrived - room) / (mobile + LEAST_MOBILE)).clamp(-2, 2)).clamp(0, LEANEST)


def _mobility(reached: Corners, lean: Lean) -> Tensor:
    """The share by which each part falls as its corner is avoided more, a neper: (B, C, 4, N)."""
    (down, right), (f, g) = reached.between.unsqueeze(1).unbind(dim=2), lean.between
    along = [((1 - f) if low else f, right if side else 1 - right) for low, side in CORNERS]
    aside = [((1 - g) if side else g, down if low else 1 - down) for low, side in CORNERS]
    return torch.stack([a * b + c * d for (a, b), (c, d) in zip(along, aside, strict=True)], dim=2)


def _corner_moves(base: Tensor) -> tuple[Tensor, Tensor]:
    """The moves to the four corners, down and right: (B, 4, N) each."""
    down, right = base.unbind(dim=1)
    return torch.stack([down, down, down + 1, down + 1], dim=1), torch.stack([right, right + 1] * 2, dim=1)


def _cost(reached: Corners, x: Tensor, parts: Tensor, balls: Balls) -> PerImage:
    each = (_move_costs(reached, balls).to(x).unsqueeze(1) * parts).sum(dim=2) * x
    return (each.sum(dim=-1).double() * balls.weights).sum(dim=1)


def _move_costs(reached: Corners, balls: Balls) -> Tensor:
    return Bounds.of(balls, dtype=reached.base.dtype).costs[_move_places(reached, balls)]


def _move_places(reached: Corners, balls: Balls) -> Tensor:
    """The moves to the corners as places in a grid of all moves of the window; a corner beyond it gets no mass."""
    rows, columns = balls.window.rows, balls.window.columns
    down, right = _corner_moves(reached.base)
    return ((down.clamp_max(rows) + rows) * (2 * columns + 1) + right.clamp_max(columns) + columns).long()


def _strayed(reached: Corners, x: Tensor, lean: Lean, smooth: Tensor) -> PerImage:
    """The scatter of rows that split bilinearly: what their means deviate from the smooth part of a field."""
    apart = torch.zeros_like(x)
    for base, between, aim in zip(reached.base.unbind(dim=1), lean.between, smooth.unbind(dim=1), strict=True):
        apart += ((base - aim).unsqueeze(1) + between).square() * x
    return (apart.sum(dim=(1, 2)) / x.sum(dim=(1, 2)).clamp_min(1e-30)).sqrt()


class Led(NamedTuple):
    """A displacement field for each image, (B, 2, N): smooth part and rest, and how much full pixels are avoided."""

    smooth: Tensor
    stray: Tensor
    avoided: Tensor  # (B, C, N)

    def select(self, index: Tensor | slice) -> Led:
        """The fields of some of the images."""
        return Led(*(part[index] for part in self))

    def scaled(self, whole: PerImage, stray: PerImage) -> Led:
        """A share of the field, and of its rest another."""
        own = whole.view(-1, 1, 1).to(self.smooth)
        return Led(own * self.smooth, own * stray.view(-1, 1, 1).to(own) * self.stray, self.avoided)

    def moves(self, balls: Balls) -> Kept:
        """The moves of the field's plan in float64, of a share of the field where cost or scatter ask for less."""
        size = max(1, PROOF_NUMBERS // (balls.originals[:1].numel() * len(balls.window.offsets) or 1))
        parts = [slice(start, start + size) for start in range(0, max(len(balls), 1), size)]
        kept = [_inside(Led(*(field.double() for field in self.select(part))), balls.select(part)) for part in parts]
        return Kept(*map(torch.cat, zip(*kept, strict=True)))


def _inside(led: Led, balls: Balls) -> Kept:
    """The plan of a share of a field, as large as is found soon, that costs and scatters no more than it may.

    Too dear a field is taken in proportion, one that scatters too much gives up its rest first; then shares are halved.
    None of this need succeed, so every plan that is returned was measured; with a share of 0 nothing moves.
    """
    whole, stray = torch.ones_like(balls.budget), torch.ones_like(balls.budget)
    best = _written(led.scaled(whole * 0, stray), balls)
    open_ = torch.arange(len(balls), device=whole.device)
    for attempt in range(ATTEMPTS):
        part = balls.select(open_)
        found = _written(led.select(open_).scaled(whole[open_], stray[open_]), part)
        cheaper, closer = _allowed_shares(found, part)
        fits = (cheaper >= 1) & (closer >= 1)
        for all_, own in zip(best, found, strict=True):
            all_[open_[fits]] = own[fits]
        open_, cheaper, closer = open_[~fits], cheaper[~fits], closer[~fits]
        if not len(open_):
            break
        more = 1.0 if attempt < PROPORTIONAL else 0.5
        whole[open_] *= torch.where(cheaper < 1, 0.9999 * cheaper, 1.0)
        whole[open_] *= 1.0 if attempt < STRAY_FIRST else closer.clamp_min(0.5) * more
        stray[open_] *= torch.where(closer < 1, closer * (0.9999 if attempt == 0 else 0.98 * closer), 1.0)
    return best


def _allowed_shares(kept: Kept, balls: Balls) -> tuple[PerImage, PerImage]:
    """The shares of a plan's cost and of its scatter that are allowed, at most 1; the cost of rounding is put aside."""
    rounding = rounded_image(balls.originals.double() + kept.change, balls)[1]
    cost, budget = Plan(window=balls.window, flows=kept.flows).cost(balls.weights), balls.budget - 2 * rounding
    cheaper = _at_most_one(budget.clamp_min(0), cost)
    if balls.coherence is None:
        return cheaper, torch.ones_like(cheaper)
    allowed = max(balls.coherence.scatter * (1 - 1e-9), SCATTER_ROUND_OFF / 4)
    return cheaper, _at_most_one(torch.full_like(cheaper, allowed), scatter_of(kept.flows, balls))


def _at_most_one(allowed: PerImage, found: PerImage) -> PerImage:
    return torch.where(found <= allowed, 1.0, allowed / found.clamp_min(torch.finfo(found.dtype).tiny))


def _written(led: Led, balls: Balls) -> Kept:
    """The plan of a field written out, with exact rows and columns in [0, 1]."""
    x, window = balls.originals.double(), balls.window
    reached, flat, avoided = corners(led.smooth + led.stray, balls), x.flatten(2), led.avoided
    room = room_in(balls, dtype=x.dtype)
    for _ in range(PROOF_SWEEPS):
        if not bool((_arrived(reached, flat, Lean.of(reached, avoided).parts()) > room).any()):
            break
        avoided = _avoiding(reached, flat, avoided, room=room)
    mass = flat.unsqueeze(2) * Lean.of(reached, avoided).parts()  # (B, C, 4, N)
    grid = mass.new_zeros(*mass.shape[:2], len(window.offsets), mass.shape[-1])
    grid.scatter_add_(2, _move_places(reached, balls).unsqueeze(1).expand_as(mass), mass)
    flows = grid[:, :, _grid_places(window.rows, window.columns, device=grid.device)]
    flows = flows.view(*flows.shape[:3], *x.shape[-2:])
    if balls.closed is not None:
        flows = flows * gather((~balls.closed).to(flows.dtype), window=window)
    moving = flows[:, :, 1:].contiguous()
    share, sweeps = returned_share(moving, x, window=window)
    moving *= gather(share, window=window)[:, :, 1:]
    stays = x - moving.sum(dim=2)
    stays = torch.where(stays > DUST * x, stays, 0.0)  # round-off that stays behind would scatter
    flows = torch.cat([stays.unsqueeze(2), moving], dim=2)
    return Kept(flows=flows, change=scatter(flows, window=window) - x, sweeps=sweeps)


@lru_cache(maxsize=16)
def _grid_places(rows: int, columns: int, *, device: torch.device) -> Tensor:
    """Where each move of a window, "stay" first, stands in the grid of all its moves."""
    size = (2 * rows + 1) * (2 * columns + 1)
    stay = size // 2
    return torch.tensor([stay, *(place for place in range(size) if place != stay)], device=device)
