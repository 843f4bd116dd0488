from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given

from dense import cost_matrix, dense_plan
from massmover.geometry import Window, gather, reachable, scatter, window_for
from massmover.types import MassmoverError
from scenes import grounds, random_images, seeds, shapes, windows


def test_five_by_five_window_has_twenty_five_moves_in_five_rings() -> None:
    window = Window(rows=2, columns=2)
    assert len(window.offsets) == 25
    assert window.offsets[0] == (0, 0)
    assert [ring.size for ring in window.rings] == [4, 4, 4, 8, 4]
    assert [ring.cost for ring in window.rings] == pytest.approx([1, 2**0.5, 2, 5**0.5, 8**0.5])


def test_equal_distances_share_a_ring() -> None:
    window = Window(rows=5, columns=5)
    assert next(ring.pairs for ring in window.rings if ring.cost == 5.0) == ((0, 5), (3, 4), (4, 3), (5, 0))


def test_moving_one_pixel_right_puts_it_there() -> None:
    window = Window(rows=1, columns=1)
    flows = torch.zeros(1, 1, 9, 3, 4)
    flows[0, 0, window.offsets.index((0, 1)), 1, 1] = 0.7
    moved = scatter(flows, window=window)
    assert moved[0, 0, 1, 2] == pytest.approx(0.7)
    assert moved.sum() == pytest.approx(0.7)


@given(shape=shapes, size=windows, seed=seeds)
def test_scatter_is_the_adjoint_of_gather(shape: tuple[int, ...], size: int | None, seed: int) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    window = window_for(images, size=size)
    neighbours = gather(images, window=window)
    flows = torch.rand(neighbours.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    left = (neighbours * flows).sum()
    right = (images * scatter(flows, window=window)).sum()
    assert left.item() == pytest.approx(right.item(), rel=1e-12, abs=1e-12)


@given(shape=shapes, size=windows, seed=seeds, ground=grounds)
def test_local_plans_agree_with_dense_ones(shape: tuple[int, ...], size: int | None, seed: int, ground: Any) -> None:
    _, _, height, width = shape
    images = random_images(seed, batch=1, channels=1, height=height, width=width)
    window = window_for(images, size=size, ground=ground, power=1.5)
    inside = reachable(window, height=height, width=width, like=images)
    flows = inside * torch.rand(inside.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plan = dense_plan(flows.numpy(), window)
    assert scatter(flows[None, None], window=window).flatten().tolist() == pytest.approx(plan.sum(axis=0).tolist())
    assert flows.sum(dim=0).flatten().tolist() == pytest.approx(plan.sum(axis=1).tolist())
    cost = (flows.sum(dim=(1, 2)) * window.cost_tensor(flows)).sum()
    assert cost.item() == pytest.approx((plan * cost_matrix(height, width, ground=ground, power=1.5)).sum())


@given(shape=shapes, size=windows, ground=grounds)
def test_every_move_but_stay_lies_in_the_ring_of_its_cost(
    shape: tuple[int, ...], size: int | None, ground: Any
) -> None:
    window = window_for(torch.zeros(1, 1, *shape[2:]), size=size, ground=ground)
    assert sum(ring.size for ring in window.rings) == len(window.offsets) - 1
    for ring in window.rings:
        moves = [k for k, (dy, dx) in enumerate(window.offsets) if (abs(dy), abs(dx)) in ring.pairs]
        assert len(moves) == ring.size
        assert all(window.costs[k] == pytest.approx(ring.cost, rel=1e-12) for k in moves)


@given(shape=shapes, seed=seeds)
def test_neighbours_commute_with_flips(shape: tuple[int, ...], seed: int) -> None:
    batch, channels, height, width = shape
    images = random_images(seed, batch=batch, channels=channels, height=height, width=width)
    window = window_for(images, size=5)
    mirror = [window.offsets.index((dy, -dx)) for dy, dx in window.offsets]
    flipped = gather(images.flip(-1), window=window)
    torch.testing.assert_close(flipped, gather(images, window=window)[:, :, mirror].flip(-1))


def test_a_whole_image_window_reaches_every_pixel() -> None:
    images = torch.rand(1, 1, 3, 5)
    window = window_for(images, size=None)
    inside = reachable(window, height=3, width=5, like=images)
    assert inside.sum() == 15 * 15
    assert (window.rows, window.columns) == (2, 4)


@pytest.mark.parametrize("size", [0, 2, -3, 4])
def test_an_even_or_empty_window_is_refused(size: int) -> None:
    with pytest.raises(MassmoverError, match="odd size"):
        window_for(torch.rand(1, 1, 8, 8), size=size)


def test_unknown_ground_and_bad_power_are_refused() -> None:
    with pytest.raises(MassmoverError, match="ground"):
        Window(rows=1, columns=1, ground="taxi")  # type: ignore[arg-type]
    with pytest.raises(MassmoverError, match="power"):
        Window(rows=1, columns=1, power=0)


def test_nothing_of_the_callers_is_changed() -> None:
    images = torch.rand(2, 3, 4, 6)
    copy = images.clone()
    window = window_for(images, size=5)
    scatter(gather(images, window=window), window=window)
    assert torch.equal(images, copy)


def test_the_dense_twin_knows_its_distances() -> None:
    costs = cost_matrix(2, 2)
    assert costs[0].tolist() == pytest.approx([0, 1, 1, 2**0.5])
    assert all(costs[i, j] == costs[j, i] for i, j in itertools.combinations(range(4), 2))
