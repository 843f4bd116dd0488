"""What the exact judge takes, per image."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from massmover import WassersteinBall, distance_bounds
from massmover.data import load
from massmover.transport.plan import Plan
from massmover.transport.repair import repair


def disturbed(images: Tensor, *, radius: float) -> Tensor:
    """Feasible images that differ from the originals wherever there is mass: the judge's hardest case."""
    balls = WassersteinBall(radius).around(images)
    generator = torch.Generator().manual_seed(0)
    shape = (*images.shape[:2], len(balls.window.offsets), *images.shape[2:])
    flows = torch.rand(shape, generator=generator, dtype=torch.float64) ** 4
    return repair(Plan(balls.window, flows), balls).images


def main() -> None:
    """Print milliseconds or seconds per image."""
    generator = torch.Generator().manual_seed(1)
    cases = {
        "MNIST, 1 x 28 x 28": load("mnist-sample").images_as_float(0, 100),
        "CIFAR-10 size, 3 x 32 x 32": torch.rand(40, 3, 32, 32, generator=generator),
        "3 x 64 x 64": torch.rand(4, 3, 64, 64, generator=generator),
        "one channel, 224 x 224": torch.rand(1, 1, 224, 224, generator=generator),
    }
    few = cases["MNIST, 1 x 28 x 28"][:2]
    distance_bounds(few, disturbed(few, radius=0.05))  # imports the solver
    for name, images in cases.items():
        moved = disturbed(images, radius=0.05)
        begin = time.perf_counter()
        found = distance_bounds(images, moved)
        each = (time.perf_counter() - begin) / len(images)
        print(f"judge, {name}: {1e3 * each:.1f} ms an image, exact {int(found.exact.sum())} of {len(images)}")


if __name__ == "__main__":
    main()
