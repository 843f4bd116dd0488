"""Images taken from PyTorch datasets and loaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from massmover.data import folders
from massmover.data.imageset import DataError, ImageSet


def from_dataset(
    dataset: Dataset[Any] | DataLoader[Any] | Iterable[Any],
    *,
    count: int | None = None,
    name: str = "dataset",
    classes: int | None = None,
) -> ImageSet:
    """Take the first `count` images (all without a count) of any PyTorch dataset or loader.

    A dataset gives pairs (image, label), a loader pairs of batches.  An image is a tensor
    (C, H, W) or (H, W), uint8 or in [0, 1], or a Pillow picture.  A model's mean/std
    normalisation does not belong here: put it inside the model.  Without `classes` there
    are as many as the largest label plus one.
    """
    if count is not None and count < 1:
        raise DataError(f"count is {count}; need at least 1, or None for all images.")
    images: list[Tensor] = []
    labels: list[int] = []
    for image, label in _pairs(dataset, name=name):
        images.append(image)
        labels.append(label)
        if len(images) == count:
            break
    if not images or (count is not None and len(images) < count):
        raise DataError(f"{name} gave {len(images)} images; {count or 'at least 1'} wanted.")
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise DataError(f"{name} gave images of shapes {sorted(shapes)}; resize them to one shape in its transform.")
    return ImageSet(name, torch.stack(images), torch.tensor(labels), classes or max(labels) + 1)


def _pairs(dataset: Any, *, name: str) -> Iterator[tuple[Tensor, int]]:
    """Give single images with their labels, whatever the source hands out."""
    batched = isinstance(dataset, DataLoader) and dataset.batch_size is not None
    # A dataset without __iter__ need not end its indexing with IndexError, so count.
    indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    items = dataset
    if indexed and not isinstance(dataset, IterableDataset | DataLoader):
        items = (dataset[index] for index in range(len(dataset)))
    for item in items:
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(f"{name} gave {type(item).__name__}; need pairs (image, label).")
        if batched or (isinstance(item[0], Tensor) and item[0].ndim == 4):
            if len(item[0]) != len(item[1]):
                raise DataError(f"{name} gave a batch of {len(item[0])} images with {len(item[1])} labels.")
            yield from ((_image(image, name=name), int(label)) for image, label in zip(item[0], item[1], strict=True))
        else:
            yield _image(item[0], name=name), int(item[1])


def _image(image: Any, *, name: str) -> Tensor:
    """Bring one image to (C, H, W) in a stored type, owning its memory."""
    if hasattr(image, "convert") and hasattr(image, "mode"):  # a Pillow picture, without importing Pillow
        return torch.from_numpy(folders.pixels(image, channels=folders.channels(image, source=name)))
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(np.array(image))
    if not isinstance(image, Tensor) or image.ndim not in (2, 3):
        given = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
        raise DataError(f"{name} gave an image {given}; need a tensor (C, H, W) or a Pillow picture.")
    stored = torch.uint8 if image.dtype == torch.uint8 else torch.float32
    owned = image.detach().to("cpu", stored, copy=True)
    return owned[None] if owned.ndim == 2 else owned
