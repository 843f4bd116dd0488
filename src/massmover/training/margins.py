"""Training for a proof: what the loop does to a network of potentials besides descending."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from massmover.models.certified import PotentialNetwork
from massmover.types import Images, Labels, MassmoverError, PerImage

RADII_PIXELS = (10, 20, 50, 100, 200)  # radius x pixels at which the held-out images are judged


def potential_network(model: nn.Module) -> PotentialNetwork:
    """The model, once it is one that a margin can be trained for."""
    if not isinstance(model, PotentialNetwork):
        raise MassmoverError(
            f"a margin is trained with massmover.models.PotentialNetwork, not with {type(model).__name__}: "
            "the margins of other networks prove nothing"
        )
    return model


class Margins(nn.Module):
    """A network of potentials that answers with the duels of the true class, which is what the loss is about."""

    def __init__(self, network: PotentialNetwork) -> None:
        """Wrap a network; its weights are shared."""
        super().__init__()
        self.network = network

    def forward(self, images: Images, labels: Labels) -> Tensor:
        """By how much each duel is won (B, classes)."""
        return self.network.margins(images, labels)


def margin_loss(won: Tensor, *, radii: PerImage, temperature: float) -> PerImage:
    """Cross-entropy over the duels (B, classes) of the true class, each to be won by the radius wanted.

    A duel counts twice, as the difference between the scores of two classes would.
    """
    return F.softplus(torch.logsumexp(2 * (radii.unsqueeze(1) - won) / temperature, dim=1))


@torch.no_grad()
def held_out_margins(model: nn.Module, images: Images, labels: Labels) -> dict[str, float]:
    """The share of images with a margin of twice each radius: what will be certified, but for the last projection.

    During training potentials are 1-Lipschitz by way of neighbours only, up to some per cent (`relax_`).
    """
    place = next(model.parameters()).device
    parts = [model.eval()(part.to(place)) for part in torch.split(images, 1000)]
    scores, truth = torch.cat(parts), labels.to(place)[:, None]
    rival = scores.scatter(1, truth, -torch.inf).amax(dim=1)
    half = (scores.gather(1, truth)[:, 0] - rival) / 2
    radii = [pixels / images[0].numel() for pixels in RADII_PIXELS]
    return {f"{radius:g}": float((half > radius).double().mean()) for radius in radii}
