from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from massmover.data import DataError, from_dataset

IMAGES = torch.arange(5 * 3 * 4 * 4, dtype=torch.uint8).reshape(5, 3, 4, 4)
LABELS = torch.tensor([0, 3, 1, 2, 0])


class Endless(Dataset[Any]):
    """Has a length, but indexing never ends."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        assert index < 8, "asked for far more than its length"
        return IMAGES[index % 5], int(LABELS[index % 5])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield from ((image, int(label)) for image, label in zip(IMAGES, LABELS, strict=True))


SOURCES: dict[str, Any] = {
    "tensors": TensorDataset(IMAGES, LABELS),
    "dataset": Endless(),
    "iterable": Stream(),
    "loader": DataLoader(TensorDataset(IMAGES, LABELS), batch_size=2),
    "loader of single images": DataLoader(Endless(), batch_size=None),
    "loader of a stream": DataLoader(Stream(), batch_size=3),
    "list": list(zip(IMAGES, LABELS.tolist(), strict=True)),
    "list of batches": [(IMAGES[:2], LABELS[:2]), (IMAGES[2:], LABELS[2:])],
    "pictures": [
        (Image.fromarray(image.permute(1, 2, 0).numpy()), label)
        for image, label in zip(IMAGES, LABELS.tolist(), strict=True)
    ],
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("count", [None, 3, 5])
def test_every_kind_of_source_gives_the_same(kind: str, count: int | None) -> None:
    given = from_dataset(SOURCES[kind], count=count, name="mine", classes=4)
    assert torch.equal(given.images, IMAGES[:count])
    assert torch.equal(given.labels, LABELS[:count])
    assert (given.name, given.classes) == ("mine", 4)


def test_floats_and_grey_images() -> None:
    images = torch.rand(2, 4, 4, dtype=torch.float64)
    given = from_dataset([(images[0], 0), (images[1], 1)])
    assert torch.equal(given.images, images.to(torch.float32)[:, None])
    assert given.classes == 2


def test_arrays_are_taken_channels_first() -> None:
    given = from_dataset([(IMAGES[0].numpy(), np.int64(1))])
    assert torch.equal(given.images[0], IMAGES[0])


def test_the_set_owns_its_pixels() -> None:
    source = torch.zeros(1, 1, 2, 2)
    given = from_dataset(TensorDataset(source, torch.tensor([0])))
    source.fill_(1.0)
    assert given.images.sum() == 0


def test_a_source_may_reuse_its_buffer() -> None:
    buffer = torch.zeros(1, 2, 2)
    given = from_dataset((buffer.fill_(value), 0) for value in (0.25, 0.5))
    assert given.images[:, 0, 0, 0].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("source", "count", "complaint"),
    [
        ([], None, "gave 0 images"),
        (TensorDataset(IMAGES, LABELS), 6, "gave 5 images; 6 wanted"),
        (TensorDataset(IMAGES, LABELS), 0, "count is 0"),
        (TensorDataset(IMAGES), None, "need pairs"),
        ([IMAGES[0]], None, "need pairs"),
        ([("text", 1)], None, "gave an image str"),
        ([(torch.zeros(4), 1)], None, "gave an image \\(4,\\)"),
        ([(IMAGES[0], 0), (IMAGES[0, :, 1:], 0)], None, "resize them"),
        ([(IMAGES[:2], LABELS[:3])], None, "batch of 2 images with 3 labels"),
        (TensorDataset(torch.randn(2, 1, 4, 4) * 3, torch.tensor([0, 1])), None, "put it inside the model"),
    ],
)
def test_unusable_sources_are_refused(source: Any, count: int | None, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        from_dataset(source, count=count)
