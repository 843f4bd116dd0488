"""Table 4 of the paper: accuracy under translation, rotation and blur."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from massmover.natural import PUBLISHED, Study, study
from massmover.natural.study import PERTURBED
from massmover.reproduce.curves import Progress, Subject, batches

CLEAN = "clean"
NAMES = tuple(perturbation.name for perturbation in PUBLISHED)


def by_name(*numbers: float) -> Mapping[str, float]:
    """The numbers of a row of the paper, by the names of the perturbations; a tenth, the first, is the clean one."""
    names = NAMES if len(numbers) == len(NAMES) else (CLEAN, *NAMES)
    return dict(zip(names, numbers, strict=True))


# Percent right: a standard model and the paper's own defended one.
ACCURACY: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "mnist": {
        "standard": by_name(98.9, 97.8, 85.8, 48.3, 98.5, 97.7, 91.9, 98.6, 93.1, 62.4),
        "robust": by_name(92.8, 91.2, 82.3, 49.3, 91.0, 88.7, 79.1, 88.0, 75.1, 58.4),
    },
    "cifar10": {
        "standard": by_name(94.8, 94.5, 94.5, 93.6, 91.6, 86.6, 64.1, 35.1, 17.8, 15.4),
        "robust": by_name(84.4, 84.0, 84.0, 81.7, 82.8, 81.3, 70.6, 69.5, 35.1, 24.7),
    },
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
