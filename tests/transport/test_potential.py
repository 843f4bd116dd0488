from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from massmover.threat import WassersteinBall
from massmover.transport.roots import decreasing_root
from scipy.optimize import brentq

from dense import cost_matrix
from massmover.evaluation.verify import verify
from massmover.transport.potential import certified_move, move_mass_torch, priced_plan
from scenes import dtypes, random_images, seeds, shapes, windows

radii = st.floats(-4, 1).map(lambda exponent: 10.0**exponent)


def potential_of(seed: int, images: torch.Tensor, *, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(images.shape, generator=generator, dtype=torch.float64).to(images.dtype)


@given(shape=shapes, seed=seeds, size=windows, radius=radii, normalisation=st.sampled_from(["image", "channel"]))
def test_every_potential_spends_its_budget_or_is_free(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, normalisation: Any
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    ball = WassersteinBall(radius, window=size, normalisation=normalisation)
    window, weights = ball.moves(images), ball.weights(images)
    budget = torch.full((batch,), radius, dtype=torch.float64)
    plan, price = priced_plan(
        potential_of(seed, images, scale=3.0), originals=images, budget=budget, weights=weights, window=window
    )
    cost = plan.cost(weights)
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
    plan, found = priced_plan(
        potential,
        originals=images,
        budget=torch.tensor([0.3], dtype=torch.float64),
        weights=ball.weights(images),
        window=ball.moves(images),
    )
    assert found.item() == pytest.approx(price, rel=1e-11)  # the cost is met to 1e-12
    moved = plan.images()
    assert moved.flatten().tolist() == pytest.approx(dense(price).sum(axis=0).tolist(), abs=1e-11)


@given(shape=shapes, seed=seeds, size=windows, radius=radii, scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]), dtype=dtypes)
def test_any_potential_gives_a_certified_image(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, scale: float, dtype: Any
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
    ball = WassersteinBall(radius, window=size)
    budget = torch.full((batch,), radius, dtype=torch.float64)
    proof = certified_move(
        potential_of(seed, images, scale=scale),
        originals=images,
        budget=budget,
        weights=ball.weights(images),
        window=ball.moves(images),
    )
    assert torch.isfinite(proof.images).all()
    assert verify(images, proof.images, radius, threads=1).violations == 0
    assert (proof.certificate.total <= budget).all()


@given(
    shape=shapes,
    seed=seeds,
    size=windows,
    radius=radii,
    normalisation=st.sampled_from(["image", "channel"]),
    scale=st.sampled_from([0.0, 2.0, 30.0]),
)
def test_the_fused_kernel_agrees_with_torch(
    shape: tuple[int, ...], seed: int, size: int | None, radius: float, normalisation: Any, scale: float
) -> None:
    fused = pytest.importorskip("massmover.transport.fused")
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=torch.float32)
    ball = WassersteinBall(radius, window=size, normalisation=normalisation)
    settings: dict[str, Any] = {
        "originals": images,
        "budget": torch.full((batch,), radius, dtype=torch.float64),
        "weights": ball.weights(images),
        "window": ball.moves(images),
    }
    potential = potential_of(seed, images, scale=scale)
    ours, reference = fused.move_mass_fused(potential, **settings), move_mass_torch(potential, **settings)
    torch.testing.assert_close(ours.images, reference.images, rtol=0, atol=3e-5)
    torch.testing.assert_close(ours.spent, reference.spent, rtol=1e-3, atol=1e-5)
    assert ours.images.min() >= 0
    assert ours.images.max() <= 1


def test_equal_potentials_move_nothing_uphill() -> None:
    """A pixel of higher potential than its neighbours gains, and the mass stays what it was."""
    images = torch.full((1, 1, 5, 5), 0.4, dtype=torch.float64)
    potential = torch.zeros_like(images)
    potential[0, 0, 2, 2] = 5.0
    ball = WassersteinBall(0.02)
    moved = move_mass_torch(
        potential,
        originals=images,
        budget=torch.tensor([0.02]).double(),
        weights=ball.weights(images),
        window=ball.moves(images),
    ).images
    assert moved[0, 0, 2, 2] > 0.5
    assert moved.sum().item() == pytest.approx(images.sum().item(), rel=1e-12)


def test_specks_of_mass_stay_where_they_are() -> None:
    """The smallest float32 has no reciprocal; its pixel is left alone and the others move as usual."""
    fused = pytest.importorskip("massmover.transport.fused")
    images = torch.full((1, 1, 3, 3), 0.3)
    images[0, 0, 1, 1] = 1.4e-45
    ball = WassersteinBall(0.1)
    moved = fused.move_mass_fused(
        torch.arange(9.0).view(1, 1, 3, 3),
        originals=images,
        budget=torch.tensor([0.1], dtype=torch.float64),
        weights=ball.weights(images),
        window=ball.moves(images),
    ).images
    assert torch.isfinite(moved).all()
    assert moved.sum().item() == pytest.approx(2.4, rel=1e-5)


class TestDecreasingRoot:
    def test_finds_a_known_root(self) -> None:
        rates = torch.tensor([0.5, 1.0, 7.0], dtype=torch.float64)
        found = decreasing_root(
            lambda p: (3 * torch.exp(-rates * p), -3 * rates * torch.exp(-rates * p)),
            target=torch.full((3,), 0.01, dtype=torch.float64),
        )
        assert found.tolist() == pytest.approx((np.log(300) / rates.numpy()).tolist(), rel=1e-12)

    def test_is_zero_where_nothing_has_to_be_paid(self) -> None:
        found = decreasing_root(lambda p: (torch.exp(-p), -torch.exp(-p)), target=torch.tensor([1.0, 2.0]))
        assert found.tolist() == [0.0, 0.0]

    def test_a_bad_guess_does_not_matter(self) -> None:
        target = torch.tensor([0.3, 1e-5], dtype=torch.float64)
        for guess in (0.0, 1e-9, 50.0, 1e6):
            found = decreasing_root(
                lambda p: (1 / (1 + p**2), -2 * p / (1 + p**2) ** 2), target=target, guess=torch.full((2,), guess)
            )
            assert found.tolist() == pytest.approx([(1 / t - 1) ** 0.5 for t in target.tolist()], rel=1e-9)
