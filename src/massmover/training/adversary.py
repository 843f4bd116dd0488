"""The images an adversary makes during training: strong enough to learn from, without proof."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem, Search
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import Schedule, SinkhornAttack, wong
from massmover.ball import WassersteinBall
from massmover.training.recipe import Adversary
from massmover.transport.sinkhorn import TRAINING
from massmover.types import Classifier, Images, Labels, PerImage

HASTY = PlanAscent(first_move=0.5, steepest=4.0, momentum=0.0, confidence=math.inf)  # few steps, each far


def moved_images(adversary: Adversary, model: Classifier, images: Images, labels: Labels, *, radii: PerImage) -> Images:
    """Images within their radii, up to float32 accuracy, that the model finds hard."""
    if not len(images):
        return images
    problem = Problem(WassersteinBall(radii).around(images), labels)
    if adversary.projected:
        attack = wong() if adversary.attack == "wong" else SinkhornAttack()
        attack = replace(attack, projection=replace(attack.projection, tolerance=TRAINING))  # the paper's lenient one
        schedule = Schedule.fixed(problem, steps=adversary.steps)
        if adversary.ramp:
            growing = np.geomspace(adversary.radius / 100, adversary.radius, adversary.steps).tolist()
            schedule = Schedule.growing(problem, growing)
        return attack.pursue(model, problem, schedule, certify=False).found.images
    attackers: dict[str, Search] = {
        "ascent": replace(HASTY, steps=adversary.steps, last_move=1 / adversary.steps),
        "frank-wolfe": FrankWolfe(steps=adversary.steps),
    }
    return attackers[adversary.attack].search(model, problem).images
