"""The images an adversary makes during training: strong enough to learn from, without proof."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from massmover.attacks.ascent import PlanAscent, Position, moved_within
from massmover.attacks.base import Problem
from massmover.attacks.coherent import CoherentAscent
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import Schedule, SinkhornAttack, wong
from massmover.classifier import borrowed
from massmover.inputs import check_images, check_labels
from massmover.training.recipe import Adversary
from massmover.transport.potential import Move
from massmover.transport.sinkhorn import TRAINING
from massmover.types import Classifier, Images, Labels, MassmoverError, PerImage

HASTY = PlanAscent(first_move=0.5, steepest=4.0, momentum=0.0, confidence=math.inf)  # few steps, each far
GOING_ON = 0.3  # of the radius, moved by a step of an ascent that goes on; half of it would swing about the goal
LED = CoherentAscent(confidence=math.inf, starts=1, look=8)  # a few fields, and from the hardest a few steps
LARGEST = 6e4  # that half precision holds
SHARPEST = 20.0  # price above which a remembered potential is scaled down: a plan has to give way to the next gradient
SLOWEST = 1e-6  # pace: 0 stands for none
# Of a remembered potential. The network has changed since, and what is kept whole outweighs the few steps to come: a
# LeNet learned to be safe from whole ones alone; in some epoch its training loss halved, and its robustness with it.
KEPT = 0.5


class Memory(NamedTuple):
    """Where the ascent of each training image was left."""

    potential: Tensor  # (N, C, H, W), in half precision
    pace: Tensor  # (N,), the step size over the price; 0 before the first visit

    @classmethod
    def empty(cls, count: int, images: Images) -> Memory:
        """Of as many images like these."""
        return cls(images.new_zeros((count, *images.shape[1:]), dtype=torch.float16), images.new_zeros(count))


class Left(NamedTuple):
    """Where the ascent of a batch was left, until the pass that learns from it is over."""

    ascent: PlanAscent
    problem: Problem
    here: Position
    move: Move
    size: PerImage  # of a further step
    numbers: Tensor
    turned: Tensor | None


class Mover:
    """Moves the mass of training images: the adversary of `train`, for a loop of one's own.

    Call it with the model, a batch, its labels and a radius for each image; the answer is a batch of images within
    these radii, to float32 accuracy, that the model finds hard. The model keeps its mode and its gradients. With
    `numbers`, which say which images of the training set the batch holds, plan ascent goes on from the potential that
    it found for each image before; an image must then come in the same place each time, not shifted. `mirrored` says
    which images come with left and right exchanged. What is remembered is kept in half precision, on the device of the
    images, in `memory`. The pass that learns from moved images can have their gradient at little cost; handed to
    `go_on` it is one more step for the next visit.
    """

    def __init__(self, adversary: Adversary | None = None, *, remember: int = 0) -> None:
        """`remember` is how many images the training set has, if potentials are to be kept between epochs."""
        self.adversary = adversary or Adversary()
        self.remember = remember
        self.memory: Memory | None = None
        self._left: Left | None = None
        if remember and (self.adversary.attack != "ascent" or self.adversary.scatter is not None):
            raise MassmoverError(
                f"{self.adversary.attack} has no potentials to remember: use ascent without scatter, or remember=0"
            )

    def __call__(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        radii: PerImage,
        numbers: Tensor | None = None,
        mirrored: Tensor | None = None,
    ) -> Images:
        """Images within their radii that the model finds hard."""
        pixels, self._left = check_images(images), None
        if not len(pixels):
            return pixels
        truth = check_labels(labels, batch=len(pixels)).to(pixels.device)
        problem = Problem(self.adversary.ball(radii).around(pixels), truth)
        if numbers is not None:
            turned = None if mirrored is None else mirrored.to(pixels.device).view(-1, 1, 1, 1)
            return self._remembered(model, problem, numbers.to(pixels.device), turned)
        if self.adversary.projected:
            return self._projected(model, problem)
        if problem.balls.coherence is not None:
            # Other fields are looked at for every batch, and the same ones when a run is repeated.
            seed = int(1e6 * float(problem.balls.budget.sum())) % 2**31
            return replace(LED, steps=self.adversary.steps).search(model, problem, seed=seed).images
        if self.adversary.attack == "frank-wolfe":
            return FrankWolfe(steps=self.adversary.steps).search(model, problem).images
        return self._ascent().search(model, problem).images

    def _ascent(self) -> PlanAscent:
        return replace(HASTY, steps=self.adversary.steps, last_move=1 / self.adversary.steps)

    def _remembered(self, model: Classifier, problem: Problem, numbers: Tensor, turned: Tensor | None) -> Images:
        """Climb from where each image was left, and remember how far it came."""
        images = problem.images
        if self.memory is None:
            self.memory = Memory.empty(self.remember, images)
        if numbers.shape != (len(images),) or not bool(((numbers >= 0) & (numbers < self.remember)).all()):
            raise MassmoverError(
                f"numbers must be {len(images)} numbers from 0 to {self.remember - 1}, one for each image; make the "
                "mover with remember= the size of the training set"
            )
        potential, pace = (field[numbers].to(images) for field in self.memory)
        ascent = replace(HASTY, steps=self.adversary.steps, first_move=GOING_ON, last_move=GOING_ON)
        here = ascent.begin(problem, KEPT * _turned(potential, turned))
        with borrowed(model):
            for step in range(ascent.steps):
                move = moved_within(ascent.pull(here), problem)
                gradient = problem.slope(model, move.images, loss=ascent.loss)[1]
                size = pace * move.price.to(pace) if step == 0 and bool((pace > 0).all()) else None
                here = ascent.stepped(step, problem, here, move, gradient, size=size)
        move = moved_within(ascent.pull(here), problem)
        size = ascent.adapted_size(ascent.steps - 1, problem, here, move)
        self._left = Left(ascent, problem, here, move, size, numbers, turned)
        self._keep(here.potential)
        return move.images

    def go_on(self, gradient: Images) -> None:
        """Take one more step for the next visit, up the gradient of the loss by the images that the last call returned.

        Only for images that came with numbers. How the loss is scaled does not matter.
        """
        left = self._left
        if left is None:
            raise MassmoverError("go_on needs a batch to go on with, and no batch came with numbers: pass numbers=")
        if gradient.shape != left.problem.images.shape:
            raise MassmoverError(
                f"go_on needs the gradient by the images that the last call returned; a gradient of "
                f"{tuple(gradient.shape)} was given for images of {tuple(left.problem.images.shape)}"
            )
        slope = gradient.detach()
        after = left.ascent.stepped(left.ascent.steps - 1, left.problem, left.here, left.move, slope, size=left.size)
        self._keep(after.potential)

    def _keep(self, potential: Images) -> None:
        """Remember a potential of the last batch, and the step size that it wants."""
        if self.memory is None or self._left is None:
            return
        price = self._left.move.price.to(potential)
        blunt = (SHARPEST / price).clamp_max(1).view(-1, 1, 1, 1)
        numbers, turned = self._left.numbers, self._left.turned
        self.memory.potential[numbers] = _turned(potential * blunt, turned).clamp(-LARGEST, LARGEST).half()
        self.memory.pace[numbers] = (self._left.size.to(price) / price).clamp(SLOWEST, self._left.ascent.steepest)

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


def _turned(potentials: Images, mirrored: Tensor | None) -> Images:
    """The potentials with left and right exchanged where the image is."""
    return potentials if mirrored is None else torch.where(mirrored, potentials.flip(3), potentials)
