"""Projected gradient ascent with the Sinkhorn projection: the attacks of Hu et al. 2020 and of Wong et al. 2019.

    image <- project(image + step * direction(gradient))

The radius is fixed, or grows with every step until the image is broken (the protocol of the published tables).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from massmover.attacks.base import AttackResult, Found, Problem, prove
from massmover.attacks.losses import LossName, check_loss, check_margins, fooled, gradient_of, margin_of
from massmover.attacks.low_pass import low_passed
from massmover.classifier import borrowed
from massmover.inputs import check_low_pass, check_settings
from massmover.transport.potential import Pull, move_mass
from massmover.transport.repair import settled
from massmover.transport.sinkhorn import ConstrainedSinkhorn, Duals
from massmover.types import Classifier, Images, MassmoverError, PerImage

Direction = Literal["gradient", "sign", "l2", "conjugate"]
DIRECTIONS: tuple[Direction, ...] = ("gradient", "sign", "l2", "conjugate")
CONJUGATE_CONTRAST = 50.0  # largest potential of a conjugate step, the gradient's largest entry
VANISHING = 1e-20  # mass below this is left out of a conjugate step, for it has no float32 reciprocal

Progress = Callable[[int, int, int], None]  # (steps done, steps at most, images that still resist)


@dataclass(frozen=True)
class Ramp:
    """Radii that grow until an image is broken: by `step` each time, or by a `factor` above 1."""

    start: float = 0.01
    step: float = 0.01
    factor: float = 1.0
    limit: float = 2.0

    def __post_init__(self) -> None:
        """Refuse a ramp that never arrives."""
        if not (self.start > 0 and self.limit >= self.start and math.isfinite(self.limit)):
            raise MassmoverError(f"the ramp runs from {self.start} to {self.limit}: use 0 < start <= limit")
        if self.step < 0 or self.factor < 1 or (self.step == 0 and self.factor == 1):
            raise MassmoverError(f"the ramp grows by {self.step} and by a factor {self.factor}: it must grow")

    def radii(self) -> tuple[float, ...]:
        """Every radius tried, smallest first."""
        found = []
        radius = self.start
        while radius <= self.limit * (1 + 1e-9):
            found.append(radius)
            radius = radius * self.factor + self.step
        return tuple(found)


class Schedule(NamedTuple):
    """The radius of each image at each step."""

    radii: tuple[PerImage, ...]  # one tensor a step

    @classmethod
    def fixed(cls, problem: Problem, *, steps: int) -> Schedule:
        """The balls' own radii at every step."""
        return cls((problem.balls.budget,) * steps)

    @classmethod
    def growing(cls, problem: Problem, radii: Sequence[float]) -> Schedule:
        """One radius a step for all images."""
        return cls(tuple(torch.full_like(problem.balls.budget, radius) for radius in radii))

    def __len__(self) -> int:
        return len(self.radii)

    def radius(self, step: int) -> PerImage:
        """The radii of a step."""
        return self.radii[step]


class Pursuit(NamedTuple):
    """What a projected search found, and the radius at which it ended for each image; 0 for a clean mistake."""

    found: Found
    radius: PerImage


@dataclass(frozen=True)
class SinkhornAttack:
    """The paper's attack as a value; its fields are its choices.

    `direction` is what a gradient becomes: "gradient" scales it to a largest entry of 1 (the paper), "sign" keeps only
    signs (Wong), "l2" scales its length to 1, "conjugate" is the change that raises the loss most among all that a
    Wasserstein ball of radius `step_size` allows, also with a largest entry of 1. `step_size` is a share of
    the image's mass (`step_unit="mass"`), and never above half the radius; or a pixel value. `low_pass` is the standard
    deviation, in pixels, of a Gaussian that takes high frequencies out of gradients.
    """

    steps: int = 100
    step_size: float = 0.06
    step_unit: Literal["mass", "pixel"] = "mass"
    direction: Direction = "gradient"
    loss: LossName = "cross-entropy"
    projection: ConstrainedSinkhorn = field(default_factory=ConstrainedSinkhorn)
    warm_start: bool = True
    low_pass: float = 0.0

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        check_loss(self.loss)
        check_low_pass(self.low_pass)
        check_settings(self, whole={"steps": 1}, positive=("step_size",))
        if self.direction not in DIRECTIONS:
            raise MassmoverError(f"unknown direction {self.direction!r}: use one of {', '.join(DIRECTIONS)}")
        if self.step_unit not in ("mass", "pixel"):
            raise MassmoverError(f"unknown step_unit {self.step_unit!r}: use 'mass' or 'pixel'")

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        """Attack every image within its ball; finished images leave the batch. Nothing is random: no seed is used."""
        with borrowed(model):  # the search asks for the proof itself, so that none of its successes is undone
            return prove(model, problem, self.search(model, problem, seed=seed))

    def search(self, model: Classifier, problem: Problem, *, seed: int = 0) -> Found:
        """Pursue every image at its own radius."""
        return self.pursue(model, problem, Schedule.fixed(problem, steps=self.steps)).found

    def ramp(
        self, model: Classifier, problem: Problem, ramp: Ramp, *, progress: Progress | None = None
    ) -> AttackResult:
        """Let the radius grow until each image is broken; `radius` of the result is where that happened.

        A clean mistake has radius 0; an image that is never broken has the last radius tried and no success. The
        balls' own radii do not count.
        """
        with borrowed(model):
            pursuit = self.pursue(model, problem, Schedule.growing(problem, ramp.radii()), progress=progress)
            return prove(model, problem.with_budget(pursuit.radius), pursuit.found)

    def pursue(
        self,
        model: Classifier,
        problem: Problem,
        schedule: Schedule,
        *,
        certify: bool = True,
        progress: Progress | None = None,
    ) -> Pursuit:
        """The search itself. With `certify` an image is done once its certified twin fools the model too.

        Without, it is done once the clamped image fools the model, wherever that image lies: what Wong et al. return.
        """
        # init
        problem.must_let_scatter("the projected attack")
        images = problem.images
        current, best = images.clone(), images.clone()
        duals, best_duals = Duals.at_home(problem.balls), Duals.at_home(problem.balls)
        best_margin = torch.full_like(problem.balls.mass, -torch.inf)
        radius, steps = torch.zeros_like(problem.balls.budget), torch.zeros_like(problem.labels)
        active = torch.arange(len(problem), device=images.device)
        with borrowed(model):
            for step in range(len(schedule) + 1):
                # forward
                part, seen = problem.select(active).with_budget(radius[active]), current[active]
                logits, gradient = gradient_of(
                    model, part.shown(seen), part.labels, name=self.loss, targets=part.targets
                )
                won, margin = (look(logits, part.labels, targets=part.targets) for look in (fooled, margin_of))
                check_margins(margin)
                # track
                if certify and step > 0 and bool(won.any()):
                    won[won.clone()] = self._holds(model, part.select(won), duals.select(active[won]))
                if step == 0:
                    resting = won
                better = won | (margin > best_margin[active])
                kept = active[better]
                best[kept], best_margin[kept] = current[kept], margin[better].to(best_margin)
                for store, values in zip(best_duals, duals, strict=True):
                    store[kept] = values[kept]
                steps[active] = step
                active, part, gradient = active[~won], part.select(~won), gradient[~won]
                problem.tell("sinkhorn", step=step, steps=len(schedule), standing=len(active))
                if progress is not None:
                    progress(step, len(schedule), len(active))
                if step == len(schedule) or not len(active):
                    break
                # step
                radius[active] = schedule.radius(step)[active]
                part = part.with_budget(radius[active])
                wish = self._stepped(current[active], gradient, part)
                start = duals.select(active) if self.warm_start and step > 0 else None
                projected = self.projection.project(wish, part.balls, duals=start)
                current[active] = projected.images.clamp(0, 1).to(images.dtype)
                for store, values in zip(duals, projected.duals, strict=True):
                    store[active] = values
        found = Found(moves=best_duals.moves, images=best, steps=steps, resting=resting)
        return Pursuit(found=found, radius=radius)

    def _stepped(self, current: Images, gradient: Images, problem: Problem) -> Images:
        """The images one step up, before the projection."""
        direction = scaled(low_passed(gradient, self.low_pass), self.direction)
        mass = problem.images.double().sum(dim=(1, 2, 3)).view(-1, 1, 1, 1)
        size, unit = torch.full_like(problem.balls.budget, self.step_size), torch.ones_like(mass)
        if self.step_unit == "mass":
            size, unit = size.minimum(problem.balls.budget / 2), mass
        if self.direction == "conjugate":
            held = torch.where(current < VANISHING, 0.0, current)
            balls = replace(problem.balls, originals=held).with_budget(size)
            best = move_mass(Pull(CONJUGATE_CONTRAST * direction), balls)
            direction = scaled(best.images.to(current) - current, "gradient")
        return current.double() + size.view(-1, 1, 1, 1) * unit * direction.double()

    def _holds(self, model: Classifier, problem: Problem, duals: Duals) -> Tensor:
        """Whether the certified twins of some images fool the model."""
        return problem.fooled(model, settled(duals.moves(problem.balls), problem.balls).images)


def wong() -> SinkhornAttack:
    """The attack of Wong et al. 2019: signs, steps of 0.1 in pixel values, no box. What it returns is repaired."""
    return SinkhornAttack(
        direction="sign",
        step_size=0.1,
        step_unit="pixel",
        projection=ConstrainedSinkhorn(temperature=1e-3, box=False),
        warm_start=False,
    )


def scaled(gradient: Images, direction: Direction) -> Images:
    """A direction from a gradient; a gradient of zero gives a direction of zero."""
    if direction == "sign":
        return gradient.sign()
    flat = gradient.flatten(1)
    size = (flat.norm(dim=1) if direction == "l2" else flat.abs().amax(dim=1)).view(-1, 1, 1, 1)
    return torch.where(size > 0, gradient / size.clamp_min(torch.finfo(gradient.dtype).tiny), 0.0)
