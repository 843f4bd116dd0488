"""How coherently a plan moves mass: its displacement against a smooth field (docs/coherent.md).

The mean displacement of the mass that leaves pixel i is v(i). A smooth field s is bilinear between knots that lie
`width` pixels apart, or one vector for all mass. The scatter of a plan P of an image x with mass m is the root of

    (1 / m) min_s  sum_i x_i ( |v(i) - s(i)|^2 + |C(i) - G(i)|_1 )

C(i) is the covariance of the displacement of the mass that leaves pixel i, and G(i) that of a bilinear split with the
same mean: f (1 - f) along each axis, f being what the mean lies above a whole number, and 0 between the axes. Mass on a
grid that moves by a fraction of a pixel has to split, and bilinearly is how a smooth movement does. |.|_1 adds up the
four entries: what a row spreads beyond the two nearest whole moves along each axis, sum_j P_ij k (k - 1) with
k = j - i - floor(v(i)), which is 0 or more, and twice what its two axes do together, |cov|. No term suffers from
cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from massmover.ball import Balls
from massmover.types import Flows, Images, PerImage

RIDGE = 1e-10  # of the mass at a knot: settles knots that hold none
REFITS = 2  # each takes out what the ridge biased, but for some 1e-10 of it; only a proof wants that


@dataclass(frozen=True, eq=False)
class SmoothFields:
    """All smooth fields over the images of a batch, and the one nearest to given displacements."""

    mass: Tensor  # (B, N): of all channels
    basis: Tensor  # (N, G): what each knot counts at each pixel
    inverse: Tensor  # (B, G, G): of the knots' moments of mass

    @classmethod
    def over(cls, images: Images, *, width: int | None) -> SmoothFields:
        """The fields with knots `width` pixels apart, weighted by the mass of all channels."""
        height, columns = images.shape[-2:]
        mass = images.sum(dim=1).flatten(1)  # (B, N)
        basis = knot_weights(height, columns, width, dtype=images.dtype, device=images.device)
        moments = torch.einsum("ng,bn,nh->bgh", basis, mass, basis)
        size = moments.diagonal(dim1=1, dim2=2).amax(dim=1)
        size = torch.where(size > 0, size, 1.0)  # a black image has no field; any will do
        eye = torch.eye(basis.shape[1], dtype=mass.dtype, device=mass.device)
        loaded = moments + (max(RIDGE, 10 * torch.finfo(mass.dtype).eps) * size)[:, None, None] * eye
        return cls(mass=mass, basis=basis, inverse=torch.linalg.inv(loaded))

    def select(self, index: Tensor) -> SmoothFields:
        """The fields over some of the images."""
        return SmoothFields(self.mass[index], self.basis, self.inverse[index])

    def fit(self, displacement: Tensor) -> Tensor:
        """The smooth field nearest to displacements (B, 2, N) in the mean square over the mass, at every pixel."""
        field = torch.zeros_like(displacement)
        for _ in range(1 + REFITS if self.mass.dtype == torch.float64 else 1):
            weighted = (displacement - field) * self.mass.unsqueeze(1)
            field = field + weighted @ self.basis @ self.inverse @ self.basis.T
        return field

    def size(self, displacement: Tensor) -> PerImage:
        """The root mean square over the mass of displacements (B, 2, N)."""
        total = self.mass.sum(dim=1).clamp_min(torch.finfo(self.mass.dtype).tiny)
        return ((displacement.square().sum(dim=1) * self.mass).sum(dim=1) / total).sqrt()


@lru_cache(maxsize=16)
def knot_weights(height: int, columns: int, width: int | None, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What each knot counts at each pixel, (N, G): hats `width` pixels wide, or 1 everywhere for one vector."""
    if width is None:
        return torch.ones(height * columns, 1, dtype=dtype, device=device)
    along = [_hats(size, width) for size in (height, columns)]
    both = torch.einsum("ya,xb->yxab", *along)
    return both.reshape(height * columns, -1).to(device, dtype)


def _hats(size: int, width: int) -> Tensor:
    """Linear interpolation between knots at 0, width, 2 width and so on, the last at or beyond the edge: (size, G)."""
    width = min(width, max(size - 1, 1))  # wider ones span the same fields, and worse conditioned
    knots = max(-(-(size - 1) // width), 0) + 1
    apart = (torch.arange(size).unsqueeze(1) - width * torch.arange(knots)).double().abs()
    return (1 - apart / width).clamp_min(0)


def scatter_of(flows: Flows, balls: Balls) -> PerImage:
    """How far the mass of plans strays from its smooth field, in pixels; from the plans alone, in float64."""
    coherence, rows = balls.coherence, flows.sum(dim=2)  # (B, C, H, W)
    assert coherence is not None
    fields = SmoothFields.over(rows, width=coherence.width)
    held = rows.clamp_min(torch.finfo(rows.dtype).tiny)
    offsets = torch.tensor(balls.window.offsets, dtype=flows.dtype, device=flows.device)  # (K, 2)
    means, spread, together = [], torch.zeros_like(rows), flows
    for moves in offsets.unbind(dim=1):
        mean = torch.einsum("bckhw,k->bchw", flows, moves) / held
        means.append(mean)
        together = together * (moves.view(-1, 1, 1) - mean.unsqueeze(2))  # (B, C, K, H, W)
        # Mass that moves just a whole number of pixels belongs to two cells; arithmetic may put it in either.
        spread += torch.minimum(*(_beyond(flows, moves, cell) for cell in (mean.floor(), mean.ceil() - 1)))
    displacement = torch.stack(means, dim=2)  # (B, C, 2, H, W)
    total = rows.sum(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    shared = (displacement * rows.unsqueeze(2)).sum(dim=1) / total  # (B, 2, H, W): of all channels
    field = fields.fit(shared.flatten(2)).view_as(shared)
    apart = ((displacement - field.unsqueeze(1)).square().sum(dim=2) * rows).sum(dim=(1, 2, 3))
    mass = rows.sum(dim=(1, 2, 3)).clamp_min(torch.finfo(rows.dtype).tiny)
    spread += 2 * together.sum(dim=2).abs()
    return ((apart + spread.sum(dim=(1, 2, 3))) / mass).sqrt()


def _beyond(flows: Flows, moves: Tensor, cell: Images) -> Images:
    """What each pixel's mass spreads beyond a unit cell along one axis, as mass times k (k - 1)."""
    steps = moves.view(-1, 1, 1) - cell.unsqueeze(2)  # (B, C, K, H, W)
    return (flows * steps * (steps - 1)).sum(dim=2)
