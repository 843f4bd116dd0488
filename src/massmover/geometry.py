"""Windows of allowed moves, rings of equal cost, and the way between images and local plans.

A unit of mass at pixel (y, x) may move along one of the K offsets of a window. Offsets of equal
cost form a ring. Ground costs depend on (abs(dy), abs(dx)) alone, so every ring is symmetric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from massmover.types import LARGEST_POWER, Flows, Ground, Images, MassmoverError


def pixel_distance(dy: int, dx: int, *, ground: Ground) -> float:
    """Distance between two pixels that are dy rows and dx columns apart."""
    if ground == "euclidean":
        return math.hypot(dy, dx)
    if ground == "manhattan":
        return float(abs(dy) + abs(dx))
    if ground == "chebyshev":
        return float(max(abs(dy), abs(dx)))
    raise MassmoverError(f"unknown ground metric {ground!r}: use 'euclidean', 'manhattan' or 'chebyshev'")


@dataclass(frozen=True)
class Window:
    """The moves that are allowed, and what a unit of mass pays for each.

    The window reaches `rows` pixels up and down and `columns` pixels left and right; a move
    (dy, dx) costs ground(dy, dx) ** power. Offset 0 is "stay" and costs nothing.
    """

    rows: int
    columns: int
    ground: Ground = "euclidean"
    power: float = 1.0

    def __post_init__(self) -> None:
        if self.rows < 0 or self.columns < 0:
            raise MassmoverError(f"a window cannot reach ({self.rows}, {self.columns}) pixels: use 0 or more")
        if not 0 < self.power <= LARGEST_POWER:
            raise MassmoverError(
                f"power is {self.power}: it must be a positive number up to {LARGEST_POWER}, such as 1.0"
            )
        pixel_distance(0, 0, ground=self.ground)

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """All K moves (dy, dx), "stay" first."""
        return _offsets(self.rows, self.columns)

    @property
    def costs(self) -> tuple[float, ...]:
        """What each of the K moves costs per unit of mass."""
        return _costs(self)

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The moves grouped by cost, cheapest first; "stay" is not among them."""
        return _rings(self)

    def cost(self, dy: int, dx: int) -> float:
        """What a unit of mass pays for the move (dy, dx)."""
        return float(pixel_distance(dy, dx, ground=self.ground) ** self.power)

    def cost_tensor(self, like: Tensor) -> Tensor:
        """The K costs as a tensor (K,) of the dtype and device of another."""
        return _kept_tensor(self.costs, like.dtype, like.device)

    def cost_grid(self, like: Tensor) -> Tensor:
        """The costs of all moves, row by row: (2 rows + 1, 2 columns + 1), of the dtype and device of another."""
        rows, columns = range(-self.rows, self.rows + 1), range(-self.columns, self.columns + 1)
        costs = tuple(self.cost(dy, dx) for dy in rows for dx in columns)
        return _kept_tensor(costs, like.dtype, like.device).view(len(rows), len(columns))

    def ring_moments(self, like: Tensor) -> Tensor:
        """What staying costs and each of the R rings, and the squares: (2, 1 + R), of another's dtype and device."""
        costs = (0.0, *(ring.cost for ring in self.rings))
        return _kept_tensor((*costs, *(cost * cost for cost in costs)), like.dtype, like.device).view(2, -1)


@dataclass(frozen=True)
class Ring:
    """The moves of one cost, as pairs (abs(dy), abs(dx)); each stands for all its mirror images."""

    cost: float
    pairs: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many moves the ring holds."""
        return sum((2 if dy else 1) * (2 if dx else 1) for dy, dx in self.pairs)


@lru_cache(maxsize=64)
def _kept_tensor(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers as a tensor that stays on its device: to make one anew would wait for it. Not to be written to."""
    return torch.tensor(numbers, dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _offsets(rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    everywhere = [(dy, dx) for dy in range(-rows, rows + 1) for dx in range(-columns, columns + 1)]
    everywhere.remove((0, 0))
    return ((0, 0), *everywhere)


@lru_cache(maxsize=64)
def _costs(window: Window) -> tuple[float, ...]:
    return tuple(window.cost(dy, dx) for dy, dx in window.offsets)


@lru_cache(maxsize=64)
def _rings(window: Window) -> tuple[Ring, ...]:
    pairs = [(dy, dx) for dy in range(window.rows + 1) for dx in range(window.columns + 1) if dy or dx]
    groups: dict[float, list[tuple[int, int]]] = {}
    for pair in sorted(pairs, key=lambda p: window.cost(*p)):
        cost = window.cost(*pair)
        # Equal distances come out of hypot and ** with equal bits or one unit apart: round to merge them.
        groups.setdefault(float(f"{cost:.12e}"), []).append(pair)
    return tuple(Ring(cost=window.cost(*members[0]), pairs=tuple(members)) for members in groups.values())


def window_for(images: Images, *, size: int | None = 5, ground: Ground = "euclidean", power: float = 1.0) -> Window:
    """The square window of an odd size, or with None the one that reaches the whole image."""
    height, width = images.shape[-2:]
    if size is None:
        return Window(rows=height - 1, columns=width - 1, ground=ground, power=power)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or size % 2 == 0:
        raise MassmoverError(f"window is {size!r}: it must be an odd size such as 5, or None for the whole image")
    reach = size // 2
    return Window(rows=min(reach, height - 1), columns=min(reach, width - 1), ground=ground, power=power)


def shifted(padded: Tensor, dy: int, dx: int, *, window: Window, height: int, width: int) -> Tensor:
    """A view of a padded image whose pixel (y, x) is the image's pixel (y + dy, x + dx)."""
    top, left = window.rows + dy, window.columns + dx
    return padded[..., top : top + height, left : left + width]


def pad(images: Images, *, window: Window) -> Images:
    """The image with a border of zeros as wide as the window reaches."""
    return F.pad(images, (window.columns, window.columns, window.rows, window.rows))


def gather(images: Images, *, window: Window) -> Flows:
    """Each pixel's neighbours: entry k of pixel i is the image at i + offset k, or 0 outside."""
    height, width = images.shape[-2:]
    padded = pad(images, window=window)
    views = [shifted(padded, dy, dx, window=window, height=height, width=width) for dy, dx in window.offsets]
    return torch.stack(views, dim=-3)  # (B, C, K, H, W)


def scatter(flows: Flows, *, window: Window) -> Images:
    """Let all mass arrive: the adjoint of `gather`. What leaves the image is lost."""
    height, width = flows.shape[-2:]
    arrived = flows.new_zeros(*flows.shape[:-3], height + 2 * window.rows, width + 2 * window.columns)
    for k, (dy, dx) in enumerate(window.offsets):
        shifted(arrived, dy, dx, window=window, height=height, width=width).add_(flows[..., k, :, :])
    return arrived[..., window.rows : window.rows + height, window.columns : window.columns + width]


def neighbours(images: Images, *, window: Window, outside: float = 0.0) -> Tensor:
    """`gather` as a view, moves row by row: entry (a, b) of a pixel is the pixel a - rows below and b - columns right.

    Returns (B, C, 2 rows + 1, 2 columns + 1, H, W).
    """
    height, width = images.shape[-2:]
    border = (window.columns, window.columns, window.rows, window.rows)
    return F.pad(images, border, value=outside).unfold(-2, height, 1).unfold(-2, width, 1)


def incoming(flows: Tensor, *, window: Window) -> Tensor:
    """What each pixel receives from each of its neighbours, for flows as `neighbours` lays them out.

    Entry (a, b) of a pixel is what the pixel at that place sends to it: the other end of the flow that it sends there.
    """
    height, width = flows.shape[-2:]
    border = (window.columns, window.columns, window.rows, window.rows)
    padded = F.pad(flows.flip(-4, -3), border)
    stride = list(padded.stride())
    # Pixel (y, x) of entry (a, b) lies at (y + a, x + b) of that entry's padded image.
    stride[-4] += stride[-2]
    stride[-3] += stride[-1]
    return padded.as_strided((*padded.shape[:-2], height, width), stride)


def log_rings(values: Images, *, window: Window) -> Tensor:
    """The pixel itself, then log of the sum of exp(values) over each ring around it: (B, C, 1 + R, H, W).

    One gather for all rings, so the number of operations does not depend on the window. Nothing lies outside.
    """
    if not window.rings:
        return values.unsqueeze(2)
    border = (window.columns, window.columns, window.rows, window.rows)
    padded = F.pad(values, border, value=-torch.inf)
    places = _ring_places(window, *values.shape[-2:], device=values.device)  # (R, S, H, W)
    rings = padded.flatten(-2)[..., places].logsumexp(dim=-3)
    return torch.cat([values.unsqueeze(2), rings], dim=2)


@lru_cache(maxsize=16)
def _ring_places(window: Window, height: int, width: int, *, device: torch.device) -> Tensor:
    """Where in a padded image, counted through its rows, the moves of each ring end; unused places lie outside."""
    wide = width + 2 * window.columns
    members = [
        sorted({(sy * dy, sx * dx) for dy, dx in ring.pairs for sy in (1, -1) for sx in (1, -1)})
        for ring in window.rings
    ]
    largest = max(map(len, members))
    moves = torch.tensor([[*ring, *[(0, 0)] * (largest - len(ring))] for ring in members])  # (R, S, 2)
    unused = torch.arange(largest) >= torch.tensor([len(ring) for ring in members]).unsqueeze(1)  # (R, S)
    y = moves[..., 0, None, None] + torch.arange(height).view(-1, 1) + window.rows
    x = moves[..., 1, None, None] + torch.arange(width) + window.columns
    places = (y * wide + x).masked_fill(unused[..., None, None], 0)  # place 0 belongs to the border
    return places.to(device)


def reachable(window: Window, *, height: int, width: int, like: Tensor) -> Tensor:
    """1 where a move ends inside the image, 0 where it would leave: (K, H, W)."""
    ones = torch.ones(1, 1, height, width, dtype=like.dtype, device=like.device)
    return gather(ones, window=window)[0, 0]
