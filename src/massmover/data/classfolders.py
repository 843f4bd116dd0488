"""A folder of pictures with one sub-folder for each class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from massmover.data import pictures
from massmover.data.errors import DataError
from massmover.data.imageset import ImageSet

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp")
SPLITS = ("train", "test")


def read(folder: Path, *, split: str, name: str) -> ImageSet:
    """Read all pictures; classes are the sub-folders in alphabetical order.

    Grey pictures give one channel; as soon as one picture has colour, all get three.
    All must have the same size.
    """
    classes = _class_folders(_split_folder(folder, split))
    paths: list[Path] = []
    labels: list[int] = []
    for label, class_folder in enumerate(classes):
        found = sorted(path for path in class_folder.iterdir() if path.suffix.lower() in ENDINGS)
        if not found:
            raise DataError(f"{class_folder} holds no {', '.join(ENDINGS)} files; add some or remove the folder.")
        paths += found
        labels += [label] * len(found)
    return ImageSet(name, _stack(paths), torch.tensor(labels), len(classes), tuple(path.name for path in classes))


def _split_folder(folder: Path, split: str) -> Path:
    if not any((folder / other).is_dir() for other in SPLITS):
        return folder
    if not (folder / split).is_dir():
        raise DataError(f"{folder} is divided into train and test, but has no {split!r}; choose the other split.")
    return folder / split


def _class_folders(folder: Path) -> list[Path]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        raise DataError(
            f"{folder} has no sub-folders; need one for each class with its pictures "
            f"({', '.join(ENDINGS)}), or the official files of MNIST, Fashion-MNIST or CIFAR-10."
        )
    return classes


def _stack(paths: list[Path]) -> Tensor:
    """Decode pictures into one tensor, after a look at every header."""
    size, depth = (0, 0), 1
    for path in paths:
        with pictures.opened(path) as picture:
            size = size if any(size) else picture.size
            if picture.size != size:
                given, wanted = ("x".join(map(str, s)) for s in (picture.size, size))
                raise DataError(f"{path} is {given} pixels but {paths[0]} is {wanted}; make all the same size.")
            depth = max(depth, pictures.channels(picture, source=str(path)))
    width, height = size
    images = torch.empty(len(paths), depth, height, width, dtype=torch.uint8)
    for index, path in enumerate(paths):
        with pictures.opened(path) as picture:
            images[index] = torch.from_numpy(pictures.pixels(picture, channels=depth))
    return images
