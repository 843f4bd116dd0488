from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from massmover.evaluation.verify import verify
from massmover.types import MassmoverError


def half_moved(share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A pixel that sends a share of its mass one pixel to the right: distance = share."""
    original = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    original[0, 0, 1, 0] = 0.8
    moved = original.clone()
    moved[0, 0, 1, 0] -= 0.8 * share
    moved[0, 0, 1, 1] += 0.8 * share
    return original, moved


def test_the_boundary_is_where_it_should_be() -> None:
    original, moved = half_moved(0.25)
    assert verify(original, moved, 0.25).violations == 0
    assert verify(original, moved, 0.25 / (1 + 2e-6)).violations == 1
    verdicts = verify(original, moved, 0.2)
    assert verdicts.distance.item() == pytest.approx(0.25)
    assert "over radius" in verdicts.reason(0)


@pytest.mark.parametrize("share", [0.3, 0.98, 1.02, 4.0])
def test_a_settled_verdict_is_that_of_the_optimum(share: float) -> None:
    generator = torch.Generator().manual_seed(2)
    original = torch.rand(1, 3, 40, 40, generator=generator, dtype=torch.float64)  # enough pixels for several rounds
    moved = original.roll(1, dims=3) * 0.3 + original * 0.7
    whole = verify(original, moved, 1.0)
    radius = share * whole.distance
    settled, measured = verify(original, moved, radius, settle=True), verify(original, moved, radius)
    assert bool(settled.inside) == bool(measured.inside) == (share > 1)
    assert bool(measured.exact)
    assert settled.distance_lower.item() <= whole.distance.item() <= settled.distance.item()
    assert ("over radius" in settled.reason(0)) == (share < 1)


def test_mass_and_range_are_judged_too() -> None:
    original, moved = half_moved(0.25)
    brighter = moved.clone()
    brighter[0, 0, 2, 2] = 1e-4
    assert "mass changed" in verify(original, brighter, 9.0).reason(0)
    original[0, 0, 1, 1] = moved[0, 0, 1, 1] = 0.9
    overfull = moved.clone()
    overfull[0, 0, 1, 1], overfull[0, 0, 1, 0] = 1.1, 0.6
    assert "pixels from" in verify(original, overfull, 9.0).reason(0)
    negative = moved.clone()
    negative[0, 0, 0, 0], negative[0, 0, 0, 1] = -0.01, 0.01
    assert verify(original, negative, 9.0).violations == 1


def test_a_dimmed_image_is_outside_although_its_shape_is_the_same() -> None:
    """The flaw the paper opens with: dividing by 30 costs nothing after normalisation."""
    original, _ = half_moved(0.0)
    verdicts = verify(original, original / 30, 1.0)
    assert verdicts.distance.item() == pytest.approx(0, abs=1e-12)
    assert verdicts.violations == 1


def test_images_of_any_tool_are_taken() -> None:
    original, moved = half_moved(0.25)
    as_arrays = verify(original.numpy().astype(np.float32), moved.numpy().astype(np.float32), [0.26])
    assert as_arrays.violations == 0


def test_radius_zero_accepts_the_original_alone() -> None:
    original, moved = half_moved(1e-3)
    assert verify(original, original, 0.0).violations == 0
    assert verify(original, moved, 0.0).violations == 1


def test_one_radius_for_each_image() -> None:
    original, moved = half_moved(0.25)
    verdicts = verify(original.repeat(2, 1, 1, 1), moved.repeat(2, 1, 1, 1), torch.tensor([0.3, 0.1]))
    assert verdicts.inside.tolist() == [True, False]


@pytest.mark.parametrize("radius", [-0.1, math.nan, math.inf, [0.1, 0.2]])
def test_a_bad_radius_is_refused(radius: object) -> None:
    with pytest.raises(MassmoverError, match="radius"):
        verify(*half_moved(0.25), radius)


def test_nan_and_shape_mismatch_are_refused() -> None:
    original, moved = half_moved(0.25)
    with pytest.raises(MassmoverError, match="NaN"):
        verify(original, moved * math.nan, 1.0)
    with pytest.raises(MassmoverError, match="same shape"):
        verify(original, moved[..., :2], 1.0)


def test_identical_images_of_bytes_are_inside() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 5, 5)).astype(np.uint8)
    verdicts = verify(images, images, 0.0)
    assert verdicts.violations == 0
    assert float(verdicts.highest.max()) <= 1


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf")])
def test_a_tolerance_below_nothing_is_refused(tolerance: float) -> None:
    images = torch.rand(1, 1, 4, 4)
    with pytest.raises(MassmoverError, match=r"tolerance is .*0 or more"):
        verify(images, images, 0.1, tolerance=tolerance)


def test_a_negative_pixel_is_told_by_the_judge() -> None:
    images = torch.rand(1, 1, 4, 4)
    broken = images.clone()
    broken[0, 0, 0, 0] = -0.5
    verdicts = verify(images, broken, 10.0)
    assert verdicts.violations == 1 and "pixels from -0.5" in verdicts.reason(0)
