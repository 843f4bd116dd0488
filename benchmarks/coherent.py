"""A step of coherent ascent over a step of plan ascent, in processor time: at most twice is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.clock import timed
from massmover import PlanAscent, WassersteinBall
from massmover.attacks.base import Problem
from massmover.attacks.coherent import CoherentAscent, fields_of
from massmover.data import load
from massmover.models import load_model, resnet20

STEPS = 20


def step_ratio(name: str, model: nn.Module, images: Tensor, labels: Tensor, *, radius: float) -> None:
    """Whole steps, and what they take beside the classifier's forward and backward pass; nobody leaves early."""
    plain, led = PlanAscent(steps=STEPS, confidence=math.inf), CoherentAscent(steps=STEPS, confidence=math.inf)
    scattered = Problem(WassersteinBall(radius).around(images), labels)
    tasks: dict[str, Callable[[], object]] = {
        "classifier": lambda: [scattered.slope(model, images, loss="cross-entropy") for _ in range(STEPS)],
        "plain": lambda: plain.climb(model, scattered, start=torch.zeros_like(images)),
    }
    nowhere = torch.zeros(len(images), 2, images[0, 0].numel())
    for width in (None, 9):
        together = Problem(WassersteinBall(radius, scatter=0.05, width=width).around(images), labels)
        tasks[f"width {width}"] = partial(led.climb, model, together, fields_of(together), start=nowhere)
    seconds = {task: value.processor / STEPS / len(images) for task, value in timed(tasks, rounds=3).items()}
    asked = seconds["classifier"]
    for task in list(tasks)[2:]:
        print(
            f"{name}, radius {radius}, {task}: a coherent step takes {1e6 * seconds[task]:.0f} us an image, "
            f"a plain one {1e6 * seconds['plain']:.0f}: ratio {seconds[task] / seconds['plain']:.2f}; "
            f"without the classifier's {1e6 * asked:.0f} us {(seconds[task] - asked) / (seconds['plain'] - asked):.2f}"
        )


def main() -> None:
    """Print the ratios on digits and on colour images."""
    digits = load("mnist-sample").subset(0, 128)
    lenet = load_model("mnist-standard")
    for radius in (0.1, 1.0):
        step_ratio("LeNet, 128 digits", lenet, digits.images_as_float(), digits.labels, radius=radius)
    torch.manual_seed(0)
    colours, labels = torch.rand(16, 3, 32, 32), torch.zeros(16, dtype=torch.int64)
    step_ratio("ResNet-20, 16 random colour images", resnet20().eval(), colours, labels, radius=0.1)


if __name__ == "__main__":
    main()
