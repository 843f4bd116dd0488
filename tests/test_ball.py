from __future__ import annotations

import math

import pytest
import torch

from massmover.ball import WassersteinBall, pixel_count
from massmover.types import MassmoverError


def test_radius_pixels_counts_channels() -> None:
    digits, photos = torch.rand(2, 1, 28, 28), torch.rand(2, 3, 32, 32)
    assert pixel_count(digits) == 784
    assert pixel_count(photos) == 3072
    assert WassersteinBall.from_pixels(10, digits).radius == pytest.approx(10 / 784)
    assert WassersteinBall.from_pixels(10, photos).radius_pixels(photos) == pytest.approx(10)


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


def test_the_balls_around_a_batch_know_all_that_a_solver_needs() -> None:
    images = torch.rand(3, 2, 4, 5)
    ball = WassersteinBall(0.2, window=3, ground="manhattan", power=0.5, normalisation="channel")
    balls = ball.around(images)
    assert len(balls) == 3
    assert balls.originals is images
    assert balls.budget.dtype == torch.float64 and balls.budget.tolist() == [0.2] * 3
    assert torch.equal(balls.weights, ball.weights(images))
    assert balls.window == ball.moves(images)
    some = balls.select(torch.tensor([2, 0]))
    assert torch.equal(some.originals, images[[2, 0]]) and torch.equal(some.weights, balls.weights[[2, 0]])
    assert balls.with_budget(torch.tensor([0.0, 0.1, 0.2])).budget.dtype == torch.float64


def test_every_image_may_have_a_radius_of_its_own() -> None:
    images = torch.rand(2, 1, 3, 3)
    assert WassersteinBall(torch.tensor([0.5, 0.25])).around(images).budget.tolist() == [0.5, 0.25]
    assert WassersteinBall(torch.tensor(0.5)).around(images).budget.tolist() == [0.5, 0.5]
    with pytest.raises(MassmoverError, match=r"shape \(2,\); got \(3,\)"):
        WassersteinBall(torch.ones(3)).around(images)
    with pytest.raises(MassmoverError, match=">= 0"):
        WassersteinBall(torch.tensor([0.5, -1.0]))


def test_mass_reaches_as_far_as_the_window() -> None:
    images = torch.zeros(1, 1, 5, 7)
    images[0, 0, 2, 2] = 0.5
    reach = WassersteinBall(0.1, window=3).around(images).within_reach()
    wanted = torch.zeros(1, 1, 5, 7)
    wanted[0, 0, 1:4, 1:4] = 1
    assert torch.equal(reach, wanted)


def test_the_plan_that_stays_makes_the_original() -> None:
    images = torch.rand(2, 3, 4, 4)
    flows = WassersteinBall(0.1).around(images).staying(dtype=torch.float64)
    assert torch.equal(flows.sum(dim=2), images.double())
    assert flows[:, :, 1:].abs().max() == 0
