"""CIFAR-10 in its official and its picture form; pickles are read without running what they hold."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch

from massmover.data import folders
from massmover.data.imageset import DataError, ImageSet

# `_reconstruct(numpy.ndarray, (0,), b"b")` is how NumPy has always begun an array, under two module names.
RECONSTRUCT = {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}


class _Refused(pickle.UnpicklingError):
    """The pickle asks for something that is not an array."""


class _ArrayUnpickler(pickle.Unpickler):
    """Knows arrays and their types; refuses every other name."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in RECONSTRUCT:
            return _empty_array
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        raise _Refused(f"{module}.{name}")


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, numbers, strings (as bytes) and NumPy arrays."""
    try:
        with path.open("rb") as stream:
            return _ArrayUnpickler(stream, encoding="bytes").load()
    except _Refused as error:
        raise DataError(
            f"{path} asks to load {error}, which no data file needs; nothing was run. "
            "Get the file from a source you trust."
        ) from error
    except Exception as error:  # a broken pickle can raise nearly anything
        raise DataError(f"{path} cannot be read as a pickle ({error}); fetch or copy it again.") from error


def _empty_array(kind: type, shape: tuple[int, ...], _: bytes) -> Any:
    if kind is not np.ndarray or shape != (0,):
        raise _Refused(f"an array of kind {kind!r}")
    return np.ndarray(shape, dtype=np.uint8)


def _dtype(code: bytes | str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Old pickles hold 0 and 1 where NumPy now wants a bool, and bytes for the code.
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text not in ("u1", "|u1"):
        raise _Refused(f"an array of type {text!r}")
    make: Callable[..., np.dtype[Any]] = np.dtype
    return make(text, align=bool(align), copy=bool(copy))


BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
LABEL_FILES = {"train": "train_lables.json", "test": "test_lables.json"}  # spelled so in the package
ENDINGS = (".png", ".bin", "")
OFFICIAL_FOLDERS = ("", "cifar-10-batches-bin", "cifar-10-batches-py")  # "" is the folder itself
SIDE = 32
BYTES = 3 * SIDE * SIDE  # of one image

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]  # (n, 3, 32, 32), (n,)


def present(folder: Path, split: str) -> bool:
    """Say whether the folder, or an official folder inside it, holds every file of a split."""
    return _form(folder, split) is not None


def read(folder: Path, *, split: str, name: str) -> ImageSet:
    """Read one split in whichever form the folder holds."""
    form = _form(folder, split)
    if form is None:
        raise DataError(f"{folder} does not hold {', '.join(BATCHES[split])} (as .png, .bin or pickles).")
    place, ending = form
    paths = [place / f"{batch}{ending}" for batch in BATCHES[split]]
    if ending == ".png":
        return _read_strips(paths, place / LABEL_FILES[split], name=name)
    read_batch = _read_binary if ending == ".bin" else _read_pickle
    batches = [read_batch(path) for path in paths]
    images = torch.from_numpy(np.concatenate([images for images, _ in batches]))
    labels = torch.from_numpy(np.concatenate([labels for _, labels in batches]))
    return ImageSet(name, images, labels, 10)


def _form(folder: Path, split: str) -> tuple[Path, str] | None:
    for place in (folder / inner for inner in OFFICIAL_FOLDERS):
        for ending in ENDINGS:
            wanted = [f"{batch}{ending}" for batch in BATCHES[split]]
            if ending == ".png":
                wanted.append(LABEL_FILES[split])
            if all((place / file).is_file() for file in wanted):
                return place, ending
    return None


def _read_binary(path: Path) -> Batch:
    """Records of one label byte, then the red, green and blue planes."""
    records = np.fromfile(path, dtype=np.uint8)
    if records.size == 0 or records.size % (1 + BYTES):
        raise DataError(
            f"{path} has {records.size} bytes; a batch has records of {1 + BYTES} bytes. Fetch or copy it again."
        )
    records = records.reshape(-1, 1 + BYTES)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0].astype(np.int64)


def _read_pickle(path: Path) -> Batch:
    content = read_pickle(path)
    data, labels = (content.get(b"data"), content.get(b"labels")) if isinstance(content, dict) else (None, None)
    if _rows(data) and _whole_numbers(labels) and len(data) == len(labels):
        return data.reshape(-1, 3, SIDE, SIDE), np.asarray(labels, dtype=np.int64)
    raise DataError(f"{path} is no CIFAR-10 batch: need 'data', bytes (n, {BYTES}), and 'labels', n whole numbers.")


def _read_strips(paths: list[Path], label_path: Path, *, name: str) -> ImageSet:
    """Pictures with one image a row of 1024 pixels, and the labels of all of them."""
    labels = _json_labels(label_path)
    images = torch.empty(len(labels), 3, SIDE, SIDE, dtype=torch.uint8)
    filled = 0
    for path in paths:
        with folders.opened(path) as picture:
            if picture.width != SIDE * SIDE or folders.channels(picture, source=str(path)) != 3:
                raise DataError(f"{path} is {picture.width} wide, {picture.mode}; need {SIDE * SIDE}, RGB.")
            rows = folders.pixels(picture, channels=3)  # (3, n, 1024)
        count = rows.shape[1]
        if filled + count <= len(images):
            images[filled : filled + count] = torch.from_numpy(rows.reshape(3, count, SIDE, SIDE)).transpose(0, 1)
        filled += count
    if filled != len(labels):
        raise DataError(f"{label_path} has {len(labels)} labels for {filled} images; fetch the set again.")
    return ImageSet(name, images, torch.tensor(labels, dtype=torch.int64), 10)


def _json_labels(path: Path) -> list[int]:
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch the set again.") from error
    if _whole_numbers(labels):
        return labels
    raise DataError(f"{path} is no list of labels; fetch the set again.")


def _rows(data: object) -> TypeGuard[npt.NDArray[np.uint8]]:
    return isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == BYTES


def _whole_numbers(labels: object) -> TypeGuard[list[int]]:
    return isinstance(labels, list) and len(labels) > 0 and all(type(label) is int for label in labels)
