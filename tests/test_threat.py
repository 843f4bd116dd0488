from __future__ import annotations

import math

import pytest
import torch
from massmover.threat import WassersteinBall, pixel_count

from massmover.types import MassmoverError


def test_radius_pixels_counts_channels() -> None:
    digits, photos = torch.rand(2, 1, 28, 28), torch.rand(2, 3, 32, 32)
    assert pixel_count(digits) == 784
    assert pixel_count(photos) == 3072
    assert WassersteinBall.from_pixels(10, digits).radius == pytest.approx(10 / 784)
    assert WassersteinBall.from_pixels(10, photos, power=2.0).radius_pixels(photos) == pytest.approx(10)


def test_image_weights_divide_by_the_mass_of_the_whole_image() -> None:
    images = torch.zeros(1, 2, 2, 2)
    images[0, 0, 0, 0], images[0, 1, 1, 1] = 0.25, 0.75
    assert WassersteinBall(0.1).weights(images).tolist() == [[1.0, 1.0]]
    assert WassersteinBall(0.1, normalisation="channel").weights(images).tolist() == [[4.0, pytest.approx(4 / 3)]]


def test_black_images_and_channels_weigh_nothing() -> None:
    images = torch.zeros(2, 2, 3, 3)
    images[1, 0] = 0.5
    assert WassersteinBall(0.1).weights(images)[0].tolist() == [0.0, 0.0]
    assert WassersteinBall(0.1, normalisation="channel").weights(images)[1].tolist() == [pytest.approx(1 / 4.5), 0.0]


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf])
def test_an_impossible_radius_is_refused(radius: float) -> None:
    with pytest.raises(MassmoverError, match="radius"):
        WassersteinBall(radius)


def test_settings_are_checked_when_the_ball_is_made() -> None:
    with pytest.raises(MassmoverError, match="odd size"):
        WassersteinBall(0.1, window=4)
    with pytest.raises(MassmoverError, match="normalisation"):
        WassersteinBall(0.1, normalisation="pixel")  # type: ignore[arg-type]
    with pytest.raises(MassmoverError, match="power"):
        WassersteinBall(0.1, power=math.nan)
