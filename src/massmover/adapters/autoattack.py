"""massmover in the shape of AutoAttack, for evaluation scripts written for it; needs no other library."""

from __future__ import annotations

from typing import Literal, overload

import torch

from massmover.adapters.mover import Mover
from massmover.attacks.base import Attack
from massmover.ball import WassersteinBall
from massmover.classifier import borrowed, logits_of
from massmover.types import Classifier, Images, Labels, MassmoverError


class WassersteinAutoAttack:
    """Attacks with `perturb(x, y)` and `run_standard_evaluation(x, y, bs)`, silent, without settings to tune.

    As with AutoAttack, an image on which every attack failed comes back as it was.
    """

    def __init__(
        self,
        model: Classifier,
        *,
        ball: WassersteinBall,
        method: str | Attack = "auto",
        seed: int = 0,
        draws: int | None = None,
    ) -> None:
        """Choose the model, the ball and the attack; see `massmover.attack`."""
        self.model = model
        self.mover = Mover(ball, method, seed, draws)

    def perturb(self, x: Images, y: Labels) -> Images:
        """Return adversarial images within the radius, and the originals where the attack failed."""
        found = self.mover.within(self.model, x, y)
        return torch.where(found.success.view(-1, 1, 1, 1), found.images, x)

    @overload
    def run_standard_evaluation(
        self, x_orig: Images, y_orig: Labels, bs: int = ..., return_labels: Literal[False] = ...
    ) -> Images: ...
    @overload
    def run_standard_evaluation(
        self, x_orig: Images, y_orig: Labels, bs: int = ..., *, return_labels: Literal[True]
    ) -> tuple[Images, Labels]: ...
    def run_standard_evaluation(
        self, x_orig: Images, y_orig: Labels, bs: int = 250, return_labels: bool = False
    ) -> Images | tuple[Images, Labels]:
        """Return `perturb` of all images, `bs` at a time; with `return_labels` also what the model answers then.

        Robust accuracy is the share of those answers that are right.
        """
        if bs < 1:
            raise MassmoverError(f"bs is {bs}: give 1 image or more at a time.")
        batches = list(zip(torch.split(x_orig, bs), torch.split(y_orig, bs), strict=True))
        adversarial = torch.cat([self.perturb(images, labels) for images, labels in batches])
        if not return_labels:
            return adversarial
        judge = self.mover.judge(self.model)
        with borrowed(judge), torch.no_grad():
            answers = [logits_of(judge, images).argmax(dim=1) for images in torch.split(adversarial, bs)]
        return adversarial, torch.cat(answers)
