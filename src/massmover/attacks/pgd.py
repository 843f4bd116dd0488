"""Projected gradient ascent with the Sinkhorn projection: the attacks of Hu et al. 2020 and of Wong et al. 2019.

    image <- project(image + step * direction(gradient))

The radius is fixed, or grows with every step until the image is broken (the protocol of the published tables).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from massmover.attacks.losses import LossName, fooled, gradient_of, margin_of
from massmover.attacks.result import AttackResult
from massmover.checks import inference_mode_of, logits_of
from massmover.geometry import Window
from massmover.threat import WassersteinBall
from massmover.transport.potential import move_mass
from massmover.transport.sinkhorn import ConstrainedSinkhorn, Duals, certified
from massmover.types import Classifier, Images, Labels, MassmoverError, PerChannel, PerImage

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


class Pursuit(NamedTuple):
    """Where the search ended, before anything is proven."""

    images: Images  # as the model saw them, clamped to [0, 1]
    duals: Duals
    radius: PerImage  # of the last projection of each image
    steps: PerImage


@dataclass(frozen=True)
class SinkhornAttack:
    """The paper's attack as a value; its fields are its choices.

    `direction` is what a gradient becomes: "gradient" scales it to a largest entry of 1 (the paper), "sign" keeps only
    signs (Wong), "l2" scales its length to 1, "conjugate" is the change that raises the loss most among all that a
    Wasserstein ball of radius `step_size` allows, also with a largest entry of 1. `step_size` is a share of
    the image's mass (`step_unit="mass"`), and never above half the radius; or a pixel value.
    """

    steps: int = 100
    step_size: float = 0.06
    step_unit: Literal["mass", "pixel"] = "mass"
    direction: Direction = "gradient"
    loss: LossName = "cross-entropy"
    projection: ConstrainedSinkhorn = field(default_factory=ConstrainedSinkhorn)
    warm_start: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that attack nothing."""
        if self.steps < 1 or not (math.isfinite(self.step_size) and self.step_size > 0):
            raise MassmoverError(f"steps is {self.steps} and step_size {self.step_size}: both must be positive")
        if self.direction not in DIRECTIONS:
            raise MassmoverError(f"unknown direction {self.direction!r}: use one of {', '.join(DIRECTIONS)}")
        if self.step_unit not in ("mass", "pixel"):
            raise MassmoverError(f"unknown step_unit {self.step_unit!r}: use 'mass' or 'pixel'")

    def run(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        targets: Labels | None = None,
        seed: int = 0,
    ) -> AttackResult:
        """Attack every image at one radius; finished images leave the batch. Nothing is random: no seed is used."""
        radii = (ball.radius,) * self.steps
        return self.prove(model, images, labels, ball=ball, radii=radii, targets=targets)

    def ramp(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        ramp: Ramp,
        targets: Labels | None = None,
        progress: Progress | None = None,
    ) -> AttackResult:
        """Let the radius grow until each image is broken; `radius` of the result is where that happened.

        A clean mistake has radius 0; an image that is never broken has the last radius tried and no success. The
        ball's own radius does not count.
        """
        return self.prove(model, images, labels, ball=ball, radii=ramp.radii(), targets=targets, progress=progress)

    def prove(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        radii: Sequence[float],
        targets: Labels | None = None,
        progress: Progress | None = None,
    ) -> AttackResult:
        """Search with one radius per step, then certify what was found; success holds for the certified images."""
        found = self.pursue(model, images, labels, ball=ball, radii=radii, targets=targets, progress=progress)
        window, weights = ball.moves(images), ball.weights(images)
        proof = certified(found.duals, originals=images, budget=found.radius, weights=weights, window=window)
        with inference_mode_of(model), torch.no_grad():
            success = fooled(logits_of(model, proof.images), labels, targets=targets)
        return AttackResult(
            images=proof.images,
            success=success,
            radius=found.radius,
            steps=found.steps,
            plan=proof.plan,
            certificate=proof.certificate,
        )

    def pursue(
        self,
        model: Classifier,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        radii: Sequence[float],
        targets: Labels | None = None,
        certify: bool = True,
        progress: Progress | None = None,
    ) -> Pursuit:
        """The search itself. With `certify` an image is done once its certified twin fools the model too.

        Without, it is done once the clamped image fools the model, wherever that image lies: what Wong et al. return.
        """
        # init
        window, weights = ball.moves(images), ball.weights(images)
        mass = images.double().sum(dim=(1, 2, 3)).view(-1, 1, 1, 1)
        current, best = images.clone(), images.clone()
        duals, best_duals = _at_home(images), _at_home(images)
        best_margin = images.new_full((len(images),), -torch.inf)
        radius = images.new_zeros(len(images), dtype=torch.float64)
        steps = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        active = torch.arange(len(images), device=images.device)
        with inference_mode_of(model):
            for step in range(len(radii) + 1):
                # forward
                truth, aims = labels[active], None if targets is None else targets[active]
                won, margin, gradient = look(model, current[active], truth, name=self.loss, targets=aims)
                # track
                if certify and step > 0 and bool(won.any()):
                    won[won.clone()] = self._holds(
                        model, active[won], duals, radii[step - 1], images, labels, weights, window, targets
                    )
                better = won | (margin > best_margin[active])
                kept = active[better]
                best[kept], best_margin[kept] = current[kept], margin[better]
                for store, values in zip(best_duals, duals, strict=True):
                    store[kept] = values[kept]
                radius[active] = radii[step - 1] if step else 0.0
                steps[active] = step
                active, gradient = active[~won], gradient[~won]
                if progress is not None:
                    progress(step, len(radii), len(active))
                if step == len(radii) or not len(active):
                    break
                # step
                size = min(radii[step] / 2, self.step_size) if self.step_unit == "mass" else self.step_size
                wish = self._stepped(
                    current[active], gradient, size, mass=mass[active], weights=weights[active], window=window
                )
                projected = self.projection.project(
                    wish,
                    originals=images[active],
                    budget=torch.full_like(radius[active], radii[step]),
                    weights=weights[active],
                    window=window,
                    duals=duals.select(active) if self.warm_start and step > 0 else None,
                )
                current[active] = projected.images.clamp(0, 1).to(images.dtype)
                for store, values in zip(duals, projected.duals, strict=True):
                    store[active] = values
        return Pursuit(images=best, duals=best_duals, radius=radius, steps=steps)

    def _stepped(
        self, current: Images, gradient: Images, size: float, *, mass: Tensor, weights: PerChannel, window: Window
    ) -> Images:
        """The image one step up, before the projection."""
        direction = scaled(gradient, self.direction)
        if self.direction == "conjugate":
            budget = torch.full_like(mass.flatten(), size)
            held = torch.where(current < VANISHING, 0.0, current)
            best = move_mass(
                CONJUGATE_CONTRAST * direction, originals=held, budget=budget, weights=weights, window=window
            )
            direction = scaled(best.images - current, "gradient")
        unit = mass if self.step_unit == "mass" else torch.ones_like(mass)
        return current.double() + size * unit * direction.double()

    def _holds(
        self,
        model: Classifier,
        which: Tensor,
        duals: Duals,
        radius: float,
        images: Images,
        labels: Labels,
        weights: PerChannel,
        window: Window,
        targets: Labels | None,
    ) -> Tensor:
        """Whether the certified twins of some images fool the model."""
        budget = images.new_full((len(which),), radius, dtype=torch.float64)
        proof = certified(
            duals.select(which), originals=images[which], budget=budget, weights=weights[which], window=window
        )
        aims = None if targets is None else targets[which]
        with torch.no_grad():
            return fooled(logits_of(model, proof.images), labels[which], targets=aims)


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


def look(
    model: Classifier, images: Images, labels: Labels, *, name: LossName, targets: Labels | None
) -> tuple[Tensor, PerImage, Images]:
    """Whether the attack has won, by what margin, and the gradient of the loss with respect to the image."""
    seen, gradient = gradient_of(model, images, labels, name=name, targets=targets)
    won, margin = fooled(seen, labels, targets=targets), margin_of(seen, labels, targets=targets)
    return won, margin, gradient


def _at_home(images: Images) -> Duals:
    """The duals at which no mass moves."""
    zeros = torch.zeros_like(images, dtype=torch.float64)
    never = torch.full_like(zeros[:, 0, 0, 0], 1e300)
    return Duals(source=zeros.clone(), target=zeros.clone(), budget=never, cap=zeros.clone())
