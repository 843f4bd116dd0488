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


@pytest.mark.parametrize("window", ["5", 4.5, 5.0, True])
def test_a_window_that_is_no_whole_number_is_refused(window: object) -> None:
    with pytest.raises(MassmoverError, match=r"window is .*odd size such as 5"):
        WassersteinBall(0.1, window=window)  # type: ignore[arg-type]


def test_a_power_that_overflows_is_refused() -> None:
    with pytest.raises(MassmoverError, match=r"power is 1000000000.0: .* up to 32"):
        WassersteinBall(0.1, power=1e9)


def test_a_window_that_memory_cannot_hold_is_refused_with_the_largest_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan of a photograph over the whole image is 240 GB; three of them are needed."""
    monkeypatch.setattr("massmover.ball.free_on", lambda device: 8_000_000_000)
    photograph = torch.rand(1, 3, 224, 224)
    with pytest.raises(
        MassmoverError, match=r"whole image needs 722 GB .* 3 x 224 x 224, and 8.0 GB are free"
    ) as refusal:
        WassersteinBall(0.1, window=None).around(photograph)
    size = int(str(refusal.value).split("--window ")[1].rstrip(")"))
    assert 3 * 8 * 3 * 224 * 224 * size**2 <= 8e9 < 3 * 8 * 3 * 224 * 224 * (size + 2) ** 2
    assert WassersteinBall(0.1, window=size).around(photograph).window.rows == size // 2
    with pytest.raises(MassmoverError, match=f"window that fits is {size}"):
        WassersteinBall(0.1, window=size + 2).around(photograph)
