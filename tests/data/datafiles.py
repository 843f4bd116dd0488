"""Writers of tiny data files, by the letter of each format and independent of the readers."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def digits(count: int, *, seed: int = 0, height: int = 5, width: int = 4) -> tuple[Bytes, Bytes]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, size=(count, height, width), dtype=np.uint8)
    return images, random.integers(0, 10, size=count, dtype=np.uint8)


def idx_bytes(array: Bytes) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx_split(
    folder: Path, *, split: str = "test", count: int = 6, seed: int = 0, separator: str = "-", compressed: bool = False
) -> tuple[Bytes, Bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = digits(count, seed=seed)
    stem = {"test": "t10k", "train": "train"}[split]
    for kind, array in (("images", images), ("labels", labels)):
        name = f"{stem}-{kind}{separator}idx{array.ndim}-ubyte"
        content = idx_bytes(array)
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return images, labels


def python2_pickle(content: object) -> bytes:
    """Pickle like Python 2, whose strings are bytes: what the official CIFAR-10 files hold."""

    class Python2Pickler(pickle._Pickler):
        dispatch: ClassVar[dict[type, Callable[..., Any]]] = dict(pickle._Pickler.dispatch)

        def save_string(self, text: str | bytes) -> None:
            raw = text if isinstance(text, bytes) else text.encode("ascii")
            self.write(b"T" + struct.pack("<i", len(raw)) + raw)  # type: ignore[attr-defined]

        def save_integer_for_bool(self, value: bool) -> None:
            self.write(b"K" + bytes([value]))  # type: ignore[attr-defined]

        dispatch[str] = dispatch[bytes] = save_string
        dispatch[bool] = save_integer_for_bool

    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue()


def tgz(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()
