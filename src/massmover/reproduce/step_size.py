"""Table 5 of the paper: step size against time and strength, continued where the published code fails."""

from __future__ import annotations

from massmover.attacks.pgd import SinkhornAttack
from massmover.reproduce import paper
from massmover.reproduce.curves import Curve, Progress, Subject, ramp_curve

BEYOND = (0.16, 0.5, 1.0)


def step_size(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """The attack at every step size of the paper and three above; the step is still at most half the radius."""
    printed = paper.STEP_SIZE.get(subject.data, {})
    return tuple(
        ramp_curve(
            f"step {size:g}",
            SinkhornAttack(step_size=size),
            subject,
            radii_pixels=paper.STEP_RADII,
            paper=printed.get(size),
            progress=progress,
        )
        for size in (*paper.STEP_SIZES, *BEYOND)
    )
