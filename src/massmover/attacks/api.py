"""One call for every attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.ensemble import Ensemble
from massmover.attacks.frank_wolfe import FrankWolfe
from massmover.attacks.pgd import SinkhornAttack, wong
from massmover.attacks.result import AttackResult
from massmover.checks import check_images, check_labels, check_radius, first_logits_of, inference_mode_of
from massmover.threat import WassersteinBall
from massmover.types import Classifier, Ground, Images, Labels, MassmoverError, Normalisation


class Attack(Protocol):
    """Anything that attacks a batch within a ball."""

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
        """Attack every image within the ball, with the proof that each result lies in it."""
        ...


METHODS: Mapping[str, Callable[[], Attack]] = {
    "auto": Ensemble,
    "ascent": PlanAscent,
    "frank-wolfe": FrankWolfe,
    "sinkhorn": SinkhornAttack,
    "wong": wong,
}


def attack(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    radius: float,
    method: str = "auto",
    window: int | None = 5,
    ground: Ground = "euclidean",
    power: float = 1.0,
    normalisation: Normalisation = "image",
    targets: Tensor | None = None,
    seed: int = 0,
) -> AttackResult:
    """Look for an image within the radius that the classifier gets wrong, for every image of a batch.

    `images` (B, C, H, W) in [0, 1], `labels` (B,). With `targets` the classifier must answer those. The
    model is left as it was found, and nothing that was passed is written to.
    """
    if method not in METHODS:
        raise MassmoverError(f"unknown method {method!r}: use one of {', '.join(METHODS)}")
    pixels, truth, aims = checked(model, images, labels, targets=targets)
    ball = WassersteinBall(check_radius(radius), window=window, ground=ground, power=power, normalisation=normalisation)
    return METHODS[method]().run(model, pixels, truth, ball=ball, targets=aims, seed=seed)


def checked(
    model: Classifier, images: Tensor, labels: Tensor, *, targets: Tensor | None
) -> tuple[Images, Labels, Labels | None]:
    """What the caller gave, once it is known to fit together; the model is asked how many classes it has."""
    pixels = check_images(images)
    with inference_mode_of(model), torch.no_grad():
        classes = first_logits_of(model, pixels[:1]).shape[1] if len(pixels) else None
    truth = check_labels(labels, batch=len(pixels), classes=classes).to(pixels.device)
    aims = None if targets is None else check_labels(targets, batch=len(pixels), classes=classes).to(pixels.device)
    if aims is not None and bool((aims == truth).any()):
        first = int(torch.nonzero(aims == truth)[0])
        raise MassmoverError(f"the target of image {first} is its own label, {int(truth[first])}: choose another class")
    return pixels, truth, aims
