from __future__ import annotations

import hashlib

import pytest
import torch

from massmover.data import DataError, ImageSet
from massmover.types import MassmoverError

IMAGES = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)
LABELS = torch.tensor([1, 0])


def test_it_counts_and_describes_itself() -> None:
    images = ImageSet("two", IMAGES, LABELS, 2)
    assert len(images) == 2
    assert repr(images) == "ImageSet('two', 2 images of 3x4x5, 2 classes)"


def test_bytes_become_numbers_between_0_and_1() -> None:
    images = ImageSet("two", torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3), LABELS[:1], 2)
    given = images.images_as_float()
    assert given.dtype == torch.float32
    assert torch.equal(given.flatten(), torch.tensor([0.0, 0.2, 1.0]))


def test_every_byte_divides_like_tensor_division() -> None:
    values = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    given = ImageSet("all", values, LABELS[1:], 2).images_as_float()
    assert torch.equal(given, values.to(torch.float32) / 255)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_writing_into_what_was_given_leaves_the_set_alone(dtype: torch.dtype) -> None:
    images = ImageSet("two", torch.zeros(2, 1, 2, 2, dtype=dtype), LABELS, 2)
    images.images_as_float(0, 1).fill_(1.0)
    assert int(images.images.sum()) == 0


def test_a_slice_is_the_slice_of_the_whole() -> None:
    images = ImageSet("two", IMAGES, LABELS, 2)
    assert torch.equal(images.images_as_float(1, 2), images.images_as_float()[1:2])


def test_a_subset_has_its_own_name_and_shares_memory() -> None:
    images = ImageSet("two", IMAGES, LABELS, 2)
    last = images.subset(1, 1)
    assert (last.name, last.labels.tolist(), last.classes) == ("two[1:2]", [0], 2)
    assert last.images.data_ptr() == IMAGES[1].data_ptr()
    assert images.subset(1).checksum() == last.checksum()
    assert images.subset(0) is images


@pytest.mark.parametrize(("start", "count"), [(0, 3), (2, 1), (-1, 1), (0, 0), (1, -1)])
def test_a_range_outside_is_refused(start: int, count: int) -> None:
    with pytest.raises(DataError, match="two holds 2 images"):
        ImageSet("two", IMAGES, LABELS, 2).subset(start, count)


def test_the_checksum_sees_pixels_labels_shape_and_type_but_not_the_name() -> None:
    first = ImageSet("a", IMAGES, LABELS, 2).checksum()
    changed = IMAGES.clone()
    changed[1, 2, 3, 4] ^= 1
    ones = torch.ones(2, 1, 1, 1)
    sums = {
        first,
        ImageSet("a", changed, LABELS, 2).checksum(),
        ImageSet("a", IMAGES, LABELS.flip(0), 2).checksum(),
        ImageSet("a", IMAGES.reshape(2, 3, 5, 4), LABELS, 2).checksum(),
        ImageSet("a", ones, LABELS, 2).checksum(),
        ImageSet("a", ones.to(torch.uint8), LABELS, 2).checksum(),
    }
    assert len(sums) == 6
    assert ImageSet("b", IMAGES.clone(), LABELS, 7).checksum() == first


def test_the_checksum_is_the_same_on_every_machine() -> None:
    labels = b"\1" + bytes(7) + bytes(8)  # 1 and 0 in eight bytes each, lowest first
    by_hand = hashlib.sha256(b"uint8 (2, 3, 4, 5)\n" + labels + bytes(range(120))).hexdigest()
    assert ImageSet("a", IMAGES, LABELS, 2).checksum() == by_hand


def test_the_checksum_does_not_depend_on_strides() -> None:
    turned = IMAGES.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert ImageSet("a", turned, LABELS, 2).checksum() == ImageSet("a", IMAGES, LABELS, 2).checksum()


@pytest.mark.parametrize(
    ("images", "labels", "classes", "complaint"),
    [
        (IMAGES[0], LABELS, 2, "need \\(N, C, H, W\\)"),
        (IMAGES[:0], LABELS[:0], 2, "nothing empty"),
        (IMAGES.to(torch.int64), LABELS, 2, "uint8 in 0..255 or float32"),
        (IMAGES.to(torch.float32), LABELS, 2, "Divide 0..255 by 255"),
        (torch.full((2, 1, 1, 1), float("nan")), LABELS, 2, "run from nan"),
        (torch.full((2, 1, 1, 1), -0.1), LABELS, 2, "numbers in \\[0, 1\\]"),
        (IMAGES, LABELS[:1], 2, "2 images but 1 labels"),
        (IMAGES, LABELS.to(torch.int32), 2, "int64"),
        (IMAGES, LABELS, 1, "must be 0..0"),
        (IMAGES, LABELS - 1, 2, "run from -1 to 0"),
    ],
)
def test_unusable_sets_are_refused(images: torch.Tensor, labels: torch.Tensor, classes: int, complaint: str) -> None:
    with pytest.raises(MassmoverError, match=complaint):
        ImageSet("bad", images, labels, classes)
