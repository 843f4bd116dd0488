"""The images an adversary makes during training: strong enough to learn from, without proof."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.ball import WassersteinBall
from massmover.training.recipe import Adversary
from massmover.transport.sinkhorn import TRAINING
from massmover.types import Classifier, Images, Labels, PerImage

HASTY = PlanAscent(first_move=0.5, steepest=4.0, momentum=0.0, confidence=math.inf)  # few steps, each far


def moved_images(adversary: Adversary, model: Classifier, images: Images, labels: Labels, *, radii: PerImage) -> Images:
    """Images within their radii, up to float32 accuracy, that the model finds hard."""
    if not len(images):
        return images
    if adversary.projected:
        return _projected(adversary, model, images, labels, radius=float(radii[0]))
    ball = WassersteinBall(float(radii.max()))
    if adversary.attack == "frank-wolfe":
        return FrankWolfe(steps=adversary.steps).run(model, images, labels, ball=ball, budget=radii).images
    ascent = dataclasses.replace(HASTY, steps=adversary.steps, last_move=1 / adversary.steps)
    return ascent.search(model, images, labels, ball=ball, budget=radii)


def _projected(adversary: Adversary, model: Classifier, images: Images, labels: Labels, *, radius: float) -> Images:
    """The projected attacks, with the paper's lenient projection."""
    attack = wong() if adversary.attack == "wong" else SinkhornAttack()
    attack = dataclasses.replace(attack, projection=dataclasses.replace(attack.projection, tolerance=TRAINING))
    radii = (radius,) * adversary.steps
    if adversary.ramp:
        radii = tuple(np.geomspace(adversary.radius / 100, adversary.radius, adversary.steps).tolist())
    ball = WassersteinBall(radii[-1])
    return attack.pursue(model, images, labels, ball=ball, radii=radii, certify=False).images
