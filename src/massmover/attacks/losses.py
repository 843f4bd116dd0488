"""What an attack climbs: per-image losses that grow as the classifier fails."""

from __future__ import annotations

from typing import Literal

import torch

from massmover.types import Labels, Logits, MassmoverError, PerImage

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
    raise MassmoverError(f"unknown loss {name!r}: use one of {', '.join(LOSSES)}")


def margin_of(logits: Logits, labels: Labels, *, targets: Labels | None = None) -> PerImage:
    """How far the best wrong class (or the target) lies above the true one; positive when the attack has won."""
    truth = logits.gather(1, labels[:, None]).squeeze(1)
    if targets is not None:
        return logits.gather(1, targets[:, None]).squeeze(1) - truth
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.amax(dim=1) - truth


def fooled(logits: Logits, labels: Labels, *, targets: Labels | None = None) -> torch.Tensor:
    """Where the attack has won: a wrong class is predicted, or the target is."""
    predicted = logits.argmax(dim=1)
    return predicted != labels if targets is None else predicted == targets
