"""The proof's kernel finds the moves that torch finds, and whatever it finds is measured by code it does not share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from massmover.ball import Balls, WassersteinBall
from massmover.evaluation.verify import verify
from massmover.geometry import Window
from massmover.transport import potential as potentials
from massmover.transport import repair as repairs
from massmover.transport.plan import Plan, certify
from massmover.transport.potential import Pull, priced_plan
from massmover.transport.repair import PROPORTIONAL_SWEEPS, Repaired, kept_moves, settled
from massmover.types import Backend
from scenes import dtypes, random_images, seeds, shapes, windows

kernels = pytest.importorskip("massmover.transport.kernels.plan")
BACKENDS: tuple[Backend, ...] = ("numba", "torch")


def potential_of(images: Tensor, *, seed: int = 1, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def balls_of(images: Tensor, radius: float, *, window: int | None = 5, normalisation: Any = "image") -> Balls:
    return WassersteinBall(radius, window=window, normalisation=normalisation).around(images, backend="numba")


def proven(pull: Pull, balls: Balls) -> Repaired:
    return settled(pull.moves(balls), balls)


def assert_the_kernel_agrees(pull: Pull, balls: Balls) -> None:
    plan, _ = priced_plan(pull, balls)
    before = plan.flows.clone()
    kept, wanted = kept_moves(plan, balls), kept_moves(plan, replace(balls, backend="torch"))
    torch.testing.assert_close(plan.flows, before, rtol=0, atol=0)  # the caller's plan is left alone
    # To close a column is a leap, and round-off may decide which: only sweeps before that can be compared.
    same = (kept.sweeps < PROPORTIONAL_SWEEPS) & (wanted.sweeps < PROPORTIONAL_SWEEPS)
    torch.testing.assert_close(kept.flows[same], wanted.flows[same], rtol=0, atol=1e-9)
    torch.testing.assert_close(kept.change[same], wanted.change[same], rtol=0, atol=1e-9)
    for moves in (kept, pull.moves(balls)):
        torch.testing.assert_close(moves.flows.sum(dim=2), balls.originals, rtol=0, atol=1e-14)
        column = Plan(window=balls.window, flows=moves.flows).images()
        assert column.max() <= 1 + 2e-13
        torch.testing.assert_close(column - balls.originals, moves.change, rtol=0, atol=1e-12)


def scenes(channels: int) -> Tensor:
    """Random, faint, black and saturated images, and one whose mass is a single pixel in a corner."""
    random = random_images(channels, batch=2, channels=channels, height=7, width=10)
    corner = torch.zeros_like(random[:1])
    corner[0, -1, 6, 0] = 1e-3
    return torch.cat([random, 0.2 * random[:1].flip(2), torch.zeros_like(corner), torch.ones_like(corner), corner])


@pytest.mark.parametrize("normalisation", ["image", "channel"])
@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("window", [1, 3, 5, 7, None])
def test_agrees_with_torch(window: int | None, channels: int, normalisation: Any) -> None:
    images = scenes(channels)
    balls = balls_of(images, 1.0, window=window, normalisation=normalisation)
    radii = torch.tensor([0.0, 1e-4, 0.02, 0.1, 0.5, 20.0], dtype=torch.float64)
    price = torch.full((6,), 7.0, dtype=torch.float64)
    for shift in range(0, 6, 2):
        balls = balls.with_budget(radii.roll(shift))
        assert_the_kernel_agrees(Pull(potential_of(images, seed=shift)), balls)
        steep = potential_of(images, seed=shift, scale=[0.0, 30.0, 300.0][shift // 2])
        assert_the_kernel_agrees(Pull(steep, price, floor=3.0), balls)


@pytest.mark.parametrize("image", range(6))
def test_agrees_with_torch_on_one_image(image: int) -> None:
    images = scenes(3)[image : image + 1]
    for radius in (0.0, 0.05):
        assert_the_kernel_agrees(Pull(potential_of(images)), balls_of(images, radius))


@given(shape=shapes, seed=seeds, size=windows, exponent=st.floats(-4, 1), scale=st.sampled_from([0.0, 2.0, 30.0]))
def test_agrees_with_torch_on_any_image(
    shape: tuple[int, ...], seed: int, size: int | None, exponent: float, scale: float
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    balls = balls_of(images, 10.0**exponent, window=size)
    assert_the_kernel_agrees(Pull(potential_of(images, seed=seed, scale=scale)), balls)


@given(shape=shapes, seed=seeds, size=windows, exponent=st.floats(-6, 1), dtype=dtypes)
def test_both_paths_prove_the_same_image(
    shape: tuple[int, ...], seed: int, size: int | None, exponent: float, dtype: Any
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
    balls = balls_of(images, 10.0**exponent, window=size)
    # More is booked than can be paid, so that a share stays home.
    pull = Pull(potential_of(images, seed=seed).to(dtype), booked=3 * balls.budget)
    ours, theirs = (proven(pull, replace(balls, backend=backend)) for backend in BACKENDS)
    for proof in (ours, theirs):
        assert (proof.certificate.total <= balls.budget).all()
        assert proof.certificate.row_error.max() <= 1e-14
        assert verify(images, proof.images, 10.0**exponent, threads=1).violations == 0
    same = (ours.sweeps < PROPORTIONAL_SWEEPS) & (theirs.sweeps < PROPORTIONAL_SWEEPS)
    # Ours are the rows of the search, in float32, made exact; theirs are float64 from the start.
    torch.testing.assert_close(ours.images[same], theirs.images[same], rtol=0, atol=2e-5)
    torch.testing.assert_close(ours.certificate.cost[same], theirs.certificate.cost[same], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_potentials_that_are_no_numbers_still_give_a_proof(nonsense: float) -> None:
    images = random_images(7, batch=2, channels=2, height=5, width=6)
    potential = potential_of(images)
    potential[0, 0, 2, 2:4] = nonsense
    potential[1] = nonsense
    before = potential.clone()
    proof = proven(Pull(potential), balls_of(images, 0.1))
    assert (proof.certificate.total <= 0.1).all()
    assert proof.certificate.row_error.max() <= 1e-14
    assert proof.certificate.column_error.max() <= 1e-12
    assert verify(images, proof.images, 0.1, threads=1).violations == 0
    torch.testing.assert_close(potential, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_equals_its_members_however_it_is_cut(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(3, batch=7, channels=2, height=6, width=5, dtype=torch.float32)
    balls = replace(balls_of(images, 0.2), backend=backend)
    pull = Pull(potential_of(images).float(), booked=torch.linspace(0.1, 0.8, 7, dtype=torch.float64))
    whole = proven(pull, balls)
    monkeypatch.setattr(repairs, "CACHED_NUMBERS", 3 * whole.plan.flows[0].numel())
    monkeypatch.setattr(potentials, "PROOF_NUMBERS", 2 * whole.plan.flows[0].numel())
    cut = proven(pull, balls)
    torch.testing.assert_close(cut.plan.flows, whole.plan.flows, rtol=0, atol=1e-14)
    assert torch.equal(cut.images, whole.images)
    assert torch.equal(cut.sweeps, whole.sweeps)
    for ours, theirs in zip(cut.certificate, whole.certificate, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


def test_no_images_need_no_proof() -> None:
    images = torch.zeros(0, 1, 4, 5)
    proof = proven(Pull(images), balls_of(images, 0.1))
    assert proof.images.shape == (0, 1, 4, 5)
    assert proof.certificate.total.shape == (0,)


def test_a_certificate_shows_mass_that_leaves_the_image() -> None:
    """Rows add up, the column is right, and yet a quarter of the mass went over the edge."""
    images = torch.tensor([[[[0.0, 1.0]]]], dtype=torch.float64)
    window = Window(rows=0, columns=1)
    flows = torch.zeros(1, 1, 3, 1, 2, dtype=torch.float64)
    flows[0, 0, 0, 0, 1] = 0.75
    flows[0, 0, window.offsets.index((0, 1)), 0, 1] = 0.25
    proof = certify(
        Plan(window, flows),
        replace(balls_of(images, 1.0), window=window),
        returned=torch.tensor([[[[0.0, 0.75]]]], dtype=torch.float64),
    )
    assert proof.row_error.item() == 0.25
    assert proof.column_error.item() == 0
