"""Which images an adversary that moves pixel mass may show: one ball, and the balls around a batch of images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from massmover.backend import backend_for
from massmover.geometry import Window, window_for
from massmover.inputs import check_coherence, check_radius
from massmover.memory import free_on
from massmover.types import Backend, Flows, Ground, Images, MassmoverError, Normalisation, PerChannel, PerImage

PLANS = 3  # written-out plans in float64 that a proof holds at a time
ALWAYS_FREE = 1 << 28  # bytes that nobody asks about


class Coherence(NamedTuple):
    """How much mass may scatter: the most that a plan's displacement deviates from a smooth field."""

    scatter: float  # pixels, root mean square over the mass, beyond what the grid itself makes of a smooth move
    width: int | None  # pixels between the knots of the field, which is bilinear between them; None for one vector


@dataclass(frozen=True)
class WassersteinBall:
    """All images that a transport plan of bounded cost reaches from a given one.

    z is in the ball around x when some plan P >= 0 inside the window has rows sum_j P_ij = x_i,
    columns z_j = sum_i P_ij, 0 <= z <= 1, and

        sum_c weight_c sum_ij P_cij distance_ij ** power  <=  radius.

    Mass never changes channel. `normalisation` sets the weights: "image" divides by the mass of the
    whole image (every published number does), "channel" divides each channel's cost by that
    channel's own mass and adds the channels up. A channel without mass can only stay black. The radius is one number,
    or a tensor of one number an image.

    With `scatter` a plan has to move mass together as well: its displacement may deviate from a field that is smooth
    over `width` pixels, or from one vector for all mass without a width, by no more than `scatter` pixels in the root
    mean square (docs/threat-model.md). None or infinity lets mass scatter as it likes.
    """

    radius: float | PerImage
    window: int | None = 5
    ground: Ground = "euclidean"
    power: float = 1.0
    normalisation: Normalisation = "image"
    scatter: float | None = None
    width: float | None = None

    def __post_init__(self) -> None:
        """Refuse a ball that cannot be."""
        object.__setattr__(self, "radius", check_radius(self.radius))
        scatter, width = check_coherence(self.scatter, self.width)
        object.__setattr__(self, "scatter", scatter)
        object.__setattr__(self, "width", width)
        if self.normalisation not in ("image", "channel"):
            raise MassmoverError(f"unknown normalisation {self.normalisation!r}: use 'image' or 'channel'")
        # Building any window checks size, ground and power here rather than in the first attack.
        self.moves(torch.empty(1, 1, 1, 1))

    @classmethod
    def from_pixels(cls, radius_pixels: float | PerImage, images: Images) -> WassersteinBall:
        """The ball whose radius is given as the published tables do: radius x number of pixels x channels."""
        return cls(radius_pixels / pixel_count(images))

    def radius_pixels(self, images: Images) -> float | PerImage:
        """The radius in the unit of the published tables."""
        return self.radius * pixel_count(images)

    def with_radius(self, radius: float | PerImage) -> WassersteinBall:
        """The same threat at another radius."""
        return replace(self, radius=radius)

    def around(self, images: Images, *, mask: Images | None = None, backend: str | None = None) -> Balls:
        """One ball around each image, once memory is known to hold what moves one of them.

        With a mask, which is True where mass may move, they are balls around what may move: frozen pixels hold no mass
        in them and take none, while a move costs what it costs in the whole image.
        """
        self._check_room(images)
        if isinstance(self.radius, Tensor):
            budget = check_radius(self.radius, batch=len(images)).to(images.device, torch.float64).expand(len(images))
        else:
            budget = images.new_full((len(images),), self.radius, dtype=torch.float64)
        return Balls(
            originals=images if mask is None else images * mask,
            budget=budget,
            weights=self.weights(images),
            window=self.moves(images),
            backend=backend_for(images, wanted=backend),
            closed=None if mask is None else ~mask,
            held=None if mask is None else images * ~mask,
            coherence=self.coherence,
        )

    @property
    def coherence(self) -> Coherence | None:
        """How much mass may scatter; None where it may as it likes."""
        scatter, width = check_coherence(self.scatter, self.width)
        return None if scatter is None else Coherence(scatter, width)

    def moves(self, images: Images) -> Window:
        """The window of moves for images of this size."""
        return window_for(images, size=self.window, ground=self.ground, power=self.power)

    def _check_room(self, images: Images) -> None:
        """Refuse a window whose plan of a single image does not fit memory, and say which one does."""
        pixels, window = pixel_count(images), self.moves(images)
        need = _plan_bytes(pixels, rows=window.rows, columns=window.columns)
        if need <= ALWAYS_FREE:
            return
        free = free_on(images.device)
        if need <= free:
            return
        height, width = images.shape[-2:]
        fitting = 1
        while _plan_bytes(pixels, rows=min(fitting, height - 1), columns=min(fitting, width - 1)) <= free:
            fitting += 1
        size = 2 * fitting - 1
        asked = "the whole image" if self.window is None else f"{self.window} x {self.window}"
        shape = " x ".join(map(str, images.shape[1:]))
        raise MassmoverError(
            f"a window of {asked} needs {need / 1e9:,.0f} GB to prove one image of {shape}, and {free / 1e9:.1f} GB "
            f"are free: the largest window that fits is {size} (window={size}, --window {size})"
        )

    def weights(self, images: Images) -> PerChannel:
        """What a unit of mass times distance costs in each channel; 0 where there is no mass to move."""
        mass = images.double().sum(dim=(-2, -1))  # (B, C)
        if self.normalisation == "image":
            mass = mass.sum(dim=-1, keepdim=True).expand_as(mass)
        return torch.where(mass > 0, 1 / mass.clamp_min(torch.finfo(torch.float64).tiny), 0.0)


@dataclass(frozen=True, eq=False)
class Balls:
    """One ball around each image of a batch: what every solver and attack is given."""

    originals: Images
    budget: PerImage  # float64: the radius of each ball
    weights: PerChannel  # float64: cost of a unit of mass times distance
    window: Window
    backend: Backend  # who moves the mass
    closed: Images | None = None  # bool: where no mass may arrive (there is none either)
    held: Images | None = None  # mass that may not move: what is closed, and what the originals here go without
    coherence: Coherence | None = None  # how much mass may scatter; None where it may as it likes

    def __len__(self) -> int:
        return len(self.originals)

    @property
    def coherent(self) -> bool:
        """Whether scatter is bounded in earnest: no plan scatters further than √2 times the longest move."""
        furthest = math.sqrt(2) * math.hypot(self.window.rows, self.window.columns)
        return self.coherence is not None and self.coherence.scatter < furthest

    def select(self, index: Tensor | slice) -> Balls:
        """The balls of some of the images."""
        return replace(
            self,
            originals=self.originals[index],
            budget=self.budget[index],
            weights=self.weights[index],
            closed=None if self.closed is None else self.closed[index],
            held=None if self.held is None else self.held[index],
        )

    def whole(self, images: Images) -> Images:
        """Images with the mass that may not move, which is part of what a classifier and a judge see."""
        return images if self.held is None else images + self.held.to(images)

    def with_budget(self, budget: PerImage) -> Balls:
        """Balls around the same images with other radii."""
        return replace(self, budget=budget.to(self.budget))

    @cached_property
    def mass(self) -> PerImage:
        """The mass of each image, in its own dtype."""
        return self.originals.sum(dim=(1, 2, 3))

    @cached_property
    def relative(self) -> PerChannel:
        """Channel weights over the weight of the whole image: all 1 when mass is normalised per image."""
        return self.weights * self.originals.sum(dim=(1, 2, 3), dtype=torch.float64).unsqueeze(-1)

    def within_reach(self) -> Images:
        """1 where some pixel could send mass to, 0 where none ever arrives and no gradient counts."""
        rows, columns = self.window.rows, self.window.columns
        held = (self.originals > 0).to(self.originals.dtype)
        held = F.max_pool2d(held, (2 * rows + 1, 1), stride=1, padding=(rows, 0))
        reached = F.max_pool2d(held, (1, 2 * columns + 1), stride=1, padding=(0, columns))
        return reached if self.closed is None else reached * ~self.closed

    def staying(self, *, dtype: torch.dtype) -> Flows:
        """The plan that moves nothing."""
        shape = self.originals.shape
        flows = self.originals.new_zeros(*shape[:2], len(self.window.offsets), *shape[2:], dtype=dtype)
        flows[:, :, 0] = self.originals.to(dtype)
        return flows


def _plan_bytes(pixels: int, *, rows: int, columns: int) -> int:
    """Bytes that the proof of one image takes in a window of this reach."""
    return PLANS * 8 * pixels * (2 * rows + 1) * (2 * columns + 1)


def pixel_count(images: Images) -> int:
    """Numbers in one image: channels x rows x columns, the n_pixel of the published tables."""
    return math.prod(images.shape[-3:])
