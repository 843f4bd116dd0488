"""The judge: is every image really inside the ball it claims?

It knows nothing of plans, windows or attacks, and takes images from any tool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from massmover.transport.exact import distance_bounds
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
    tolerance: float = 1e-6,
    threads: int | None = None,
) -> Verdicts:
    """Judge each image by exact optimal transport on the whole grid, by its mass and by its pixel range.

    Inside means: distance at most radius * (1 + tolerance), mass drift at most the tolerance, pixels in
    [-tolerance, 1 + tolerance]. An image whose distance could not be solved exactly counts as inside only if its upper
    bound is. `radius` is a number or one per image. Images of uint8 are taken as 255ths.
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
    masses = before.clamp_min(0), after.clamp_min(0)
    found = distance_bounds(*masses, ground=ground, power=power, normalisation=normalisation, threads=threads)
    distance = torch.from_numpy(found.upper)
    mass = before.sum(dim=(-2, -1))
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
        inside=(distance <= radii * (1 + tolerance) + ROUND_OFF)
        & (drift <= tolerance)
        & (lowest >= -tolerance)
        & (highest <= 1 + tolerance),
        tolerance=tolerance,
    )


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
