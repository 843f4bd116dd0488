"""The Triton kernels in Triton's interpreter, on the CPU: `test_triton.py` starts a process for this file.

The interpreter has to be asked for before Triton is imported: TRITON_INTERPRET=1. It pays by the operation and not by
the number, so every test takes a batch of many different images.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.backends import step_counts
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem
from massmover.ball import Balls, WassersteinBall
from massmover.geometry import scatter
from massmover.transport.kernels import triton as triton_kernel
from massmover.transport.kernels.plan import move_mass_numba
from massmover.transport.kernels.triton import move_mass_triton
from massmover.transport.potential import Move, Pull, priced_plan
from massmover.transport.repair import settled
from scenes import random_images, seeds

IMAGES = 24
LAUNCHES = 14  # of one move, whatever window and price
FREE = {"aten.empty.memory_format", "aten.empty_like.default", "aten.view.default", "aten._unsafe_view.default"}
WAITS = {"aten._local_scalar_dense.default", "aten.is_nonzero.default", "aten.nonzero.default", "aten.equal.default"}


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names what a move starts: kernels, and operations of torch that are more than a view."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.counting = True
        launch = triton_kernel._launch

        def count(kernel: Any, *values: Any, **sizes: Any) -> None:
            self.names.append(kernel.fn.__name__)
            self.counting = False  # the interpreter copies arguments with torch
            launch(kernel, *values, **sizes)
            self.counting = True

        monkeypatch.setattr(triton_kernel, "_launch", count)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.counting and str(func) not in FREE:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def scene(
    seed: int, *, channels: int = 1, height: int = 5, width: int = 4, ball: WassersteinBall
) -> tuple[Pull, Balls]:
    """Images of all kinds, each with a budget, a potential and a guess of its own."""
    images = random_images(seed, batch=IMAGES, channels=channels, height=height, width=width, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([0.0, 2.0, 30.0]).repeat(IMAGES // 3).view(-1, 1, 1, 1)
    budget = 10 ** (5 * torch.rand(IMAGES, generator=generator, dtype=torch.float64) - 4)
    budget[5] = 0
    potential = scale * torch.randn(images.shape, generator=generator)
    price = 20 * torch.rand(IMAGES, generator=generator, dtype=torch.float64)
    return Pull(potential, price), ball.with_radius(budget).around(images, backend="triton")


def crowding_in_float64(pull: Pull, balls: Balls) -> tuple[Tensor, Tensor]:
    """Equation (7) on a plan written out, and where float32 can tell: where some mass hesitates."""
    plan = priced_plan(pull, balls).plan
    part = plan.flows / balls.originals.double().unsqueeze(2).clamp_min(1e-300)
    mobile = scatter(plan.flows * (1 - part), window=plan.window) + 1e-6
    return (plan.images() - 1) / mobile, mobile > 1e-3


def compare(ours: Move, reference: Move, *, tolerance: float) -> None:
    torch.testing.assert_close(ours.images.double(), reference.images.double(), rtol=0, atol=tolerance)
    torch.testing.assert_close(ours.spent, reference.spent, rtol=tolerance, atol=tolerance)
    assert ours.images.min() >= 0
    assert ours.images.max() <= 1
    assert ours.price.dtype == ours.spent.dtype == torch.float64


@settings(max_examples=3, phases=[Phase.generate])  # to shrink a failure would take minutes
@given(
    seed=seeds,
    channels=st.sampled_from([1, 3]),
    size=st.sampled_from([(3, 1), (3, 2), (5, 1), (None, 1)]),
    ground=st.sampled_from(["euclidean", "manhattan", "chebyshev"]),
    power=st.sampled_from([1.0, 2.0]),
    normalisation=st.sampled_from(["image", "channel"]),
    floor=st.sampled_from([0.0, 3.0]),
    warm=st.booleans(),
)
def test_numbers_are_those_of_numba(
    seed: int, channels: int, size: Any, ground: Any, power: float, normalisation: Any, floor: float, warm: bool
) -> None:
    window, height = size[0], 4 - size[1]
    ball = WassersteinBall(1.0, window=window, ground=ground, power=power, normalisation=normalisation)
    pull, balls = scene(seed, channels=channels, height=height, ball=ball)
    pull = pull._replace(price=pull.price if warm else None, floor=floor)
    ours = move_mass_triton(pull, balls)
    compare(ours, move_mass_numba(pull, replace(balls, backend="numba")), tolerance=1e-5)
    assert (ours.price >= floor).all()
    crowding, known = crowding_in_float64(pull, balls)
    torch.testing.assert_close(ours.crowding.double()[known], crowding[known], rtol=1e-3, atol=1e-3)
    assert torch.isfinite(ours.crowding).all()


def test_numbers_are_those_of_the_kernel_for_cpus(digits: tuple[Tensor, Tensor]) -> None:
    """Digits in the middle of an attack: full pixels, sharp potentials, a warm price."""
    images, labels = digits[0][:16], digits[1][:16]
    problem = Problem(WassersteinBall.from_pixels(50, images).around(images, backend="numba"), labels)
    found = PlanAscent(steps=12, confidence=math.inf).climb(linear(images), problem, start=torch.zeros_like(images))
    pull = Pull(found.potential, 1.02 * found.price, 3.0, found.booked)
    ours, theirs = move_mass_triton(pull, problem.balls), move_mass_numba(pull, problem.balls)
    assert (ours.images - images).abs().max() > 0.1  # something moves
    compare(ours, theirs, tolerance=1e-5)
    torch.testing.assert_close(ours.price, theirs.price, rtol=1e-5, atol=0)


def linear(images: Tensor) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(images[0].numel(), 10)).eval()


def test_one_bright_pixel_goes_to_its_neighbour() -> None:
    """A price of nothing and a steep potential: all mass goes one pixel to the right, at a cost of 1."""
    images = torch.zeros(1, 1, 3, 4)
    images[0, 0, 1, 1] = 0.7
    potential = torch.zeros_like(images)
    potential[0, 0, 1, 2] = 100.0
    move = move_mass_triton(Pull(potential), WassersteinBall(2.0, window=3).around(images, backend="triton"))
    expected = torch.zeros_like(images)
    expected[0, 0, 1, 2] = 0.7
    torch.testing.assert_close(move.images, expected, rtol=0, atol=1e-6)
    assert move.spent.item() == pytest.approx(1.0, rel=1e-6)
    assert move.price.item() == 0.0
    assert move.crowding[0, 0, 0, 3].item() == pytest.approx(-1e6, rel=1e-6)  # nothing can come here


def test_a_batch_equals_its_members_and_every_run_its_last() -> None:
    ball = WassersteinBall(1.0, window=3, normalisation="channel")
    pull, balls = scene(3, channels=2, height=4, ball=ball)
    together, again = move_mass_triton(pull, balls), move_mass_triton(pull, balls)
    one = slice(7, 8)
    alone = move_mass_triton(pull.select(one), balls.select(one))
    for all_of_them, repeated, single in zip(together, again, alone, strict=True):
        assert torch.equal(all_of_them, repeated)
        assert torch.equal(all_of_them[one], single)


@pytest.mark.parametrize(("height", "width", "size"), [(1, 1, 5), (2, 3, 5), (3, 2, None)])
def test_no_potential_is_too_much(height: int, width: int, size: int | None) -> None:
    """Huge and tiny potentials, specks of mass, black and full images, windows larger than the image."""
    ball = WassersteinBall(0.1, window=size)
    pull, balls = scene(11, channels=2, height=height, width=width, ball=ball)
    pull.potential.mul_(torch.tensor([1e30, 1e-30, 3e38, 1e4]).repeat(IMAGES // 4).view(-1, 1, 1, 1)).clamp_(
        -3e38, 3e38
    )
    images = balls.originals.clone()
    images[0], images[1], images[2, 0, 0, 0] = 0.0, 1.0, 1.4e-45
    balls = ball.with_radius(balls.budget).around(images, backend="triton")
    move = move_mass_triton(pull, balls)
    for answer in move:
        assert torch.isfinite(answer).all()
    mass = images.sum(dim=(2, 3))
    torch.testing.assert_close(move.images.sum(dim=(2, 3)), mass, rtol=1e-5, atol=1e-5)
    assert (move.spent <= balls.budget * (1 + 1e-5)).all()
    assert torch.equal(move.images[0], images[0])
    torch.testing.assert_close(move.images[1], images[1], rtol=0, atol=1e-6)
    assert torch.equal(move.images[5], images[5])  # no budget
    assert move.price[5] == 1e30


def test_a_move_is_a_few_launches_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    pull, balls = scene(5, height=3, ball=WassersteinBall(1.0, window=3))
    pull = pull._replace(floor=3.0)
    move_mass_triton(pull, balls)  # window and constants go to the device once
    with Launches(monkeypatch) as launches:
        move_mass_triton(pull, balls)
    assert len(launches.names) <= LAUNCHES, launches.names
    assert launches.names.count("send_back") == 7
    assert not WAITS & set(launches.names)


def test_a_whole_attack_is_that_of_numba() -> None:
    images = random_images(21, batch=8, channels=1, height=6, width=6, dtype=torch.float32)
    model, attack = linear(images), PlanAscent(steps=4, confidence=math.inf)
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
    ball = WassersteinBall(0.2, window=3)
    found, expected = (
        attack.run(model, Problem(ball.around(images, backend=backend), labels)) for backend in ("triton", "numba")
    )
    assert found.backend == "triton"
    assert (found.images - images).abs().max() > 0.1
    assert (found.steps == 4).all()
    assert found.trusted.all()
    torch.testing.assert_close(found.images, expected.images, rtol=0, atol=1e-4)


def test_a_step_of_plan_ascent_is_less_than_a_hundred_launches() -> None:
    images = random_images(22, batch=2, channels=1, height=4, width=4, dtype=torch.float32)
    launches, waits = step_counts(PlanAscent, "triton", images, model=linear(images), window=3)
    assert launches <= 100
    assert waits <= 0.2


def test_float64_images_are_searched_in_float32_and_proved_in_float64() -> None:
    images = random_images(23, batch=4, channels=1, height=5, width=5, dtype=torch.float64)
    pull, balls = Pull(torch.randn(images.shape)), WassersteinBall(0.1, window=3).around(images, backend="triton")
    moved, proof = move_mass_triton(pull, balls), settled(pull.moves(balls), balls)
    assert moved.images.dtype == torch.float32
    assert proof.images.dtype == torch.float64
    torch.testing.assert_close(moved.images.double(), proof.images, rtol=0, atol=1e-4)


def test_no_images_are_moved_to_no_images() -> None:
    images = torch.zeros(0, 1, 4, 4)
    move = move_mass_triton(Pull(images), WassersteinBall(0.1).around(images, backend="triton"))
    assert [len(answer) for answer in move] == [0, 0, 0, 0]
