"""Plan ascent: climb the loss in the space of plans, where every point is feasible.

The plan of a potential is feasible whatever the potential (transport/potential.py), so no projection is needed: the
attack adds the loss gradient at the moved image to the potential of every pixel, which is mirror ascent on plans with
the entropy as the mirror. docs/algorithms.md, section 5.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.attacks.losses import LossName
from massmover.attacks.problem import Problem
from massmover.attacks.result import AttackResult
from massmover.checks import inference_mode_of
from massmover.threat import WassersteinBall
from massmover.types import Classifier, Images, Labels, PerImage

MOST_BOOKED = 3.0  # times the budget; what overfull pixels send back is not paid
PROBES = 3  # moves that find the first step size
DRIFT_KEPT, DRIFT_TAKEN = 0.95, 0.2  # momentum of the caps
BLUNT, SHARP = 2.0, 20.0  # bounds of the price at first and at last, times the price before any step


class Climbed(NamedTuple):
    """The best potential an ascent found for each image, and how well it did."""

    potential: Images
    price: PerImage
    booked: PerImage  # what the plan of the potential costs before overfull pixels send mass back
    margin: PerImage  # positive where the attack has won
    steps: PerImage


class Caps(NamedTuple):
    """What full pixels charge for coming in, found as the ascent goes on (docs/algorithms.md (7))."""

    charge: Images  # never negative
    drift: Images  # by how much the charge has been changing

    @classmethod
    def none(cls, like: Images) -> Caps:
        """No pixel charges anything yet."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def adapt(self, active: Tensor, crowding: Images, *, growth: Images, price: PerImage) -> None:
        """Charge more where the plan of some images crowds pixels and less where there is room.

        A steeper potential needs proportionally higher charges, so they grow along; what is still missing is a Newton
        step, and the sum of those before it: pixels around a crowded one crowd in turn, so one step is never enough.
        """
        most = price.view(-1, 1, 1, 1).to(crowding)
        step = torch.minimum(crowding, most).maximum(-most)
        drift = self.drift.index_select(0, active).mul_(DRIFT_KEPT).add_(step, alpha=DRIFT_TAKEN)
        charge = self.charge.index_select(0, active).mul_(growth).add_(step).add_(drift)
        self.charge.index_copy_(0, active, charge.clamp_min_(0))
        self.drift.index_copy_(0, active, drift.mul_(charge.sign()))  # starts anew where nothing is charged


@dataclass(frozen=True)
class PlanAscent:
    """Entropic mirror ascent on the target potential, with steps measured in mass.

    How far a potential must change to move a given mass differs by orders of magnitude between radii, models and
    images, so the step size is not set but found: each image adapts its own until one step moves the share of its
    mass that the schedule asks for, from `first_move` to `last_move` times the radius.
    """

    steps: int = 100
    loss: LossName = "cross-entropy"
    first_move: float = 0.15  # mass moved by an early step, as a share of the radius (of all mass for radii above 1)
    last_move: float = 0.01
    steepest: float = 1.0  # times the price: the largest step size; few steps want more
    momentum: float = 0.5
    floor: float = 3.0  # lowest price; keeps an image in place until a potential says where to go
    confidence: float = 0.0  # an image is done once its margin is above this; with infinity it climbs to the end
    restarts: int = 0  # further ascents of the images that still stand, from random potentials

    def run(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        targets: Labels | None = None,
        seed: int = 0,
        budget: PerImage | None = None,
    ) -> AttackResult:
        """Attack every image within the ball, or within a budget of its own; finished images leave the batch."""
        problem = Problem.of(images, labels, ball=ball, targets=targets, budget=budget)
        with inference_mode_of(model):
            wrong = problem.fooled(model, images)  # a clean mistake needs no move
            best = _unmoved(problem, won=wrong)
            for restart in range(self.restarts + 1):
                standing = torch.nonzero(best.margin <= 0).flatten()
                part = problem.select(standing)
                start = random_potential(part.images, seed=seed + restart) if restart else torch.zeros_like(part.images)
                _merge(best, self.climb(model, part, start=start), standing)
            spend = replace(problem, budget=problem.budget.masked_fill(wrong, 0))
            proof = spend.prove(best.potential, price=best.price, floor=self.floor, booked=best.booked)
            return problem.answer(model, proof, steps=best.steps)

    def search(
        self, model: Classifier, images: Images, labels: Labels, *, ball: WassersteinBall, budget: PerImage
    ) -> Images:
        """The images of one ascent without their proof, to train on: within budget up to float32 accuracy."""
        problem = Problem.of(images, labels, ball=ball, budget=budget)
        with inference_mode_of(model):
            found = self.climb(model, problem, start=torch.zeros_like(images))
        return problem.move(found.potential, price=found.price, floor=self.floor, booked=found.booked).images

    def climb(self, model: Classifier, problem: Problem, *, start: Images) -> Climbed:
        """One ascent from given potentials."""
        potential, velocity, previous = start.clone(), torch.zeros_like(start), problem.images.clone()
        caps = Caps.none(start)
        step_size = torch.ones_like(problem.mass())
        price, booked = torch.full_like(problem.budget, 2 * self.floor), problem.budget.clone()
        best = _unmoved(problem, won=torch.zeros_like(problem.labels, dtype=torch.bool))
        best.potential.copy_(start)
        reach, mass = problem.within_reach(), problem.mass()
        active = torch.arange(len(problem), device=start.device)
        for step in range(self.steps):
            if not len(active):
                break
            # forward
            part = problem.select(active)
            capped = potential[active] - caps.charge[active]
            move = part.move(capped, price=price[active], floor=self.floor, booked=booked[active])
            images, price[active], crowding = move.images, move.price, move.crowding
            margin, gradient = part.slope(model, images, loss=self.loss)
            best.steps[active] += 1
            # track
            better = margin > best.margin[active]
            for kept, now in ((best.potential, capped), (best.price, price[active]), (best.booked, booked[active])):
                kept[active[better]] = now[better]
            best.margin[active] = torch.maximum(best.margin[active], margin)
            # step
            moved = (images - previous[active]).abs().sum(dim=(1, 2, 3)) / 2 / mass[active].clamp_min(1e-30)
            wanted = self._wanted_move(step) * part.budget.clamp_max(1).to(moved)
            if step:
                step_size[active] *= (wanted / moved.clamp_min(1e-9)).clamp(0.5, 2).pow(0.7)
            previous[active] = images
            booked[active] *= (part.budget / move.spent.clamp_min(1e-300)).clamp(0.9, 1.2)
            booked[active] = booked[active].maximum(part.budget).minimum(MOST_BOOKED * part.budget)
            standing = margin <= self.confidence
            active, gradient = active[standing], gradient[standing] * reach[active[standing]]
            velocity[active] = self.momentum * velocity[active] + (1 - self.momentum) * _unit(gradient)
            if not step:
                at_rest = price.clone()
                step_size[active] = self._first_size(part.select(standing), potential[active], velocity[active])
            step_size[active] = step_size[active].minimum(self.steepest * price[active].to(step_size))
            rise = step_size[active].view(-1, 1, 1, 1) * velocity[active]
            caps.adapt(active, crowding[standing], growth=growth_of(potential[active], rise), price=price[active])
            potential[active] += rise
            too_sharp = self._sharpest(step) * at_rest[active] / price[active]
            too_sharp = too_sharp.clamp_max(1).view(-1, 1, 1, 1).to(potential)
            potential[active] *= too_sharp
            caps.charge[active] *= too_sharp
        return best

    def _first_size(self, problem: Problem, potential: Images, velocity: Images) -> PerImage:
        """The step size with which a first step moves the mass it should; found without asking the model."""
        size, mass = torch.ones_like(problem.mass()), problem.mass().clamp_min(1e-30)
        wanted = self._wanted_move(0) * problem.budget.clamp_max(1).to(mass)
        here = problem.move(potential, price=None, floor=self.floor, booked=problem.budget)
        price = here.price
        for _ in range(PROBES):
            there = problem.move(
                potential + size.view(-1, 1, 1, 1) * velocity, price=price, floor=self.floor, booked=problem.budget
            )
            moved, price = (there.images - here.images).abs().sum(dim=(1, 2, 3)) / 2 / mass, there.price
            size = size * (wanted / moved.clamp_min(1e-9)).clamp(0.1, 10)
        return size

    def _wanted_move(self, step: int) -> float:
        """The share of the radius that a step should move: falls geometrically."""
        progress = step / max(self.steps - 1, 1)
        return float(self.first_move * (self.last_move / self.first_move) ** progress)

    def _sharpest(self, step: int) -> float:
        """How many times the price at rest a price may be at a step; above that it is scaled down with its potential.

        The bound rises to its end within 70 % of the steps: caps are found while the plan still gives way.
        """
        progress = min(step / max(0.7 * (self.steps - 1), 1), 1)
        return float(BLUNT * (SHARP / BLUNT) ** progress)


def random_potential(images: Images, *, seed: int, scale: float = 3.0) -> Images:
    """Normal potentials that depend on the seed and on the image alone, not on its place in a batch."""
    drawn = torch.empty_like(images, device="cpu")
    for image, potential in zip(images.cpu(), drawn, strict=True):
        digest = hashlib.sha256(image.numpy().tobytes() + str(seed).encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        potential.normal_(generator=generator)
    return scale * drawn.to(images.device)


def growth_of(potential: Images, rise: Images) -> Images:
    """By which factor a rise makes each potential steeper along itself, from 1 (not at all) to 3."""
    steep = potential.flatten(1).square().sum(dim=1).clamp_min(1e-20)
    steeper: Tensor = 1 + torch.linalg.vecdot(potential.flatten(1), rise.flatten(1)) / steep
    return steeper.clamp(1, 3).view(-1, 1, 1, 1)


def _unit(gradient: Images) -> Images:
    """The gradient scaled to the length of six bright pixels; a zero gradient stays zero."""
    length = gradient.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
    return 6 * gradient / length.clamp_min(torch.finfo(gradient.dtype).tiny)


def _unmoved(problem: Problem, *, won: Tensor) -> Climbed:
    """No potential, no step; images that are already wrong have won."""
    margin = torch.where(won, torch.inf, -torch.inf).to(problem.images)
    return Climbed(
        potential=torch.zeros_like(problem.images),
        price=torch.zeros_like(problem.budget),
        booked=problem.budget.clone(),
        margin=margin,
        steps=torch.zeros_like(problem.labels),
    )


def _merge(best: Climbed, found: Climbed, index: Tensor) -> None:
    """Take over what a run on some of the images found, where it is better."""
    better = found.margin > best.margin[index]
    for old, new in zip(best[:4], found[:4], strict=True):
        old[index[better]] = new[better]
    best.steps[index] += found.steps
