from __future__ import annotations

import importlib.util
import math
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dense import cost_matrix
from massmover.certificates import PixelMetric, lower_transform, projected, steepness, upper_transform
from massmover.certificates import transform as module
from massmover.certificates.transform import relax_
from massmover.types import Ground, MassmoverError
from scenes import grounds, seeds

sides = st.integers(1, 7)
powers = st.sampled_from([0.5, 1.0])


@pytest.fixture(params=["numba", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute the transform."""
    if request.param == "torch":
        found = importlib.util.find_spec

        def without_numba(name: str) -> ModuleSpec | None:
            return None if name == "numba" else found(name)

        monkeypatch.setattr(module, "find_spec", without_numba)
    return str(request.param)


def rough(seed: int, height: int, width: int, *, count: int = 3) -> torch.Tensor:
    return 3 * torch.randn(count, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("ground", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize(("height", "width"), [(5, 4), (1, 6), (1, 1)])
def test_the_transform_is_the_dense_one(backend: str, ground: Ground, power: float, height: int, width: int) -> None:
    metric, arrays = PixelMetric(height, width, ground, power), rough(1, height, width)
    costs = cost_matrix(height, width, ground=ground, power=power)
    for found, sign in ((lower_transform(arrays, metric=metric), 1), (upper_transform(arrays, metric=metric), -1)):
        for array, result in zip(arrays.numpy(), found.numpy(), strict=True):
            dense = sign * (sign * array.reshape(-1)[None] + costs).min(axis=1)
            np.testing.assert_allclose(result.reshape(-1), dense, atol=1e-12, rtol=0)


@given(seed=seeds, height=sides, width=sides, ground=grounds, power=powers)
@settings(max_examples=40, deadline=None)
def test_what_comes_out_is_lipschitz_and_stays(
    seed: int, height: int, width: int, ground: Ground, power: float
) -> None:
    metric, arrays = PixelMetric(height, width, ground, power), rough(seed, height, width)
    for transformed in (lower_transform, upper_transform, projected):
        found = transformed(arrays, metric=metric)
        assert steepness(found.numpy(), ground=ground, power=power).max() <= 1 + 1e-12
        torch.testing.assert_close(transformed(found, metric=metric), found, atol=1e-12, rtol=0)
    low, high = lower_transform(arrays, metric=metric), upper_transform(arrays, metric=metric)
    assert bool((low <= arrays).all()) and bool((high >= arrays).all())


def test_the_quick_transform_is_that_of_chains_of_neighbours(backend: str) -> None:
    # On these grounds the distance is the length of the shortest chain, so that quick and exact agree.
    for ground in ("manhattan", "chebyshev"):
        metric, arrays = PixelMetric(6, 5, ground), rough(2, 6, 5).float()
        columns = arrays.flatten(1).T.contiguous()
        relax_(columns, metric=metric, reach=1)
        torch.testing.assert_close(columns.T.reshape(3, 6, 5), projected(arrays, metric=metric), atol=1e-5, rtol=0)


def test_the_quick_transform_is_nearly_lipschitz_on_the_euclidean_ground(backend: str) -> None:
    metric, arrays = PixelMetric(20, 17), rough(3, 20, 17).float()
    # Far bumps decide, so that mass of long distances is asked for, not of neighbours alone.
    arrays[:, 3, 4], arrays[:, 15, 2] = -20.0, 25.0
    columns = arrays.flatten(1).T.contiguous()
    relax_(columns, metric=metric, reach=2)
    assert steepness(columns.T.reshape(3, 20, 17).numpy(), ground="euclidean").max() < 1.0285


def test_the_detour_by_way_of_neighbours_is_known() -> None:
    # With 8 neighbours the worst direction lies half way between a side and a diagonal, at an angle of pi / 8.
    assert PixelMetric(40, 40).detour(1) == pytest.approx(1 / math.cos(math.pi / 8), abs=1e-4)
    # With 16 it lies half way between a side and the way of a knight.
    assert PixelMetric(60, 60).detour(2) == pytest.approx(1 / math.cos(math.atan(0.5) / 2), abs=1e-3)
    assert PixelMetric(9, 7, "manhattan").detour(1) == PixelMetric(9, 7, "chebyshev").detour(1) == 1
    assert PixelMetric(1, 1).detour(2) == 1


@given(seed=seeds, height=sides, width=sides, ground=grounds, reach=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_divided_by_the_detour_the_quick_transform_is_lipschitz(
    seed: int, height: int, width: int, ground: Ground, reach: int
) -> None:
    metric = PixelMetric(height, width, ground)
    columns = rough(seed, height, width).float().flatten(1).T.contiguous()
    for _ in range(3):  # near the edges two sweeps may fall short of the last digit
        relax_(columns, metric=metric, reach=reach)
    arrays = columns.T.reshape(3, height, width).double().numpy() / metric.detour(reach)
    assert steepness(arrays, ground=ground).max() <= 1 + 1e-5


def test_powers_that_are_no_metric_are_refused() -> None:
    with pytest.raises(MassmoverError, match=r"power is 2\.0: distance .* is a metric for powers above 0"):
        PixelMetric(4, 4, "euclidean", 2.0)
