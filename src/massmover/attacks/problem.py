"""The problem every attack solves, image by image: originals, labels, budget, and what moving costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from massmover.attacks.losses import LossName, fooled, gradient_of, margin_of
from massmover.attacks.result import AttackResult
from massmover.checks import logits_of
from massmover.geometry import Window, pad, shifted
from massmover.threat import WassersteinBall
from massmover.transport.potential import Move, certified_move, move_mass
from massmover.transport.repair import Repaired
from massmover.types import Classifier, Images, Labels, PerChannel, PerImage


@dataclass(frozen=True, eq=False)
class Problem:
    """Find, for each image, an image within its budget that the classifier gets wrong (or calls the target)."""

    images: Images
    labels: Labels
    targets: Labels | None
    budget: PerImage  # float64
    weights: PerChannel  # float64
    window: Window

    @classmethod
    def of(
        cls,
        images: Images,
        labels: Labels,
        *,
        ball: WassersteinBall,
        targets: Labels | None = None,
        budget: PerImage | None = None,
    ) -> Problem:
        """The problem a ball poses; `budget` gives each image a radius of its own in place of the ball's."""
        same = images.new_full((len(images),), ball.radius, dtype=torch.float64)
        return cls(
            images=images,
            labels=labels,
            targets=targets,
            budget=same if budget is None else budget.to(same),
            weights=ball.weights(images),
            window=ball.moves(images),
        )

    def __len__(self) -> int:
        return len(self.images)

    def select(self, index: Tensor) -> Problem:
        """The problem of some of the images."""
        return Problem(
            images=self.images[index],
            labels=self.labels[index],
            targets=None if self.targets is None else self.targets[index],
            budget=self.budget[index],
            weights=self.weights[index],
            window=self.window,
        )

    def fooled(self, model: Classifier, images: Images) -> Tensor:
        """Where the classifier answers as the attack wants."""
        with torch.no_grad():
            return fooled(logits_of(model, images), self.labels, targets=self.targets)

    def slope(self, model: Classifier, images: Images, *, loss: LossName) -> tuple[PerImage, Images]:
        """The margin by which the attack has won, and the gradient of its loss with respect to the images."""
        logits, gradient = gradient_of(model, images, self.labels, name=loss, targets=self.targets)
        return margin_of(logits, self.labels, targets=self.targets), gradient

    def move(self, potential: Images, *, price: PerImage | None, floor: float, booked: PerImage) -> Move:
        """The images a potential makes, in float32 accuracy: for the search.

        `booked` may exceed the budget, for pixels that overflow send mass back and what is sent back is not paid. Where
        the rest still costs too much, a share of all mass stays home (docs/algorithms.md (3)).
        """
        move = move_mass(
            potential,
            originals=self.images,
            budget=booked,
            weights=self.weights,
            window=self.window,
            price=price,
            floor=floor,
        )
        if not bool((move.spent > self.budget).any()):
            return move
        share = (self.budget / move.spent.clamp_min(1e-300)).clamp_max(1).view(-1, 1, 1, 1).to(self.images)
        return move._replace(images=torch.lerp(self.images, move.images, share))

    def prove(self, potential: Images, *, price: PerImage | None, floor: float, booked: PerImage) -> Repaired:
        """The images a potential makes with their plans, in float64: for the answer."""
        return certified_move(
            potential,
            originals=self.images,
            budget=self.budget,
            weights=self.weights,
            window=self.window,
            price=price,
            floor=floor,
            booked=booked,
        )

    def answer(self, model: Classifier, proof: Repaired, *, steps: PerImage) -> AttackResult:
        """What the attack returns: success is decided on the very images that are returned."""
        return AttackResult(
            images=proof.images,
            success=self.fooled(model, proof.images),
            radius=self.budget,
            steps=steps,
            plan=proof.plan,
            certificate=proof.certificate,
        )

    def mass(self) -> PerImage:
        """The mass of each image."""
        return self.images.sum(dim=(1, 2, 3))

    def within_reach(self) -> Tensor:
        """1 where some pixel could send mass to, 0 where none ever arrives and no gradient counts."""
        height, width = self.images.shape[-2:]
        padded = pad((self.images > 0).to(self.images.dtype), window=self.window)
        found = torch.zeros_like(self.images)
        for dy, dx in self.window.offsets:
            found = torch.maximum(found, shifted(padded, dy, dx, window=self.window, height=height, width=width))
        return found
