"""How much of what a plan costs is wasted: the exact distance of examples over the cost that their plans prove.

    python -m benchmarks.waste --model mnist-robust --radius-pixels 400 --count 150

Bundled digits. Plans of an ascent are soft where it wins early; `auto` replaces them by the cheapest ones that make
the same images (docs/algorithms.md, (1c)).
"""

from __future__ import annotations

import argparse

from massmover import attack, exact_distance
from massmover.data import load
from massmover.models import load_model


def main() -> None:
    """Print a line for each attack."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--model", default="mnist-robust")
    arguments.add_argument("--radius-pixels", type=float, default=400.0)
    arguments.add_argument("--count", type=int, default=150)
    asked = arguments.parse_args()
    digits = load("mnist-sample").subset(0, asked.count)
    images, labels, model = digits.images_as_float(), digits.labels, load_model(asked.model)
    for method in ("ascent", "auto"):
        found = attack(model, images, labels, radius=asked.radius_pixels / images[0].numel(), method=method)
        moved = found.success & (found.cost > 0)
        share = exact_distance(images[moved], found.images[moved]) / found.cost[moved]
        print(
            f"{method}: {len(share)} examples of {asked.model} at {asked.radius_pixels:g}, exact distance over cost "
            f"{float(share.mean()):.4f} on average, {float(share.min()):.4f} at least",
            flush=True,
        )


if __name__ == "__main__":
    main()
