"""Folders of pictures with a sub-folder for each class, decoded by Pillow, which is imported only when one is read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from massmover.data.imageset import DataError, ImageSet

if TYPE_CHECKING:
    from PIL.Image import Image

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")


def channels(picture: Image, *, source: str) -> int:
    """Count the channels a picture is kept with: 1 for grey, 3 for colour."""
    if picture.mode in GREY_MODES:
        return 1
    if picture.mode in COLOUR_MODES:
        return 3
    raise DataError(f"{source} has pixels of kind {picture.mode!r}; save it with 8 bits a channel, grey or RGB.")


def pixels(picture: Image, *, channels: int) -> npt.NDArray[np.uint8]:
    """Decode a picture to its bytes, channels first."""  # (C, H, W)
    decoded = np.asarray(picture.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    # Pillow lends its memory for reading only, so copy.
    return np.array(decoded.reshape(*decoded.shape[:2], channels).transpose(2, 0, 1), order="C")


@contextmanager
def opened(path: Path) -> Iterator[Image]:
    """Open a picture file; whatever is wrong with it becomes a `DataError` that names it."""
    image_module = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow only warns about pictures of absurd size; there is no good use for one here.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            with image_module.open(path) as picture:
                yield picture
    except DataError:
        raise
    except (
        OSError,
        SyntaxError,  # what Pillow raises for some broken PNG files
        ValueError,
        image_module.DecompressionBombError,
        image_module.DecompressionBombWarning,
    ) as error:
        raise DataError(f"{path} cannot be read as a picture ({error}); replace or remove it.") from error


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Reading pictures needs Pillow: pip install 'massmover[data]'.") from error
    return Image


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
        with opened(path) as picture:
            size = size if any(size) else picture.size
            if picture.size != size:
                given, wanted = ("x".join(map(str, s)) for s in (picture.size, size))
                raise DataError(f"{path} is {given} pixels but {paths[0]} is {wanted}; make all the same size.")
            depth = max(depth, channels(picture, source=str(path)))
    width, height = size
    images = torch.empty(len(paths), depth, height, width, dtype=torch.uint8)
    for index, path in enumerate(paths):
        with opened(path) as picture:
            images[index] = torch.from_numpy(pixels(picture, channels=depth))
    return images
