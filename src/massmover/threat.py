"""Which images an adversary that moves pixel mass may show."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from massmover.geometry import Window, window_for
from massmover.types import Ground, Images, MassmoverError, Normalisation, PerChannel


@dataclass(frozen=True)
class WassersteinBall:
    """All images that a transport plan of bounded cost reaches from a given one.

    z is in the ball around x when some plan P >= 0 inside the window has rows sum_j P_ij = x_i,
    columns z_j = sum_i P_ij, 0 <= z <= 1, and

        sum_c weight_c sum_ij P_cij distance_ij ** power  <=  radius.

    Mass never changes channel. `normalisation` sets the weights: "image" divides by the mass of the
    whole image (every published number does), "channel" divides each channel's cost by that
    channel's own mass and adds the channels up. A channel without mass can only stay black.
    """

    radius: float
    window: int | None = 5
    ground: Ground = "euclidean"
    power: float = 1.0
    normalisation: Normalisation = "image"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise MassmoverError(f"radius is {self.radius}: it must be a finite number, 0 or larger")
        if self.normalisation not in ("image", "channel"):
            raise MassmoverError(f"unknown normalisation {self.normalisation!r}: use 'image' or 'channel'")
        # Building any window checks size, ground and power here rather than in the first attack.
        self.moves(torch.empty(1, 1, 1, 1))

    @classmethod
    def from_pixels(
        cls,
        radius_pixels: float,
        images: Images,
        *,
        window: int | None = 5,
        ground: Ground = "euclidean",
        power: float = 1.0,
        normalisation: Normalisation = "image",
    ) -> WassersteinBall:
        """The ball whose radius is given as the published tables do: radius x number of pixels x channels."""
        return cls(
            radius=radius_pixels / pixel_count(images),
            window=window,
            ground=ground,
            power=power,
            normalisation=normalisation,
        )

    def with_radius(self, radius: float) -> WassersteinBall:
        """The same threat at another radius."""
        return replace(self, radius=radius)

    def radius_pixels(self, images: Images) -> float:
        """The radius in the unit of the published tables."""
        return self.radius * pixel_count(images)

    def moves(self, images: Images) -> Window:
        """The window of moves for images of this size."""
        return window_for(images, size=self.window, ground=self.ground, power=self.power)

    def weights(self, images: Images) -> PerChannel:
        """What a unit of mass times distance costs in each channel; 0 where there is no mass to move."""
        mass = images.double().sum(dim=(-2, -1))  # (B, C)
        if self.normalisation == "image":
            mass = mass.sum(dim=-1, keepdim=True).expand_as(mass)
        return torch.where(mass > 0, 1 / mass.clamp_min(torch.finfo(torch.float64).tiny), 0.0)


def pixel_count(images: Images) -> int:
    """Numbers in one image: channels x rows x columns, the n_pixel of the published tables."""
    return math.prod(images.shape[-3:])
