"""What an attack climbs: per-image losses that grow as the classifier fails."""

from __future__ import annotations

from typing import Literal

import torch

from massmover.classifier import scores_of
from massmover.types import Classifier, Images, Labels, Logits, MassmoverError, PerImage

LossName = Literal["cross-entropy", "margin", "dlr"]
LOSSES: tuple[LossName, ...] = ("cross-entropy", "margin", "dlr")


def loss_of(logits: Logits, labels: Labels, *, name: LossName, targets: Labels | None = None) -> PerImage:
    """The loss to climb; with targets, the one that leads to them."""
    if name == "cross-entropy":
        # As log odds: cross-entropy is softplus of them, so the direction of the gradient is the same, without the
        # factor that rounds to zero for a confident classifier.
        aim = labels if targets is None else targets
        odds = logits.scatter(1, aim[:, None], -torch.inf).logsumexp(dim=1) - logits.gather(1, aim[:, None]).squeeze(1)
        return odds if targets is None else -odds
    margin = margin_of(logits, labels, targets=targets)
    if name == "margin":
        return margin
    if name == "dlr":  # Croce and Hein 2020: the margin, made free of the scale of the logits
        ordered = logits.sort(dim=1, descending=True).values
        third = ordered[:, 2] if logits.shape[1] > 2 else ordered[:, -1]
        return margin / (ordered[:, 0] - third).clamp_min(1e-12)
    check_loss(name)
    raise AssertionError(name)  # a name in LOSSES without a loss


def check_loss(name: str) -> None:
    """Raise unless a loss has this name."""
    if name not in LOSSES:
        raise MassmoverError(f"unknown loss {name!r}: use one of {', '.join(LOSSES)}")


def gradient_of(
    model: Classifier, images: Images, labels: Labels, *, name: LossName, targets: Labels | None = None
) -> tuple[Logits, Images]:
    """The logits, and the gradient of the loss with respect to the images; also where the caller switched it off."""
    with torch.enable_grad():
        variable = images.detach().requires_grad_(True)
        logits = scores_of(model, variable)
        if not logits.requires_grad:
            raise MassmoverError(
                "the model's answer cannot be differentiated with respect to its input: it detaches the image, or runs "
                "without gradients. Give the attack a differentiable version of the model"
            )
        total = loss_of(logits, labels, name=name, targets=targets).sum()
    (gradient,) = torch.autograd.grad(total, variable)
    return logits.detach(), torch.nan_to_num(gradient)


def margin_of(logits: Logits, labels: Labels, *, targets: Labels | None = None) -> PerImage:
    """How far the best wrong class lies above the true one, or the target above all others; positive when won."""
    wanted = labels if targets is None else targets
    own = logits.gather(1, wanted[:, None]).squeeze(1)
    lead = own - logits.scatter(1, wanted[:, None], -torch.inf).amax(dim=1)
    return -lead if targets is None else lead


def check_margins(margin: torch.Tensor) -> None:
    """Raise where a margin, or a sum of margins, is not a number: then some score was none."""
    if not bool(torch.isfinite(margin).all()):
        raise MassmoverError(
            "The model returned NaN or infinity for an image of the attack. Check its weights and its normalisation."
        )


def fooled(logits: Logits, labels: Labels, *, targets: Labels | None = None) -> torch.Tensor:
    """Where the attack has won: a wrong class is predicted, or the target is."""
    predicted = logits.argmax(dim=1)
    return predicted != labels if targets is None else predicted == targets
