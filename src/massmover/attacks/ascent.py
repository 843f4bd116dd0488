"""Plan ascent: climb the loss in the space of plans, where every point is feasible.

The plan of a potential is feasible whatever the potential (transport/potential.py), so no projection is needed: the
attack adds the loss gradient at the moved image to the potential of every pixel, which is mirror ascent on plans with
the entropy as the mirror. docs/algorithms.md, section 5.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from massmover.attacks.base import AttackResult, Found, Problem, run
from massmover.attacks.coherent import CoherentAscent
from massmover.attacks.losses import LossName, check_loss, check_margins
from massmover.backend import default_block
from massmover.classifier import borrowed
from massmover.inputs import check_low_pass, check_settings
from massmover.transport.potential import Move, Pull, move_mass
from massmover.types import Classifier, Images, MassmoverError, PerImage

MOST_BOOKED = 3.0  # times the budget; what overfull pixels send back is not paid
PROBES = 3  # moves that find the first step size
DRIFT_KEPT, DRIFT_TAKEN = 0.95, 0.2  # momentum of the charges
BLUNT, SHARP = 2.0, 20.0  # bounds of the price at first and at last, times the price before any step
LOOK = 0.2  # of the steps, before an image can be given up
LAG, LAST_LAG = (
    0.6,
    0.35,
)  # then and at twice as many: shares of the clean margin beyond which no image was seen to fall


class Climbed(NamedTuple):
    """The best that an ascent found for each image."""

    potential: Images
    images: Images
    price: PerImage
    booked: PerImage  # what the plan of the potential costs before overfull pixels send mass back
    margin: PerImage  # positive where the attack has won
    steps: PerImage

    def select(self, index: Tensor) -> Climbed:
        """What was found for some of the images."""
        return Climbed(*(field[index] for field in self))

    def put(self, index: Tensor, part: Climbed) -> None:
        """Write what was found for some of the images."""
        for whole, own in zip(self, part, strict=True):
            whole[index] = own


class Position(NamedTuple):
    """Where the ascent of each image is."""

    potential: Images
    velocity: Images
    images: Images  # after the last move
    charge: Images  # what full pixels charge for coming in, found as the ascent goes on (docs/algorithms.md (7))
    drift: Images  # by how much the charge has been changing
    step_size: PerImage
    price: PerImage
    booked: PerImage
    at_rest: PerImage  # the price before any step

    def select(self, index: Tensor) -> Position:
        """The positions of some of the images."""
        return Position(*(field[index] for field in self))


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
    low_pass: float = 0.0  # pixels: standard deviation of a Gaussian that takes high frequencies out of gradients
    gives_up: bool = False  # leave images whose margin lags behind what images that fall have come to by then

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_loss(self.loss)
        check_settings(self, whole={"steps": 1, "restarts": 0}, positive=("first_move", "last_move", "steepest"))
        check_low_pass(self.low_pass)
        if not (0 <= self.momentum < 1 and self.floor >= 0):
            raise MassmoverError(
                f"momentum is {self.momentum} and floor {self.floor}: use 0 <= momentum < 1, floor >= 0"
            )

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball; finished images leave the batch."""
        return run(self, model, problem, seed=seed)

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """One ascent from no potential, then further ones of the images that still stand from random potentials.

        Where scatter is bounded, mass is led by displacement fields instead (attacks/coherent.py).
        """
        if problem.balls.coherent:
            return self._led().search(model, problem, seed=seed)
        with borrowed(model):
            wrong, clean = problem.look(model, problem.images)  # a clean mistake needs no move
            best = unmoved(problem, start=torch.zeros_like(problem.images))
            best = best._replace(margin=torch.where(wrong, torch.inf, best.margin))
            for restart in range(self.restarts + 1):
                standing = torch.nonzero(best.margin <= problem.climbing_lead).flatten()
                part = problem.select(standing)
                start = random_potential(part.images, seed=seed + restart) if restart else torch.zeros_like(part.images)
                part = part.called(f"ascent, restart {restart}") if restart else part
                _merge(best, self.climb(model, part, start=start, clean=clean[standing]), standing)
        way = Pull(best.potential, price=best.price, floor=self.floor, booked=best.booked)
        return Found(moves=way.moves, images=best.images, steps=best.steps, resting=wrong)

    def _led(self) -> CoherentAscent:
        """The ascent on displacement fields with the same settings, as far as it has them."""
        return CoherentAscent(
            steps=self.steps,
            loss=self.loss,
            momentum=self.momentum,
            confidence=self.confidence,
            starts=CoherentAscent.starts + self.restarts,
            low_pass=self.low_pass,
        )

    def climb(self, model: Classifier, problem: Problem, *, start: Images, clean: PerImage | None = None) -> Climbed:
        """One ascent from given potentials; an image can be given up where its margin on the original is known."""
        best = unmoved(problem, start=start)
        part, here, found = problem, self.begin(problem, start), unmoved(problem, start=start)
        active, seen = torch.arange(len(problem), device=start.device), problem.balls.mass.new_zeros(())
        enough = max(self.confidence, problem.climbing_lead)
        reach, block = problem.balls.within_reach(), default_block(problem.balls.backend)
        for step in range(self.steps):
            # finished images leave, a block of steps at a time: to look who is done waits for the device
            if step % block == 0:
                going = found.margin <= enough
                if self.gives_up and clean is not None:
                    going &= ~lags(found.margin, clean=clean[active], most=self._largest_lag(step))
                standing = torch.nonzero(going).flatten()
                if len(standing) < len(active):
                    best.put(active, found)
                    active, part, reach = active[standing], part.select(standing), reach[standing]
                    here, found = here.select(standing), found.select(standing)
                part.tell("ascent", step=step, steps=self.steps, standing=len(active))
                if not len(active):
                    break
            # forward
            pull = self.pull(here)
            move = moved_within(pull, part)
            margin, gradient = part.slope(model, move.images, loss=self.loss, low_pass=self.low_pass)
            # track
            seen = seen + margin.sum()
            climbing = found.margin <= enough
            better = climbing & (margin > found.margin)
            steps = found.steps + climbing
            now = Climbed(pull.potential, move.images, move.price, here.booked, margin.to(found.margin), steps)
            found = Climbed(*map(partial(choose, better), now, found))._replace(steps=steps)
            # step
            here = self.stepped(step, part, here, move, gradient * reach)
        best.put(active, found)
        check_margins(seen)
        return best

    def begin(self, problem: Problem, start: Images) -> Position:
        """Where an ascent begins."""
        zeros, budget = torch.zeros_like(start), problem.balls.budget
        price = torch.full_like(budget, 2 * self.floor)
        size = torch.ones_like(problem.balls.mass)
        return Position(start, zeros, problem.images, zeros, zeros, size, price, budget, price)

    def pull(self, here: Position) -> Pull:
        """How the mass of each image is pulled at a position."""
        return Pull(here.potential - here.charge, here.price, self.floor, here.booked)

    def stepped(
        self, step: int, problem: Problem, here: Position, move: Move, gradient: Images, *, size: PerImage | None = None
    ) -> Position:
        """The next position: up the gradient, by the mass that this step should move, or with a given step size."""
        budget, price = problem.balls.budget, move.price
        velocity = self.momentum * here.velocity + (1 - self.momentum) * _unit(gradient)
        at_rest = here.at_rest if step else price
        if size is None and step:
            size = self.adapted_size(step, problem, here, move)
        if size is None:
            size = self._first_size(problem, here.potential, velocity)
        size = size.minimum(self.steepest * price.to(size))
        rise = size.view(-1, 1, 1, 1) * velocity
        charge, drift = charged(here, move, growth=growth_of(here.potential, rise))
        # A price far above the one at rest is scaled down with its potential: charges are found while plans give way.
        blunt = (self._sharpest(step) * at_rest / price).clamp_max(1).view(-1, 1, 1, 1).to(rise)
        booked = here.booked * (budget / move.spent.clamp_min(1e-300)).clamp(0.9, 1.2)
        return Position(
            potential=(here.potential + rise) * blunt,
            velocity=velocity,
            images=move.images,
            charge=charge * blunt,
            drift=drift,
            step_size=size,
            price=price,
            booked=booked.maximum(budget).minimum(MOST_BOOKED * budget),
            at_rest=at_rest,
        )

    def adapted_size(self, step: int, problem: Problem, here: Position, move: Move) -> PerImage:
        """The step size, corrected by what the last step moved."""
        mass = problem.balls.mass.clamp_min(1e-30)
        moved = (move.images - here.images).abs().sum(dim=(1, 2, 3)) / 2 / mass
        wanted = self._wanted_move(step) * problem.balls.budget.clamp_max(1).to(moved)
        return here.step_size * (wanted / moved.clamp_min(1e-9)).clamp(0.5, 2).pow(0.7)

    def _first_size(self, problem: Problem, potential: Images, velocity: Images) -> PerImage:
        """The step size with which a first step moves the mass it should; found without asking the model."""
        mass, budget = problem.balls.mass, problem.balls.budget
        size, mass = torch.ones_like(mass), mass.clamp_min(1e-30)
        wanted = self._wanted_move(0) * budget.clamp_max(1).to(mass)
        here = moved_within(Pull(potential, None, self.floor), problem)
        price = here.price
        for _ in range(PROBES):
            there = moved_within(Pull(potential + size.view(-1, 1, 1, 1) * velocity, price, self.floor), problem)
            moved, price = (there.images - here.images).abs().sum(dim=(1, 2, 3)) / 2 / mass, there.price
            size = size * (wanted / moved.clamp_min(1e-9)).clamp(0.1, 10)
        return size

    def _wanted_move(self, step: int) -> float:
        """The share of the radius that a step should move: falls geometrically."""
        progress = step / max(self.steps - 1, 1)
        return float(self.first_move * (self.last_move / self.first_move) ** progress)

    def _largest_lag(self, step: int) -> float:
        """The share of the clean margin that may be left at a step."""
        progress = step / self.steps
        return math.inf if progress < LOOK else max(LAG + (LAST_LAG - LAG) * (progress / LOOK - 1), LAST_LAG)

    def _sharpest(self, step: int) -> float:
        """How many times the price at rest a price may be at a step.

        The bound rises to its end within 70 % of the steps.
        """
        progress = min(step / max(0.7 * (self.steps - 1), 1), 1)
        return float(BLUNT * (SHARP / BLUNT) ** progress)


def lags(margin: PerImage, *, clean: PerImage, most: float) -> Tensor:
    """Where more than a share of the clean margin is left.

    Not where the margin never rose: that says something of the gradient, and nothing of the image.
    """
    return (margin < most * clean) & (margin > clean)


def moved_within(pull: Pull, problem: Problem) -> Move:
    """The images a potential makes, within budget to float32 accuracy, in the images' dtype.

    What is booked may exceed the budget, for pixels that overflow send mass back and what is sent back is not paid.
    Where the rest still costs too much, a share of all mass stays home (docs/algorithms.md (3)).
    """
    move, images = move_mass(pull, problem.balls), problem.images
    share = (problem.balls.budget / move.spent.clamp_min(1e-300)).clamp_max(1).view(-1, 1, 1, 1).to(images)
    return move._replace(images=torch.lerp(images, move.images.to(images), share))


def charged(here: Position, move: Move, *, growth: Images) -> tuple[Images, Images]:
    """Charge more where a plan crowds pixels and less where there is room; the charges and their drift.

    A steeper potential needs proportionally higher charges, so they grow along; what is still missing is a Newton
    step, and the sum of those before it: pixels around a crowded one crowd in turn, so one step is never enough.
    """
    most = move.price.view(-1, 1, 1, 1).to(move.crowding)
    step = torch.minimum(move.crowding, most).maximum(-most).to(here.charge)
    drift = here.drift.mul(DRIFT_KEPT).add_(step, alpha=DRIFT_TAKEN)
    charge = here.charge.mul(growth).add_(step).add_(drift).clamp_min_(0)
    return charge, drift.mul_(charge.sign())  # starts anew where nothing is charged


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


def choose(chosen: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """One of two values for each image."""
    return torch.where(chosen.view(-1, *[1] * (new.ndim - 1)), new, old)


def _unit(gradient: Images) -> Images:
    """The gradient scaled to the length of six bright pixels; a zero gradient stays zero."""
    length = gradient.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
    return 6 * gradient / length.clamp_min(torch.finfo(gradient.dtype).tiny)


def unmoved(problem: Problem, *, start: Images) -> Climbed:
    """A potential to start from, and no step yet."""
    return Climbed(
        potential=start.clone(),
        images=problem.images.clone(),
        price=torch.zeros_like(problem.balls.budget),
        booked=problem.balls.budget.clone(),
        margin=torch.full_like(problem.balls.mass, -torch.inf),
        steps=torch.zeros_like(problem.labels),
    )


def _merge(best: Climbed, found: Climbed, index: Tensor) -> None:
    """Take over what an ascent of some of the images found, where it is better."""
    better = found.margin > best.margin[index]
    for old, new in zip(best[:5], found[:5], strict=True):
        old[index[better]] = new[better]
    best.steps[index] += found.steps
