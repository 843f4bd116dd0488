"""Frozen pixels neither send nor receive: in every attack, in the plan, in the judge and in the proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from massmover import WassersteinBall, attack, smallest_radius, verify
from massmover.attacks import METHODS
from massmover.evaluation.proof import Claim, Moves, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model
from massmover.types import MassmoverError
from scenes import seeds

HEIGHT, WIDTH = 6, 7


class Linear:
    """Two classes: the second wins where mass lies on high weights."""

    def __init__(self, weights: Tensor, bias: float = 0.0) -> None:
        self.weights, self.bias = weights, bias

    def __call__(self, images: Tensor) -> Tensor:
        score = (images * self.weights.to(images)).sum(dim=(1, 2, 3)) - self.bias
        return torch.stack([torch.zeros_like(score), score], dim=1)


def scene(seed: int = 0, *, batch: int = 4, channels: int = 2) -> tuple[Tensor, Tensor, Linear]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batch, channels, HEIGHT, WIDTH, generator=generator)
    mask = torch.rand(HEIGHT, WIDTH, generator=generator) < 0.6
    weights = torch.randn(channels, HEIGHT, WIDTH, generator=generator)
    clean = (images * weights).sum(dim=(1, 2, 3))
    return images, mask, Linear(weights, bias=float(clean.max()) + 0.05)  # all are class 0 before anything moves


def assert_frozen(images: Tensor, result: Any, mask: Tensor, *, radius: float) -> None:
    frozen = ~mask.expand(images.shape)
    assert torch.equal(result.images[frozen], images[frozen])
    flows = result.plan.flows
    assert flows[:, :, 1:].sum(dim=2)[frozen].abs().sum() == 0  # nothing leaves
    arriving = result.plan.images() - flows[:, :, 0]
    assert arriving[frozen].abs().sum() == 0
    torch.testing.assert_close(flows.sum(dim=2), images.double(), rtol=0, atol=1e-12)
    assert result.certificate.holds(result.radius, dtype=images.dtype).all()
    assert verify(images, result.images, radius, mask=mask, threads=1).violations == 0
    for row in range(len(images)):
        pictures = images[row].numpy(), result.images[row].numpy()
        moves = proving_moves(result.plan, images, row)
        free = mask.expand(images.shape)[row].numpy()
        assert check(*pictures, moves, Claim(radius), free=free).proved


@pytest.mark.parametrize("method", [*METHODS])
def test_frozen_pixels_stay_and_the_attack_still_wins(method: str, backend: Any) -> None:
    images, mask, model = scene()
    labels = torch.zeros(len(images), dtype=torch.int64)
    result = attack(model, images, labels, radius=0.3, method=method, mask=mask, backend=backend)
    assert result.steps.sum() > 0 and result.success.any()
    assert_frozen(images, result, mask, radius=0.3)


@pytest.mark.parametrize("method", [*METHODS])
def test_the_classifier_sees_frozen_pixels(method: str) -> None:
    """Free pixels count only times the mass of frozen ones: a search that leaves these out sees no gradient."""
    images, mask, linear = scene(7)

    def gated(batch: Tensor) -> Tensor:
        gate = (batch * ~mask).sum(dim=(1, 2, 3)) / (images * ~mask).sum(dim=(1, 2, 3)).mean()
        return linear(batch) * gate[:, None]

    labels = torch.zeros(len(images), dtype=torch.int64)
    result = attack(gated, images, labels, radius=0.5, method=method, mask=mask)
    assert result.success.any()


def test_a_mask_that_freezes_nothing_changes_nothing(backend: Any) -> None:
    images, mask, model = scene(3)
    labels = torch.zeros(len(images), dtype=torch.int64)
    plain = attack(model, images, labels, radius=0.1, method="ascent", backend=backend)
    masked = attack(model, images, labels, radius=0.1, method="ascent", mask=torch.ones_like(mask), backend=backend)
    assert torch.equal(plain.images, masked.images) and torch.equal(plain.plan.flows, masked.plan.flows)


def test_mass_can_jump_over_a_frozen_pixel_but_not_rest_there(backend: Any) -> None:
    """One pixel of mass, its neighbour frozen: caught within a window of 3, within 5 it jumps for the price of 2."""
    images = torch.tensor([[[[0.8, 0.0, 0.0]]]])
    mask = torch.tensor([[True, False, True]])
    model = Linear(torch.tensor([[[0.0, 5.0, 1.0]]]), bias=0.15)
    labels = torch.tensor([0])
    for window, wins in ((3, False), (5, True)):
        ball = WassersteinBall(0.5, window=window)
        result = attack(model, images, labels, ball=ball, method="ascent", mask=mask, backend=backend)
        assert result.success.tolist() == [wins]
        assert result.images[0, 0, 0, 1] == 0
    # a quarter of the mass moves two pixels
    torch.testing.assert_close(result.images[0, 0, 0], torch.tensor([0.6, 0.0, 0.2]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", [1, 2])
def test_reaches_the_linear_programme_of_the_free_pixels(seed: int, backend: Any) -> None:
    images, mask, model = scene(seed, batch=1, channels=1)
    model.bias += 8.0  # never fooled: the attack climbs to the top
    radius, image, free = 0.2, images[0, 0].double().numpy(), mask.numpy()
    result = attack(
        model, images, torch.tensor([0]), radius=radius, method="ascent", steps=300, mask=mask, backend=backend
    )
    gained = float(((result.images - images) * model.weights).sum())
    pixels = [(y, x) for y in range(HEIGHT) for x in range(WIDTH) if free[y, x]]
    arcs = [(i, j) for i in range(len(pixels)) for j in range(len(pixels)) if near(pixels[i], pixels[j])]
    weights = model.weights[0].double().numpy()
    gain = [weights[pixels[j]] - weights[pixels[i]] for i, j in arcs]
    length = [np.hypot(pixels[i][0] - pixels[j][0], pixels[i][1] - pixels[j][1]) for i, j in arcs]
    rows, full = np.zeros((len(pixels), len(arcs))), np.zeros((len(pixels), len(arcs)))
    for arc, (i, j) in enumerate(arcs):
        rows[i, arc] = 1
        full[j, arc] = 1
    mass = np.array([image[pixel] for pixel in pixels])
    best = linprog(
        -np.array(gain),
        A_ub=np.vstack([full, np.array(length)[None] / image.sum()]),
        b_ub=np.concatenate([np.ones(len(pixels)), [radius]]),
        A_eq=rows,
        b_eq=mass,
    )
    assert 0.97 * -best.fun <= gained <= -best.fun * (1 + 1e-6)


def near(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return abs(one[0] - other[0]) <= 2 and abs(one[1] - other[1]) <= 2


@pytest.mark.parametrize("method", ["ascent", "sinkhorn"])
def test_frozen_mass_takes_part_in_what_rounding_costs(
    method: str, backend: Any, digits: tuple[Tensor, Tensor]
) -> None:
    """A judge scales whole images to their mass, frozen pixels too: certificates that forgot those came out too low."""
    images, labels = digits[0][:20], digits[1][:20]
    mask = torch.zeros(28, 28, dtype=torch.bool)
    mask[:14] = True
    result = attack(load_model("mnist-standard"), images, labels, radius=0.2, method=method, steps=6, mask=mask)
    assert (result.steps > 0).sum() > 15
    assert (result.cost > 0.19).sum() > 15  # next to nothing of the budget is left, so every rounding counts
    assert_frozen(images, result, mask, radius=0.2)


@given(seed=seeds, share=st.floats(0, 1), radius=st.sampled_from([0.0, 1e-3, 0.1, 2.0]), each=st.booleans())
def test_any_mask_is_kept(seed: int, share: float, radius: float, each: bool) -> None:
    images, _, model = scene(seed % 1000, batch=2)
    shape = (2, 1, HEIGHT, WIDTH) if each else (HEIGHT, WIDTH)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed % 997)) < share
    labels = torch.zeros(2, dtype=torch.int64)
    result = attack(model, images, labels, radius=radius, method="ascent", steps=3, mask=mask)
    assert_frozen(images, result, mask, radius=radius)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_radius_keeps_frozen_pixels(dtype: torch.dtype) -> None:
    images, mask, model = scene(5)
    images = images.to(dtype)
    labels = torch.zeros(len(images), dtype=torch.int64)
    free = smallest_radius(model, images, labels)
    masked = smallest_radius(model, images, labels, mask=mask)
    assert free.success.all() and masked.success.any()
    frozen = ~mask.expand(images.shape)
    assert torch.equal(masked.images[frozen], images[frozen])
    assert (masked.radius[masked.success] >= 0.98 * free.radius[masked.success]).all()  # fewer ways cost more


@pytest.mark.parametrize("normalisation", ["image", "channel"])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_judge_measures_between_free_pixels(normalisation: Any, power: float) -> None:
    """A column of three, the middle frozen: what crosses it travels two pixels, at the weight of the whole image."""
    original = torch.zeros(1, 2, 3, 1, dtype=torch.float64)
    original[0, 0, :, 0] = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    original[0, 1, 1, 0] = 0.25
    moved = original.clone()
    moved[0, 0, :, 0] = torch.tensor([0.4, 0.25, 0.1], dtype=torch.float64)
    mask = torch.tensor([[True], [False], [True]])
    mass = 1.0 if normalisation == "image" else 0.75
    verdicts = verify(original, moved, 1.0, mask=mask, normalisation=normalisation, power=power, threads=1)
    torch.testing.assert_close(verdicts.distance.item(), 0.1 * 2**power / mass, rtol=1e-9, atol=0)
    if power == 2.0:  # without the mask a chain of two steps is cheaper
        free = verify(original, moved, 1.0, normalisation=normalisation, power=power, threads=1)
        torch.testing.assert_close(free.distance.item(), 0.1 * 2 / mass, rtol=1e-9, atol=0)


def test_the_judge_and_the_proof_refuse_a_touched_pixel() -> None:
    images, mask, model = scene(6)
    labels = torch.zeros(len(images), dtype=torch.int64)
    result = attack(model, images, labels, radius=0.1, method="ascent")  # without the mask
    verdicts = verify(images, result.images, 0.1, mask=mask, threads=1)
    assert verdicts.violations > 0
    row = int(torch.nonzero(~verdicts.inside)[0])
    assert "frozen pixel" in verdicts.reason(row)
    pictures = images[row].numpy(), result.images[row].numpy()
    moves = proving_moves(result.plan, images, row)
    free = mask.expand(images.shape)[row].numpy()
    assert check(*pictures, moves, Claim(0.1, tolerance=1e-9)).proved
    verdict = check(*pictures, moves, Claim(0.1, tolerance=1e-9), free=free)
    assert not verdict.proved and "frozen pixel" in verdict.reason


def test_a_proof_through_a_frozen_pixel_is_refuted() -> None:
    """Two moves hand mass on over the frozen pixel, which does not change."""
    original = np.array([[[0.5, 0.25, 0.0]]])
    image = np.array([[[0.25, 0.25, 0.25]]])
    moves = Moves(
        source=np.array([0, 1], dtype=np.int32),
        step=np.array([[0, 1], [0, 1]], dtype=np.int16),
        mass=np.array([2**28, 2**28], dtype=np.int64),
        unit=30,
    )
    claim = Claim(1.0)
    assert check(original, image, moves, claim).proved
    verdict = check(original, image, moves, claim, free=np.array([[[True, False, True]]]))
    assert not verdict.proved and "touches a frozen pixel" in verdict.reason


def test_odd_masks_are_refused() -> None:
    images, mask, model = scene()
    labels = torch.zeros(len(images), dtype=torch.int64)
    for odd, words in (
        (mask.numpy(), "torch tensor"),
        (mask.float() * 0.5, "0 to 0.5"),
        (mask[:, :3], "(6, 7)"),
        (mask.flatten(), "shape"),
    ):
        with pytest.raises(MassmoverError, match="mask") as caught:
            attack(model, images, labels, radius=0.1, mask=odd)  # type: ignore[arg-type]
        assert words in str(caught.value)
