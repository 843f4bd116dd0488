"""Pickles of NumPy arrays, read without running what a stranger may have put in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from massmover.data.errors import DataError

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


def read(path: Path) -> Any:
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
