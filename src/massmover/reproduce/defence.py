"""Figure 2 of the paper: what a defence holds against the paper's attack, and against every attack of this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from massmover import paper
from massmover.attacks.ensemble import Ensemble
from massmover.attacks.pgd import SinkhornAttack
from massmover.reproduce.curves import Contender, Curve, Progress, Subject, fixed_curve, ramp_curve

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
                Contender(f"{subject.model_name}, Hu et al.", SinkhornAttack(step_size=PAPERS_STEP)),
                subject,
                radii_pixels=radii_pixels,
                progress=progress,
            ),
            auto=fixed_curve(
                Contender(f"{subject.model_name}, auto", Ensemble()),
                subject,
                radii_pixels=radii_pixels,
                carry=True,
                progress=progress,
            ),
        )
        for subject in subjects
    )
