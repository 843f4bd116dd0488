"""How far plans stray from smooth fields: known answers, loops, the proof checker's own sums, and repair."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from massmover import MassmoverError, WassersteinBall
from massmover.ball import Balls
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_file import checked_proofs, proof_arrays, proofs_in
from massmover.evaluation.proof_maker import proving_moves
from massmover.transport.coherence import scatter_of
from massmover.transport.field import Led, carried_torch, slope_torch
from massmover.transport.plan import SCATTER_ROUND_OFF, Plan, certify
from massmover.transport.repair import repair, settled
from scenes import random_images, seeds

widths = st.sampled_from([None, 1, 3, 8])


def balls_around(
    images: Tensor, *, scatter: float = 1.0, width: int | None = None, radius: float = 9.0, window: int | None = 5
) -> Balls:
    ball = WassersteinBall(radius, window=window, scatter=scatter, width=width)
    return ball.around(images, backend="torch")


def flows_of(balls: Balls, moves: dict[tuple[int, int], Tensor]) -> Tensor:
    """A plan that sends given images along given moves."""
    flows = balls.staying(dtype=torch.float64) * 0
    for move, mass in moves.items():
        flows[:, :, balls.window.offsets.index(move)] += mass
    return flows


def middle(seed: int = 0, *, size: int = 9) -> Tensor:
    """An image with a black border that two pixels of movement do not reach across."""
    images = random_images(seed, batch=1, channels=1, height=size, width=size)
    images[..., :2, :] = images[..., -2:, :] = images[..., :2] = images[..., -2:] = 0
    return images


@pytest.mark.parametrize("width", [None, 1, 4, 50])
def test_one_shift_for_all_mass_does_not_scatter(width: int | None) -> None:
    x = middle()
    balls = balls_around(x, width=width)
    assert scatter_of(flows_of(balls, {(2, -1): x}), balls) < 1e-12
    parts = {(1, -1): 0.3 * x, (2, -1): 0.7 * x}  # 1.7 pixels down: the grid splits it, and that is not counted
    assert scatter_of(flows_of(balls, parts), balls) < 1e-12


def test_a_share_of_pixels_that_leaves_the_others_scatters_by_its_variance() -> None:
    x = torch.zeros(1, 1, 4, 5, dtype=torch.float64)
    x[..., 1:3, 1:3] = 0.5
    some = x.clone()
    some[0, 0, 1, 1] = 0  # three of four pixels move two to the right
    balls = balls_around(x)
    scatter = scatter_of(flows_of(balls, {(0, 2): some, (0, 0): x - some}), balls)
    assert scatter.item() == pytest.approx(2 * math.sqrt(0.75 * 0.25), abs=1e-12)


def test_a_pixel_that_is_torn_apart_scatters_though_its_mean_stays() -> None:
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 2, 2] = 0.8
    balls = balls_around(x)
    torn = scatter_of(flows_of(balls, {(0, -1): x / 2, (0, 1): x / 2}), balls)
    assert torn.item() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("down", "right"), [(1, 1), (1, -1)])
def test_a_pixel_that_splits_along_a_diagonal_scatters_and_one_that_splits_bilinearly_does_not(
    down: int, right: int
) -> None:
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 2, 2] = 0.8
    x[0, 0, 1, 3] = 0.4
    balls = balls_around(x)
    for share in (0.5, 0.3):
        apart = {(0, 0): (1 - share) * x, (down, right): share * x}  # covariance +-f (1 - f), along no axis too much
        assert scatter_of(flows_of(balls, apart), balls).item() == pytest.approx(math.sqrt(2 * share * (1 - share)))
        parts = {(0, 0): 1 - share, (1, 0): share}, {(0, 0): 1 - share, (0, 1): share}
        both = {
            (down * one[0], right * other[1]): one_part * other_part * x
            for (one, one_part), (other, other_part) in itertools.product(parts[0].items(), parts[1].items())
        }
        assert scatter_of(flows_of(balls, both), balls) < SCATTER_ROUND_OFF / 4


def test_no_plan_scatters_more_than_the_longest_move_times_the_root_of_two() -> None:
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 2, 2] = 0.8
    balls = balls_around(x)
    torn = scatter_of(flows_of(balls, {(-2, -2): x / 2, (2, 2): x / 2}), balls)  # reaches the bound
    assert torn.item() == pytest.approx(math.sqrt(2) * math.hypot(2, 2))
    for seed in range(20):
        y = random_images(seed, batch=1, channels=1, height=4, width=5).clamp_min(0.01)
        around = balls_around(y, scatter=50.0, radius=90.0)
        flows = random_flows(seed, around) ** 8  # some rows nearly whole moves
        plan = repair(Plan(around.window, flows), around).plan.flows
        assert scatter_of(plan, around) <= math.sqrt(2) * math.hypot(2, 2)


def test_turning_does_not_scatter_where_the_field_may_bend_but_does_from_one_vector() -> None:
    x = middle(3)
    at = torch.arange(9, dtype=torch.float64) - 4
    turn = 0.3 * torch.stack([at.repeat(9), -at.repeat_interleave(9)]).unsqueeze(0)
    led, nothing = Led(turn, torch.zeros_like(turn), torch.zeros(1, 1, 81, dtype=torch.float64)), SCATTER_ROUND_OFF / 4
    for width, turns in ((8, True), (4, True), (None, False)):
        balls = balls_around(0.4 * x, scatter=math.inf if turns else 5.0, width=None)
        kept = led.moves(balls)
        measured = scatter_of(kept.flows, balls_around(0.4 * x, width=width))
        assert (measured.item() < nothing) == turns


def dense_scatter(flows: Tensor, balls: Balls) -> float:
    """Variance of the displacement about its mean, less what a bilinear split makes of each pixel's own; by loops.

    And twice what the axes of each pixel's mass do together.
    """
    moved = [
        (mass, dy, dx, (c, y, x))
        for c in range(flows.shape[1])
        for k, (dy, dx) in enumerate(balls.window.offsets)
        for y, x in itertools.product(range(flows.shape[3]), range(flows.shape[4]))
        if (mass := float(flows[0, c, k, y, x])) > 0
    ]
    total = sum(mass for mass, *_ in moved)
    mean = [sum(mass * step[axis] for mass, *step, _ in moved) / total for axis in (0, 1)]
    variance = sum(m * ((dy - mean[0]) ** 2 + (dx - mean[1]) ** 2) for m, dy, dx, _ in moved)
    held: dict[tuple[int, int, int], list[float]] = {}
    for mass, dy, dx, pixel in moved:
        row = held.setdefault(pixel, [0.0, 0.0, 0.0, 0.0])
        for place, value in enumerate((mass, mass * dy, mass * dx, mass * dy * dx)):
            row[place] += value
    grid = sum(
        row[0] * (f - math.floor(f)) * (1 - f + math.floor(f))
        for row in held.values()
        for f in (row[1] / row[0], row[2] / row[0])
    )
    together = sum(2 * abs(row[3] - row[1] * row[2] / row[0]) for row in held.values())
    return math.sqrt(max(variance - grid + together, 0.0) / total)


def random_flows(seed: int, balls: Balls) -> Tensor:
    flows = torch.rand(balls.staying(dtype=torch.float64).shape, generator=torch.Generator().manual_seed(seed)).double()
    flows[flows < 0.6] = 0
    return flows


@settings(max_examples=15)
@given(seed=seeds, channels=st.integers(1, 3))
def test_one_vector_agrees_with_loops_over_a_dense_plan(seed: int, channels: int) -> None:
    x = random_images(seed, batch=1, channels=channels, height=4, width=5).clamp_min(0.01)
    balls = balls_around(x, window=5, scatter=50.0, radius=90.0)
    flows = repair(Plan(balls.window, random_flows(seed, balls)), balls).plan.flows
    assert scatter_of(flows, balls).item() == pytest.approx(dense_scatter(flows, balls), abs=1e-9)


@settings(max_examples=15)
@given(seed=seeds, width=widths, scatter=st.sampled_from([0.0, 0.02, 0.3]), masked=st.booleans())
def test_repair_keeps_both_bounds_and_the_checker_agrees(
    seed: int, width: int | None, scatter: float, masked: bool
) -> None:
    x = random_images(seed, batch=2, channels=2, height=5, width=6)
    mask = torch.rand(5, 6, generator=torch.Generator().manual_seed(seed)).expand(x.shape) < 0.8 if masked else None
    ball = WassersteinBall(0.5, scatter=scatter, width=width)
    balls = ball.around(x, mask=mask, backend="torch")
    fixed = repair(Plan(balls.window, random_flows(seed, balls)), balls)
    assert fixed.certificate.holds(balls.budget, dtype=x.dtype, coherence=balls.coherence).all()
    claim = Claim(0.5, tolerance=1e-9, scatter=scatter, width=width)
    free = None if mask is None else mask.numpy()
    for row in range(2):
        held = fixed.plan.flows.clone()
        if mask is not None:
            held[:, :, 0] += x * ~mask
        moves = proving_moves(Plan(balls.window, held), x, row)
        shown = fixed.images[row] if mask is None else fixed.images[row] + (x * ~mask)[row]
        verdict = check(x[row].numpy(), shown.numpy(), moves, claim, free=None if free is None else free[row])
        assert verdict.proved, verdict.reason
        assert verdict.scatter == pytest.approx(float(fixed.certificate.scatter[row]), abs=1e-5)


def test_the_checker_refutes_a_plan_that_scatters_more_than_it_claims() -> None:
    x = torch.zeros(1, 1, 4, 5, dtype=torch.float64)
    x[..., 1:3, 1:3] = 0.5
    balls = balls_around(x)
    some = x * (torch.arange(5) == 1)
    plan = Plan(balls.window, flows_of(balls, {(0, 2): some, (0, 0): x - some}))
    image = plan.images()
    arrays: dict[str, Any] = {
        "original": x.numpy(),
        "adversarial": image.numpy(),
        "radius": np.array([1.0]),
        **proof_arrays([proving_moves(plan, x, 0)], Claim(0.0, scatter=1.0)),
    }
    [verdict] = checked_proofs(arrays)
    assert verdict is not None and verdict.proved and verdict.scatter == pytest.approx(1.0, abs=1e-8)
    [refuted] = checked_proofs({**arrays, "proof_scatter": np.array(0.99)})
    assert refuted is not None and refuted.status == "refuted" and "scatter" in refuted.reason
    [bent] = checked_proofs({**arrays, "proof_scatter": np.array(0.01), "proof_width": np.array(1)})
    assert bent is not None and bent.proved  # where every pixel has a knot of its own, each may go its own way
    found = proofs_in(arrays)
    assert found is not None and (found.claim.scatter, found.claim.width) == (1.0, None)
    del arrays["proof_width"]
    with pytest.raises(MassmoverError, match="proof_width missing"):
        proofs_in(arrays)


def test_a_file_that_claims_no_scatter_says_nothing_of_it() -> None:
    assert not any("scatter" in name or "width" in name for name in proof_arrays([None], Claim(1.0)))


@settings(max_examples=15)
@given(
    seed=seeds,
    width=widths,
    scatter=st.sampled_from([0.0, 0.05, 0.5]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_field_gives_a_plan_inside(seed: int, width: int | None, scatter: float, dtype: torch.dtype) -> None:
    x = random_images(seed, batch=2, channels=2, height=6, width=5, dtype=dtype)
    balls = balls_around(x, scatter=scatter, width=width, radius=0.8)
    generator = torch.Generator().manual_seed(seed)
    smooth, stray = (size * torch.randn(2, 2, 30, generator=generator) for size in (2.0, 0.3))
    found = settled(Led(smooth, stray, torch.zeros(2, 2, 30)).moves(balls), balls)
    assert found.certificate.holds(balls.budget, dtype=dtype, coherence=balls.coherence).all()


def test_a_field_that_fits_is_kept_whole() -> None:
    x = 0.5 * middle(1)
    balls = balls_around(x, scatter=0.0, radius=2.3)
    shift = torch.tensor([1.5, -0.75], dtype=torch.float64).view(1, 2, 1).expand(1, 2, 81)
    found = settled(Led(shift, torch.zeros_like(shift), torch.zeros(1, 1, 81)).moves(balls), balls)
    flows = found.plan.flows[0, 0]
    for axis, moves in enumerate(zip(*balls.window.offsets, strict=True)):
        mean = torch.einsum("khw,k->", flows, torch.tensor(moves, dtype=torch.float64)) / x.sum()
        assert mean.item() == pytest.approx(float(shift[0, axis, 0]), abs=1e-9)


def test_rows_that_give_way_to_full_pixels_still_split_bilinearly() -> None:
    x = torch.full((1, 1, 9, 9), 0.9)  # a field that draws it together crowds the middle
    x[..., :2, :] = x[..., -2:, :] = x[..., :2] = x[..., -2:] = 0
    at = torch.arange(9.0) - 4
    inwards = -0.1 * torch.stack([at.repeat_interleave(9), at.repeat(9)]).unsqueeze(0)
    balls = balls_around(x, scatter=0.3, width=8)
    avoided, nothing = torch.zeros(1, 1, 81), torch.zeros_like(inwards)
    for _ in range(20):
        move = carried_torch(inwards, inwards, balls, avoided)
        avoided = move.avoided
    assert avoided.max() > 0.1 and move.scatter > 0.05  # they gave way, and that is straying
    kept = Led(inwards, nothing, avoided).moves(balls)
    offsets = torch.tensor(balls.window.offsets, dtype=torch.float64)
    mean = torch.einsum("bckhw,ka->bcahw", kept.flows, offsets) / x.clamp_min(1e-9).unsqueeze(2)
    apart = offsets.view(1, 1, -1, 2, 1, 1) - mean.unsqueeze(2)
    together = (kept.flows * apart.prod(dim=3)).sum(dim=2).abs()
    assert (mean * x.unsqueeze(2)).abs().max() > 0.05 and together.max() < 1e-6
    assert scatter_of(kept.flows, balls) < 0.3


def test_the_checker_counts_what_two_axes_do_together() -> None:
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 1, 1], x[0, 0, 3, 3] = 0.5, 0.25
    balls = balls_around(x)
    quarters = dict.fromkeys(itertools.product((0, 1), (0, -1)), x / 4)
    for moves, scatter in (({(0, 0): x / 2, (1, -1): x / 2}, math.sqrt(0.5)), (quarters, 0.0)):
        plan = Plan(balls.window, flows_of(balls, moves))
        proof = proving_moves(plan, x, 0)
        for claimed, status in ((scatter, "proved"), (0.99 * scatter, "refuted" if scatter else "proved")):
            claim = Claim(1.0, tolerance=1e-9, scatter=claimed)
            verdict = check(x[0].numpy(), plan.images()[0].numpy(), proof, claim)
            assert verdict.status == status, verdict.reason
        assert check(
            x[0].numpy(), plan.images()[0].numpy(), proof, Claim(1.0, tolerance=1e-9, scatter=1.0)
        ).scatter == pytest.approx(scatter, abs=1e-9 if scatter else 1e-6)


@settings(max_examples=15)
@given(seed=seeds)
def test_the_slope_of_a_field_is_a_derivative(seed: int) -> None:
    x = 0.2 * random_images(seed, batch=1, channels=2, height=6, width=5)
    balls, generator = balls_around(x, radius=100.0), torch.Generator().manual_seed(seed)
    field = torch.randn(1, 2, 30, generator=generator, dtype=torch.float64)
    gradient, avoided = (
        torch.rand(1, 2, *shape, generator=generator, dtype=torch.float64) for shape in ((6, 5), (30,))
    )
    variable = field.clone().requires_grad_(True)
    from massmover.transport.field import Lean, _arrived, corners

    reached = corners(variable, balls)
    loss = (_arrived(reached, x.flatten(2), Lean.of(reached, avoided).parts()) * gradient.flatten(2)).sum()
    (wanted,) = torch.autograd.grad(loss, variable)
    ends = torch.isclose(corners(field, balls).between % 1, torch.zeros((), dtype=torch.float64))  # clamped: kinks
    found = slope_torch(gradient, field, avoided, balls) * x.sum(dim=1).flatten(1).unsqueeze(1)
    torch.testing.assert_close(torch.where(ends, 0, found), torch.where(ends, 0, wanted))


@settings(max_examples=15)
@given(seed=seeds, window=st.sampled_from([1, 3, 5]))
def test_numba_carries_mass_as_torch_does(seed: int, window: int) -> None:
    pytest.importorskip("numba")
    from massmover.transport.kernels.field import carried_numba, slope_numba

    x = random_images(seed, batch=3, channels=2, height=6, width=5, dtype=torch.float32)
    balls, generator = balls_around(x, radius=0.6, window=window), torch.Generator().manual_seed(seed)
    field, gradient = torch.randn(3, 2, 30, generator=generator), torch.randn(x.shape, generator=generator)
    avoided = torch.zeros(3, 2, 30)
    for _ in range(2):
        ours, theirs = (carry(field, 0.5 * field, balls, avoided) for carry in (carried_numba, carried_torch))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)
        avoided = theirs.avoided
    slopes = (climb(gradient, field, avoided, balls) for climb in (slope_numba, slope_torch))
    torch.testing.assert_close(*slopes, atol=1e-4, rtol=1e-3)


def test_a_ball_without_scatter_measures_none() -> None:
    x = middle()
    balls = replace(balls_around(x), coherence=None)
    plan = Plan(balls.window, flows_of(balls, {(0, 1): x}))
    assert certify(plan, balls, returned=plan.images()).scatter.isinf().all()


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        ({"scatter": -0.1}, "scatter is -0.1"),
        ({"scatter": math.nan}, "scatter is nan"),
        ({"scatter": 0.1, "width": 0}, "width is 0"),
        ({"scatter": 0.1, "width": 2.5}, "width is 2.5"),
        ({"width": 9}, "scatter is None"),
        ({"scatter": "much"}, "scatter is 'much'"),
    ],
)
def test_a_ball_that_cannot_be_is_refused(given_settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MassmoverError, match=words):
        WassersteinBall(1.0, **given_settings)


def test_infinity_lets_mass_scatter_as_before() -> None:
    assert WassersteinBall(1.0, scatter=math.inf, width=9) == WassersteinBall(1.0)
    assert WassersteinBall(1.0, scatter=0.1, width=math.inf) == WassersteinBall(1.0, scatter=0.1)
