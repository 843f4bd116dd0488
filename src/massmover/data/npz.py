"""NumPy archives with arrays `images`, `labels` and, if wanted, `classes` and `class_names`."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from massmover.data.imageset import DataError, ImageSet

CHANNELS = (1, 3)


def read(path: Path, *, name: str) -> ImageSet:
    """Read an .npz file.

    `images` are uint8 in 0..255 or floating point in [0, 1], shaped (N, H, W),
    (N, C, H, W) or (N, H, W, C); `labels` are whole numbers from 0 on.  The number of
    classes is the scalar `classes`, or else the largest label plus one; `class_names` are
    strings, one for each class.
    """
    arrays = _arrays(path)
    if len(arrays["images"]) == 0:
        raise DataError(f"{path} holds no images; give a file with at least one.")
    images = channels_first(arrays["images"], source=str(path))
    if images.dtype.kind == "f":
        images = images.astype(np.float32)
    elif images.dtype != np.uint8:
        raise DataError(f"{path}: images are {images.dtype}; need uint8 in 0..255 or floating point in [0, 1].")
    labels = arrays["labels"]
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.size == 0:
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}; need one whole number for each image.")
    classes = _classes(arrays, path=path)
    stored = torch.from_numpy(np.ascontiguousarray(images))
    return ImageSet(name, stored, torch.from_numpy(labels.astype(np.int64)), classes, _class_names(arrays, path=path))


def channels_first(images: npt.NDArray[Any], *, source: str) -> npt.NDArray[Any]:
    """Bring an array of images to (N, C, H, W).

    The second dimension holds the channels if it is 1 or 3; else the last one does if it
    is 1 or 3.  An array that would pass for both is therefore taken as channels first.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] in CHANNELS:
        return images
    if images.ndim == 4 and images.shape[3] in CHANNELS:
        return images.transpose(0, 3, 1, 2)
    raise DataError(
        f"{source}: images have shape {images.shape}; need (N, H, W), (N, C, H, W) or (N, H, W, C) with C 1 or 3."
    )


def _classes(arrays: dict[str, npt.NDArray[Any]], *, path: Path) -> int:
    if "classes" not in arrays:
        return int(arrays["labels"].max()) + 1
    given = arrays["classes"]
    if given.dtype.kind not in "iu" or given.size != 1:
        raise DataError(f"{path}: classes is {given.dtype} {given.shape}; need one whole number.")
    return int(given.reshape(()))


def _class_names(arrays: dict[str, npt.NDArray[Any]], *, path: Path) -> tuple[str, ...]:
    given = arrays.get("class_names", np.array([], dtype=str))
    if given.size and (given.dtype.kind != "U" or given.ndim != 1):
        raise DataError(f"{path}: class_names is {given.dtype} {given.shape}; need one string for each class.")
    return tuple(str(name) for name in given)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is a single array; save both with numpy.savez(path, images=..., labels=...).")
            missing = {"images", "labels"}.difference(archive.files)
            if missing:
                there = ", ".join(archive.files) or "none"
                raise DataError(
                    f"{path} has no array {' and '.join(sorted(missing))} (it has: {there}); "
                    "save it with numpy.savez(path, images=..., labels=...)."
                )
            return {key: archive[key] for key in ("images", "labels", "classes", "class_names") if key in archive.files}
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an .npz file ({error}); save it again with numpy.savez.") from error
