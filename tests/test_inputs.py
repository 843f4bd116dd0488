from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from massmover.inputs import check_images, check_labels, check_radius
from massmover.types import MassmoverError


def images_with(value: float) -> Tensor:
    images = torch.full((2, 1, 3, 3), 0.5)
    images[1, 0, 2, 2] = value
    return images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_good_images_pass_through(dtype: torch.dtype) -> None:
    images = torch.rand(2, 3, 4, 5, dtype=dtype)
    assert torch.equal(check_images(images), images)
    assert check_images(images).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_float32_that_holds_it_exactly(dtype: torch.dtype) -> None:
    images = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    checked = check_images(images)
    assert checked.dtype == torch.float32
    assert torch.equal(checked.to(dtype), images)
    assert torch.equal(checked.double(), images.double())


def test_the_result_is_detached() -> None:
    images = torch.rand(2, 1, 3, 3, requires_grad=True)
    assert not check_images(images * 1).requires_grad
    assert images.requires_grad


@pytest.mark.parametrize("value", [-5e-7, 1 + 5e-7])
def test_round_off_is_clamped_in_a_new_tensor(value: float) -> None:
    images = images_with(value)
    before = images.clone()
    checked = check_images(images)
    assert 0 <= checked.min() <= checked.max() <= 1
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (255.0, "looks like 0-255: divide by 255"),
        (-1.0, "looks normalised.*mean and std to the model loader"),
        (1.5, "from 0.5 to 1.5. Rescale"),
        (math.nan, "1 of 2 hold NaN or infinity, the first is number 1"),
        (math.inf, "NaN or infinity"),
    ],
)
def test_pixels_outside_are_refused_with_the_likely_cause(value: float, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        check_images(images_with(value))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((28, 28), r"use images\[None, None\]"),
        ((1, 28, 28), r"use images\[None\]"),
        ((1, 1, 1, 28, 28), r"four axes.*\(1, 1, 1, 28, 28\)"),
        ((2, 0, 4, 4), "at least one channel"),
        ((2, 1, 0, 4), "at least one channel"),
        ((0, 1, 4, 0), "Only B may be zero"),
    ],
)
def test_other_shapes_are_refused_with_advice(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        check_images(torch.zeros(shape))


def test_an_empty_batch_is_allowed() -> None:
    assert check_images(torch.zeros(0, 1, 28, 28)).shape == (0, 1, 28, 28)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(torch.uint8, r"images\.float\(\) / 255"), (torch.int64, "float32 or float64"), (torch.complex64, "complex64")],
)
def test_other_number_types_are_refused(dtype: torch.dtype, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        check_images(torch.zeros(1, 1, 2, 2, dtype=dtype))


def test_an_array_is_no_tensor() -> None:
    with pytest.raises(MassmoverError, match=r"got list.*torch\.from_numpy"):
        check_images([[0.0]])  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_good_labels_become_int64(dtype: torch.dtype) -> None:
    checked = check_labels(torch.tensor([0, 9], dtype=dtype), batch=2, classes=10)
    assert checked.dtype == torch.int64
    assert checked.tolist() == [0, 9]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0.0, 1.0]), "integers; got torch.float32"),
        (torch.tensor([True, False]), "integers; got torch.bool"),
        (torch.tensor([0, 1, 2]), r"shape \(2,\).*got \(3,\)"),
        (torch.zeros(2, 10, dtype=torch.long), "argmax"),
        (torch.tensor(1), r"got \(\)"),
        (torch.tensor([0, -1]), "smallest is -1"),
        (torch.tensor([0, 10]), "below 10.*largest is 10"),
    ],
)
def test_other_labels_are_refused(labels: Tensor, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        check_labels(labels, batch=2, classes=10)


def test_labels_in_a_list_are_refused() -> None:
    with pytest.raises(MassmoverError, match=r"torch\.as_tensor"):
        check_labels([1, 2], batch=2)  # type: ignore[arg-type]


def test_no_labels_for_no_images() -> None:
    assert check_labels(torch.zeros(0, dtype=torch.long), batch=0, classes=10).shape == (0,)


def test_the_number_of_classes_may_be_unknown() -> None:
    assert check_labels(torch.tensor([1000]), batch=1).tolist() == [1000]


@pytest.mark.parametrize("radius", [0, 0.5, 3, 1e9])
def test_good_radii_become_floats(radius: float) -> None:
    assert check_radius(radius) == radius
    assert isinstance(check_radius(radius), float)


def test_a_radius_for_each_image() -> None:
    assert check_radius(torch.tensor([0, 2]), batch=2).tolist() == [0.0, 2.0]
    assert check_radius(torch.tensor([0.5, 2.0])).dtype == torch.float32
    assert check_radius(torch.tensor(0.5), batch=2).ndim == 0


@pytest.mark.parametrize("radius", [-0.1, math.nan, math.inf, torch.tensor([1.0, -1.0]), torch.tensor([1.0, math.nan])])
def test_impossible_radii_are_refused(radius: float | Tensor) -> None:
    with pytest.raises(MassmoverError, match=">= 0"):
        check_radius(radius)


@pytest.mark.parametrize("radius", ["1", None, True, torch.tensor([True])])
def test_things_that_are_no_radius_are_refused(radius: object) -> None:
    with pytest.raises(MassmoverError, match="The radius must"):
        check_radius(radius)  # type: ignore[call-overload]


def test_the_number_of_radii_must_agree() -> None:
    with pytest.raises(MassmoverError, match=r"shape \(3,\); got \(2,\)"):
        check_radius(torch.ones(2), batch=3)
    with pytest.raises(MassmoverError, match=r"shape \(B,\); got \(2, 1\)"):
        check_radius(torch.ones(2, 1))
