"""The parts of `massmover reproduce` that compare classifiers and perturbations: natural, distance, defence.

Each function measures, prints, draws and returns what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from massmover.cli.natural import NOTE, l2_of, print_caveats, wasserstein_of
from massmover.cli.screen import console
from massmover.models import BUNDLED
from massmover.natural.figure import Panel, Series, draw_panels
from massmover.natural.perturbations import kornia
from massmover.reproduce.curves import Progress, Subject
from massmover.reproduce.defence import Defence, Printed, defence, printed_for
from massmover.reproduce.defence_figure import draw_defence
from massmover.reproduce.distance import DISTANCE, L2, WASSERSTEIN, Distances, distance
from massmover.reproduce.lineup import ROBUST, lineup, short_name
from massmover.reproduce.natural import ACCURACY, CLEAN, NAMES, Row, natural


def natural_study(subject: Subject, *, progress: Progress, out: Path | None, robust: str = ROBUST) -> dict[str, Any]:
    """Accuracy under translation, rotation and blur."""
    kornia("kornia")
    rows = natural(lineup(subject, robust=robust), progress=progress)
    printed = ACCURACY.get(subject.data, {})
    print_natural(rows, printed)
    if out is not None:
        series = [Series(short_name(row.model), row.accuracy, colour=number) for number, row in enumerate(rows)]
        series += [
            Series(f"{name}, printed", row, colour=len(rows) + number, printed=True)
            for number, (name, row) in enumerate(printed.items())
        ]
        place = draw_panels(
            [Panel("accuracy (%)", tuple(series), top=118)],
            [CLEAN, *NAMES],
            out / "natural.png",
            title=f"{len(subject.images)} {subject.data} images",
        )
        console.print(f"figure: {escape(str(place))}")
    return {"rows": [asdict(row) for row in rows], "printed": printed}


def print_natural(rows: Sequence[Row], printed: Mapping[str, Mapping[str, float]]) -> None:
    """One line per perturbation: every classifier, then the paper's two."""
    table = narrow_table("percent right")
    table.add_column("perturbation", no_wrap=True)
    for row in rows:
        table.add_column(escape(short_name(row.model)), justify="right", no_wrap=True)
    for model in printed:
        table.add_column(f"{model},\nprinted", justify="right", no_wrap=True, style="dim")
    for name in (CLEAN, *NAMES):
        ours = [f"{row.accuracy[name]:.1f}" for row in rows]
        table.add_row(name, *ours, *(f"{accuracy[name]:.1f}" for accuracy in printed.values()))
    console.print(table)
    if printed:
        console.print(
            "Printed numbers are for a standard model and for the paper's own defended one, on the whole test set."
        )


def distance_study(subject: Subject, *, progress: Progress, out: Path | None) -> dict[str, Any]:
    """How far translation, rotation and blur carry an image."""
    kornia("kornia")
    found = distance(subject, progress=progress)
    printed = DISTANCE.get(subject.data, {})
    print_distance(found, printed)
    if out is not None:
        place = draw_panels(
            [
                Panel(axis, beside(ours, printed.get(key), colour=colour))
                for axis, ours, key, colour in (
                    ("l2", l2_of(found.effects), L2, 1),
                    ("1-Wasserstein (pixels)", wasserstein_of(found.effects), WASSERSTEIN, 2),
                )
            ],
            NAMES,
            out / "distance.png",
            title=f"{found.count} {subject.data} images",
        )
        console.print(f"figure: {escape(str(place))}")
    return {"distance": asdict(found), "printed": printed}


def beside(ours: Mapping[str, float | None], printed: Mapping[str, float] | None, *, colour: int) -> tuple[Series, ...]:
    """Our bars, and the paper's where there are any."""
    first = Series("measured", ours, colour=colour)
    return (first,) if printed is None else (first, Series("printed", printed, colour=colour, printed=True))


def print_distance(found: Distances, printed: Mapping[str, Mapping[str, float]]) -> None:
    """One line per perturbation: both distances, the paper's beside each, and the change of mass."""
    table = narrow_table(f"mean distances, {found.count} images")
    table.add_column("perturbation", no_wrap=True)
    for key, heading in ((L2, "l2"), (WASSERSTEIN, "1-Wasserstein")):
        table.add_column(heading, justify="right")
        if key in printed:
            table.add_column("printed", justify="right", style="dim")
    table.add_column("mass %", justify="right")
    for effect in found.effects:
        cells = []
        for key, value in ((L2, effect.l2), (WASSERSTEIN, effect.wasserstein)):
            cells.append("" if value is None else f"{value:.2f}")
            cells += [f"{printed[key][effect.name]:.1f}"] if key in printed else []
        table.add_row(effect.name, *cells, f"{effect.mass_change:+.2f}")
    console.print(table)
    console.print(NOTE)
    if found.l2_units is not None:
        console.print(
            f"Pixels were divided by {found.l2_units} before the l2 distance, as the printed numbers suggest."
        )
    print_caveats(found.effects)


def narrow_table(title: str) -> Table:
    """A table that leaves room for its columns."""
    return Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)


def defence_study(subject: Subject, *, progress: Progress, out: Path | None, robust: str = ROBUST) -> dict[str, Any]:
    """What defended classifiers hold against the paper's attack and against the ensemble."""
    found = defence(lineup(subject, robust=robust), progress=progress)
    printed = printed_for(subject.data)
    print_defence(found, printed, subject)
    if out is not None:
        title = f"{len(subject.images)} {subject.data} images"
        place = draw_defence(found, printed, out / "defence.png", title=title)
        console.print(f"figure: {escape(str(place))}")
    return {"models": [asdict(model) for model in found], "printed": [asdict(curve) for curve in printed]}


def print_defence(found: Sequence[Defence], printed: Sequence[Printed], subject: Subject) -> None:
    """Two lines per classifier, and the paper's where a radius is the same."""
    radii = found[0].hu.radii_pixels
    table = narrow_table(f"accuracy in % at radius x {subject.pixels}")
    table.add_column("model, attack", no_wrap=True)
    for heading in (CLEAN, *(f"{radius:g}" for radius in radii)):
        table.add_column(heading, justify="right", min_width=4)
    for model in found:
        for attack, curve in (("Hu", model.hu), ("auto", model.auto)):
            cells = [f"{value:.1f}" if value < 99.95 else "100" for value in (model.clean_accuracy, *curve.accuracy)]
            table.add_row(escape(f"{short_name(model.model)}, {attack}"), *cells)
    for row in printed:
        known = dict(zip(row.radii_pixels, row.accuracy, strict=True))
        cells = [f"{known[radius]:g}" if radius in known else "" for radius in radii]
        table.add_row(f"{row.name}, printed", "", *cells, style="dim")
    console.print(table)
    outside = sum(model.hu.outside + model.auto.outside for model in found)
    seconds = sum(model.hu.seconds + model.auto.seconds for model in found)
    whole = seconds * subject.available / len(subject.images)
    console.print(
        "Hu: the radius grows until an image is broken; auto: every attack of the package at each radius, on "
        "images that still stand.\nPrinted numbers are under the paper's own attack.\n"
        f"{outside} returned images are outside their ball by exact transport.\n"
        f"{seconds:.0f} s for {len(subject.images)} images; all {subject.available} take about {whole / 60:.0f} minutes"
        f" (--count {subject.available})"
    )
    if ROBUST not in BUNDLED and subject.data == "mnist":
        console.print(f"{ROBUST} is not in this version of the package, so it is missing here.")


STUDIES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "natural": natural_study,
    "distance": distance_study,
    "defence": defence_study,
}
