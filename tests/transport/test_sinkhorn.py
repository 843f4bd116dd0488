from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from dense import cost_matrix
from massmover.ball import Balls, WassersteinBall
from massmover.evaluation.verify import verify
from massmover.transport.repair import Repaired, settled
from massmover.transport.sinkhorn import (
    ATTACK,
    TRAINING,
    ConstrainedSinkhorn,
    Duals,
    Projection,
    Tolerance,
    plan_of,
)
from massmover.types import MassmoverError, Normalisation
from scenes import random_images, seeds, shapes, windows

Array = NDArray[np.float64]
TIGHT = Tolerance(budget=1e-6, mass=1e-9)


def certified(duals: Duals, balls: Balls) -> Repaired:
    return settled(duals.moves(balls), balls)


def stepped(images: Tensor, *, step: float, seed: int = 0) -> Tensor:
    """Images after a random step whose largest entry is a share of their mass."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.rand(images.shape, generator=generator, dtype=torch.float64) * 2 - 1
    mass = images.double().sum(dim=(1, 2, 3), keepdim=True)
    return (images.double() + step * mass * direction).to(images.dtype)


def one_image(seed: int, height: int = 3, width: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(1, 1, height, width, generator=generator, dtype=torch.float64)
    images[0, 0, 0, 0], images[0, 0, 1, 1] = 0.0, 1.0
    return images


def nearest_by_slsqp(x: Array, w: Array, *, radius: float, cap: float, costs: Array) -> Array:
    """The projection without entropy as a quadratic programme over all entries of the plan."""
    n = len(x)
    rows = np.kron(np.eye(n), np.ones((1, n)))
    columns = np.kron(np.ones((1, n)), np.eye(n))
    constraints: list[dict[str, Any]] = [
        {"type": "eq", "fun": lambda p: rows @ p - x, "jac": lambda p: rows},
        {"type": "ineq", "fun": lambda p: radius - costs.ravel() @ p, "jac": lambda p: -costs.reshape(1, -1)},
    ]
    if cap < math.inf:
        constraints.append({"type": "ineq", "fun": lambda p: cap - columns @ p, "jac": lambda p: -columns})
    found = minimize(
        lambda p: 0.5 * np.sum((columns @ p - w) ** 2),
        np.diag(x).ravel(),
        jac=lambda p: columns.T @ (columns @ p - w),
        bounds=[(0, None)] * (n * n),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success, found.message
    return np.asarray(columns @ found.x)


@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_a_convex_solver_as_the_temperature_falls(seed: int, box: bool) -> None:
    images = one_image(seed)
    ball = WassersteinBall(0.25, window=None)
    mass = images.sum().item()
    wish = stepped(images, step=0.3, seed=seed)
    reference = nearest_by_slsqp(
        images.flatten().numpy() / mass,
        wish.flatten().numpy() / mass,
        radius=0.25,
        cap=1 / mass if box else math.inf,
        costs=cost_matrix(3, 3),
    )
    distances = []
    for temperature in (1e-1, 1e-3, 1e-5):
        solver = ConstrainedSinkhorn(temperature, box=box, tolerance=Tolerance(1e-6, 1e-7), sweeps=20000)
        found = solver.project(wish, ball.around(images))
        assert found.converged.all()
        distances.append(np.abs(found.images.flatten().numpy() / mass - reference).max())
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-3, distances


@given(
    seed=seeds,
    size=st.sampled_from([3, 5, None]),
    box=st.booleans(),
    radius=st.floats(0.01, 1.0),
    temperature=st.floats(0.003, 0.1),
)
@settings(max_examples=30)
def test_duals_meet_every_optimality_condition_of_the_programme(
    seed: int, size: int | None, box: bool, radius: float, temperature: float
) -> None:
    """A dense plan from the four duals: rows, columns, budget, cap and complementary slackness prove it optimal."""
    images = one_image(seed, 4, 3)
    ball = WassersteinBall(radius, window=size)
    mass = images.sum().item()
    wish = stepped(images, step=0.1, seed=seed)
    solver = ConstrainedSinkhorn(temperature, box=box, tolerance=TIGHT, sweeps=5000)
    found = solver.project(wish, ball.around(images))
    assert found.converged.all()
    x, w = images.flatten().numpy() / mass, wish.flatten().numpy() / mass
    source, target, cap = (getattr(found.duals, name).flatten().numpy() for name in ("source", "target", "cap"))
    price = found.duals.budget.item()
    costs = cost_matrix(4, 3)
    reach = 12 if size is None else size // 2
    rows, columns = np.divmod(np.arange(12), 3)
    near = np.maximum(abs(rows[:, None] - rows), abs(columns[:, None] - columns)) <= reach
    plan = np.where(near, np.exp(source[:, None] + target[None] - price * costs - 1), 0.0)
    z = plan.sum(axis=0)
    assert np.allclose(plan.sum(axis=1), x, atol=1e-12)
    assert np.allclose(z, found.images.flatten().numpy() / mass, atol=1e-12)
    reached = near[x > 0].any(axis=0)
    meant = w - (target + cap) * temperature
    assert np.abs(z - meant)[reached].sum() <= 1e-8
    assert price >= 0
    assert (plan * costs).sum() <= radius * (1 + 2e-6)
    assert price == 0 or (plan * costs).sum() >= radius * (1 - 2e-6)
    if box:
        assert (z <= 1 / mass + 1e-8).all()
        assert np.abs(z - 1 / mass)[(cap > 1e-6) & reached].max(initial=0) <= 1e-8


def test_the_gap_is_the_difference_of_the_two_objectives() -> None:
    images = one_image(3)
    mass = images.sum().item()
    wish = stepped(images, step=0.2)
    temperature, radius = 0.01, 0.2
    solver = ConstrainedSinkhorn(temperature, tolerance=Tolerance(0.01, 0.05))
    balls = WassersteinBall(radius, window=None).around(images)
    found = solver.project(wish, balls)
    plan = plan_of(found.duals, balls).flows.numpy() / mass
    x, w = images.flatten().numpy() / mass, wish.flatten().numpy() / mass
    z = found.images.flatten().numpy() / mass
    positive = plan[plan > 0]
    primal = np.sum((w - z) ** 2) / 2 + temperature * np.sum(positive * np.log(positive))
    source, target, cap = (getattr(found.duals, name).flatten().numpy() for name in ("source", "target", "cap"))
    held = x > 0
    both = target + cap
    dual = temperature * (
        -0.5 * temperature * both @ both
        - found.duals.budget.item() * radius
        + source[held] @ x[held]
        + both @ w
        - cap.sum() / mass
        - plan.sum()
    )
    assert found.gap.item() > 1e-5  # far from converged, so that the two really differ
    assert primal - dual == pytest.approx(found.gap.item(), abs=1e-9)


@pytest.mark.parametrize("box", [True, False])
def test_torch_and_kernel_agree(box: bool) -> None:
    pytest.importorskip("numba")
    images = random_images(5, batch=4, channels=2, height=6, width=5) * 0.8  # room in every pixel
    ball = WassersteinBall(0.15, window=5, normalisation="channel")
    # The last one is so cold that the kernel takes logarithms.
    for temperature, step, close in ((1e-2, 0.1, 1e-6), (1e-3, 0.1, 1e-5), (3e-4, 0.3, 1e-3)):
        wish = stepped(images, step=step)
        solver = ConstrainedSinkhorn(temperature, box=box, tolerance=Tolerance(1e-6, 1e-7), sweeps=5000)
        kernel, torches = (solver.project(wish, ball.around(images, backend=name)) for name in ("numba", "torch"))
        assert kernel.converged.all() and torches.converged.all()
        torch.testing.assert_close(kernel.images, torches.images, rtol=0, atol=close)
        torch.testing.assert_close(kernel.cost, torches.cost, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", [0.001, 0.06, 1.0, 100.0])
@pytest.mark.parametrize("temperature", [1e-7, 1e-4, 1e-1])
def test_never_nan_and_always_inside_after_repair(
    step: float, temperature: float, dtype: torch.dtype, backend: str
) -> None:
    images = random_images(1, batch=4, channels=2, height=6, width=7, dtype=dtype)
    balls = WassersteinBall(0.1).around(images)
    assert balls.backend == backend
    sweeps = 40 if backend == "numba" else 8
    found = ConstrainedSinkhorn(temperature, sweeps=sweeps).project(stepped(images, step=step), balls)
    for values in (found.images, found.duals.target, found.duals.budget, found.gap, found.column_error):
        assert torch.isfinite(values).all()
    assert (found.cost <= 0.1 * (1 + 1e-5)).all()
    proof = certified(found.duals, balls)
    assert proof.images.dtype == dtype
    assert verify(images, proof.images, 0.1).violations == 0


def test_large_steps_still_converge_to_the_nearest_point() -> None:
    """Step 10: the paper's own method breaks above 0.08."""
    images = random_images(2, batch=3, channels=1, height=6, width=6)
    images[0] = images[0].clamp_min(0.1)
    balls = WassersteinBall(0.2).around(images)
    wish = stepped(images, step=10.0)
    solver = ConstrainedSinkhorn(1e-3, tolerance=Tolerance(0.01, 1e-4), sweeps=3000)
    found = solver.project(wish, balls)
    assert found.converged.all(), found.column_error
    assert_nearest(found, wish, balls, slack=1e-2)


def assert_nearest(found: Projection, wish: Tensor, balls: Balls, *, slack: float) -> None:
    """No feasible image lies on the far side of the plane through the projection: (w - z) . (y - z) <= 0."""
    images = balls.originals
    mass = images.double().sum(dim=(1, 2, 3)).clamp_min(1e-9)
    for seed in range(12):
        other = certified(
            found.duals._replace(
                target=8 * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed)).double()
            ),
            balls,
        ).images
        angle = ((wish - found.images) * (other - found.images)).sum(dim=(1, 2, 3)) / mass.square()
        size = (wish - found.images).flatten(1).norm(dim=1) / mass
        assert (angle <= slack * (1 + size)).all(), angle


def test_the_projection_is_the_nearest_point() -> None:
    images = random_images(7, batch=4, channels=2, height=5, width=6)
    balls = WassersteinBall(0.2).around(images)
    wish = stepped(images, step=0.1)
    found = ConstrainedSinkhorn(1e-4, tolerance=Tolerance(0.01, 1e-4), sweeps=3000).project(wish, balls)
    assert found.converged.all()
    assert_nearest(found, wish, balls, slack=1e-3)


def test_identity_inside_the_ball_and_idempotent() -> None:
    images = random_images(4, batch=3, channels=2, height=5, width=6)
    balls = WassersteinBall(0.3).around(images)
    mass = images.sum(dim=(1, 2, 3), keepdim=True)
    cold = ConstrainedSinkhorn(1e-6, tolerance=Tolerance(0.01, 1e-4), sweeps=4000)
    smaller = balls.with_budget(balls.budget / 2)
    inside = certified(cold.project(stepped(images, step=0.1), smaller).duals, smaller).images
    assert (inside - images).abs().max() > 0.05  # not the centre
    same = cold.project(inside, balls)
    assert ((same.images - inside) / mass).abs().max() < 1e-3
    once = cold.project(stepped(images, step=0.1), balls)
    twice = cold.project(once.images, balls)
    assert ((twice.images - once.images) / mass).abs().max() < 1e-3


@given(shape=shapes, seed=seeds, size=windows, normalisation=st.sampled_from(["image", "channel"]))
@settings(max_examples=40)
def test_every_shape_is_inside_by_the_judge(
    shape: tuple[int, ...], seed: int, size: int | None, normalisation: Normalisation
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    balls = WassersteinBall(0.2, window=size, normalisation=normalisation).around(images)
    found = ConstrainedSinkhorn(1e-3, sweeps=100).project(stepped(images, step=0.1, seed=seed), balls)
    proof = certified(found.duals, balls)
    assert verify(images, proof.images, 0.2, normalisation=normalisation).violations == 0
    mass = images.sum(dim=(2, 3))
    torch.testing.assert_close(found.images.sum(dim=(2, 3)), mass, rtol=1e-9, atol=1e-12)


def test_a_batch_equals_its_members() -> None:
    images = random_images(9, batch=5, channels=3, height=6, width=4)
    ball = WassersteinBall(0.1)
    wish = stepped(images, step=0.2)
    together = ConstrainedSinkhorn().project(wish, ball.around(images))
    for index in range(5):
        alone = ConstrainedSinkhorn().project(wish[index : index + 1], ball.around(images[index : index + 1]))
        assert torch.equal(alone.images[0], together.images[index])
        assert alone.sweeps[0] == together.sweeps[index]


def test_nothing_moves_without_mass_budget_or_room() -> None:
    images = torch.zeros(3, 1, 4, 5, dtype=torch.float64)
    images[1] = 1.0  # every pixel is full
    images[2, 0, 1:3, 1:3] = 0.5
    wish = stepped(images, step=0.5)
    balls = WassersteinBall(torch.tensor([0.2, 0.2, 0.0])).around(images)
    found = ConstrainedSinkhorn().project(wish, balls)
    proof = certified(found.duals, balls)
    torch.testing.assert_close(proof.images, images, rtol=0, atol=1e-9)
    assert found.converged[0] and found.converged[2]


def test_one_bright_pixel_pays_for_its_neighbour() -> None:
    """All wish is on the neighbour, so a quarter of the mass moves there."""
    images = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    images[0, 0, 1, 1] = 0.8
    wish = torch.zeros_like(images)
    wish[0, 0, 1, 2] = 0.8
    found = ConstrainedSinkhorn(1e-5, tolerance=TIGHT).project(wish, WassersteinBall(0.25).around(images))
    assert found.images[0, 0, 1].tolist() == pytest.approx([0.0, 0.6, 0.2], abs=1e-3)


def test_the_box_holds_where_wong_overflows() -> None:
    images = one_image(2, 5, 5)
    balls = WassersteinBall(0.5).around(images)
    wish = stepped(images, step=0.5)
    boxed = ConstrainedSinkhorn(1e-3, tolerance=TIGHT, sweeps=5000).project(wish, balls)
    free = ConstrainedSinkhorn(1e-3, tolerance=TIGHT, sweeps=5000, box=False).project(wish, balls)
    assert boxed.images.max() <= 1 + 1e-6 < free.images.max()


def test_a_warm_start_saves_sweeps_and_changes_nothing() -> None:
    images = random_images(11, batch=4, channels=1, height=8, width=8)
    balls = WassersteinBall(0.1).around(images)
    wish = stepped(images, step=0.06)
    solver = ConstrainedSinkhorn(1e-3, tolerance=Tolerance(0.01, 1e-6))
    cold = solver.project(wish, balls)
    before = cold.duals.target.clone()
    warm = solver.project(wish * 1.001, balls, duals=cold.duals)
    assert warm.sweeps.sum() < 0.7 * cold.sweeps.sum()
    assert torch.equal(before, cold.duals.target)  # the caller's duals are not written to
    torch.testing.assert_close(warm.images, solver.project(wish * 1.001, balls).images, rtol=0, atol=1e-4)


def test_training_is_more_lenient_than_attack_and_unfinished_work_says_so() -> None:
    images = random_images(12, batch=4, channels=1, height=8, width=8)
    balls = WassersteinBall(0.1).around(images)
    wish = stepped(images, step=0.2)
    strict, lenient = (ConstrainedSinkhorn(tolerance=t).project(wish, balls) for t in (ATTACK, TRAINING))
    assert lenient.sweeps.sum() < strict.sweeps.sum()
    assert (strict.column_error <= ATTACK.mass).all() and (lenient.column_error <= TRAINING.mass).all()
    cut = ConstrainedSinkhorn(tolerance=TIGHT, sweeps=3).project(wish, balls)
    moving = images.sum(dim=(1, 2, 3)) > 0
    assert not cut.converged[moving].any()


@pytest.mark.parametrize(
    "settings_", [{"temperature": 0.0}, {"temperature": math.nan}, {"sweeps": 0}, {"tolerance": Tolerance(0.01, 0.0)}]
)
def test_refuses_settings_that_project_nothing(settings_: dict[str, Any]) -> None:
    with pytest.raises(MassmoverError):
        ConstrainedSinkhorn(**settings_)
