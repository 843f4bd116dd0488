"""The judge: is every image really inside the ball it claims?

It knows nothing of plans, windows or attacks, and takes images from any tool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from massmover.transport.exact import Distances, distance_bounds
from massmover.types import Ground, MassmoverError, Normalisation, PerImage


@dataclass(frozen=True, eq=False)
class Verdicts:
    """One verdict per image; every field but the tolerance has shape (B,)."""

    distance: PerImage  # exact transport cost (its upper bound where `exact` is False)
    distance_lower: PerImage
    exact: PerImage  # the two bounds agree to 1e-9
    radius: PerImage
    mass_drift: PerImage  # largest change of a channel's mass, relative to the mass of the image
    lowest: PerImage  # smallest and largest pixel
    highest: PerImage
    touched: PerImage  # largest change of a frozen pixel
    inside: PerImage  # proven to be in the ball, within the tolerance
    tolerance: float  # relative for distance and mass, absolute for pixels

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def violations(self) -> int:
        """How many images are not proven to be inside."""
        return int((~self.inside).sum())

    def reason(self, index: int) -> str:
        """Why one image is not inside, in words; empty if it is."""
        causes = []
        if self.distance[index] > self.radius[index] * (1 + self.tolerance) + ROUND_OFF:
            undecided = "" if self.exact[index] else f" (at least {self.distance_lower[index]:.6g}, not solved exactly)"
            causes.append(f"distance {self.distance[index]:.6g} over radius {self.radius[index]:.6g}{undecided}")
        if self.mass_drift[index] > self.tolerance:
            causes.append(f"mass changed by {self.mass_drift[index]:.2e} of the image")
        if self.lowest[index] < -self.tolerance or self.highest[index] > 1 + self.tolerance:
            causes.append(f"pixels from {self.lowest[index]:.6g} to {self.highest[index]:.6g}")
        if self.touched[index] > self.tolerance:
            causes.append(f"a frozen pixel changed by {self.touched[index]:.2e}")
        return "; ".join(causes)


ROUND_OFF = 1e-12  # what float64 sums may add to a distance that should be 0


def verify(
    originals: Any,
    adversarial: Any,
    radius: Any,
    *,
    ground: Ground = "euclidean",
    power: float = 1.0,
    normalisation: Normalisation = "image",
    mask: Any = None,
    tolerance: float = 1e-6,
    threads: int | None = None,
    settle: bool = False,
) -> Verdicts:
    """Judge each image by exact optimal transport on the whole grid, by its mass and by its pixel range.

    Inside means: distance at most radius * (1 + tolerance), mass drift at most the tolerance, pixels in
    [-tolerance, 1 + tolerance]. An image whose distance could not be solved exactly counts as inside only if its upper
    bound is. `radius` is a number or one per image. Images of uint8 are taken as 255ths. With a `mask`, True where
    mass may move, frozen pixels have to be the same in both, and all mass has to travel between the others. To `settle`
    is to stop as soon as the verdict is certain, before the distance is: photographs take half the time.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise MassmoverError(f"tolerance is {tolerance}: it must be a finite number, 0 or more, such as 1e-6")
    before, after = _tensor(originals, "originals"), _tensor(adversarial, "adversarial")
    if before.shape != after.shape:
        raise MassmoverError(
            f"originals are {tuple(before.shape)} and adversarial {tuple(after.shape)}: same shape needed"
        )
    radii = _radii(radius, count=len(before))
    # A pixel below 0 is told as such, below; the distance is that of the mass there is.
    masses, frozen = (before.clamp_min(0), after.clamp_min(0)), _frozen(mask, before)
    measure = partial(distance_bounds, ground=ground, power=power, threads=threads)
    farthest = radii * (1 + tolerance) + ROUND_OFF
    if mask is None:
        found = measure(*masses, normalisation=normalisation, radius=farthest.numpy() if settle else None)
    else:
        found = _between_free_pixels(masses, frozen, normalisation, measure)
    distance = torch.from_numpy(found.upper)
    mass = before.sum(dim=(-2, -1))
    touched = ((after - before).abs() * frozen).amax(dim=(1, 2, 3))
    change = (after.sum(dim=(-2, -1)) - mass).abs().amax(dim=-1)
    drift = change / mass.sum(dim=-1).clamp_min(1e-300)
    lowest, highest = after.amin(dim=(1, 2, 3)), after.amax(dim=(1, 2, 3))
    return Verdicts(
        distance=distance,
        distance_lower=torch.from_numpy(found.lower),
        exact=torch.from_numpy(found.exact),
        radius=radii,
        mass_drift=drift,
        lowest=lowest,
        highest=highest,
        touched=touched,
        inside=(distance <= farthest)
        & (drift <= tolerance)
        & (lowest >= -tolerance)
        & (highest <= 1 + tolerance)
        & (touched <= tolerance),
        tolerance=tolerance,
    )


def _frozen(mask: Any, images: torch.Tensor) -> torch.Tensor:
    """Where pixels are frozen, in the shape of the images; nowhere without a mask."""
    if mask is None:
        return torch.zeros(images.shape, dtype=torch.bool)
    free = torch.as_tensor(np.asarray(mask) if not isinstance(mask, torch.Tensor) else mask.detach().cpu())
    try:
        if free.ndim < 2:
            raise RuntimeError
        return ~free.bool().expand(images.shape)
    except RuntimeError:
        raise MassmoverError(
            f"the mask has shape {tuple(free.shape)} and the images {tuple(images.shape)}: give one of rows and "
            "columns for all images, or one an image"
        ) from None


def _between_free_pixels(
    masses: tuple[torch.Tensor, torch.Tensor],
    frozen: torch.Tensor,
    normalisation: Normalisation,
    measure: Callable[..., Distances],
) -> Distances:
    """The cost of moving mass between free pixels alone, at what it costs in the whole image."""
    if normalisation not in ("image", "channel"):
        raise MassmoverError(f"unknown normalisation {normalisation!r}: use 'image' or 'channel'")
    batch, channels, height, width = frozen.shape
    free = [(image * ~frozen).reshape(batch * channels, 1, height, width) for image in masses]
    whole = masses[0].sum(dim=(-2, -1))
    if normalisation == "image":
        whole = whole.sum(dim=1, keepdim=True).expand_as(whole)
    # Measured as an image of its own, a channel is divided by its free mass.
    share = free[0].sum(dim=(1, 2, 3)).reshape(batch, channels) / whole.clamp_min(1e-300)
    found = measure(*free, normalisation="image")
    lower, upper = ((bound.reshape(batch, channels) * share.numpy()).sum(axis=1) for bound in found)
    return Distances(lower=lower, upper=upper)


def _tensor(values: Any, name: str) -> torch.Tensor:
    tensor = torch.as_tensor(np.asarray(values) if not isinstance(values, torch.Tensor) else values.detach().cpu())
    if tensor.ndim != 4:
        raise MassmoverError(f"{name} have shape {tuple(tensor.shape)}: (images, channels, rows, columns) is needed")
    if not torch.isfinite(tensor.double()).all():
        raise MassmoverError(f"{name} hold NaN or infinite pixels: they cannot be judged")
    return tensor.double() / 255 if tensor.dtype == torch.uint8 else tensor.double()


def _radii(radius: Any, *, count: int) -> torch.Tensor:
    radii = torch.as_tensor(radius, dtype=torch.float64).cpu()
    if radii.ndim > 1 or (radii.ndim == 1 and len(radii) != count):
        raise MassmoverError(f"radius has shape {tuple(radii.shape)}: one number, or one for each of {count} images")
    if not (torch.isfinite(radii).all() and (radii >= 0).all()):
        raise MassmoverError("radius holds a negative, NaN or infinite number: use finite numbers, 0 or larger")
    return radii.expand(count).clone()
