"""Several runs side by side: what differs between them, and whether they can be compared at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from massmover.report.intervals import Interval
from massmover.report.runs import Run

# What has to agree before two accuracies at one radius mean the same.
THREAT = ("window", "ground", "normalisation", "power", "targeted", "eight_bit")


class Line(NamedTuple):
    """One setting of every run."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs disagree."""
        return len(set(self.values)) > 1


class Cell(NamedTuple):
    """Accuracy of a run at a radius."""

    accuracy: float
    interval: Interval


def side_by_side(settings: Sequence[Sequence[tuple[str, str]]]) -> list[Line]:
    """Settings as lines with a value a run, those that differ first; a run without the setting has a dash."""
    tables = [dict(one) for one in settings]
    names = list(dict.fromkeys(name for table in tables for name in table))
    lines = [Line(name, tuple(table.get(name, "–") for table in tables)) for name in names]
    return sorted(lines, key=lambda line: not line.differs)  # stable: the order of reading stays


def by_radius(runs: Sequence[Run]) -> list[tuple[float, list[Cell | None]]]:
    """Accuracy of every run at every radius x pixels that any of them has; 0 is the clean accuracy."""
    curves = [{round(radius, 9): accuracy for radius, accuracy in run.curve()} for run in runs]
    radii = sorted({radius for curve in curves for radius in curve})
    return [
        (
            radius,
            [
                Cell(curve[radius], run.interval(curve[radius])) if radius in curve else None
                for run, curve in zip(runs, curves, strict=True)
            ],
        )
        for radius in radii
    ]


def warnings(runs: Sequence[Run]) -> list[str]:
    """Why the curves of the runs do not mean the same; empty where they do."""
    found = []
    if differs := _told(runs, [run.settings.data for run in runs]):
        found.append(f"the data differ: {differs}")
    elif len({run.manifest["data"]["checksum"] for run in runs}) > 1:
        spans = [f"{_span(run)}, sha256 {str(run.manifest['data']['checksum'])[:8]}" for run in runs]
        found.append(f"the images differ: {_told(runs, spans)}")
    if differs := _told(runs, [" × ".join(map(str, run.shape)) for run in runs]):
        found.append(f"the sizes of the images differ, and with them what radius × pixels means: {differs}")
    attacks = [run.settings.attack + (", smallest radius" if run.settings.smallest else "") for run in runs]
    if differs := _told(runs, attacks):
        found.append(f"the attacks differ: {differs}")
    for name in THREAT:
        values = [str(getattr(run.settings, name, None)) for run in runs]
        if differs := _told(runs, values):
            found.append(f"the {name.replace('_', ' ')} differs: {differs}")
    shared = set.intersection(*({round(radius, 9) for radius, _ in run.curve() if radius > 0} for run in runs))
    if not shared:
        found.append("no radius is common to all runs")
    return found


def _span(run: Run) -> str:
    numbers = run.settings.numbers
    return f"{run.settings.split} images {numbers[0]} to {numbers[-1]}"


def _told(runs: Sequence[Run], values: Sequence[str]) -> str:
    """Which run has which value; empty where all have the same."""
    if len(set(values)) <= 1:
        return ""
    owners: dict[str, list[str]] = {}
    for run, value in zip(runs, values, strict=True):
        owners.setdefault(value, []).append(run.name)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in owners.items())
