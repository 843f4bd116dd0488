"""Proofs of four kinds of images, made by a short attack and checked: how many are refused.

    python -m benchmarks.proofs --count 4000 4000 1950 50

Digits, Fashion-MNIST, CIFAR-10, and pictures of 224 x 224 that are laid out of 49 CIFAR-10 images each. Radii go round
from 0.1 (x pixels) to 1,000; three of four batches are of float32 images, one of float64. Every plan is feasible by
construction, so every refusal would be false. Not in `make bench`: it takes minutes, and the data have to be fetched.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from massmover import PlanAscent, attack
from massmover.data import ImageSet, load
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model
from massmover.types import Classifier

RADII = torch.tensor([0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0], dtype=torch.float64)  # radius x pixels
STEPS = 3  # of the attack: plans are what counts, not whom they fool
SIDE = 7  # CIFAR-10 images along the edge of a large picture


class Kind(NamedTuple):
    """Where the images of a kind come from."""

    data: str
    model: str
    side: int = 1  # images laid out along the edge of a picture
    batch: int = 100


KINDS = {
    "digits": Kind("mnist", "mnist-standard"),
    "Fashion-MNIST": Kind("fashion-mnist", "mnist-standard"),
    "CIFAR-10": Kind("cifar10", "cifar10-robust"),
    "224 x 224": Kind("cifar10", "cifar10-robust", side=SIDE, batch=4),
}


class Tally(NamedTuple):
    """What became of the proofs of a batch."""

    proofs: int
    moved: int  # images that are not their originals
    refused: list[str]
    writing: float  # seconds of processor time, as is the next
    checking: float


@cache
def fetched(name: str) -> ImageSet:
    """A data set, read once."""
    return load(name)


def pictures(kind: Kind, start: int, count: int) -> Tensor:
    """Some images of a kind, the large ones of others side by side."""
    each = kind.side**2
    images = fetched(kind.data).images_as_float(start * each, (start + count) * each)
    channels, height, width = images.shape[1:]
    grid = images.view(count, kind.side, kind.side, channels, height, width).permute(0, 3, 1, 4, 2, 5)
    return grid.reshape(count, channels, kind.side * height, kind.side * width).contiguous()


def batches(kind: Kind, count: int) -> Iterator[Tally]:
    """Attack and check a batch at a time."""
    network = nn.Sequential(nn.AvgPool2d(kind.side), load_model(kind.model)).eval()

    def model(images: Tensor) -> Tensor:
        answer: Tensor = network(images.float())
        return answer

    for turn, start in enumerate(range(0, count, kind.batch)):
        images = pictures(kind, start, min(kind.batch, count - start))
        images = images.double() if turn % 4 == 3 else images
        with torch.no_grad():
            labels = model(images).argmax(dim=1)
        radius = RADII[torch.arange(start, start + len(images)) % len(RADII)] / images[0].numel()
        yield tally(model, images, labels, radius)


def tally(model: Classifier, images: Tensor, labels: Tensor, radius: Tensor) -> Tally:
    """Attack some images, write each proof and check it."""
    found = attack(model, images, labels, radius=radius, method=PlanAscent(steps=STEPS))
    refused, writing, checking = [], 0.0, 0.0
    for row in range(len(images)):
        begin = time.process_time()
        moves = proving_moves(found.plan, images, row)
        written = time.process_time()
        verdict = check(
            images[row].numpy(), found.images[row].numpy(), moves, Claim(float(radius[row]), tolerance=1e-9)
        )
        writing, checking = writing + written - begin, checking + time.process_time() - written
        if not verdict.proved:
            refused.append(f"radius {float(radius[row]):.3g}, {images.dtype}: {verdict}")
    moved = int((found.images != images).flatten(1).any(dim=1).sum())
    return Tally(len(images), moved, refused, writing, checking)


def main() -> None:
    """Print a line for each kind, and every refusal."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--count", type=int, nargs=len(KINDS), default=[4000, 4000, 1950, 50])
    for (name, kind), count in zip(KINDS.items(), arguments.parse_args().count, strict=True):
        proofs, moved, refused, writing, checking = (
            sum(values, start=type(values[0])()) for values in zip(*batches(kind, count), strict=True)
        )
        print(
            f"{name}: {proofs} proofs, {moved} of images that moved, {len(refused)} refused; "
            f"written in {1e3 * writing / proofs:.2f} ms each, checked in {1e3 * checking / proofs:.2f} ms",
            flush=True,
        )
        for reason in refused:
            print(f"  {reason}")


if __name__ == "__main__":
    main()
