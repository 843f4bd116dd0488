"""Table 6 of the paper: how far translation, rotation and blur carry an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from massmover.natural import PUBLISHED, Effect, study
from massmover.natural.study import MEASURED
from massmover.reproduce.curves import Progress, Subject, batches
from massmover.reproduce.natural import NAMES, adding_up, by_name

L2, WASSERSTEIN = "l2", "wasserstein"
DISTANCE: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "mnist": {
        L2: by_name(5.2, 8.1, 10.3, 3.7, 5.4, 7.8, 3.2, 5.5, 6.5),
        WASSERSTEIN: by_name(1.0, 2.2, 4.2, 0.5, 0.8, 1.5, 0.3, 1.0, 1.6),
    },
    "cifar10": {
        L2: by_name(41.0, 61.6, 82.6, 38.4, 54.8, 71.4, 14.8, 25.4, 31.3),
        WASSERSTEIN: by_name(1.0, 2.0, 3.7, 0.8, 1.6, 2.8, 0.8, 1.6, 2.2),
    },
}
# Two images in [0, 1] of 3 x 32 x 32 are at most 55.4 apart, so the paper's CIFAR-10 pixels were divided by something;
# by these numbers, which many CIFAR-10 recipes use, its l2 distances come out.
L2_UNITS: Mapping[str, tuple[float, ...]] = {"cifar10": (0.2023, 0.1994, 0.2010)}


@dataclass(frozen=True)
class Distances:
    """The mean distances of every perturbation, and what the l2 pixels were divided by, channel by channel."""

    effects: tuple[Effect, ...]
    l2_units: tuple[float, ...] | None
    count: int


def distance(subject: Subject, *, progress: Progress | None = None) -> Distances:
    """The l2 and the exact 1-Wasserstein distance of every perturbation of the paper, over all images."""
    units = L2_UNITS.get(subject.data)
    found = study(
        subject.model,
        batches(subject),
        PUBLISHED,
        l2_units=units,
        progress=adding_up(progress, {MEASURED: MEASURED}, len(NAMES) * len(subject.images)),
    )
    return Distances(effects=found.effects, l2_units=units, count=found.count)
