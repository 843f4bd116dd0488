"""Tables 1, 2, 3 and the step sizes of the paper: attacks side by side, one curve a row."""

from __future__ import annotations

from dataclasses import replace

from massmover import paper
from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.reproduce.curves import Contender, Curve, Progress, Subject, fixed_curve, ramp_curve
from massmover.transport.sinkhorn import ConstrainedSinkhorn


def attack_table(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """Both attacks with the paper's growing radius, and ours once more at each radius by itself.

    What a growing radius finds depends on its path; an attack at one radius uses all its steps there, so it is the
    stronger measurement.
    """
    printed = paper.ATTACK.get(subject.data, {})
    radii = paper.ATTACK_RADII
    ours = printed.get("large step, gradient")
    theirs, hu = Contender("Wong et al.", wong(), printed.get("wong")), Contender("Hu et al.", SinkhornAttack(), ours)
    return (
        ramp_curve(theirs, subject, radii_pixels=radii, progress=progress),
        ramp_curve(hu, subject, radii_pixels=radii, progress=progress),
        fixed_curve(hu, subject, radii_pixels=radii, progress=progress),
    )


def ablation(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """Wong's attack; larger steps, still signs; larger steps along the gradient."""
    printed = paper.ATTACK.get(subject.data, {})
    attacks = {
        "wong": wong(),
        "large step": SinkhornAttack(direction="sign"),
        "large step, gradient": SinkhornAttack(),
    }
    return tuple(
        ramp_curve(
            Contender(name, attack, printed.get(name)), subject, radii_pixels=paper.ATTACK_RADII, progress=progress
        )
        for name, attack in attacks.items()
    )


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
        ramp_curve(Contender(name, attack), subject, radii_pixels=radii, progress=progress)
        for name, attack in attacks.items()
    )


BEYOND = (0.16, 0.5, 1.0)


def step_size(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """The attack at every step size of the paper and three above; the step is still at most half the radius."""
    printed = paper.STEP_SIZE.get(subject.data, {})
    return tuple(
        ramp_curve(
            Contender(f"step {size:g}", SinkhornAttack(step_size=size), printed.get(size)),
            subject,
            radii_pixels=paper.STEP_RADII,
            progress=progress,
        )
        for size in (*paper.STEP_SIZES, *BEYOND)
    )
