"""The cheapest plan between two images: known answers, SciPy's linear programme, and what holds for every plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, vstack
from torch import Tensor

from linear import programme
from massmover import WassersteinBall, exact_distance
from massmover.geometry import Window
from massmover.transport.plan import Plan
from massmover.transport.repair import repair
from massmover.transport.replan import replanned
from massmover.types import Ground
from scenes import grounds, random_images, seeds, shapes, windows

flow = pytest.importorskip("massmover.transport.kernels.flow", reason="needs Numba")


def least_cost(before: Tensor, after: Tensor, window: Window) -> float:
    """The cost of the cheapest plan of a window between one-channel images, mass times distance, by SciPy."""
    source, target, cost, x = programme(before, window)
    many, n = np.arange(len(cost)), len(x)
    sums = [coo_matrix((np.ones(len(cost)), (ends, many)), shape=(n, len(cost))) for ends in (source, target)]
    z = after.flatten().double().numpy()
    found = linprog(cost, A_eq=vstack(sums).tocsr(), b_eq=np.concatenate([x, z]), method="highs")
    assert found.status == 0
    return float(found.fun)


def moved_anyhow(images: Tensor, ball: WassersteinBall, *, seed: int) -> Plan:
    """A feasible plan that nobody made cheap."""
    balls = ball.around(images)
    generator = torch.Generator().manual_seed(seed)
    shape = (*images.shape[:2], len(balls.window.offsets), *images.shape[2:])
    return repair(Plan(balls.window, torch.rand(shape, generator=generator, dtype=torch.float64) ** 3), balls).plan


def test_one_pixel_goes_to_its_neighbour_and_the_rest_stays() -> None:
    before = torch.tensor([[[[0.2, 0.7, 0.0, 0.4]]]], dtype=torch.float64)
    after = torch.tensor([[[[0.2, 0.4, 0.3, 0.4]]]], dtype=torch.float64)
    balls = WassersteinBall(1.0).around(before)
    found = flow.cheapest_flows(after, balls)
    right = balls.window.offsets.index((0, 1))
    assert found[0, 0, right, 0].tolist() == pytest.approx([0, 0.3, 0, 0])
    assert float(found[:, :, 1:].sum()) == pytest.approx(0.3)


def test_mass_that_cannot_jump_so_far_is_passed_on() -> None:
    """Three pixels of a window of 3: what is missing at the far end comes from the middle, which is refilled."""
    before = torch.tensor([[[[0.9, 0.5, 0.1]]]], dtype=torch.float64)
    after = torch.tensor([[[[0.5, 0.5, 0.5]]]], dtype=torch.float64)
    balls = WassersteinBall(1.0, window=3).around(before)
    plan = Plan(balls.window, flow.cheapest_flows(after, balls))
    assert torch.allclose(plan.images(), after) and torch.allclose(plan.rows(), before)
    assert float(plan.cost(torch.ones(1, 1, dtype=torch.float64))) == pytest.approx(0.8)


def test_what_no_plan_of_the_window_can_bring_stays() -> None:
    before = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]], dtype=torch.float64)
    balls = WassersteinBall(1.0, window=3).around(before)
    plan = Plan(balls.window, flow.cheapest_flows(before.flip(-1), balls))
    assert torch.equal(plan.rows(), before)


@given(seed=seeds, window=windows, ground=grounds, power=st.sampled_from([0.5, 1.0, 2.0]))
def test_it_costs_what_the_linear_programme_says(seed: int, window: int | None, ground: Ground, power: float) -> None:
    images = random_images(seed, batch=1, channels=1, height=4, width=5)
    ball = WassersteinBall(0.4, window=window, ground=ground, power=power)
    given_plan = moved_anyhow(images, ball, seed=seed)
    after, one = given_plan.images(), torch.ones(1, 1, dtype=torch.float64)
    cheapest = Plan(given_plan.window, flow.cheapest_flows(after, ball.around(images)))
    truth = least_cost(images[0, 0], after[0, 0], given_plan.window)
    assert float(cheapest.cost(one)) == pytest.approx(truth, abs=1e-9)
    assert float(cheapest.cost(one)) <= float(given_plan.cost(one)) + 1e-12


@given(seed=seeds, shape=shapes, window=windows)
def test_rows_and_image_are_those_that_were_given(
    seed: int, shape: tuple[int, int, int, int], window: int | None
) -> None:
    images = random_images(seed, batch=shape[0], channels=shape[1], height=shape[2], width=shape[3])
    ball = WassersteinBall(0.3, window=window)
    after = moved_anyhow(images, ball, seed=seed).images()
    plan = Plan(ball.around(images).window, flow.cheapest_flows(after, ball.around(images)))
    assert (plan.flows >= 0).all()
    assert (plan.rows() - images).abs().max() <= 1e-14
    assert (plan.images() - after).abs().max() <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_proof_by_the_cheapest_plan_holds_for_the_same_image(dtype: torch.dtype) -> None:
    images = random_images(3, batch=6, channels=2, height=8, width=8, dtype=dtype)
    balls = WassersteinBall(0.2).around(images)
    generator = torch.Generator().manual_seed(1)
    shape = (6, 2, len(balls.window.offsets), 8, 8)
    proof = repair(Plan(balls.window, torch.rand(shape, generator=generator, dtype=torch.float64)), balls)
    plan, certificate = replanned(proof.plan, proof.certificate, balls, images=proof.images)
    assert certificate.holds(balls.budget, dtype=dtype).all()
    assert (certificate.total < proof.certificate.total).all()
    distance = exact_distance(images, proof.images)
    assert (distance <= certificate.total).all()
    assert (distance >= 0.9 * certificate.total).all() and not (distance >= 0.9 * proof.certificate.total).any()
    assert (plan.images() - proof.images.double()).abs().max() <= torch.finfo(torch.float32).eps


def test_without_its_kernel_plans_are_returned_as_they_came() -> None:
    images = random_images(3, batch=2, channels=1, height=5, width=5)
    balls = WassersteinBall(0.2).around(images, backend="torch")
    proof = repair(moved_anyhow(images, WassersteinBall(0.2), seed=0), balls)
    assert replanned(proof.plan, proof.certificate, balls, images=proof.images) == (proof.plan, proof.certificate)


@pytest.mark.parametrize("tile", [4, 6])
def test_tiles_make_the_same_image_for_less(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "TILE", tile)
    images = random_images(5, batch=2, channels=2, height=13, width=11)
    balls = WassersteinBall(0.3).around(images)
    given_plan = moved_anyhow(images, WassersteinBall(0.3), seed=4)
    cheaper = Plan(balls.window, flow.cheaper_flows(given_plan.flows, balls))
    assert (cheaper.flows >= 0).all()
    assert (cheaper.rows() - images).abs().max() <= 1e-14
    assert (cheaper.images() - given_plan.images()).abs().max() <= 1e-12
    cheapest = Plan(balls.window, flow.cheapest_flows(given_plan.images(), balls))
    costs = [plan.cost(balls.weights)[balls.weights.amax(dim=1) > 0] for plan in (cheapest, cheaper, given_plan)]
    assert (costs[0] <= costs[1] + 1e-12).all()
    assert (costs[1] - costs[0] <= 0.5 * (costs[2] - costs[0])).all()  # most of what can be saved is


def test_one_tile_that_holds_the_image_is_planned_at_best() -> None:
    images = random_images(6, batch=1, channels=1, height=9, width=9)
    balls = WassersteinBall(0.3).around(images)
    given_plan = moved_anyhow(images, WassersteinBall(0.3), seed=4)
    cheaper, cheapest = (
        flow.cheaper_flows(given_plan.flows, balls),
        flow.cheapest_flows(given_plan.images(), balls),
    )
    costs = [float(Plan(balls.window, flows).cost(balls.weights)) for flows in (cheaper, cheapest)]
    assert costs[0] == pytest.approx(costs[1], abs=1e-12)
