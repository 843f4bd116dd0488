"""Plan ascent: climb the loss in the space of plans, where every point is feasible.

The plan of a potential is feasible whatever the potential (transport/potential.py), so no projection is needed: the
attack adds the loss gradient at the moved image to the potential of every pixel, which is mirror ascent on plans with
the entropy as the mirror. docs/algorithms.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from massmover.attacks.losses import LossName, fooled, loss_of, margin_of
from massmover.attacks.result import AttackResult
from massmover.checks import inference_mode_of, logits_of
from massmover.geometry import Window, pad, shifted
from massmover.threat import WassersteinBall
from massmover.transport.potential import certified_move, move_mass
from massmover.types import Classifier, Images, Labels, PerImage


@dataclass(frozen=True)
class PlanAscent:
    """Entropic mirror ascent on the target potential."""

    steps: int = 60
    loss: LossName = "cross-entropy"
    step_size: float = 2.0  # largest change of a potential in one step
    momentum: float = 0.75

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
        """Attack every image within the ball; finished images leave the batch."""
        window, weights = ball.moves(images), ball.weights(images)
        budget = images.new_full((len(images),), ball.radius, dtype=torch.float64)
        within_reach = reach(images, window=window)
        potential, velocity = torch.zeros_like(images), torch.zeros_like(images)
        best, best_loss = torch.zeros_like(images), images.new_full((len(images),), -torch.inf)
        price = torch.ones_like(budget)
        steps = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        with inference_mode_of(model):
            active = torch.nonzero(~fooled(logits_of(model, images), labels, targets=targets)).flatten()
            for _ in range(self.steps):
                if not len(active):
                    break
                # forward
                moved = move_mass(
                    potential[active],
                    originals=images[active],
                    budget=budget[active],
                    weights=weights[active],
                    window=window,
                    price=price[active],
                )
                price[active] = moved.price
                truth, aim = labels[active], None if targets is None else targets[active]
                loss, margin, gradient = climb(model, moved.images, truth, name=self.loss, targets=aim)
                steps[active] += 1
                # track
                won = margin > 0
                better = (margin > best_loss[active]) | won
                best[active[better]] = potential[active[better]]
                best_loss[active[better]] = margin[better]
                active, gradient = active[~won], gradient[~won]
                # step
                gradient = gradient * within_reach[active]
                largest = gradient.abs().amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30)
                velocity[active] = self.momentum * velocity[active] + (1 - self.momentum) * gradient / largest
                potential[active] += self.step_size * velocity[active]
            proof = certified_move(best, originals=images, budget=budget, weights=weights, window=window)
            success = fooled(logits_of(model, proof.images), labels, targets=targets)
        return AttackResult(
            images=proof.images,
            success=success,
            radius=budget,
            steps=steps,
            plan=proof.plan,
            certificate=proof.certificate,
        )


def climb(
    model: Classifier, images: Images, labels: Labels, *, name: LossName, targets: Labels | None
) -> tuple[PerImage, PerImage, Images]:
    """The loss, the margin by which the attack has won, and the gradient of the loss with respect to the image."""
    variable = images.detach().requires_grad_(True)
    logits = logits_of(model, variable)
    loss = loss_of(logits, labels, name=name, targets=targets)
    (gradient,) = torch.autograd.grad(loss.sum(), variable)
    return loss.detach(), margin_of(logits.detach(), labels, targets=targets), torch.nan_to_num(gradient)


def reach(images: Images, *, window: Window) -> Tensor:
    """1 where some pixel could send mass to, 0 where no mass ever arrives and no gradient counts."""
    height, width = images.shape[-2:]
    padded = pad((images > 0).to(images.dtype), window=window)
    found = torch.zeros_like(images)
    for dy, dx in window.offsets:
        found = torch.maximum(found, shifted(padded, dy, dx, window=window, height=height, width=width))
    return found
