"""Training for a proof: what the loop does to a network of potentials besides descending."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from massmover.models.certified import PotentialNetwork
from massmover.training.batches import as_floats
from massmover.training.recipe import Margin
from massmover.types import Labels, Logits, MassmoverError

RADII_PIXELS = (10, 20, 50, 100, 200)  # radius x pixels at which the held-out images are judged


def potential_network(model: nn.Module) -> PotentialNetwork:
    """The model, once it is one that a margin can be trained for."""
    if not isinstance(model, PotentialNetwork):
        raise MassmoverError(
            f"a margin is trained with massmover.models.PotentialNetwork, not with {type(model).__name__}: "
            "the margins of other networks prove nothing"
        )
    return model


def margin_loss(margin: Margin, scores: Logits, labels: Labels) -> Tensor:
    """Cross-entropy, added up, after the true class has given up twice the wanted radius."""
    wanted = 2 * margin.radius * F.one_hot(labels, scores.shape[1])
    return F.cross_entropy((scores - wanted) / margin.temperature, labels, reduction="sum")


@torch.no_grad()
def held_out_margins(model: nn.Module, images: Tensor, labels: Labels) -> dict[str, float]:
    """The share of images with a margin of twice each radius: what will be certified, but for the last projection.

    During training potentials are 1-Lipschitz by way of neighbours only, up to some per cent (`relax_`).
    """
    place = next(model.parameters()).device
    parts = [model.eval()(as_floats(part.to(place))) for part in torch.split(images, 1000)]
    scores, truth = torch.cat(parts), labels.to(place)[:, None]
    rival = scores.scatter(1, truth, -torch.inf).amax(dim=1)
    half = (scores.gather(1, truth)[:, 0] - rival) / 2
    radii = [pixels / images[0].numel() for pixels in RADII_PIXELS]
    return {f"{radius:g}": float((half > radius).double().mean()) for radius in radii}
