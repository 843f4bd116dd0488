"""A finished run, read back from its folder."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from massmover.evaluation.proof import Moves
from massmover.evaluation.proof_file import proofs_in
from massmover.evaluation.settings import Settings, settings_from_json
from massmover.evaluation.store import Record, RunFolder, read_json, read_records
from massmover.evaluation.summary import Goal, meets, meets_unmoved, smallest_radii, summarise
from massmover.report.classes import class_names
from massmover.report.intervals import Interval, wilson
from massmover.types import MassmoverError


class Between(NamedTuple):
    """One image: how far it is proved, how far it stood under attack, and what broke it; all radius x pixels."""

    image: int
    label: int
    proved: float  # 0 for a clean mistake, infinite for a black image
    stood: float  # the largest radius tried below the one that broke it; 0 if none
    broken: float | None  # None where nothing broke it


COLUMNS = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")


class ClassRow(NamedTuple):
    """One class: how many of its images are right, clean and at each radius."""

    label: int
    images: int
    right: tuple[int, ...]  # in the order of the run's curve


@dataclass(frozen=True, eq=False)
class Run:
    """Everything a finished run wrote."""

    name: str
    manifest: dict[str, Any]
    settings: Settings
    records: list[Record]
    summary: dict[str, Any]
    examples: dict[str, NDArray[Any]] | None
    class_names: tuple[str, ...] = ()  # by label; numbers stand in for what is missing
    proofs: tuple[Moves | None, ...] | None = None  # of the examples; None for files of earlier versions

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

    @property
    def images(self) -> int:
        """How many images were evaluated."""
        return int(self.summary["images"])

    def class_name(self, label: int) -> str:
        """What a class is called."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    def interval(self, accuracy: float) -> Interval:
        """The 95 % interval of an accuracy measured on the images of this run."""
        return wilson(round(accuracy * self.images), self.images)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """When an image counts as broken; a targeted run has two answers to that."""
        return ("wrong", "target") if self.settings.targeted else ("wrong",)

    def verdicts(self, goal: Goal = "wrong") -> dict[int, Record]:
        """Per image the record that decides: the first that meets the goal, or else the last."""
        found: dict[int, Record] = {}
        for record in sorted(self.records, key=lambda record: (record.index, record.radius)):
            if record.index not in found or not meets(found[record.index], goal):
                found[record.index] = record
        return found

    def by_class(self) -> list[ClassRow]:
        """Accuracy of every class that occurs as a label, at every point of the curve."""
        verdicts = self.verdicts().values()
        misled = sorted((record for record in self.records if record.misled), key=lambda record: -record.radius)
        fell = {record.index: record.radius for record in misled}  # the smallest radius comes last and stays
        ends = [0.0, *(float(point["radius"]) for point in self.summary["accuracy"] if point["radius"] > 0)]
        rows = []
        for label in sorted({record.label for record in verdicts}):
            here = [record for record in verdicts if record.label == label]
            sound = [record for record in here if not record.clean_mistake]
            right = (sum(fell.get(record.index, math.inf) > end for record in sound) for end in ends)
            rows.append(ClassRow(label, len(here), tuple(right)))
        return rows

    def survivors(self, goal: Goal = "wrong") -> list[Record]:
        """Images that stood at the largest radius, those that came closest to breaking first."""
        decisive = self.verdicts(goal).values()
        standing = [record for record in decisive if not (meets(record, goal) or meets_unmoved(record, goal))]
        known = [record for record in standing if record.margin is not None]
        return sorted(known, key=lambda record: (record.margin, record.index))

    def curve(self) -> list[tuple[float, float]]:
        """Accuracy at each radius x pixels, starting with the clean accuracy at 0."""
        points = [(float(point["radius_pixels"]), float(point["accuracy"])) for point in self.summary["accuracy"]]
        return [(0.0, float(self.summary["clean_accuracy"])), *(point for point in points if point[0] > 0)]

    def breaking(self, goal: Goal = "wrong") -> dict[int, float | None]:
        """Per image, the smallest radius x pixels that broke it: 0 where nothing had to move, None if none did."""
        found = smallest_radii(self.records, goal)
        return {index: None if radius is None else radius * self.scale for index, radius in found.items()}

    def between(self) -> list[Between]:
        """Per image the interval that its true breaking radius lies in, the least proved first; none without proofs."""
        breaking, tried = self.breaking(), sorted({record.radius * self.scale for record in self.records})
        found = []
        for index, record in self.verdicts().items():
            if record.certified is not None:
                broken = breaking[index]
                stood = [radius for radius in tried if broken is None or radius < broken]
                # A search of smallest radii tries no list: where it found nothing its one record has the largest.
                last = 0.0 if self.settings.smallest and broken is not None else max(stood, default=0.0)
                proved = 0.0 if record.clean_mistake else record.certified * self.scale
                found.append(Between(index, record.label, proved, last, broken))
        return sorted(found, key=lambda row: (row.proved, row.stood, row.image))

    def confusion(self, radius: float | None, goal: Goal = "wrong") -> Counter[tuple[int, int]]:
        """How often each label was answered as each class, within a radius; None for any."""
        answers: dict[int, tuple[int, int]] = {}
        for record in sorted(self.records, key=lambda record: record.radius):
            if radius is None or record.radius <= radius:
                answers.setdefault(record.index, (record.label, record.prediction_before))
                if meets(record, goal):
                    answers[record.index] = (record.label, record.prediction_after)
        return Counter(answers.values())


def load_runs(folders: Sequence[Path], *, names: tuple[str, ...] = ()) -> list[Run]:
    """Read finished runs and give them names that differ; `names` of classes take the place of the runs' own."""
    runs = [load_run(folder) for folder in folders]
    titles = distinct([folder.resolve() for folder in folders])
    return [
        replace(run, name=title, class_names=names or run.class_names) for run, title in zip(runs, titles, strict=True)
    ]


def distinct(folders: Sequence[Path]) -> list[str]:
    """A name for each folder: its own, with as many of its parents as tell it from the others; a number for a twin."""
    names = []
    for number, folder in enumerate(folders):
        others = [other for other in folders if other != folder]
        depth = 1
        while any(other.parts[-depth:] == folder.parts[-depth:] for other in others):
            depth += 1
        twins = sum(other == folder for other in folders[:number])
        names.append(str(Path(*folder.parts[-depth:])) + (f" ({twins + 1})" if twins else ""))
    return names


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
    examples = _examples(folder.examples) if folder.examples.exists() else None
    records = read_records(folder.records)
    return Run(
        name=path.resolve().name,
        manifest=manifest,
        settings=settings,
        records=records,
        summary=_completed(read_json(folder.summary), records, settings),
        examples=examples,
        class_names=class_names(manifest, data=settings.data),
        proofs=_proofs(examples, path=folder.examples) if examples is not None else None,
    )


def _completed(summary: dict[str, Any], records: Sequence[Record], settings: Settings) -> dict[str, Any]:
    """A summary with the counts that earlier versions did not write, from the records."""
    if all("clean_mistakes" in point for point in summary["accuracy"]):
        return summary
    scale = next((record.radius_pixels / record.radius for record in records if record.radius > 0), 1.0)
    return {**summary, **summarise(records, settings, numbers_per_image=round(scale))}


def _examples(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = [name for name in archive.files if name.startswith("proof_")]
            return {name: archive[name] for name in (*COLUMNS, *names)}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        raise MassmoverError(f"{path} is damaged ({type(problem).__name__}): run the evaluation again") from problem


def _proofs(examples: dict[str, NDArray[Any]], *, path: Path) -> tuple[Moves | None, ...] | None:
    """The moves of each example, where the file has them."""
    try:
        found = proofs_in(examples)
    except MassmoverError as problem:
        raise MassmoverError(f"{path}: {problem}") from problem
    if found is not None and len(found) != len(examples["index"]):
        raise MassmoverError(
            f"{path} is damaged: {len(found)} proofs for {len(examples['index'])} examples. Run the evaluation again."
        )
    return None if found is None else found.moves
