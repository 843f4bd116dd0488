from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from massmover import MassmoverError
from massmover.natural import Blur, Perturbation, Rotation, Translation, study
from massmover.natural.figure import Panel, Series, draw_panels
from massmover.types import Images


class BrighterHalf(nn.Module):
    """Class 0 if the left half of an image holds more mass, class 1 otherwise."""

    def forward(self, images: Tensor) -> Tensor:
        half = images.shape[-1] // 2
        return torch.stack([images[..., :half].sum(dim=(1, 2, 3)), images[..., half:].sum(dim=(1, 2, 3))], dim=1)


@dataclass(frozen=True)
class Dimmed:
    """A perturbation with known answers: every pixel times a factor, for all images or for the first alone."""

    factor: float
    name: str = "dim"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        return images * self.factor


@dataclass(frozen=True)
class FirstChannelBlack:
    """Takes the first channel of the first image away."""

    name: str = "lose"

    def __call__(self, images: Images, *, random: np.random.Generator) -> Images:
        changed = images.clone()
        changed[0, 0] = 0
        return changed


def points(columns: list[int], *, channels: int = 1) -> tuple[Tensor, Tensor]:
    """One bright pixel in the given column of a row, and the half it is in."""
    images = torch.zeros(len(columns), channels, 5, 12)
    for row, column in enumerate(columns):
        images[row, :, 2, column] = 0.5
    return images, (torch.tensor(columns) >= 6).long()


def test_a_step_to_the_right_has_known_accuracy_and_distances() -> None:
    images, labels = points([3, 4, 5, 7])
    found = study(BrighterHalf(), [(images, labels)], [Translation(1 / 12, direction="fixed")])
    assert found.clean_accuracy == 100
    (effect,) = found.effects
    assert effect.accuracy == 75  # column 5 steps over the middle
    assert effect.wasserstein == pytest.approx(1)
    assert effect.l2 == pytest.approx(0.5 * 2**0.5)
    assert effect.mass_change == pytest.approx(0)
    assert (effect.count, effect.measured, effect.blackened, effect.inexact) == (4, 4, 0, 0)


def test_mass_that_is_lost_is_told_and_does_not_count_as_distance() -> None:
    images, labels = points([3, 8], channels=3)
    (effect,) = study(BrighterHalf(), [(images, labels)], [Dimmed(0.25)]).effects
    assert effect.mass_change == pytest.approx(-75)
    assert effect.wasserstein == pytest.approx(0)
    assert effect.l2 == pytest.approx(0.375 * 3**0.5)


def test_an_image_that_left_the_picture_is_counted_and_left_out() -> None:
    images, labels = points([3, 11])
    (effect,) = study(BrighterHalf(), [(images, labels)], [Translation(1 / 12, direction="fixed")]).effects
    assert (effect.measured, effect.blackened) == (1, 1)
    assert effect.wasserstein == pytest.approx(1)
    assert effect.mass_change == pytest.approx(-50)


def test_a_single_lost_channel_counts_too_and_a_mean_of_nothing_is_none() -> None:
    images, labels = points([3, 4], channels=3)
    (effect,) = study(BrighterHalf(), [(images, labels)], [FirstChannelBlack()]).effects
    assert (effect.measured, effect.blackened, effect.wasserstein) == (1, 1, 0)
    (alone,) = study(BrighterHalf(), [(images[:1], labels[:1])], [FirstChannelBlack()]).effects
    assert (alone.measured, alone.blackened, alone.wasserstein) == (0, 1, None)


def test_a_black_image_has_no_change_and_no_distance() -> None:
    (effect,) = study(BrighterHalf(), [(torch.zeros(1, 1, 6, 6), torch.zeros(1).long())], [Rotation(10)]).effects
    assert (effect.l2, effect.wasserstein, effect.mass_change) == (0, 0, 0)


def test_batches_make_no_difference(digits: tuple[Tensor, Tensor]) -> None:
    images, labels = (part[:12] for part in digits)
    perturbations: list[Perturbation] = [Translation(0.1), Rotation(10), Blur(3)]
    whole = study(nn.Flatten(), [(images, labels)], perturbations, distances=7, seed=4)
    parts = list(zip(torch.split(images, 5), torch.split(labels, 5), strict=True))
    split = study(nn.Flatten(), parts, perturbations, distances=7, seed=4)
    assert split.clean_accuracy == whole.clean_accuracy and split.count == whole.count == 12
    for ours, theirs in zip(split.effects, whole.effects, strict=True):
        assert ours.measured == theirs.measured == 7
        assert ours.wasserstein == pytest.approx(theirs.wasserstein)
        assert replace(ours, wasserstein=0, l2=0, mass_change=0) == replace(theirs, wasserstein=0, l2=0, mass_change=0)
        assert (ours.l2, ours.mass_change) == pytest.approx((theirs.l2, theirs.mass_change))


def test_the_seed_decides_and_larger_amounts_draw_the_same_numbers(digits: tuple[Tensor, Tensor]) -> None:
    images, labels = (part[:20] for part in digits)
    first, again, other = (
        study(nn.Flatten(), [(images, labels)], [Translation(0.1)], distances=0, seed=seed).effects[0].l2
        for seed in (0, 0, 1)
    )
    assert first == again != other
    black = torch.zeros(20, 1, 41, 40)
    black[:, :, 20, 20] = 1
    near, far = (
        effect.wasserstein
        for effect in study(nn.Flatten(), [(black, labels)], [Translation(0.1), Translation(0.2)]).effects
    )
    assert near is not None and far is not None
    assert far / near == pytest.approx(2, rel=0.1)  # but for rounding to whole pixels


def test_distances_can_be_left_out() -> None:
    images, labels = points([3, 4])
    told: Counter[str] = Counter()

    def listen(what: str, more: int) -> None:
        told[what] += more

    (effect,) = study(BrighterHalf(), [(images, labels)], [Rotation(5)], distances=0, progress=listen).effects
    assert (effect.wasserstein, effect.measured) == (None, 0)
    assert told == {"perturbed images": 2}


def test_pixels_are_divided_channel_by_channel_before_l2() -> None:
    images, labels = points([3], channels=2)
    (effect,) = study(BrighterHalf(), [(images, labels)], [Dimmed(0.0)], distances=0, l2_units=(0.5, 0.25)).effects
    assert effect.l2 == pytest.approx((1**2 + 2**2) ** 0.5)
    with pytest.raises(MassmoverError, match="2 positive numbers"):
        study(BrighterHalf(), [(images, labels)], [Dimmed(0.0)], l2_units=(1.0,))


def test_the_model_is_left_in_its_mode() -> None:
    model = nn.Sequential(nn.Dropout(0.9), BrighterHalf()).train()
    images, labels = points([3, 4, 8])
    found = study(model, [(images, labels)], [Rotation(0)])
    assert found.effects[0].accuracy == 100  # measured in eval mode
    assert model.training and model[0].training


def test_no_images_are_refused() -> None:
    with pytest.raises(MassmoverError, match="at least one"):
        study(BrighterHalf(), [], [Rotation(5)])


def test_panels_are_drawn_with_gaps_where_there_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bars.png"
    series = (Series("ours", {"a": 1.0, "b": None}), Series("printed", {"b": 2.0}, printed=True))
    assert draw_panels([Panel("l2", series)], ["a", "b"], path, title="any") == path
    assert path.stat().st_size > 1000
