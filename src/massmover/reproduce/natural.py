"""Tables 4 and 6 of the paper: accuracy under translation, rotation and blur, and how far these carry an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from massmover import paper
from massmover.natural import PUBLISHED, Effect, Study, study
from massmover.natural.study import MEASURED, PERTURBED
from massmover.reproduce.curves import Progress, Subject, batches

CLEAN = "clean"
NAMES = tuple(perturbation.name for perturbation in PUBLISHED)


def by_name(*numbers: float) -> Mapping[str, float]:
    """The numbers of a row of the paper, by the names of the perturbations; a tenth, the first, is the clean one."""
    names = NAMES if len(numbers) == len(NAMES) else (CLEAN, *NAMES)
    return dict(zip(names, numbers, strict=True))


ACCURACY = {
    data: {model: by_name(*row) for model, row in rows.items()} for data, rows in paper.NATURAL_ACCURACY.items()
}


@dataclass(frozen=True)
class Row:
    """Percent right of one classifier, clean and under each perturbation."""

    model: str
    accuracy: Mapping[str, float]
    count: int


def natural(subjects: Sequence[Subject], *, progress: Progress | None = None) -> tuple[Row, ...]:
    """The accuracy of every classifier under all perturbations of the paper."""
    rows = []
    for subject in subjects:
        found = study(
            subject.model,
            batches(subject),
            PUBLISHED,
            distances=0,
            progress=adding_up(progress, {PERTURBED: subject.model_name}, len(NAMES) * len(subject.images)),
        )
        rows.append(row_of(subject.model_name, found))
    return tuple(rows)


def row_of(model: str, found: Study) -> Row:
    """The accuracies of a study as a row."""
    accuracy = {CLEAN: found.clean_accuracy, **{effect.name: effect.accuracy for effect in found.effects}}
    return Row(model=model, accuracy=accuracy, count=found.count)


def adding_up(progress: Progress | None, names: Mapping[str, str], total: int) -> Callable[[str, int], None] | None:
    """Turn "so many more" into "so many of all", for the parts that have a name."""
    if progress is None:
        return None
    done = dict.fromkeys(names, 0)

    def tell(what: str, more: int) -> None:
        if what in names:
            done[what] += more
            progress(names[what], done[what], total)

    return tell


L2, WASSERSTEIN = "l2", "wasserstein"
DISTANCE = {data: {kind: by_name(*row) for kind, row in rows.items()} for data, rows in paper.NATURAL_DISTANCE.items()}
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
