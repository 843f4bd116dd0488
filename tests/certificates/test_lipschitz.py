from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dense import cost_matrix
from massmover.certificates import steepness
from massmover.types import MassmoverError
from scenes import grounds, seeds


@given(
    seed=seeds,
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    ground=grounds,
    power=st.sampled_from([0.5, 1.0, 2.0]),
)
@settings(max_examples=40, deadline=None)
def test_the_constant_is_that_of_all_pairs(seed: int, height: int, width: int, ground: str, power: float) -> None:
    arrays = np.random.default_rng(seed).normal(size=(2, 3, height, width))
    costs = cost_matrix(height, width, ground=ground, power=power)
    flat = arrays.reshape(2, 3, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.abs(flat[..., :, None] - flat[..., None, :]) / costs
    dense = np.nan_to_num(rates).max(axis=(-2, -1))
    found = steepness(arrays, ground=ground, power=power)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, dense, rtol=1e-12)
    assert (found >= dense * (1 - 1e-16)).all()


def test_one_pixel_too_high_is_seen_wherever_it_is() -> None:
    cone = np.hypot(*np.mgrid[0:9, 0:7]).astype(np.float64)  # rises by exactly 1 from the corner
    assert steepness(cone, ground="euclidean") == pytest.approx(1, abs=1e-12)
    for y, x in ((8, 6), (1, 0), (0, 6)):
        higher = cone.copy()
        higher[y, x] += 1e-6 * np.hypot(y, x)
        assert steepness(higher, ground="euclidean") > 1 + 0.9e-6


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(MassmoverError, match="NaN or infinity"):
        steepness(np.array([[0.0, np.nan]]), ground="euclidean")
