"""Saved adversarial examples: a part per batch while the run goes, one file at the end."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from massmover.attacks.show import MOVES
from massmover.evaluation.folder import RunFolder
from massmover.evaluation.records import Record, replace_file
from massmover.types import Images, MassmoverError

COLUMNS = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")

Arrays = dict[str, NDArray[Any]]


class Example(NamedTuple):
    """One saved success."""

    record: Record
    original: NDArray[np.float32]  # (C, H, W)
    adversarial: NDArray[np.float32]
    moves: NDArray[np.float32]  # (MOVES, 6): channel, from row, from column, to row, to column, mass


def preference(record: Record) -> tuple[int, int, float]:
    """Which examples come first: real changes, then carried ones, then clean mistakes."""
    return (2 if record.clean_mistake else 1 if record.carried_from is not None else 0, record.index, record.radius)


def chosen(examples: Sequence[Example], *, limit: int | None) -> list[Example]:
    """The examples to keep: one per image first, at the smallest radius that broke it, then the others."""
    firsts: dict[int, Example] = {}
    for example in sorted(examples, key=lambda example: preference(example.record)):
        firsts.setdefault(example.record.index, example)
    first_keys = {(example.record.index, example.record.radius) for example in firsts.values()}

    def order(example: Example) -> tuple[bool, tuple[int, int, float]]:
        key = (example.record.index, example.record.radius)
        return (example.record.clean_mistake or key not in first_keys, preference(example.record))

    ranked = sorted(examples, key=order)
    return ranked if limit is None else ranked[:limit]


def arrays_of(examples: Sequence[Example], *, shape: tuple[int, ...]) -> Arrays:
    """Examples as the columns of examples.npz, by image and radius."""
    rows = sorted(examples, key=lambda example: (example.record.index, example.record.radius))
    taken = [example.record for example in rows]
    return {
        "index": np.array([record.index for record in taken], dtype=np.int64),
        "radius": np.array([record.radius for record in taken], dtype=np.float64),
        "label": np.array([record.label for record in taken], dtype=np.int64),
        "prediction": np.array([record.prediction_after for record in taken], dtype=np.int64),
        "original": np.array([example.original for example in rows], dtype=np.float32).reshape(-1, *shape),
        "adversarial": np.array([example.adversarial for example in rows], dtype=np.float32).reshape(-1, *shape),
        "moves": np.array([example.moves for example in rows], dtype=np.float32).reshape(-1, MOVES, 6),
    }


def numpy_image(image: Images) -> NDArray[np.float32]:
    """One image as an array."""
    array: NDArray[np.float32] = image.detach().to("cpu", torch.float32).numpy()
    return array


def write_part(folder: RunFolder, batch: range, arrays: Arrays) -> None:
    """Keep a batch's examples until the run is complete."""
    folder.parts.mkdir(exist_ok=True)
    save(folder.parts / f"examples-{batch.start:08d}.npz", arrays)


def save(path: Path, arrays: Arrays) -> None:
    """Write an .npz file, whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    replace_file(path, buffer.getvalue())


def load(path: Path) -> Arrays:
    """The arrays of a file of examples."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in COLUMNS}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        raise MassmoverError(
            f"{path} is damaged ({type(problem).__name__}): remove it, or start again with another --out folder"
        ) from problem


def merge(folder: RunFolder, records: Sequence[Record], *, limit: int | None, shape: tuple[int, ...]) -> int:
    """Bring all parts into examples.npz and return how many rows it has; doing it twice changes nothing."""
    known = {(record.index, record.radius): record for record in records if record.success}
    found: dict[tuple[int, float], Example] = {}
    earlier = [folder.examples] if folder.examples.exists() else []
    for part in [*earlier, *sorted(folder.parts.glob("examples-*.npz"))]:
        arrays = load(part)
        for row, key in enumerate(zip(arrays["index"].tolist(), arrays["radius"].tolist(), strict=True)):
            if key in known:
                pictures = arrays["original"][row], arrays["adversarial"][row]
                found[key] = Example(known[key], *pictures, arrays["moves"][row])
    kept = chosen(list(found.values()), limit=limit)
    save(folder.examples, arrays_of(kept, shape=shape))
    return len(kept)
