"""Sections 3 and 4 of the paper: what goes wrong when mass is not kept, by dimming and by clamping."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from massmover import paper
from massmover.attacks.base import Problem
from massmover.attacks.pgd import Schedule, SinkhornAttack
from massmover.ball import WassersteinBall
from massmover.evaluation.verify import verify
from massmover.reproduce.curves import Progress, Subject, batches, ramp_for, suited


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


@dataclass(frozen=True)
class Clamping:
    """How far over budget clamped images are, by exact transport, over all images that were broken."""

    broken: int
    outside: int
    mean_over: float  # percent of the radius; negative is under budget
    worst_over: float
    mean_mass_lost: float  # percent of the image's mass that clamping cut off
    paper_mean_over: float
    paper_worst_over: float
    count: int


def clamping(subject: Subject, *, progress: Progress | None = None) -> Clamping:
    """Run the strong attack with Wong's projection, clamp as published, and measure what comes out.

    The radius grows until an image is broken; its distance is compared with the radius of that moment.
    """
    attack = suited(SinkhornAttack(), subject)
    attack = replace(attack, projection=replace(attack.projection, box=False))
    radii = ramp_for(subject, max(paper.ATTACK_RADII)).radii()
    over, lost = [], []
    done = failed = 0
    for images, labels in batches(subject):
        problem = Problem(WassersteinBall(0.0).around(images), labels)
        found, radius = attack.pursue(subject.model, problem, Schedule.growing(problem, radii), certify=False)
        won = problem.fooled(subject.model, found.images) & (radius > 0)
        if bool(won.any()):
            judged = verify(images[won], found.images[won], radius[won])
            failed += judged.violations
            over.append(100 * (judged.distance / radius[won] - 1))
            lost.append(100 * judged.mass_drift)
        done += len(images)
        if progress is not None:
            progress("clamping", done, len(subject.images))
    excess = torch.cat(over) if over else torch.zeros(1, dtype=torch.float64)
    return Clamping(
        broken=sum(len(part) for part in over),
        outside=failed,
        mean_over=float(excess.mean()),
        worst_over=float(excess.max()),
        mean_mass_lost=float(torch.cat(lost).mean()) if lost else 0.0,
        paper_mean_over=paper.CLAMPING_OVER_MEAN,
        paper_worst_over=paper.CLAMPING_OVER_WORST,
        count=len(subject.images),
    )
