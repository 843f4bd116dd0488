"""Section 3 of the paper: a threat model that ignores total mass lets the adversary turn down the light."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from massmover.reproduce import paper
from massmover.reproduce.curves import Subject


@dataclass(frozen=True)
class Dimming:
    """Percent wrong before and after dividing every pixel by a factor."""

    factor: float
    wrong_before: float
    wrong_after: float
    paper: float
    wrong_at: dict[int, float]  # percent wrong at other factors
    count: int


FACTORS = (3, 10, 20, 30, 40, 50)


def dimming(subject: Subject, *, factor: float = paper.DIMMING_FACTOR) -> Dimming:
    """Divide the images by a factor. Normalised to mass 1 they are unchanged: the distance is 0."""
    return Dimming(
        factor=factor,
        wrong_before=100 - subject.clean_accuracy(),
        wrong_after=percent_wrong(subject, factor),
        paper=paper.DIMMING_MISCLASSIFIED,
        wrong_at={other: percent_wrong(subject, other) for other in FACTORS},
        count=len(subject.images),
    )


def percent_wrong(subject: Subject, factor: float) -> float:
    """Percent of the images that are misclassified once divided by a factor."""
    with torch.no_grad():
        logits = torch.cat([subject.model(part / factor) for part in torch.split(subject.images, 1000)])
    return 100 * float((logits.argmax(dim=1) != subject.labels).float().mean())
