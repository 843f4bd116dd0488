"""Table 2 of the paper: what each change costs in time and brings in radius."""

from __future__ import annotations

from dataclasses import replace

from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.reproduce import paper
from massmover.reproduce.curves import Curve, Progress, Subject, ramp_curve
from massmover.transport.sinkhorn import ConstrainedSinkhorn

LARGEST = 1568.0  # radius x n_pixel where the ramp ends: a radius of 2 on MNIST


def runtime(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """The original, the box added, duals kept from step to step, and the full attack; each adds one change."""
    boxed = replace(wong(), projection=ConstrainedSinkhorn(temperature=1e-3))
    attacks = {
        "wong": wong(),
        "constrained": boxed,
        "constrained, warm start": replace(boxed, warm_start=True),
        "full attack": SinkhornAttack(),
    }
    radii = (*paper.ATTACK_RADII, LARGEST)
    return tuple(
        ramp_curve(name, attack, subject, radii_pixels=radii, paper=None, progress=progress)
        for name, attack in attacks.items()
    )
