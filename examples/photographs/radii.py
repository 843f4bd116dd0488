"""Print how many of the photographs stand at each radius: python radii.py 1 3 10 30 100."""

from __future__ import annotations

import sys

import massmover
from massmover.data import load
from photographs import efficientnet_lite0


def main(radii: list[float]) -> None:
    """Attack the photographs one by one; the certificates are the proof, the exact judge is not asked."""
    whole, model = load("photographs.npz"), efficientnet_lite0()
    for radius in radii:
        standing = proven = 0
        for image, label in zip(whole.images_as_float(), whole.labels, strict=True):
            result = massmover.attack(model, image[None], label[None], radius=radius / image.numel(), method="ascent")
            standing, proven = standing + int(~result.success), proven + int(result.trusted)
        print(f"radius x pixels {radius:g}: {standing} of {len(whole)} right, {proven} proven inside")


if __name__ == "__main__":
    main([float(argument) for argument in sys.argv[1:]])
