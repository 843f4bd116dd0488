"""Labelled images in memory, and the error of everything that reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from massmover.types import Images, MassmoverError


class DataError(MassmoverError):
    """A data set cannot be read or fetched; the message names the file and the remedy."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Labelled images of one size.

    Images are stored as they came, one byte a pixel where possible, and turned into
    numbers in [0, 1] a slice at a time, so that a whole data set stays small in memory.
    """

    name: str
    images: Tensor  # (N, C, H, W), uint8 in 0..255 or float32 in [0, 1]
    labels: Tensor  # (N,), int64 in 0..classes-1
    classes: int
    class_names: tuple[str, ...] = ()  # by label; empty where nobody said

    def __post_init__(self) -> None:
        """Refuse a set that an attack could not use."""
        _check_images(self.images, name=self.name)
        _check_labels(self.labels, name=self.name, count=len(self.images), classes=self.classes)

    def __len__(self) -> int:
        """Count the images."""
        return len(self.images)

    def __repr__(self) -> str:
        """Say what is in the set in one line."""
        size = "x".join(str(side) for side in self.images.shape[1:])
        return f"ImageSet({self.name!r}, {len(self)} images of {size}, {self.classes} classes)"

    def images_as_float(self, start: int = 0, stop: int | None = None) -> Images:
        """Give images start..stop-1 as new float32 pixels in [0, 1]."""
        stop = len(self) if stop is None else stop
        self._check_range(start, stop)
        chosen = self.images[start:stop]  # (B, C, H, W)
        return chosen.to(torch.float32).div_(255) if chosen.dtype == torch.uint8 else chosen.clone()

    def subset(self, start: int, count: int | None = None) -> ImageSet:
        """Give `count` images from `start` on (all the rest without a count), sharing memory."""
        stop = len(self) if count is None else start + count
        self._check_range(start, stop)
        if (start, stop) == (0, len(self)):
            return self
        name = f"{self.name}[{start}:{stop}]"
        return ImageSet(name, self.images[start:stop], self.labels[start:stop], self.classes, self.class_names)

    def checksum(self) -> str:
        """Give the sha256 of what is stored: dtype, shape, labels and pixels, whatever the name."""
        pixels = self.images.contiguous().numpy()
        digest = hashlib.sha256(f"{pixels.dtype.name} {pixels.shape}\n".encode())
        digest.update(self.labels.contiguous().numpy().astype("<i8").data)
        digest.update(pixels.astype(pixels.dtype.newbyteorder("<"), copy=False).data)
        return digest.hexdigest()

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start < stop <= len(self):
            raise DataError(
                f"{self.name} holds {len(self)} images, numbered from 0; "
                f"{start} up to {stop} (excluded) asks for something else: choose a range inside it."
            )


def _check_images(images: Tensor, *, name: str) -> None:
    if images.ndim != 4 or images.numel() == 0:
        raise DataError(f"{name}: images have shape {tuple(images.shape)}; need (N, C, H, W) with nothing empty.")
    if images.dtype == torch.uint8:
        return
    if images.dtype != torch.float32:
        raise DataError(f"{name}: images are {images.dtype}; need uint8 in 0..255 or float32 in [0, 1].")
    low, high = (bound.item() for bound in torch.aminmax(images))
    if not (low >= 0 and high <= 1):  # also true for NaN, which compares with nothing
        raise DataError(
            f"{name}: pixels run from {low:g} to {high:g}; floating point pixels must be numbers in [0, 1]. "
            "Divide 0..255 by 255; undo a mean/std normalisation and put it inside the model instead."
        )


def _check_labels(labels: Tensor, *, name: str, count: int, classes: int) -> None:
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise DataError(f"{name}: labels are {labels.dtype} {tuple(labels.shape)}; need one int64 for each image.")
    if len(labels) != count:
        raise DataError(f"{name}: {count} images but {len(labels)} labels; need one label for each image.")
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= classes:
        raise DataError(
            f"{name}: labels run from {low} to {high}; with {classes} classes they must be 0..{classes - 1}."
        )
