"""massmover as an attack of torchattacks: `attack = WassersteinAttack(model, radius=0.1); attack(images, labels)`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from massmover.adapters.extras import needed
from massmover.adapters.mover import Mover
from massmover.types import Ground, MassmoverError, Normalisation

Attack: Any = needed("torchattacks.attack", extra="torchattacks").Attack


class WassersteinAttack(Attack):
    """Any attack of massmover, in the default mode and in every targeted one."""

    def __init__(
        self,
        model: Any,
        *,
        radius: float = 0.1,
        method: str = "auto",
        window: int | None = 5,
        ground: Ground = "euclidean",
        power: float = 1.0,
        normalisation: Normalisation = "image",
        seed: int = 0,
    ) -> None:
        """Choose the attack, the radius and how mass may move; see `massmover.attack`."""
        super().__init__("Wasserstein", model)
        self.radius = radius
        self.mover = Mover(method, window, ground, power, normalisation, seed)
        self.supported_mode = ["default", "targeted"]

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return an adversarial image for each input in [0, 1]; every one lies within the radius."""
        if labels is None:
            raise MassmoverError("The attack needs labels: call it as attack(images, labels).")
        images, classes = inputs.detach().to(self.device), labels.detach().to(self.device)
        if self.targeted:
            classes = self.get_target_label(images, classes)
        return self.mover.within(self.get_logits, images, classes, radius=self.radius, targeted=self.targeted).images
