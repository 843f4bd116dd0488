"""Coherent attacks on three data sets, each checked from its plan by the proof checker and from its image by the judge.

    python -m benchmarks.coherent_checks mnist fashion-mnist cifar10

Instead of a name a folder with the official files will do. Neither checker shares code with the attack. Not part of
`make bench`: it takes some 10 minutes of processor time.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from massmover import WassersteinBall, attack, verify
from massmover.data import load
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model

EACH = 67  # attacks of a setting on a data set: 10 settings on 3 data sets make 2,010
STEPS = 25
# radius in pixels, scatter in pixels, width in pixels, size of the window
SETTINGS = (
    (0.1, 0.05, None, 5),
    (0.1, 0.02, 9, 5),
    (0.5, 0.0, None, 5),
    (0.5, 0.1, 4, 5),
    (1.0, 0.02, None, 5),
    (1.0, 0.05, 9, 5),
    (1.0, 0.0, 7, 5),
    (1.0, 0.5, 14, 5),
    (2.0, 0.05, 9, 9),
    (3.0, 0.1, None, 9),
)


class Count(NamedTuple):
    """What became of some attacks."""

    attacks: int
    broken: int
    unproved: int  # by the checker, for whatever reason
    outside: int  # by exact transport
    farthest: float  # largest cost over the radius
    loosest: float  # largest scatter beyond what is allowed, in pixels


def small_network(channels: int) -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )


def trained(data: str) -> nn.Module:
    """A small classifier of a data set: 300 batches of 100 of its training images."""
    torch.manual_seed(0)
    train = load(data, split="train").subset(0, 10_000)
    model = small_network(train.images.shape[1])
    model(train.subset(0, 1).images_as_float())
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch in range(300):
        part = train.subset(batch % 100 * 100, 100)
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(part.images_as_float()), part.labels))
        optimiser.step()
    return model.eval()


def right_images(model: nn.Module, data: str) -> tuple[Tensor, Tensor]:
    """Test images that the classifier gets right, enough for every setting to have its own."""
    test = load(data, split="test").subset(0, 3 * EACH * len(SETTINGS))
    images, labels = test.images_as_float(), test.labels
    with torch.no_grad():
        right = torch.nonzero(model(images).argmax(dim=1) == labels).flatten()[: EACH * len(SETTINGS)]
    assert len(right) == EACH * len(SETTINGS), f"only {len(right)} images of {data} are classified rightly"
    return images[right], labels[right]


def checked(model: nn.Module, images: Tensor, labels: Tensor, setting: tuple[float, float, int | None, int]) -> Count:
    """Attack some images, and check every result twice."""
    radius, scatter, width, window = setting
    ball = WassersteinBall(radius, window=window, scatter=scatter, width=width)
    found = attack(model, images, labels, ball=ball, method="ascent", steps=STEPS)
    claim = Claim(radius, window=window, tolerance=1e-9, scatter=scatter, width=width)
    verdicts = [
        check(image.numpy(), moved.numpy(), proving_moves(found.plan, images, row), claim)
        for row, (image, moved) in enumerate(zip(images, found.images, strict=True))
    ]
    judged = verify(images, found.images, radius, threads=1, settle=True)
    return Count(
        attacks=len(images),
        broken=int(found.success.sum()),
        unproved=sum(not verdict.proved for verdict in verdicts),
        outside=judged.violations,
        farthest=max(verdict.bound for verdict in verdicts) / radius,
        loosest=max(verdict.scatter for verdict in verdicts) - scatter,
    )


def main() -> None:
    """Attack, check, and count."""
    total: Counter[str] = Counter()
    for data in sys.argv[1:] or ["mnist", "fashion-mnist", "cifar10"]:
        model = load_model("mnist-standard") if data == "mnist" else trained(data)
        images, labels = right_images(model, data)
        for number, setting in enumerate(SETTINGS):
            part = slice(number * EACH, (number + 1) * EACH)
            count = checked(model, images[part], labels[part], setting)
            print(f"{data}, (radius, scatter, width, window) {setting}: {count}", flush=True)
            total.update({name: getattr(count, name) for name in ("attacks", "broken", "unproved", "outside")})
    print(f"in all: {dict(total)}")


if __name__ == "__main__":
    main()
