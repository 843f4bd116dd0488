"""Figure 2 of the paper: what a defence holds against the paper's attack, and against every attack of this package."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from massmover.attacks.base import Attack, Problem
from massmover.attacks.ensemble import Ensemble
from massmover.attacks.pgd import SinkhornAttack
from massmover.ball import WassersteinBall
from massmover.evaluation.verify import verify
from massmover.reproduce import paper
from massmover.reproduce.curves import BATCH, Curve, Progress, Subject, ramp_curve
from massmover.types import Labels

RADII = (10, 20, 50, 100, 200, 400, 800, 1600)
PAPERS_STEP = 0.06  # the step size of the paper's attack, and of the adversary its model was trained against


@dataclass(frozen=True)
class Defence:
    """One classifier under the paper's attack and under `auto`."""

    model: str
    clean_accuracy: float  # percent
    hu: Curve
    auto: Curve


@dataclass(frozen=True)
class Printed:
    """A curve as the paper prints it, at its own radii, under its own attack."""

    name: str
    radii_pixels: tuple[float, ...]
    accuracy: tuple[float, ...]  # percent


def printed_for(data: str) -> tuple[Printed, ...]:
    """The paper's two defended models, where it says how they did."""
    found = []
    if data in paper.ATTACK:
        found.append(Printed("Wong-trained", paper.ATTACK_RADII, paper.ATTACK[data]["large step, gradient"]))
    if data in paper.STEP_SIZE:
        found.append(Printed("paper-trained", paper.STEP_RADII, paper.STEP_SIZE[data][PAPERS_STEP]))
    return tuple(found)


def defence(
    subjects: Sequence[Subject], *, radii_pixels: Sequence[float] = RADII, progress: Progress | None = None
) -> tuple[Defence, ...]:
    """Attack every classifier with the paper's growing radius, and with the ensemble at each radius."""
    return tuple(
        Defence(
            model=subject.model_name,
            clean_accuracy=subject.clean_accuracy(),
            hu=ramp_curve(
                f"{subject.model_name}, Hu et al.",
                SinkhornAttack(step_size=PAPERS_STEP),
                subject,
                radii_pixels=radii_pixels,
                paper=None,
                progress=progress,
            ),
            auto=standing_curve(
                f"{subject.model_name}, auto", Ensemble(), subject, radii_pixels=radii_pixels, progress=progress
            ),
        )
        for subject in subjects
    )


def standing_curve(
    name: str,
    attack: Attack,
    subject: Subject,
    *,
    radii_pixels: Sequence[float],
    progress: Progress | None = None,
) -> Curve:
    """Attack at each radius the images that stood at all smaller ones: what is in a ball is in every larger one.

    An image falls when the exact judge agrees that its adversarial twin is in the ball.
    """
    started = time.perf_counter()
    standing = torch.arange(len(subject.images))
    accuracy, left = [], 0
    for number, radius in enumerate(sorted(radii_pixels)):
        ball, kept = WassersteinBall.from_pixels(radius, subject.images), []
        for part in torch.split(standing, BATCH):
            fallen, outside = judged(attack, subject, part, ball=ball)
            left += outside
            kept.append(part[~fallen])
        standing = torch.cat([standing[:0], *kept])
        accuracy.append(100 * len(standing) / len(subject.images))
        if progress is not None:
            progress(name, number + 1, len(radii_pixels))
    return Curve(
        name=name,
        protocol="fixed radius",
        radii_pixels=tuple(sorted(radii_pixels)),
        accuracy=tuple(accuracy),
        paper=None,
        mean_radius=None,
        unbroken=len(standing),
        outside=left,
        seconds=time.perf_counter() - started,
        count=len(subject.images),
    )


def judged(attack: Attack, subject: Subject, part: Labels, *, ball: WassersteinBall) -> tuple[torch.Tensor, int]:
    """Which images of a part fall within the ball, and how many successes the judge does not accept."""
    images = subject.images[part]
    result = attack.run(subject.model, Problem(ball.around(images), subject.labels[part]))
    won = result.success.clone()
    verdicts = verify(images[won], result.images[won], result.radius[won])
    won[result.success] = verdicts.inside
    return won, verdicts.violations
