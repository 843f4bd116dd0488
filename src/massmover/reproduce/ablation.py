"""Table 3 of the paper: what the step size and what the direction of the step contribute."""

from __future__ import annotations

from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.reproduce import paper
from massmover.reproduce.curves import Curve, Progress, Subject, ramp_curve


def ablation(subject: Subject, *, progress: Progress | None = None) -> tuple[Curve, ...]:
    """Wong's attack; larger steps, still signs; larger steps along the gradient."""
    printed = paper.ATTACK.get(subject.data, {})
    attacks = {
        "wong": wong(),
        "large step": SinkhornAttack(direction="sign"),
        "large step, gradient": SinkhornAttack(),
    }
    return tuple(
        ramp_curve(name, attack, subject, radii_pixels=paper.ATTACK_RADII, paper=printed.get(name), progress=progress)
        for name, attack in attacks.items()
    )
