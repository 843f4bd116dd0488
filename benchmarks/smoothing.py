"""Does an attack break what smoothing certifies? The vote is attacked at the radius that was proved for it.

`python -m benchmarks.smoothing 50` certifies the first 50 test digits with `mnist-standard` and attacks a vote over
fixed noisy copies, which has gradients, by plan ascent. What it finds is put to a new vote over fresh ones.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from massmover import WassersteinBall, attack
from massmover.certificates import FlowSmoothing, smoothed_radius
from massmover.certificates.smoothing import noisy_copies, vote
from massmover.data import load
from massmover.models import load_model
from massmover.types import Images, Logits

SMOOTHING = FlowSmoothing(scale=0.003)
COPIES = 16


class SoftVote(nn.Module):
    """The mean opinion on a few noisy copies, the same noise for every image in shares of its mass."""

    def __init__(self, model: nn.Module) -> None:
        """Draw the noise once."""
        super().__init__()
        self.model = model
        even = torch.full((1, 28, 28), 1 / 784)  # mass 1, so that the noise is one of shares
        draws = torch.Generator().manual_seed(1)
        self.noise = (noisy_copies(even, COPIES, scale=SMOOTHING.scale, draws=draws) - even).float()

    def forward(self, images: Images) -> Logits:
        """Scores whose order is that of the mean probabilities."""
        mass = images.sum(dim=(1, 2, 3)).view(-1, 1, 1, 1, 1)
        copies = images[:, None] + mass * self.noise  # (B, copies, C, H, W)
        opinions: torch.Tensor = self.model(copies.flatten(0, 1)).softmax(dim=1)
        return opinions.view(*copies.shape[:2], -1).mean(dim=1).clamp_min(1e-9).log()


def main(count: int) -> None:
    """Print how many images were certified, and how many of those were broken at their radius."""
    digits = load("mnist")
    images, labels = digits.images_as_float()[:count], digits.labels[:count]
    model = load_model("mnist-standard")
    proved = smoothed_radius(model, images, labels, ball=WassersteinBall(0.1), smoothing=SMOOTHING).radius
    held = proved > 0
    images, labels, proved = images[held], labels[held], proved[held]
    found = attack(SoftVote(model), images, labels, radius=proved, method="ascent")
    votes = [vote(model, image, smoothing=SMOOTHING, number=len(digits) + k) for k, image in enumerate(found.images)]
    broken = sum(winner != int(label) for (winner, _), label in zip(votes, labels, strict=True))
    print(f"smoothing: {len(images)} of {count} certified, median radius x 784 {784 * float(proved.median()):.2f}")
    print(f"broken at the radius that was proved: {broken}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
