"""One step of plan ascent against the classifier's own forward and backward pass; cost against size, window, batch."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.clock import interleaved, timed
from massmover import PlanAscent, SinkhornAttack, WassersteinBall, attack, smallest_radius
from massmover.attacks.ascent import charged, growth_of, moved_within
from massmover.attacks.base import Problem
from massmover.data import load
from massmover.models import load_model, resnet20
from massmover.transport.potential import Pull, move_mass
from massmover.transport.repair import settled


def warm_potential(problem: Problem, model: nn.Module, *, steps: int = 10) -> tuple[Tensor, Tensor]:
    """A potential and price as they are in the middle of an attack, for steps cost most there."""
    climbed = PlanAscent(steps=steps).climb(model, problem, start=torch.zeros_like(problem.images))
    return climbed.potential, climbed.price


def step_ratio(name: str, model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """A step's own work (plan, cap, budget, image) over the classifier's forward and backward."""
    problem = Problem(WassersteinBall.from_pixels(50, images).around(images), labels)
    potential, price = warm_potential(problem, model)
    ascent = PlanAscent()
    here = ascent.begin(problem, potential)

    def step() -> None:
        pull = Pull(potential, price=price * 1.02, floor=ascent.floor, booked=problem.balls.budget)
        charged(here, moved_within(pull, problem), growth=growth_of(potential, 0.01 * potential))

    seconds = interleaved({"classifier": lambda: problem.slope(model, images, loss="cross-entropy"), "step": step})
    each = {task: 1e6 * value / len(images) for task, value in seconds.items()}
    print(
        f"{name}: attack step {each['step']:.0f} us an image, forward and backward {each['classifier']:.0f} us, "
        f"ratio {seconds['step'] / seconds['classifier']:.3f}"
    )


def proof_share(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """The final certificate and repair over a whole 60-step attack that nobody wins early."""
    problem = Problem(WassersteinBall.from_pixels(5, images).around(images), labels)
    ascent = PlanAscent(steps=60)
    potential, price = warm_potential(problem, model)
    pull, balls = Pull(potential, price, ascent.floor, problem.balls.budget), problem.balls
    seconds = interleaved(
        {
            "search": lambda: ascent.climb(model, problem, start=torch.zeros_like(images)),
            "proof": lambda: settled(pull.moves(balls), balls),
        },
        rounds=3,
    )
    print(
        f"certificate and repair: {1e3 * seconds['proof'] / len(images):.2f} ms an image, "
        f"{seconds['proof'] / seconds['search']:.3f} of a 60-step search"
    )


def against_sinkhorn(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Plan ascent against the projected attack: the fewest steps that break at least as many images."""
    problem = Problem(WassersteinBall.from_pixels(200, images).around(images), labels)
    projected = SinkhornAttack()
    goal = int(projected.run(model, problem).success.sum())
    for steps in (5, 10, 20, 40, 80, 100):
        ascent = PlanAscent(steps=steps)
        broken = int(ascent.run(model, problem).success.sum())
        if broken >= goal:
            break
    seconds = interleaved(
        {
            "sinkhorn": lambda: projected.run(model, problem),
            "ascent": lambda: ascent.run(model, problem),
        },
        rounds=3,
    )
    print(
        f"radius 200: Sinkhorn breaks {goal} of {len(images)}, {ascent.steps} steps of plan ascent {broken}; "
        f"Sinkhorn takes {seconds['sinkhorn'] / seconds['ascent']:.1f} times as long"
    )


def against_ascent(name: str, images: Tensor, labels: Tensor) -> None:
    """The smallest radius of every image against one ascent at radius 100."""
    model, ball = load_model(name), WassersteinBall.from_pixels(100, images)
    seconds = timed(
        {
            "ascent": lambda: attack(model, images, labels, ball=ball, method="ascent"),
            "smallest": lambda: smallest_radius(model, images, labels),
        },
        rounds=3,
    )
    ascent, smallest = seconds["ascent"], seconds["smallest"]
    print(
        f"smallest radius, {name}: {1e3 * smallest.processor / len(images):.1f} ms of processor time an image "
        f"({1e3 * smallest.wall / len(images):.1f} ms by the clock), "
        f"{smallest.processor / ascent.processor:.1f} ascents at radius 100"
    )


def scaling() -> None:
    """Microseconds of one step per image as one thing grows."""
    base = {"height": 32, "channels": 1, "window": 5, "batch": 32}
    grid = {"height": [28, 64, 128, 224], "channels": [1, 3], "window": [5, 9, 15], "batch": [1, 16, 256]}
    for what, values in grid.items():
        parts = []
        for value in values:
            size = {**base, what: value, **({"batch": 4} if what == "height" else {})}
            shape = (size["batch"], size["channels"], size["height"], size["height"])
            images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
            balls = WassersteinBall(0.05, window=size["window"]).around(images)
            cold = Pull(3 * torch.randn(shape, generator=torch.Generator().manual_seed(1)), floor=3.0)
            warm = cold._replace(price=move_mass(cold, balls).price)
            seconds = interleaved({"step": partial(move_mass, warm, balls)})
            parts.append(f"{value}: {1e6 * seconds['step'] / len(images):.0f}")
        print(f"step, us an image, by {what}: " + ", ".join(parts))


def main() -> None:
    """Print all ratios."""
    digits = load("mnist-sample").subset(0, 256)
    images, labels = digits.images_as_float(), digits.labels
    lenet = load_model("mnist-standard")
    step_ratio("LeNet, 256 digits", lenet, images, labels)
    torch.manual_seed(0)
    photographs = torch.rand(64, 3, 32, 32)
    step_ratio("ResNet-20, 64 random colour images", resnet20().eval(), photographs, torch.zeros(64, dtype=torch.int64))
    proof_share(lenet, images, labels)
    against_sinkhorn(lenet, images[:64], labels[:64])
    scaling()
    for name in ("mnist-robust", "mnist-standard"):
        against_ascent(name, images[:60], labels[:60])


if __name__ == "__main__":
    main()
