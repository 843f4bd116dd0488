"""The settings of an attack that every adapter shares, and the two ways to call it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from massmover.attacks import AttackResult, SmallestResult, attack, smallest_radius
from massmover.classifier import first_logits_of
from massmover.types import Classifier, Ground, Images, Labels, Normalisation


@dataclass(frozen=True)
class Mover:
    """How mass may move and how a place for it is looked for; the radius is given with each call."""

    method: str
    window: int | None = 5
    ground: Ground = "euclidean"
    power: float = 1.0
    normalisation: Normalisation = "image"
    seed: int = 0

    def within(
        self, model: Classifier, images: Images, labels: Labels, *, radius: float, targeted: bool = False
    ) -> AttackResult:
        """Attack within a radius; `labels` are the true classes, or those to reach if the attack is targeted."""
        truth, aims = truth_and_aims(model, images, labels, targeted=targeted)
        return attack(model, images, truth, targets=aims, radius=radius, **vars(self))

    def closest(
        self, model: Classifier, images: Images, labels: Labels, *, largest: float | None, targeted: bool = False
    ) -> SmallestResult:
        """Look for the smallest radius of each image, up to the largest."""
        truth, aims = truth_and_aims(model, images, labels, targeted=targeted)
        return smallest_radius(model, images, truth, targets=aims, largest=largest, **vars(self))


def truth_and_aims(
    model: Classifier, images: Images, labels: Labels, *, targeted: bool
) -> tuple[Labels, Labels | None]:
    """Labels and targets as massmover wants them, from the one tensor that other libraries pass.

    A targeted attack does not look at the true class, and other libraries do not tell it; the
    class after the target stands in for it, since a target must differ from the label.
    """
    if not targeted:
        return labels, None
    if not len(images):
        return labels, labels
    with torch.no_grad():
        classes = first_logits_of(model, images[:1]).shape[1]
    return (labels + 1) % classes, labels
