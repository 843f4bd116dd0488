"""massmover as an evasion attack of the Adversarial Robustness Toolbox: `WassersteinAttack(...).generate(x, y)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from massmover.adapters.mover import BALL, Mover, needed
from massmover.attacks.base import Attack
from massmover.ball import WassersteinBall
from massmover.classifier import borrowed, first_logits_of
from massmover.types import Classifier, Images, Labels, MassmoverError

EvasionAttack: Any = needed("art.attacks.attack", extra="art").EvasionAttack
PyTorchClassifier: Any = needed("art.estimators.classification.pytorch", extra="art").PyTorchClassifier


class WassersteinAttack(EvasionAttack):
    """Any attack of massmover against a `PyTorchClassifier` with clip values (0, 1)."""

    attack_params = (
        *EvasionAttack.attack_params,
        *("ball", "method", "seed", "draws", "targeted", "batch_size"),
    )
    _estimator_requirements = (PyTorchClassifier,)

    def __init__(
        self,
        estimator: Any,
        *,
        ball: WassersteinBall = BALL,
        method: str | Attack = "auto",
        seed: int = 0,
        draws: int | None = None,
        targeted: bool = False,
        batch_size: int = 100,
    ) -> None:
        """Choose the ball and the attack; see `massmover.attack`."""
        super().__init__(estimator=estimator)
        self.ball = ball
        self.method = method
        self.seed = seed
        self.draws = draws
        self.targeted = targeted
        self.batch_size = batch_size
        self._check_params()

    def generate(self, x: NDArray[Any], y: NDArray[Any] | None = None, **kwargs: Any) -> NDArray[np.float32]:
        """Return an adversarial image for each of x (B, C, H, W); y holds class numbers or one-hot rows.

        Without y the classifier's own answers are the labels, and images are float32, as everywhere in the toolbox.
        """
        if kwargs:
            raise MassmoverError(f"Unknown setting {next(iter(kwargs))!r}: settings are given when the attack is made.")
        mover = Mover(self.ball, self.method, self.seed, self.draws)
        images = torch.from_numpy(np.array(x, dtype=np.float32)).to(self.estimator.device)
        with borrowed(mover.judge(self.estimator.model)):
            labels = self._labels(mover.judge(self._logits), images, y)
            batches = zip(*(torch.split(values, self.batch_size) for values in (images, labels)), strict=True)
            adversarial = [mover.within(self._logits, *batch, targeted=self.targeted).images for batch in batches]
        found: NDArray[np.float32] = torch.cat(adversarial).cpu().numpy()
        return found

    def _labels(self, judge: Classifier, images: Images, y: NDArray[Any] | None) -> Labels:
        """The classes of the images, or those to reach, as numbers."""
        if y is not None:
            given = np.asarray(y)
            numbers = given.argmax(axis=1) if given.ndim == 2 and given.shape[1] > 1 else given.reshape(-1)
            return torch.from_numpy(numbers.astype(np.int64)).to(images.device)
        if self.targeted:
            raise MassmoverError("A targeted attack needs y, the class that each image is to be taken for.")
        with torch.no_grad():
            answers = [first_logits_of(judge, batch).argmax(dim=1) for batch in torch.split(images, self.batch_size)]
        return torch.cat(answers)

    def _check_params(self) -> None:
        super()._check_params()
        clip = self.estimator.clip_values
        if clip is not None and (float(np.min(clip[0])), float(np.max(clip[1]))) != (0.0, 1.0):
            raise MassmoverError(
                f"The classifier takes pixels in {tuple(np.asarray(clip).tolist())}; mass is moved between pixels in "
                "[0, 1]. Make it with clip_values=(0, 1), and let its preprocessing rescale."
            )
        if not self.estimator.channels_first:
            raise MassmoverError("The classifier takes channels last; make it with channels_first=True.")
        if not self.estimator.all_framework_preprocessing:
            raise MassmoverError(
                "A preprocessing defence of the classifier is not written in PyTorch, so no gradient flows through it. "
                "Use its PyTorch version, or leave it out."
            )
        if self.batch_size < 1:
            raise MassmoverError(f"batch_size is {self.batch_size}: give 1 or more.")

    def _logits(self, images: Images) -> Tensor:
        """The scores of the classifier, its preprocessing included, differentiable."""
        for step in self.estimator.preprocessing_operations:
            if step.apply_predict:
                images, _ = step.forward(images)
        scores: Tensor = self.estimator.model(images)
        return scores
