"""IDX files, the format of MNIST and Fashion-MNIST, plain or compressed with gzip.

Two zero bytes, a type byte (8: unsigned bytes), the number of dimensions, each dimension
as a big-endian 32-bit number, then the values, last dimension fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import torch

from massmover.data.imageset import DataError, ImageSet

UNSIGNED_BYTES = 8
CHUNK = 1 << 20
STEMS = {"train": "train", "test": "t10k"}


def present(folder: Path, split: str) -> bool:
    """Say whether the folder holds the images and the labels of a split."""
    return _find(folder, split, "images", 3) is not None and _find(folder, split, "labels", 1) is not None


def read(folder: Path, *, split: str, name: str) -> ImageSet:
    """Read one split of an MNIST-like data set of ten classes."""
    arrays = []
    for kind, dimensions in (("images", 3), ("labels", 1)):
        path = _find(folder, split, kind, dimensions)
        if path is None:
            wanted = f"{STEMS[split]}-{kind}-idx{dimensions}-ubyte"
            raise DataError(f"{folder} holds no {wanted} (plain or .gz); put the official file there.")
        arrays.append(read_file(path, dimensions=dimensions))
    images = torch.from_numpy(arrays[0]).unsqueeze(1)  # (N, 1, H, W)
    return ImageSet(name, images, torch.from_numpy(arrays[1]).to(torch.int64), 10)


def read_file(path: Path, *, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes with so many dimensions."""
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if not compressed:
                return _parse(raw, path=path, dimensions=dimensions)
            with gzip.open(raw) as stream:
                return _parse(cast(IO[bytes], stream), path=path, dimensions=dimensions)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch or copy it again.") from error


def _parse(stream: IO[bytes], *, path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    header_size = 4 + 4 * dimensions
    header = stream.read(header_size)
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if header[:4] != magic:
        raise DataError(
            f"{path} starts with {header[:4].hex(' ') or 'nothing'}; an IDX file of {dimensions}-dimensional "
            f"unsigned bytes starts with {magic.hex(' ')}. Is it the right file?"
        )
    if len(header) < header_size:
        raise DataError(f"{path} ends inside its header; fetch or copy it again.")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    expected = math.prod(shape)
    # Grow with what is really there: a corrupt header may claim more than memory holds.
    values = bytearray()
    while len(values) <= expected and (chunk := stream.read(CHUNK)):
        values += chunk
    if len(values) != expected:
        found = f"only {len(values)}" if len(values) < expected else "more"
        raise DataError(f"{path} announces {expected} values {shape} but holds {found}; fetch or copy it again.")
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def _find(folder: Path, split: str, kind: str, dimensions: int) -> Path | None:
    for separator in "-.":
        for ending in ("", ".gz"):
            path = folder / f"{STEMS[split]}-{kind}{separator}idx{dimensions}-ubyte{ending}"
            if path.is_file():
                return path
    return None
