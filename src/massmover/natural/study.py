"""Accuracy and distances under perturbations that no adversary chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from massmover.classifier import borrowed, logits_of
from massmover.natural.perturbations import Perturbation
from massmover.transport.exact import distance_bounds
from massmover.types import Classifier, Images, Labels, MassmoverError

Progress = Callable[[str, int], None]  # (what, how many more images are done)
PERTURBED, MEASURED = "perturbed images", "exact distances"


@dataclass(frozen=True)
class Effect:
    """What one perturbation does, as means over images.

    The Wasserstein distance is between distributions of mass 1: where a perturbation changes the mass of an image
    (over the edge, by interpolation), each channel is scaled back to its old mass first; `mass_change` says how much it
    was. A channel that lost all its mass has no distance; such images are counted and left out of the mean.
    """

    name: str
    accuracy: float  # percent
    l2: float  # Euclidean distance of the pixels, in [0, 1] or in the units asked for
    wasserstein: float | None  # exact 1-Wasserstein distance, in pixels; None if no image was measured
    mass_change: float  # percent of the mass of the image; negative is lost
    count: int
    measured: int  # images in the Wasserstein mean: the first of all
    blackened: int  # of the images to be measured, those without a distance
    inexact: int  # of the images measured, those whose bounds do not agree; their upper bound counts


@dataclass(frozen=True)
class Study:
    """A classifier without any perturbation, and under each."""

    clean_accuracy: float  # percent
    count: int
    effects: tuple[Effect, ...]


def study(
    model: Classifier,
    batches: Iterable[tuple[Images, Labels]],
    perturbations: Sequence[Perturbation],
    *,
    distances: int | None = None,
    seed: int = 0,
    l2_units: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> Study:
    """Perturb all images in every way; classify them and measure how far they went.

    Exact distances take most of the time; `distances` bounds for how many images, the first ones, they are measured.
    Every perturbation draws the same random numbers from the seed, so that amounts differ in nothing but the amount.
    `l2_units`, one number for each channel, divide the pixels before the l2 distance is taken.
    """
    tallies = [Tally(perturbation, np.random.default_rng(seed)) for perturbation in perturbations]
    right = count = 0
    with torch.no_grad(), borrowed(model):
        for images, labels in batches:
            right += int((logits_of(model, images).argmax(dim=1) == labels).sum())
            judged = len(images) if distances is None else min(max(distances - count, 0), len(images))
            for tally in tallies:
                tally.add(model, images, labels, judged=judged, units=units_like(images, l2_units), progress=progress)
            count += len(images)
    if not count:
        raise MassmoverError("there are no images to perturb: give at least one")
    return Study(
        clean_accuracy=100 * right / count,
        count=count,
        effects=tuple(tally.effect() for tally in tallies),
    )


@dataclass
class Tally:
    """What is known of one perturbation so far."""

    perturbation: Perturbation
    random: np.random.Generator
    right: list[Tensor] = field(default_factory=list)
    l2: list[Tensor] = field(default_factory=list)
    change: list[Tensor] = field(default_factory=list)
    wasserstein: list[Tensor] = field(default_factory=list)
    exact: list[Tensor] = field(default_factory=list)

    def add(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        judged: int,
        units: Tensor,
        progress: Progress | None,
    ) -> None:
        """Perturb, classify and measure a batch; exact distances for its first images only."""
        perturbed = self.perturbation(images, random=self.random)
        self.right.append((logits_of(model, perturbed).argmax(dim=1) == labels).cpu())
        self.l2.append(((perturbed - images).double() / units).flatten(1).norm(dim=1).cpu())
        self.change.append(mass_change(images, perturbed).cpu())
        if progress is not None:
            progress(PERTURBED, len(images))
        if judged:
            found = distance_bounds(images[:judged], perturbed[:judged])
            self.wasserstein.append(torch.from_numpy(found.upper))
            self.exact.append(torch.from_numpy(found.exact))
            if progress is not None:
                progress(MEASURED, judged)

    def effect(self) -> Effect:
        """The means."""
        none = torch.zeros(0, dtype=torch.float64)
        distance, exact = torch.cat([none, *self.wasserstein]), torch.cat([none.bool(), *self.exact])
        finite = torch.isfinite(distance)
        return Effect(
            name=self.perturbation.name,
            accuracy=100 * float(torch.cat(self.right).double().mean()),
            l2=float(torch.cat(self.l2).mean()),
            wasserstein=float(distance[finite].mean()) if bool(finite.any()) else None,
            mass_change=100 * float(torch.cat(self.change).mean()),
            count=sum(len(part) for part in self.right),
            measured=int(finite.sum()),
            blackened=int((~finite).sum()),
            inexact=int((~exact[finite]).sum()),
        )


def units_like(images: Images, units: Sequence[float] | None) -> Tensor:
    """One divisor for each channel, of shape (C, 1, 1)."""
    channels = images.shape[1]
    given = [1.0] * channels if units is None else list(units)
    if len(given) != channels or min(given) <= 0:
        raise MassmoverError(f"l2_units are {given}: give {channels} positive numbers, one for each channel")
    return torch.tensor(given, dtype=torch.float64, device=images.device).view(-1, 1, 1)


def mass_change(images: Images, perturbed: Images) -> Tensor:
    """Relative change of every image's mass; 0 for a black image."""
    before, after = (batch.double().sum(dim=(1, 2, 3)) for batch in (images, perturbed))
    return torch.where(before > 0, (after - before) / before.clamp_min(1e-300), 0.0)
