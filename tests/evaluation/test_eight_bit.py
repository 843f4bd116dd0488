from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from massmover import exact_distance
from massmover.evaluation.eight_bit import candidates, round_running_sum, survivor


@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    columns_first=st.booleans(),
    phase=st.sampled_from([0.3, 0.5, 0.7]),
)
def test_rounding_keeps_the_mass_and_moves_no_pixel_a_whole_level(
    seed: int, rows: int, columns: int, columns_first: bool, phase: float
) -> None:
    random = np.random.default_rng(seed)
    values = random.uniform(0, 255, (rows, columns)) * (random.random((rows, columns)) < 0.7)
    values[0, 0] += np.ceil(values.sum()) - values.sum()
    values[0, 0] -= 1.0 if values[0, 0] > 255 else 0.0
    rounded = round_running_sum(values, columns_first=columns_first, phase=phase)
    assert rounded.sum() == round(values.sum())
    assert np.abs(rounded - values).max() < 1.001
    assert rounded.min() >= 0 and rounded.max() <= 255


def test_whole_numbers_stay_as_they_are() -> None:
    values = np.array([[3.0, 255.0], [0.0, 17.0]])
    assert (round_running_sum(values, columns_first=False, phase=0.5) == values).all()


def shifted_digit(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An 8-bit image and one with a part of each pixel moved one to the right."""
    random = np.random.default_rng(seed)
    original = np.zeros((1, 8, 8))
    original[0, 2:6, 2:6] = random.integers(0, 200, (4, 4))
    part = original * random.uniform(0, 0.4, original.shape)
    moved = original - part + np.roll(part, 1, axis=2)
    return torch.from_numpy(original / 255).float(), torch.from_numpy(moved / 255).float()


@pytest.mark.parametrize("seed", range(5))
def test_every_candidate_is_near_and_has_the_mass_of_the_original(seed: int) -> None:
    original, moved = shifted_digit(seed)
    levels = np.round(original.numpy() * 255).astype(np.int64)
    found = list(candidates(levels, moved.double().numpy() * 255))
    assert found
    budget = float(exact_distance(original[None], moved[None])[0])
    images = torch.from_numpy(np.stack(found)).double() / 255
    distance = exact_distance(original[None].expand(len(found), -1, -1, -1), images)
    assert all(image.sum() == levels.sum() for image in found)
    # Less than a level of mass travels to the next pixel of the path: far below what the attack itself moved.
    assert float(distance[0]) < budget + 64 * 2 / 255 / float(original.sum())
    assert float(distance[-1]) < 0.85 * budget + 64 * 2 / 255 / float(original.sum())


def test_the_first_candidate_that_passes_both_questions_is_taken() -> None:
    original, moved = shifted_digit(0)
    asked: list[int] = []

    def inside(images: torch.Tensor) -> torch.Tensor:
        asked.append(len(images))
        return torch.tensor([len(asked) == 3])

    image = survivor(original, moved, fools=lambda images: torch.arange(len(images)) % 2 == 0, inside=inside)
    assert image is not None and asked == [1, 1, 1]
    levels = (image * 255).round()
    assert torch.allclose(levels / 255, image, atol=1e-7) and levels.sum() == (original * 255).round().sum()


def test_none_where_no_candidate_fools() -> None:
    original, moved = shifted_digit(0)
    nobody = survivor(
        original,
        moved,
        fools=lambda images: torch.zeros(len(images), dtype=torch.bool),
        inside=lambda images: torch.ones(len(images), dtype=torch.bool),
    )
    assert nobody is None
