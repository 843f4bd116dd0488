from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from dense import cost_matrix
from massmover.ball import Balls, WassersteinBall
from massmover.evaluation.verify import verify
from massmover.transport.potential import Pull, move_mass, move_mass_torch, priced_plan
from massmover.transport.repair import Repaired, settled
from scenes import dtypes, random_images, seeds, shapes, windows

radii = st.floats(-4, 1).map(lambda exponent: 10.0**exponent)


def potential_of(seed: int, images: torch.Tensor, *, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(images.shape, generator=generator, dtype=torch.float64).to(images.dtype)


def proven(potential: torch.Tensor, balls: Balls) -> Repaired:
    return settled(Pull(potential).moves(balls), balls)


@given(shape=shapes, seed=seeds, size=windows, radius=radii, normalisation=st.sampled_from(["image", "channel"]))
def test_every_potential_spends_its_budget_or_is_free(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, normalisation: Any
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    balls = WassersteinBall(radius, window=size, normalisation=normalisation).around(images)
    budget = balls.budget
    plan, price = priced_plan(Pull(potential_of(seed, images, scale=3.0)), balls)
    cost = plan.cost(balls.weights)
    torch.testing.assert_close(plan.rows(), images, rtol=0, atol=1e-12)
    assert (cost <= budget * (1 + 1e-12) + 1e-15).all()
    spent = cost >= budget * (1 - 1e-12)
    assert (spent | (price == 0)).all()


def test_the_price_is_the_one_a_dense_softmax_needs() -> None:
    """One channel, whole-image window, rows written as a matrix, price by SciPy's root finder."""
    images = random_images(2, batch=1, channels=1, height=4, width=5)
    potential = potential_of(2, images, scale=2.0)
    ball = WassersteinBall(0.3, window=None)
    x, b, costs = images.flatten().numpy(), potential.flatten().numpy(), cost_matrix(4, 5)

    def dense(price: float) -> np.ndarray:
        scores = b[None] - price * costs
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(x[:, None] * shares / shares.sum(axis=1, keepdims=True))

    price = brentq(lambda p: (dense(p) * costs).sum() / x.sum() - 0.3, 0, 100, xtol=1e-14)
    plan, found = priced_plan(Pull(potential), ball.around(images))
    assert found.item() == pytest.approx(price, rel=1e-11)  # the cost is met to 1e-12
    moved = plan.images()
    assert moved.flatten().tolist() == pytest.approx(dense(price).sum(axis=0).tolist(), abs=1e-11)


@pytest.mark.usefixtures("backend")
@given(shape=shapes, seed=seeds, size=windows, radius=radii, scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]), dtype=dtypes)
def test_any_potential_gives_a_certified_image(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, scale: float, dtype: Any
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
    balls = WassersteinBall(radius, window=size).around(images)
    proof = proven(potential_of(seed, images, scale=scale), balls)
    assert torch.isfinite(proof.images).all()
    assert verify(images, proof.images, radius, threads=1).violations == 0
    assert (proof.certificate.total <= balls.budget).all()


@given(
    shape=shapes,
    seed=seeds,
    size=windows,
    radius=radii,
    normalisation=st.sampled_from(["image", "channel"]),
    scale=st.sampled_from([0.0, 2.0, 30.0]),
)
def test_the_kernel_agrees_with_torch(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, normalisation: Any, scale: float
) -> None:
    pytest.importorskip("numba")
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=torch.float32)
    ball = WassersteinBall(radius, window=size, normalisation=normalisation)
    pull = Pull(potential_of(seed, images, scale=scale))
    ours = move_mass(pull, ball.around(images, backend="numba"))
    reference = move_mass_torch(pull, ball.around(images, backend="torch"))
    torch.testing.assert_close(ours.images, reference.images, rtol=0, atol=3e-5)
    torch.testing.assert_close(ours.spent, reference.spent, rtol=1e-3, atol=1e-5)
    assert ours.images.min() >= 0
    assert ours.images.max() <= 1


@pytest.mark.usefixtures("backend")
def test_equal_potentials_move_nothing_uphill() -> None:
    """A pixel of higher potential than its neighbours gains, and the mass stays what it was."""
    images = torch.full((1, 1, 5, 5), 0.4, dtype=torch.float64)
    potential = torch.zeros_like(images)
    potential[0, 0, 2, 2] = 5.0
    moved = move_mass(Pull(potential), WassersteinBall(0.02).around(images)).images
    assert moved[0, 0, 2, 2] > 0.5
    assert moved.sum().item() == pytest.approx(images.sum().item(), rel=1e-6)  # the search is in float32


@pytest.mark.usefixtures("backend")
def test_specks_of_mass_stay_where_they_are() -> None:
    """The smallest float32 has no reciprocal; its pixel is left alone and the others move as usual."""
    images = torch.full((1, 1, 3, 3), 0.3)
    images[0, 0, 1, 1] = 1.4e-45
    moved = move_mass(Pull(torch.arange(9.0).view(1, 1, 3, 3)), WassersteinBall(0.1).around(images)).images
    assert torch.isfinite(moved).all()
    assert (moved - images).abs().max() > 0.03
    assert moved.sum().item() == pytest.approx(2.4, rel=1e-5)


@pytest.mark.usefixtures("backend")
def test_a_batch_equals_its_members() -> None:
    images = random_images(6, batch=5, channels=2, height=6, width=7, dtype=torch.float32)
    potential, ball = potential_of(6, images, scale=4.0), WassersteinBall(0.1)
    booked, price = torch.linspace(0.1, 0.3, 5).double(), torch.linspace(2.0, 9.0, 5).double()
    together = move_mass(Pull(potential, price, floor=1.0, booked=booked), ball.around(images))
    for index in range(5):
        only = slice(index, index + 1)
        alone = move_mass(Pull(potential[only], price[only], floor=1.0, booked=booked[only]), ball.around(images[only]))
        for ours, theirs in zip(alone, together, strict=True):
            torch.testing.assert_close(ours, theirs[only], rtol=1e-5, atol=1e-6)
