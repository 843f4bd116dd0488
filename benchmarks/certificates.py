"""What a certificate takes beside the forward pass, and what training pays for its projection."""

from __future__ import annotations

import time

import torch

from benchmarks.clock import interleaved
from massmover import WassersteinBall
from massmover.certificates import PixelMetric, certified_radius, projected, steepness
from massmover.certificates.transform import relax_
from massmover.data import load
from massmover.models import load_model

POTENTIALS = 320  # of 28 x 28 pixels


def main() -> None:
    """Print milliseconds an image, and milliseconds a projection."""
    digits = load("mnist-sample")
    images, labels = digits.images_as_float(), digits.labels
    started = time.perf_counter()
    model = load_model("mnist-certified")
    print(f"mnist-certified: {time.perf_counter() - started:.2f} s to load, every pair of pixels checked")
    ball = WassersteinBall(0.1)

    def forward() -> None:
        with torch.no_grad():
            model(images)

    seconds = interleaved({"forward": forward, "both": lambda: certified_radius(model, images, labels, ball=ball)})
    each = {name: 1e3 * value / len(images) for name, value in seconds.items()}
    print(
        f"potentials: forward pass {each['forward']:.3f} ms an image, "
        f"certificate {each['both'] - each['forward']:.3f} ms beside it"
    )
    started = time.perf_counter()
    certified_radius(load_model("mnist-robust"), images[:4], labels[:4], ball=ball)
    print(f"linear bounds, mnist-robust: {(time.perf_counter() - started) / 4:.1f} s an image")
    metric, rough = PixelMetric(28, 28), torch.randn(POTENTIALS, 28, 28, generator=torch.Generator().manual_seed(0))
    columns = rough.flatten(1).T.contiguous()
    arrays = rough.numpy()
    projections = interleaved(
        {
            "by way of neighbours": lambda: relax_(columns.clone(), metric=metric),
            "all pairs of pixels": lambda: projected(rough, metric=metric),
            "the check": lambda: steepness(arrays, ground="euclidean"),
        },
        rounds=3,
    )
    for name, value in projections.items():
        print(f"{POTENTIALS} potentials, {name}: {1e3 * value:.0f} ms")


if __name__ == "__main__":
    main()
