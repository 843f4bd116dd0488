"""The images an adversary makes during training: strong enough to learn from, without proof."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import Schedule, SinkhornAttack, wong
from massmover.ball import WassersteinBall
from massmover.classifier import borrowed
from massmover.inputs import check_images, check_labels
from massmover.training.recipe import Adversary
from massmover.transport.sinkhorn import TRAINING
from massmover.types import Classifier, Images, Labels, MassmoverError, PerImage

HASTY = PlanAscent(first_move=0.5, steepest=4.0, momentum=0.0, confidence=math.inf)  # few steps, each far
LARGEST = 6e4  # that half precision holds


class Mover:
    """Moves the mass of training images: the adversary of `train`, for a loop of one's own.

    Call it with the model, a batch, its labels and a radius for each image; the answer is a batch of images within
    these radii, to float32 accuracy, that the model finds hard. The model keeps its mode and its gradients. With
    `numbers`, which say which images of the training set the batch holds, plan ascent goes on from the potential that
    it found for each image before; an image must then come in the same place each time, not shifted or mirrored. What
    is remembered is kept in half precision, on the device of the images.
    """

    def __init__(self, adversary: Adversary | None = None, *, remember: int = 0) -> None:
        """`remember` is how many images the training set has, if potentials are to be kept between epochs."""
        self.adversary = adversary or Adversary()
        self.remember = remember
        self._potentials: Tensor | None = None
        if remember and self.adversary.attack != "ascent":
            raise MassmoverError(f"{self.adversary.attack} has no potentials to remember: use ascent, or remember=0")

    def __call__(
        self, model: Classifier, images: Images, labels: Labels, *, radii: PerImage, numbers: Tensor | None = None
    ) -> Images:
        """Images within their radii that the model finds hard."""
        pixels = check_images(images)
        if not len(pixels):
            return pixels
        truth = check_labels(labels, batch=len(pixels)).to(pixels.device)
        problem = Problem(WassersteinBall(radii).around(pixels), truth)
        if numbers is not None:
            return self._remembered(model, problem, numbers.to(pixels.device))
        if self.adversary.projected:
            return self._projected(model, problem)
        if self.adversary.attack == "frank-wolfe":
            return FrankWolfe(steps=self.adversary.steps).search(model, problem).images
        return self._ascent().search(model, problem).images

    def _ascent(self) -> PlanAscent:
        return replace(HASTY, steps=self.adversary.steps, last_move=1 / self.adversary.steps)

    def _remembered(self, model: Classifier, problem: Problem, numbers: Tensor) -> Images:
        """Climb from where each image was left, and remember how far it came."""
        images = problem.images
        if self._potentials is None:
            self._potentials = images.new_zeros((self.remember, *images.shape[1:]), dtype=torch.float16)
        if numbers.shape != (len(images),) or not bool(((numbers >= 0) & (numbers < self.remember)).all()):
            raise MassmoverError(
                f"numbers must be {len(images)} numbers from 0 to {self.remember - 1}, one for each image; make the "
                "mover with remember= the size of the training set"
            )
        with borrowed(model):
            standing = torch.nonzero(~problem.fooled(model, images)).flatten()  # a clean mistake needs no move
            places = numbers[standing]
            start = self._potentials[places].to(images)
            found = self._ascent().climb(model, problem.select(standing), start=start)
        self._potentials[places] = found.potential.clamp(-LARGEST, LARGEST).half()
        return images.index_put((standing,), found.images)

    def _projected(self, model: Classifier, problem: Problem) -> Images:
        """The attacks of the papers, with the lenient projection of the later one."""
        adversary = self.adversary
        attack = wong() if adversary.attack == "wong" else SinkhornAttack()
        attack = replace(attack, projection=replace(attack.projection, tolerance=TRAINING))
        schedule = Schedule.fixed(problem, steps=adversary.steps)
        if adversary.ramp:
            growing = np.geomspace(adversary.radius / 100, adversary.radius, adversary.steps).tolist()
            schedule = Schedule.growing(problem, growing)
        return attack.pursue(model, problem, schedule, certify=False).found.images
