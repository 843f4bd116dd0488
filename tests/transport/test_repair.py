from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from massmover.ball import Balls, WassersteinBall
from massmover.evaluation.verify import verify
from massmover.geometry import Window, scatter, window_for
from massmover.transport.plan import Certificate, Plan, certify
from massmover.transport.repair import PROPORTIONAL_SWEEPS, repair, returned_share, sendable, without_swaps
from scenes import dtypes, random_images, seeds, shapes, windows


def assert_feasible(proof: Certificate, budget: torch.Tensor, *, pixel: float = 1e-12) -> None:
    assert (proof.total <= budget + 1e-12).all(), (proof.total - budget).max()
    assert proof.row_error.max() <= 1e-12
    assert proof.column_error.max() <= pixel
    assert proof.below.max() <= 0
    assert proof.above.max() <= 0


def balls_of(images: torch.Tensor, window: Window, *, budget: torch.Tensor, weights: torch.Tensor) -> Balls:
    return Balls(originals=images, budget=budget, weights=weights, window=window, backend="torch")


def random_flows(seed: int, images: torch.Tensor, window: Window, *, scale: float) -> torch.Tensor:
    """Plans that overspend, overfill and overdraw all at once."""
    generator = torch.Generator().manual_seed(seed)
    shape = (*images.shape[:2], len(window.offsets), *images.shape[2:])
    return scale * torch.rand(shape, generator=generator, dtype=torch.float64) ** 4


def test_one_bright_pixel_pays_for_its_neighbour() -> None:
    images = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    images[0, 0, 1, 1] = 0.8
    window = Window(rows=1, columns=1)
    flows = torch.zeros(1, 1, 9, 3, 3, dtype=torch.float64)
    flows[0, 0, window.offsets.index((0, 1)), 1, 1] = 0.8
    ball = WassersteinBall(0.25, window=3)
    fixed = repair(
        Plan(window, flows),
        balls_of(images, window, budget=torch.tensor([0.25]).double(), weights=ball.weights(images)),
    )
    # A quarter of the mass may travel one pixel.
    assert fixed.images[0, 0, 1].tolist() == pytest.approx([0.0, 0.6, 0.2])
    assert fixed.certificate.total.item() == pytest.approx(0.25)


def test_a_full_pixel_sends_back_what_does_not_fit() -> None:
    images = torch.tensor([[[[0.6, 0.9]]]], dtype=torch.float64)
    window = window_for(images, size=3)
    flows = torch.zeros(1, 1, len(window.offsets), 1, 2, dtype=torch.float64)
    flows[0, 0, window.offsets.index((0, 1)), 0, 0] = 0.6
    fixed = repair(
        Plan(window, flows),
        balls_of(images, window, budget=torch.tensor([9.0]).double(), weights=torch.ones(1, 1).double()),
    )
    assert fixed.images.flatten().tolist() == pytest.approx([0.5, 1.0])
    assert fixed.certificate.cost.item() == pytest.approx(0.1)


def test_a_feasible_plan_is_left_as_it_is() -> None:
    images = torch.tensor([[[[0.5, 0.2, 0.0]]]], dtype=torch.float64)
    window = window_for(images, size=3)
    flows = torch.zeros(1, 1, len(window.offsets), 1, 3, dtype=torch.float64)
    flows[0, 0, 0, 0] = torch.tensor([0.4, 0.1, 0.0])
    flows[0, 0, window.offsets.index((0, 1)), 0] = torch.tensor([0.1, 0.1, 0.0])
    fixed = repair(
        Plan(window, flows),
        balls_of(images, window, budget=torch.tensor([1.0]).double(), weights=torch.ones(1, 1).double()),
    )
    torch.testing.assert_close(fixed.plan.flows, flows)
    assert fixed.images.flatten().tolist() == pytest.approx([0.4, 0.2, 0.1])


@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_plans_become_feasible(part: int) -> None:
    """Over-budget, over-full, over-drawn plans on hostile images, feasible to 1e-12 in float64."""
    sizes = itertools.cycle([(1, 1), (1, 6), (7, 1), (2, 2), (3, 5), (6, 4), (8, 8)])
    for case, (height, width) in zip(range(20), sizes, strict=False):
        seed = part * 1000 + case
        images = random_images(seed, batch=50, channels=1 + seed % 5, height=height, width=width)
        window = window_for(images, size=[3, 5, None][seed % 3], power=[1.0, 2.0, 0.5][seed % 3])
        ball = WassersteinBall(1.0, normalisation="channel" if seed % 2 else "image")
        budget = 10.0 ** torch.empty(50, dtype=torch.float64).uniform_(
            -6, 1, generator=torch.Generator().manual_seed(seed)
        )
        budget[0] = 0.0
        flows = random_flows(seed, images, window, scale=2.0)
        weights = ball.weights(images)
        fixed = repair(Plan(window, flows), balls_of(images, window, budget=budget, weights=weights))
        assert_feasible(fixed.certificate, budget)
        again = certify(
            fixed.plan, balls_of(images, fixed.plan.window, budget=budget, weights=weights), returned=fixed.images
        )
        assert_feasible(again, budget)
        assert torch.equal(fixed.images[0], images[0])  # radius 0 gives the centre
        black = images.sum(dim=(-2, -1)) == 0
        assert (fixed.images[black] == 0).all()


@given(shape=shapes, seed=seeds, size=windows, dtype=dtypes, exponent=st.floats(-4, 1))
def test_the_judge_agrees_with_the_certificate(
    shape: tuple[int, ...], seed: int, size: int | None, dtype: Any, exponent: float
) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
    copy = images.clone()
    ball = WassersteinBall(10.0**exponent, window=size)
    window = ball.moves(images)
    budget = torch.full((batch,), 10.0**exponent, dtype=torch.float64)
    flows = random_flows(seed, images, window, scale=1.0)
    fixed = repair(Plan(window, flows), balls_of(images, window, budget=budget, weights=ball.weights(images)))
    verdicts = verify(images, fixed.images, ball.radius, threads=1)
    assert fixed.images.dtype == dtype
    assert verdicts.violations == 0, [verdicts.reason(i) for i in range(batch)]
    assert (verdicts.distance <= fixed.certificate.total * (1 + 1e-9) + 1e-12).all()
    assert torch.equal(images, copy)


@given(seed=seeds)
def test_repair_is_idempotent(seed: int) -> None:
    images = random_images(seed, batch=3, channels=2, height=4, width=5)
    window = window_for(images, size=3)
    weights, budget = WassersteinBall(1.0).weights(images), torch.full((3,), 0.2, dtype=torch.float64)
    plan = Plan(window, random_flows(seed, images, window, scale=1.0))
    once = repair(plan, balls_of(images, window, budget=budget, weights=weights))
    twice = repair(once.plan, balls_of(images, once.plan.window, budget=budget, weights=weights))
    torch.testing.assert_close(twice.images, once.images, rtol=0, atol=1e-11)


def test_nonsense_flows_are_dropped() -> None:
    images = random_images(3, batch=2, channels=1, height=4, width=4)
    window = window_for(images, size=3)
    flows = random_flows(3, images, window, scale=1.0)
    flows[0, 0, 3] = torch.nan
    flows[0, 0, 4] = -1.0
    flows[1, 0, 5] = torch.inf
    budget = torch.full((2,), 0.3, dtype=torch.float64)
    weights = WassersteinBall(1.0).weights(images)
    fixed = repair(Plan(window, flows), balls_of(images, window, budget=budget, weights=weights))
    assert_feasible(fixed.certificate, budget)


def test_a_budget_below_round_off_returns_the_original_bits() -> None:
    images = random_images(5, batch=2, channels=1, height=5, width=5, dtype=torch.float32)
    window = window_for(images, size=3)
    budget = torch.tensor([1e-12, 0.0], dtype=torch.float64)
    flows = random_flows(5, images, window, scale=1.0)
    fixed = repair(
        Plan(window, flows), balls_of(images, window, budget=budget, weights=WassersteinBall(1.0).weights(images))
    )
    assert torch.equal(fixed.images, images)
    assert fixed.certificate.total.tolist() == [0.0, 0.0]


class TestCascade:
    """Sending mass back can overfill the pixel it returns to."""

    def chain(self, length: int) -> tuple[torch.Tensor, Window, torch.Tensor]:
        """Full pixels in a row, each sending half its mass right; the last one has nowhere to send."""
        images = torch.ones(1, 1, 1, length, dtype=torch.float64)
        window = window_for(images, size=3)
        flows = torch.zeros(1, 1, len(window.offsets), 1, length, dtype=torch.float64)
        flows[0, 0, window.offsets.index((0, 1)), 0, :-1] = 0.5
        return images, window, flows

    @pytest.mark.parametrize("length", [5, 40, 64])
    def test_a_chain_unwinds_one_pixel_a_sweep(self, length: int) -> None:
        images, window, flows = self.chain(length)
        share, sweeps = returned_share(flows[:, :, 1:], images, window=window)
        assert sweeps.item() == length - 1
        assert share[0, 0, 0, 1:].max() == 0

    def test_a_chain_longer_than_the_proportional_sweeps_is_closed(self) -> None:
        length = 3 * PROPORTIONAL_SWEEPS
        images, window, flows = self.chain(length)
        share, sweeps = returned_share(flows[:, :, 1:], images, window=window)
        assert sweeps.item() == length - 1  # never more than one closing sweep per pixel after the proportional ones
        assert share[0, 0, 0, 1:].max() == 0

    def test_a_leaking_loop_ends_although_its_shares_only_fall_geometrically(self) -> None:
        """Two full pixels feed each other and a third one feeds the loop: proportional shares never reach 0."""
        images = torch.tensor([[[[1.0, 1.0, 0.1]]]], dtype=torch.float64)
        window = window_for(images, size=3)
        flows = torch.zeros(1, 1, len(window.offsets), 1, 3, dtype=torch.float64)
        right, left = window.offsets.index((0, 1)), window.offsets.index((0, -1))
        flows[0, 0, right, 0, 0] = 0.5
        flows[0, 0, left, 0, 1] = 0.5
        flows[0, 0, left, 0, 2] = 0.01
        share, sweeps = returned_share(flows[:, :, 1:], images, window=window)
        moved = flows[:, :, 1:] * 1.0
        assert PROPORTIONAL_SWEEPS < sweeps.item() <= PROPORTIONAL_SWEEPS + 3
        budget = torch.tensor([9.0], dtype=torch.float64)
        fixed = repair(Plan(window, flows), balls_of(images, window, budget=budget, weights=torch.ones(1, 1).double()))
        assert_feasible(fixed.certificate, budget)
        assert moved.sum() > scatter(fixed.plan.flows, window=window).sum() - images.sum()
        assert (share <= 1).all()

    def test_a_column_that_can_never_fit_ends_closed(self) -> None:
        """A negative move takes mass from where there is none: no share of the inflow makes room for that."""
        images = torch.ones(1, 1, 1, 3, dtype=torch.float64)
        window = window_for(images, size=3)
        flows = torch.zeros(1, 1, len(window.offsets), 1, 3, dtype=torch.float64)
        flows[0, 0, window.offsets.index((0, 1)), 0, :2] = torch.tensor([0.5, -0.5], dtype=torch.float64)
        share, sweeps = returned_share(flows[:, :, 1:], images, window=window)
        assert share[0, 0, 0, 1] == 0
        assert sweeps.item() <= PROPORTIONAL_SWEEPS + 3

    def test_a_loop_that_balances_keeps_turning(self) -> None:
        """Full pixels may swap mass: the shares stay 1 and nothing is lost."""
        images = torch.ones(1, 1, 1, 2, dtype=torch.float64)
        window = window_for(images, size=3)
        flows = torch.zeros(1, 1, len(window.offsets), 1, 2, dtype=torch.float64)
        flows[0, 0, window.offsets.index((0, 1)), 0, 0] = 0.5
        flows[0, 0, window.offsets.index((0, -1)), 0, 1] = 0.5
        share, sweeps = returned_share(flows[:, :, 1:], images, window=window)
        assert share.min() == 1
        assert sweeps.item() == 0


class TestSwaps:
    """What two pixels would exchange stays: the same image for less."""

    def test_the_larger_of_two_opposite_moves_keeps_the_difference(self) -> None:
        images = torch.tensor([[[[0.8, 0.5]]]], dtype=torch.float64)
        window = window_for(images, size=3)
        right, left = window.offsets.index((0, 1)), window.offsets.index((0, -1))
        flows = torch.zeros(1, 1, len(window.offsets), 1, 2, dtype=torch.float64)
        flows[0, 0, right, 0, 0], flows[0, 0, left, 0, 1] = 0.4, 0.1
        fixed = repair(
            Plan(window, flows),
            balls_of(
                images,
                window,
                budget=torch.tensor([9.0], dtype=torch.float64),
                weights=torch.ones(1, 1, dtype=torch.float64),
            ),
        )
        torch.testing.assert_close(fixed.images.flatten(), torch.tensor([0.5, 0.8], dtype=torch.float64))
        assert fixed.plan.flows[0, 0, right, 0, 0].item() == pytest.approx(0.3, abs=1e-15)
        assert fixed.plan.flows[0, 0, left, 0, 1].item() == 0
        assert fixed.certificate.cost.item() == pytest.approx(0.3, abs=1e-15)

    @given(shape=shapes, seed=seeds, size=windows)
    def test_moves_are_the_positive_part_of_a_dense_difference(
        self, shape: tuple[int, ...], seed: int, size: int | None
    ) -> None:
        """Against a matrix of all moves, minus its transpose."""
        batch, channels, height, width = shape
        images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
        window = window_for(images, size=size)
        moving = sendable(random_flows(seed, images, window, scale=1.0), images, window=window)
        before = dense_moves(moving, window)
        after = dense_moves(without_swaps(moving.clone(), window=window), window)
        torch.testing.assert_close(after, (before - before.transpose(-1, -2)).clamp_min(0), rtol=0, atol=1e-15)
        gained = [moves.sum(dim=-2) - moves.sum(dim=-1) for moves in (before, after)]
        torch.testing.assert_close(gained[0], gained[1], rtol=0, atol=1e-14)


def dense_moves(moving: torch.Tensor, window: Window) -> torch.Tensor:
    """Moves as a matrix from pixel to pixel, (B, C, N, N)."""
    height, width = moving.shape[-2:]
    dense = moving.new_zeros(*moving.shape[:2], height * width, height * width)
    for y, x, (k, (dy, dx)) in itertools.product(range(height), range(width), enumerate(window.offsets[1:])):
        if 0 <= y + dy < height and 0 <= x + dx < width:
            dense[..., y * width + x, (y + dy) * width + x + dx] = moving[..., k, y, x]
    return dense
