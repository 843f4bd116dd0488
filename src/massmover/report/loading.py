"""A finished run, read back from its folder."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from massmover.evaluation.settings import Settings, settings_from_json
from massmover.evaluation.store import Record, RunFolder, read_json, read_records
from massmover.evaluation.summary import smallest_radii
from massmover.types import MassmoverError

COLUMNS = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")


@dataclass(frozen=True, eq=False)
class Run:
    """Everything a finished run wrote."""

    name: str
    manifest: dict[str, Any]
    settings: Settings
    records: list[Record]
    summary: dict[str, Any]
    examples: dict[str, NDArray[Any]] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, rows and columns of an image."""
        return tuple(int(side) for side in self.manifest["data"]["shape"])

    @property
    def scale(self) -> float:
        """Numbers in an image: a radius times this is the unit of the published tables."""
        return float(np.prod(self.shape))

    @property
    def classes(self) -> list[int]:
        """The classes that occur, as labels or as answers."""
        answers = {record.prediction_after for record in self.records}
        return sorted({record.label for record in self.records} | answers)

    def curve(self) -> list[tuple[float, float]]:
        """Accuracy at each radius x pixels, starting with the clean accuracy at 0."""
        points = [(float(point["radius_pixels"]), float(point["accuracy"])) for point in self.summary["accuracy"]]
        return [(0.0, float(self.summary["clean_accuracy"])), *(point for point in points if point[0] > 0)]

    def breaking(self) -> dict[int, float | None]:
        """Per image, the smallest radius x pixels that broke it: 0 for a clean mistake, None if none did."""
        found = smallest_radii(self.records, self.settings)
        return {index: None if radius is None else radius * self.scale for index, radius in found.items()}

    def confusion(self, radius: float | None) -> Counter[tuple[int, int]]:
        """How often each label was answered as each class, at a radius; None takes every record."""
        here = [record for record in self.records if radius is None or record.radius == radius]
        counted = [
            (record.label, record.prediction_after if record.success else record.prediction_before) for record in here
        ]
        return Counter(counted)


def load_run(path: Path) -> Run:
    """Read the folder of a finished run."""
    folder = RunFolder(path)
    manifest = read_json(folder.manifest)
    if not folder.summary.exists():
        raise MassmoverError(f"{path} holds no summary.json: finish the run with --resume, then ask for its report")
    try:
        settings = settings_from_json(manifest["settings"])
    except (KeyError, TypeError, AttributeError):
        raise MassmoverError(
            f"{folder.manifest} is damaged: its settings are missing. Run the evaluation again."
        ) from None
    return Run(
        name=path.resolve().name,
        manifest=manifest,
        settings=settings,
        records=read_records(folder.records),
        summary=read_json(folder.summary),
        examples=_examples(folder.examples) if folder.examples.exists() else None,
    )


def _examples(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in COLUMNS}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        raise MassmoverError(f"{path} is damaged ({type(problem).__name__}): run the evaluation again") from problem
