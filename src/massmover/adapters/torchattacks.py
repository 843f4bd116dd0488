"""massmover as an attack of torchattacks: `WassersteinAttack(model, ball=WassersteinBall(0.1))(images, labels)`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from massmover.adapters.mover import BALL, Mover, needed
from massmover.attacks.base import Attack as MassAttack
from massmover.ball import WassersteinBall
from massmover.types import MassmoverError

Attack: Any = needed("torchattacks.attack", extra="torchattacks").Attack


class WassersteinAttack(Attack):
    """Any attack of massmover, in the default mode and in every targeted one."""

    def __init__(
        self,
        model: Any,
        *,
        ball: WassersteinBall = BALL,
        method: str | MassAttack = "auto",
        seed: int = 0,
        draws: int | None = None,
    ) -> None:
        """Choose the ball and the attack; see `massmover.attack`."""
        super().__init__("Wasserstein", model)
        self.mover = Mover(ball, method, seed, draws)
        self.supported_mode = ["default", "targeted"]

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return an adversarial image for each input in [0, 1]; every one lies within the radius."""
        if labels is None:
            raise MassmoverError("The attack needs labels: call it as attack(images, labels).")
        images, classes = inputs.detach().to(self.device), labels.detach().to(self.device)
        if self.targeted:
            classes = self.get_target_label(images, classes)
        return self.mover.within(self.get_logits, images, classes, targeted=self.targeted).images
