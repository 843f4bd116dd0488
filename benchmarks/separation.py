"""How far digits are from their nearest neighbours of other classes: what any classifier can hope to stand.

    python -m benchmarks.separation [COUNT]

Two images of different classes at a distance d cannot both stand a radius above d / 2 (up to their masses, which no
movement changes): half the way from one is half the way from the other. For each of the last training digits the
nearest of 25 candidates of other classes, and of 15 of its own, are measured by exact transport between images of mass
1; candidates are nearest as blurred images, so the distances printed are upper bounds.
"""

from __future__ import annotations

import sys

import numpy as np
import ot
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from massmover.data import load

TRAINED = 55_000
OTHERS, SAME = 25, 15  # candidates
SOFT = 2.0  # pixels: the blur by which candidates are found
RADII = (100, 200, 300, 400, 600, 800)


def main() -> None:
    """Print quantiles of the distances, and which share of the digits has half of it beyond each radius."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    digits = load("mnist", split="train")
    whole = digits.images_as_float()[:, 0]
    shares = whole / whole.sum(dim=(1, 2), keepdim=True)
    known, asked = shares[:TRAINED], shares[TRAINED : TRAINED + count]
    labels, truth = digits.labels[:TRAINED], digits.labels[TRAINED : TRAINED + count]
    apart = torch.cdist(blurred(asked), blurred(known))
    found = {"another class": (truth[:, None] != labels, OTHERS), "its own class": (truth[:, None] == labels, SAME)}
    for name, (allowed, candidates) in found.items():
        near = apart.masked_fill(~allowed, torch.inf).topk(candidates, largest=False).indices
        pairs = zip(asked, near, strict=True)
        nearest = np.array([min(distance(image, known[i]) for i in row) for image, row in pairs]) * whole[0].numel()
        quantiles = " / ".join(f"{value:.0f}" for value in np.quantile(nearest, [0.05, 0.25, 0.5, 0.75, 0.95]))
        print(f"nearest of {name}, x {whole[0].numel()}: {quantiles} at 5 / 25 / 50 / 75 / 95 %")
        if name == "another class":
            for radius in RADII:
                print(f"  half of it above {radius}: {100 * float((nearest / 2 > radius).mean()):.0f} %")


def blurred(images: Tensor) -> Tensor:
    """Images (N, H, W) under a Gaussian, flat."""
    reach = int(3 * SOFT)
    row = torch.exp(-(torch.arange(-reach, reach + 1) ** 2) / (2 * SOFT**2))
    row = row / row.sum()
    soft = F.conv2d(images[:, None], row.view(1, 1, -1, 1), padding=(reach, 0))
    return F.conv2d(soft, row.view(1, 1, 1, -1), padding=(0, reach)).flatten(1)


def distance(one: Tensor, other: Tensor) -> float:
    """Exact transport between images (H, W) of mass 1; what both have in common stays."""
    first, second = (image.double().numpy() for image in (one, other))
    gone, come = np.maximum(first - second, 0), np.maximum(second - first, 0)
    here, there = (np.argwhere(part > 0).astype(np.float64) for part in (gone, come))
    masses: list[NDArray[np.float64]] = [part[part > 0] for part in (gone, come)]
    moved = masses[0].sum()
    if moved == 0:
        return 0.0
    costs = np.linalg.norm(here[:, None] - there[None], axis=2)
    return float(moved * ot.emd2(masses[0] / moved, masses[1] / masses[1].sum(), costs))


if __name__ == "__main__":
    main()
