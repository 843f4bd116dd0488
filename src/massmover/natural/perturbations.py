"""Translation, rotation, Gaussian blur and elastic deformation, with kornia's operators.

Hu et al. 2020 name the amounts and little else. The defaults here are the choices under which all their printed MNIST
numbers (accuracy, l2 and Wasserstein distance) come out; docs/natural.md shows them beside the alternatives. Elastic
deformation is not among them.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch

from massmover.types import Images, MassmoverError

Interpolation = Literal["nearest", "bilinear"]
Direction = Literal["random", "fixed"]
REACH = 4.0  # standard deviations at which an uncut Gaussian ends


class Perturbation(Protocol):
    """Anything that changes images without looking at a classifier."""

    @property
    def name(self) -> str:
        """What is done and how much of it."""
        ...

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        """New images of the same shape, in [0, 1]; nothing is written to."""
        ...


@dataclass(frozen=True)
class Translation:
    """Move an image by a share of its width; what leaves is lost, and black comes in.

    With `direction="random"` every image has its own whole number of pixels along each axis, uniform up to the share of
    the width in both directions. With "fixed" all images move right by the share of the width, to the nearest pixel
    unless `interpolation` is "bilinear".
    """

    share: float  # of the width
    direction: Direction = "random"
    interpolation: Interpolation = "nearest"

    def __post_init__(self) -> None:
        """Refuse a move that cannot be made."""
        if not (math.isfinite(self.share) and 0 <= self.share <= 1):
            raise MassmoverError(f"the share of the width is {self.share}: use a number from 0 to 1, such as 0.05")
        check_choice("direction", self.direction, get_args(Direction))
        check_choice("interpolation", self.interpolation, get_args(Interpolation))

    @property
    def name(self) -> str:
        """What is done and how much of it."""
        return f"translate {100 * self.share:g} %"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        """Move every image."""
        largest = self.share * images.shape[-1]  # pixels
        if self.direction == "random":
            moves = np.rint(largest * random.uniform(-1, 1, (len(images), 2)))  # (B, 2): right, down
        else:
            moves = np.tile([largest, 0.0], (len(images), 1))
        warp = kornia("kornia.geometry.transform").translate
        moved = warp(images, torch.from_numpy(moves).to(images), mode=self.interpolation, padding_mode="zeros")
        return in_range(moved)


@dataclass(frozen=True)
class Rotation:
    """Turn an image about its centre, counter-clockwise; black comes in at the corners."""

    degrees: float
    interpolation: Interpolation = "nearest"

    def __post_init__(self) -> None:
        """Refuse an angle that is none."""
        if not math.isfinite(self.degrees):
            raise MassmoverError(f"the angle is {self.degrees}: use a finite number of degrees")
        check_choice("interpolation", self.interpolation, get_args(Interpolation))

    @property
    def name(self) -> str:
        """What is done and how much of it."""
        return f"rotate {self.degrees:g}°"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        """Turn every image by the same angle; nothing is random."""
        angle = images.new_full((len(images),), self.degrees)
        warp = kornia("kornia.geometry.transform").rotate
        return in_range(warp(images, angle, mode=self.interpolation, padding_mode="zeros"))


@dataclass(frozen=True)
class Blur:
    """Spread every pixel by a Gaussian; beyond the edge the image goes on as it ends.

    Without `sigma` the width says how far the Gaussian goes: its standard deviation is (width - 1) / 2, and its tails
    are kept, so that a width of 1 changes nothing. With `sigma` the kernel has exactly `width` pixels a side and is cut
    there.
    """

    width: int  # pixels
    sigma: float | None = None  # pixels

    def __post_init__(self) -> None:
        """Refuse a kernel without a centre."""
        if self.width < 1 or self.width % 2 == 0:
            raise MassmoverError(f"the width of the blur is {self.width}: use an odd number of pixels, such as 3")
        if self.sigma is not None and not (math.isfinite(self.sigma) and self.sigma > 0):
            raise MassmoverError(f"sigma is {self.sigma}: use a positive number of pixels, such as 1")

    @property
    def name(self) -> str:
        """What is done and how much of it."""
        return f"blur {self.width}"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        """Blur every image alike; nothing is random."""
        if self.width == 1:
            return images.clone()
        sigma = (self.width - 1) / 2 if self.sigma is None else self.sigma
        side = 2 * math.ceil(REACH * sigma) + 1 if self.sigma is None else self.width
        smooth = kornia("kornia.filters").gaussian_blur2d
        return in_range(smooth(images, (side, side), (sigma, sigma), border_type="replicate"))


@dataclass(frozen=True)
class Elastic:
    """Bend an image: every pixel's surroundings are moved along a smooth random field; black comes in from outside.

    The field is noise, uniform and independent at every pixel, blurred by a Gaussian and scaled so that the root mean
    square of its length over the image is `pixels`. Values between pixels are bilinear. Simard, Steinkraus and Platt
    2003, who made this popular for digits, blur by 4 pixels and move by about 2.
    """

    pixels: float
    sigma: float = 4.0  # of the blur of the field, in pixels: how far neighbours move together

    def __post_init__(self) -> None:
        """Refuse a field that is none."""
        if not (math.isfinite(self.pixels) and self.pixels >= 0):
            raise MassmoverError(f"the elastic deformation is {self.pixels}: use a number of pixels from 0, such as 1")
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise MassmoverError(f"sigma is {self.sigma}: use a positive number of pixels, such as 4")

    @property
    def name(self) -> str:
        """What is done and how much of it."""
        return f"elastic {self.pixels:g}"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        """Bend every image by its own field."""
        height, width = images.shape[-2:]
        noise = torch.from_numpy(random.uniform(-1, 1, (len(images), 2, height, width))).to(images)
        side = 2 * math.ceil(REACH * self.sigma) + 1
        smooth = kornia("kornia.filters").gaussian_blur2d
        field = smooth(noise, (side, side), (self.sigma, self.sigma), border_type="constant")  # (B, 2, H, W): x, y
        length = field.square().sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True).sqrt()
        field = self.pixels * field / length.clamp_min(torch.finfo(field.dtype).tiny)
        x = torch.arange(width, dtype=images.dtype, device=images.device) + field[:, 0]
        y = torch.arange(height, dtype=images.dtype, device=images.device).unsqueeze(1) + field[:, 1]
        warp = kornia("kornia.geometry.transform").remap
        return in_range(warp(images, x, y, mode="bilinear", padding_mode="zeros", align_corners=True))


def kornia(module: str) -> Any:
    """A module of kornia, which is an extra and takes a second to import."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise MassmoverError(
            f"translation, rotation, blur and elastic deformation need {missing.name}, which is not installed: "
            "pip install 'massmover[natural]'"
        ) from None


def check_choice(what: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse a word that means nothing here."""
    if given not in known:
        raise MassmoverError(f"{what} is {given!r}: use {' or '.join(known)}")


def in_range(images: Images) -> Images:
    """The images without the round-off of an interpolation."""
    return images.clamp(0, 1)


PUBLISHED: tuple[Perturbation, ...] = (
    Translation(0.05),
    Translation(0.1),
    Translation(0.2),
    Rotation(5),
    Rotation(10),
    Rotation(20),
    Blur(3),
    Blur(5),
    Blur(7),
)
