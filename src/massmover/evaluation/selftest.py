"""The backends against each other on a device: the same potentials moved, the same digits attacked, results judged.

What a graphics card does cannot be tested without one, so this is what a user runs there once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from massmover.attacks import PlanAscent
from massmover.attacks.ascent import random_potential
from massmover.attacks.base import AttackResult, Problem
from massmover.backend import BACKENDS, backend_for, synchronised
from massmover.ball import Balls, WassersteinBall
from massmover.classifier import borrowed
from massmover.data import load
from massmover.evaluation.verify import verify
from massmover.models import load_model
from massmover.transport.potential import Pull, move_mass
from massmover.transport.repair import settled
from massmover.types import Backend, Images, MassmoverError

CLOSE = 1e-4  # a move may differ from the float64 one by this much in a pixel
RADIUS_PIXELS = 50.0
REPEATS = 5


class BackendCheck(NamedTuple):
    """How one backend did."""

    backend: Backend
    largest_difference: float  # of a pixel, between its moves and the same moves in float64
    repeats: bool  # the same bits when asked again
    broken: int  # digits that plan ascent broke
    violations: int  # results that exact transport finds outside their ball
    step_over_gradient: float  # time of a move over the time of the model's own gradient

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against using it."""
        return self.largest_difference <= CLOSE and self.repeats and not self.violations


def usable_backends(device: torch.device) -> tuple[Backend, ...]:
    """The backends that run on a device here, and are installed."""
    found = []
    for backend in BACKENDS:
        try:
            backend_for(torch.empty(0, device=device), wanted=backend)
        except MassmoverError:
            continue
        found.append(backend)
    return tuple(found)


def compare_backends(device: torch.device, *, count: int = 64, steps: int = 30) -> tuple[BackendCheck, ...]:
    """Run every backend that works on a device on the same bundled digits and on random colour images."""
    digits = load("mnist-sample").subset(0, count)
    images, labels = digits.images_as_float().to(device), digits.labels.to(device)
    model = load_model("mnist-standard", device=device)
    ball = WassersteinBall.from_pixels(RADIUS_PIXELS, images)
    return tuple(
        check_backend(model, Problem(ball.around(images, backend=backend), labels), steps=steps)
        for backend in usable_backends(device)
    )


def check_backend(model: nn.Module, problem: Problem, *, steps: int) -> BackendCheck:
    """How the backend of a problem does on it."""
    images, balls, device = problem.images, problem.balls, problem.images.device
    colour = torch.rand(2, 3, 17, 23, generator=torch.Generator().manual_seed(0)).to(device)
    wide = WassersteinBall(0.3, window=7, normalisation="channel").around(colour, backend=balls.backend)
    first, second = (PlanAscent(steps=steps).run(model, problem) for _ in range(2))
    pull = Pull(random_potential(images, seed=1), price=torch.full_like(balls.budget, 20.0), floor=3.0)
    with borrowed(model):
        gradient = _seconds(lambda: problem.slope(model, images, loss="cross-entropy"), device)
    return BackendCheck(
        backend=balls.backend,
        largest_difference=_largest([largest_difference(balls), largest_difference(wide)]),
        repeats=_same(first, second),
        broken=int(first.success.sum()),
        violations=verify(images, first.images, first.radius).violations,
        step_over_gradient=_seconds(lambda: move_mass(pull, balls), device) / gradient,
    )


def largest_difference(balls: Balls) -> float:
    """Between the moved images of some potentials and the same plans in float64, repaired without haste."""
    differences = []
    for scale in (0.3, 3.0, 30.0):
        room = balls.originals * 0.5  # where no pixel is ever full, nothing is sent back in haste
        roomy = WassersteinBall(balls.budget, window=2 * balls.window.rows + 1).around(room, backend=balls.backend)
        pull = Pull(random_potential(room, seed=0, scale=scale), floor=3.0)
        price = move_mass(pull, roomy).price
        moved: Images = move_mass(pull._replace(price=price), roomy).images
        exact = settled(pull.moves(roomy), roomy)
        differences.append((moved - exact.images.float()).abs().max())
    return _largest(differences)


def _largest(numbers: Sequence[Tensor | float]) -> float:
    """The largest of some numbers; no number at all (NaN) is larger than any."""
    return float(torch.as_tensor(numbers, dtype=torch.float64).max())


def _same(first: AttackResult, second: AttackResult) -> bool:
    return torch.equal(first.images, second.images) and torch.equal(first.success, second.success)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median time of some work, after it was done once."""
    taken = []
    for _ in range(REPEATS + 1):
        synchronised(device)
        begin = time.perf_counter()
        work()
        synchronised(device)
        taken.append(time.perf_counter() - begin)
    return sorted(taken[1:])[REPEATS // 2]
