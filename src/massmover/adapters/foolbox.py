"""massmover as Foolbox attacks, and the Wasserstein distance as a Foolbox distance.

`WassersteinAttack` takes a list of epsilons, `SmallestWassersteinAttack` minimises; both are
called as every Foolbox attack is: `attack(fmodel, images, labels, epsilons=[...])`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from massmover.adapters.mover import BALL, Mover, needed
from massmover.attacks.base import Attack
from massmover.ball import WassersteinBall
from massmover.evaluation.verify import Verdicts, verify
from massmover.types import Classifier, Ground, Images, Labels, MassmoverError, Normalisation, PerImage

foolbox = needed("foolbox", extra="foolbox")
eagerpy = needed("eagerpy", extra="foolbox")
Distance: Any = foolbox.distances.Distance
FixedEpsilonAttack: Any = foolbox.attacks.base.FixedEpsilonAttack
MinimizationAttack: Any = foolbox.attacks.base.MinimizationAttack

ONE_PIXEL = WassersteinBall(1.0)
MARGIN = 1e-7  # relative; leaves room for the rounding of pixels to float32
ATTEMPTS = 4  # of shrinking a little more where rounding left an image outside


class WassersteinDistance(Distance):
    """The exact Wasserstein distance between images in [0, 1], by the judge of massmover."""

    def __init__(
        self, *, ground: Ground = "euclidean", power: float = 1.0, normalisation: Normalisation = "image"
    ) -> None:
        """Say how distance is measured."""
        self.ground = ground
        self.power = power
        self.normalisation = normalisation

    def __repr__(self) -> str:
        return f"WassersteinDistance(ground={self.ground!r}, power={self.power}, normalisation={self.normalisation!r})"

    def __call__(self, references: Any, perturbed: Any) -> Any:
        """Return the distance of each image; infinite where mass appeared or disappeared."""
        (before, after), restore = torch_tensors(references, perturbed)
        return restore(distances(self._judge(before, after, radius=0.0)).to(before))

    def clip_perturbation(self, references: Any, perturbed: Any, epsilon: float) -> Any:
        """Return images within epsilon: those outside move straight towards their references.

        Mixing an image with its reference scales the cost of every plan between them, so the
        distance falls at least in proportion.  Images inside come back unchanged.  Where no mix
        is inside, because mass was lost or a pixel left [0, 1], the reference itself comes back.
        """
        (before, after), restore = torch_tensors(references, perturbed)
        verdicts, clipped = self._judge(before, after, radius=epsilon), after.clone()
        outside = torch.nonzero(~verdicts.inside).flatten()
        share = epsilon / distances(verdicts)[outside]
        for attempt in range(ATTEMPTS):
            kept = ((1 - MARGIN * 10**attempt) * share).clamp(0, 1).view(-1, 1, 1, 1).to(before)
            clipped[outside] = before[outside] + kept * (after[outside] - before[outside])
            still = ~self._judge(before[outside], clipped[outside], radius=epsilon).inside
            outside, share = outside[still], share[still]
        clipped[outside] = before[outside]
        return restore(clipped)

    def _judge(self, before: Images, after: Images, *, radius: float) -> Verdicts:
        return verify(before, after, radius, **vars(self))


def distances(verdicts: Verdicts) -> PerImage:
    """Return the distances of a verdict, infinite where mass was not kept."""
    return verdicts.distance.masked_fill(verdicts.mass_drift > verdicts.tolerance, torch.inf)


class WassersteinAttack(FixedEpsilonAttack):
    """Any attack of massmover at fixed epsilons; an epsilon is a radius."""

    def __init__(
        self,
        *,
        method: str | Attack = "auto",
        ball: WassersteinBall = BALL,
        seed: int = 0,
        draws: int | None = None,
    ) -> None:
        """Choose the attack and how mass may move; the ball's own radius does not count. See `massmover.attack`."""
        self.mover = Mover(ball, method, seed, draws)

    @property
    def distance(self) -> WassersteinDistance:
        """The distance that epsilons are measured in."""
        return distance_of(self.mover)

    def run(self, model: Any, inputs: Any, criterion: Any, *, epsilon: float, **kwargs: Any) -> Any:
        """Return images within epsilon, adversarial where the attack won."""
        classifier, images, labels, targeted, restore = unpacked(model, inputs, criterion, kwargs)
        mover = replace(self.mover, ball=self.mover.ball.with_radius(epsilon))
        return restore(mover.within(classifier, images, labels, targeted=targeted).images)


class SmallestWassersteinAttack(MinimizationAttack):
    """The smallest radius of each image, by `massmover.smallest_radius`."""

    def __init__(
        self,
        *,
        method: str | Attack = "ascent",
        ball: WassersteinBall = ONE_PIXEL,
        seed: int = 0,
        draws: int | None = None,
    ) -> None:
        """Choose the attack, and the ball at whose radius to give up; see `massmover.smallest_radius`."""
        self.mover = Mover(ball, method, seed, draws)

    @property
    def distance(self) -> WassersteinDistance:
        """The distance that is made small."""
        return distance_of(self.mover)

    def run(self, model: Any, inputs: Any, criterion: Any, *, early_stop: float | None = None, **kwargs: Any) -> Any:
        """Return the closest adversarial images found; the search does not stop early."""
        classifier, images, labels, targeted, restore = unpacked(model, inputs, criterion, kwargs)
        return restore(self.mover.closest(classifier, images, labels, targeted=targeted).images)


def distance_of(mover: Mover) -> WassersteinDistance:
    """Return the distance in which an attack's radius is measured."""
    ball = mover.ball
    return WassersteinDistance(ground=ball.ground, power=ball.power, normalisation=ball.normalisation)


def unpacked(
    model: Any, inputs: Any, criterion: Any, kwargs: dict[str, Any]
) -> tuple[Classifier, Images, Labels, bool, Any]:
    """Return what `run` was given as classifier, images, labels or targets, which of the two, and the way back."""
    if kwargs:
        raise MassmoverError(f"Unknown setting {next(iter(kwargs))!r}: settings are given when the attack is made.")
    bounds = tuple(model.bounds)
    if bounds != (0, 1):
        raise MassmoverError(
            f"The model takes pixels in {bounds}; mass is moved between pixels in [0, 1]. Use "
            "fmodel.transform_bounds((0, 1)) and rescale the images."
        )
    (images,), restore = torch_tensors(inputs)
    criteria = foolbox.criteria
    if isinstance(criterion, criteria.TargetedMisclassification):
        return model, images, criterion.target_classes.raw, True, restore
    if not isinstance(criterion, criteria.Criterion):
        criterion = criteria.Misclassification(criterion)
    if isinstance(criterion, criteria.Misclassification):
        return model, images, criterion.labels.raw, False, restore
    raise MassmoverError(
        f"The criterion {type(criterion).__name__} is not known here: use labels, Misclassification or "
        "TargetedMisclassification."
    )


def torch_tensors(*values: Any) -> tuple[list[Tensor], Any]:
    """Return EagerPy or native tensors as torch tensors, and a function that makes the answer what they were."""
    tensors, restore = eagerpy.astensors_(*values)
    raws = [tensor.raw for tensor in tensors]
    odd = next((raw for raw in raws if not isinstance(raw, Tensor)), None)
    if odd is not None:
        raise MassmoverError(
            f"Images must be PyTorch tensors; got {type(odd).__name__}. Wrap the model in foolbox.PyTorchModel."
        )
    return raws, lambda answer: restore(eagerpy.astensor(answer))
