"""A table of who stands how long: one row a model, made from finished runs, and what of it is more than chance."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from massmover.files import replace_file
from massmover.report import comparison
from massmover.report.downloads import file_inside, table_inside
from massmover.report.intervals import Interval
from massmover.report.page import environment
from massmover.report.runs import Run, load_runs
from massmover.types import MassmoverError

LEVEL = 0.05  # of the family of all comparisons on a page


class Score(NamedTuple):
    """Accuracy a model keeps at a radius, and what of it is proved."""

    kept: float
    interval: Interval
    proved: float | None


class Row(NamedTuple):
    """One model."""

    name: str
    model: str
    images: int
    clean: Score
    scores: tuple[Score | None, ...]  # by the page's radii; None where the run has no such radius
    parameters: int | None
    trained: str | None
    attack: str
    command: str | None
    report: str | None  # address of the run's own page


class Duel(NamedTuple):
    """Two models on the same images at one radius: on how many only one of them stands, and if that may be chance."""

    first: str
    second: str
    radius: float
    only_first: int
    only_second: int
    chance: float  # McNemar's exact p-value
    adjusted: float  # by Holm, for all duels of the page

    @property
    def decided(self) -> bool:
        """Whether the difference is more than chance."""
        return self.adjusted < LEVEL

    @property
    def better(self) -> str:
        """Who stands on more images."""
        return self.first if self.only_first >= self.only_second else self.second


def write_standings(folders: Sequence[Path], path: Path, *, radii: Sequence[float] | None = None) -> Path:
    """Write the page of some runs; whole or not at all. `radii` are radius x pixels, without them all common ones."""
    runs = load_runs(folders)
    reports = [folder / "report.html" for folder in folders]
    links = [os.path.relpath(str(page), str(path.parent)) if page.exists() else None for page in reports]
    replace_file(path, standings_page(runs, links=links, radii=chosen_radii(runs, radii)).encode())
    return path


def standings_page(runs: Sequence[Run], *, links: Sequence[str | None], radii: Sequence[float]) -> str:
    """The page as HTML."""
    rows = sorted((_row(run, radii, link) for run, link in zip(runs, links, strict=True)), key=_standing)
    fights = duels(runs, radii)
    lines = [line for row in rows for line in _lines(row, radii)]
    record = {"radii_pixels": list(radii), "rows": lines, "duels": [fight._asdict() for fight in fights]}
    return (
        environment()
        .get_template("standings.html")
        .render(
            rows=rows,
            radii=radii,
            duels=fights,
            level=LEVEL,
            unlike=comparison.warnings(runs) if len(runs) > 1 else [],
            proofs=any(score is not None and score.proved is not None for row in rows for score in row.scores),
            downloads=[
                table_inside("standings.csv", "a line for every model and radius", lines),
                file_inside(
                    "standings.json", "the same, and every comparison", json.dumps(record), kind="application/json"
                ),
            ],
            colours=Markup(),
        )
    )


def chosen_radii(runs: Sequence[Run], asked: Sequence[float] | None) -> list[float]:
    """The radii to show, radius x pixels: those asked for, or all that every run has."""
    tried = [[radius for radius, _ in run.curve() if radius > 0] for run in runs]
    if asked is None:
        common = [radius for radius in tried[0] if all(any(_same(radius, other) for other in run) for run in tried)]
        if not common:
            raise MassmoverError(
                "the runs have no radius in common: evaluate them at the same radii, or give --radius-pixels"
            )
        return common
    for radius in asked:
        if not any(_same(radius, other) for run in tried for other in run):
            known = ", ".join(f"{one:g}" for one in sorted({round(one, 6) for run in tried for one in run}))
            raise MassmoverError(f"--radius-pixels {radius:g}: no run has it; there are {known}")
    return sorted(asked)


def duels(runs: Sequence[Run], radii: Sequence[float]) -> list[Duel]:
    """Every two models that were attacked in the same way on the same images, at every radius both have."""
    found: list[Duel] = []
    for first, second in combinations(runs, 2):
        if comparison.warnings([first, second]):
            continue  # other images or another threat: no image stands against its twin
        ours, theirs = first.breaking(), second.breaking()
        for radius in radii:
            if _accuracy(first, radius) is None or _accuracy(second, radius) is None:
                continue
            stands = [(_stands(ours[image], radius), _stands(theirs[image], radius)) for image in ours]
            only_first = sum(mine and not other for mine, other in stands)
            only_second = sum(other and not mine for mine, other in stands)
            chance = mcnemar(only_first, only_second)
            found.append(Duel(first.name, second.name, radius, only_first, only_second, chance, chance))
    adjusted = holm([duel.chance for duel in found])
    return [duel._replace(adjusted=chance) for duel, chance in zip(found, adjusted, strict=True)]


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value of McNemar's test: how often a fair coin falls at least as unevenly."""
    count, fewer = only_first + only_second, min(only_first, only_second)
    tail: int = sum(math.comb(count, k) for k in range(fewer + 1))
    return min(1.0, tail / 2 ** (count - 1) if count else 1.0)


def holm(chances: Sequence[float]) -> list[float]:
    """P-values adjusted for their number by Holm's method."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    adjusted, largest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = largest
    return adjusted


def _row(run: Run, radii: Sequence[float], link: str | None) -> Row:
    clean = float(run.summary["clean_accuracy"])
    weights = run.manifest.get("weights", {})
    return Row(
        name=run.name,
        model=run.settings.model,
        images=run.images,
        clean=Score(clean, run.interval(clean), None),
        scores=tuple(_score(run, radius) for radius in radii),
        parameters=weights.get("parameters"),
        trained=weights.get("trained"),
        attack=run.settings.attack + (", smallest radius" if run.settings.smallest else ""),
        command=run.manifest.get("command"),
        report=link,
    )


def _score(run: Run, radius: float) -> Score | None:
    point = _accuracy(run, radius)
    if point is None:
        return None
    kept = float(point["accuracy"])
    return Score(kept, run.interval(kept), point.get("certified"))


def _accuracy(run: Run, radius: float) -> dict[str, Any] | None:
    """The point of a run's curve at a radius x pixels."""
    return next((point for point in run.summary["accuracy"] if _same(float(point["radius_pixels"]), radius)), None)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


def _stands(broken: float | None, radius: float) -> bool:
    """Whether an image that broke at a radius, or never, stands at another; 0 is a clean mistake."""
    return broken is None or (broken > radius and not _same(broken, radius))


def _standing(row: Row) -> tuple[float, float]:
    """The most accuracy kept over all radii first, then the clean accuracy."""
    kept = [score.kept for score in row.scores if score is not None]
    return -sum(kept) / len(kept) if kept else 0.0, -row.clean.kept


def _lines(row: Row, radii: Sequence[float]) -> list[dict[str, Any]]:
    """One line for every radius of a row, 0 first."""
    told = {"name": row.name, "model": row.model, "images": row.images, "attack": row.attack}
    return [
        {
            **told,
            "radius_pixels": radius,
            "accuracy": score.kept,
            "low": score.interval.low,
            "high": score.interval.high,
            "certified": score.proved,
        }
        for radius, score in zip((0.0, *radii), (row.clean, *row.scores), strict=True)
        if score is not None
    ]
