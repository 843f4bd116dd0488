"""Section 4 of the paper: how far clamping carries an image out of the ball it was projected onto."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from massmover.attacks.pgd import SinkhornAttack
from massmover.ball import WassersteinBall
from massmover.evaluation.verify import verify
from massmover.reproduce import paper
from massmover.reproduce.curves import Progress, Subject, batches, ramp_for, suited


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
        found = attack.pursue(subject.model, images, labels, ball=WassersteinBall(0.0), radii=radii, certify=False)
        with torch.no_grad():
            won = (subject.model(found.images).argmax(dim=1) != labels) & (found.radius > 0)
        if bool(won.any()):
            judged = verify(images[won], found.images[won], found.radius[won])
            failed += judged.violations
            over.append(100 * (judged.distance / found.radius[won] - 1))
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
