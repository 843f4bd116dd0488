"""One line of JSON per image and radius, appended as the run goes, and readable after a crash.

Needs no torch: the report reads the same lines.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from massmover.types import MassmoverError


@dataclass(frozen=True)
class Record:
    """What happened to one image at one radius."""

    index: int  # number of the image in its data set
    label: int
    radius: float
    radius_pixels: float
    prediction_before: int
    prediction_after: int
    target: int | None  # the class the attack had to reach; None where any wrong class would do
    success: bool  # the classifier is wrong and exact transport finds the image inside the ball
    attack_success: bool  # what the attack itself claimed at this radius
    carried_from: float | None  # the smaller radius whose example counts here, because balls are nested
    violation: str | None  # why exact transport refused the example
    cost: float  # certified by the plan
    distance: float | None  # exact transport; measured for every claimed success
    mass_drift: float
    range: tuple[float, float]  # smallest and largest pixel
    steps: int
    seconds: float  # of the attack, per image of its batch
    trusted: bool  # the plan proves the example inside
    eight_bit: bool | None  # the success outlives rounding to 8 bits; None where there is nothing to round
    margin_before: float | None = None  # how far the scores of the original are from success; 0 or less is one
    margin: float | None = None  # the same of the image that was found; None in records of earlier versions

    @property
    def clean_mistake(self) -> bool:
        """Whether the classifier was wrong before anything moved."""
        return self.prediction_before != self.label

    @property
    def used(self) -> float:
        """The share of the budget that was spent."""
        return self.cost / self.radius if self.radius > 0 else 0.0


NAMES = tuple(field.name for field in fields(Record))


def line_of(record: Record) -> str:
    """One record as a line of JSON; a number that JSON cannot hold becomes null."""
    values = asdict(record)
    for name in ("distance", "margin_before", "margin"):
        values[name] = values[name] if values[name] is None or math.isfinite(values[name]) else None
    return json.dumps(values, allow_nan=False) + "\n"


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to the end of a file and hand them to the disk before returning."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line_of(record) for record in records))
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[Record]:
    """All whole records of a file; a last line that was cut off by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    whole, rest = lines[:-1], lines[-1]  # what follows the last newline was never finished
    del rest
    return [_record(line, path=path, number=number) for number, line in enumerate(whole, start=1)]


def _record(line: bytes, *, path: Path, number: int) -> Record:
    try:
        values: Any = json.loads(line.decode("utf-8"))
        values["range"] = tuple(values["range"])
        record = Record(**values)
        _check_types(record)
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as problem:
        raise MassmoverError(
            f"{path} is damaged: line {number} is no record of this package ({type(problem).__name__}). "
            "Restore the file, or start again with another --out folder."
        ) from problem
    return record


def _check_types(record: Record) -> None:
    whole = (record.index, record.label, record.prediction_before, record.prediction_after, record.steps)
    if not all(isinstance(value, int) for value in whole):
        raise TypeError("a whole number is missing")
    real = (record.radius, record.radius_pixels, record.cost, record.mass_drift, record.seconds, *record.range)
    if not all(isinstance(value, (int, float)) for value in real):
        raise TypeError("a number is missing")


def in_order(records: Sequence[Record]) -> list[Record]:
    """Sorted by image, then radius, each pair once (the last written wins)."""
    latest = {(record.index, record.radius): record for record in records}
    return [latest[key] for key in sorted(latest)]


def write(path: Path, records: Iterable[Record]) -> None:
    """Replace a file by these records, whole or not at all."""
    replace_file(path, "".join(line_of(record) for record in records).encode())


def replace_file(path: Path, contents: bytes) -> None:
    """Write a file so that a crash leaves either the old or the new one, never a mixture."""
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
