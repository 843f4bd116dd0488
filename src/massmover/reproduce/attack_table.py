"""Table 1 of the paper: the attack of Wong et al. and the paper's, at eight radii."""

from __future__ import annotations

from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.reproduce import paper
from massmover.reproduce.curves import Curve, Progress, Subject, fixed_curve, ramp_curve


def attack_table(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """Both attacks with the paper's growing radius, and ours once more at each radius by itself.

    What a growing radius finds depends on its path; an attack at one radius uses all its steps there, so it is the
    stronger measurement.
    """
    printed = paper.ATTACK.get(subject.data, {})
    radii = paper.ATTACK_RADII
    ours = printed.get("large step, gradient")
    return (
        ramp_curve("Wong et al.", wong(), subject, radii_pixels=radii, paper=printed.get("wong"), progress=progress),
        ramp_curve("Hu et al.", SinkhornAttack(), subject, radii_pixels=radii, paper=ours, progress=progress),
        fixed_curve("Hu et al.", SinkhornAttack(), subject, radii_pixels=radii, paper=ours, progress=progress),
    )
