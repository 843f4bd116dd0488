"""The tables of `massmover reproduce`: measured, printed and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from massmover import data as datasets
from massmover import paper
from massmover.cli.natural import NOTE, l2_of, print_caveats, wasserstein_of
from massmover.cli.screen import console, say
from massmover.data import DataError, ImageSet
from massmover.models import BUNDLED, load_model
from massmover.natural.figure import Panel, Series, draw_panels
from massmover.natural.perturbations import kornia
from massmover.reproduce.curves import ROBUST, Curve, Progress, Subject, lineup, short_name
from massmover.reproduce.defence import Defence, Printed, defence, printed_for
from massmover.reproduce.figures import draw, draw_defence
from massmover.reproduce.natural import (
    ACCURACY,
    CLEAN,
    DISTANCE,
    L2,
    WASSERSTEIN,
    Distances,
    Row,
    distance,
    natural,
)
from massmover.reproduce.natural import (
    NAMES as PERTURBATIONS,
)
from massmover.reproduce.pitfalls import Clamping, Dimming, clamping, dimming
from massmover.reproduce.tables import ablation, attack_table, runtime, step_size
from massmover.types import MassmoverError

CURVES: dict[str, Callable[..., tuple[Curve, ...]]] = {
    "attack-table": attack_table,
    "ablation": ablation,
    "runtime": runtime,
    "step-size": step_size,
}


def subject_of(data: str, *, model: str | None, weights: Path | None, count: int) -> Subject:
    """Load the classifier and its images; without MNIST, the digits that ship with the package."""
    images = load_images(data)
    if count < 1:
        raise MassmoverError(f"--count is {count}: at least 1 image is needed")
    chosen = images.subset(0, min(count, len(images)))
    victim = "cifar10-robust" if data == "cifar10" else "mnist-standard"
    name = model or ("lenet" if weights is not None else victim)
    channels = images.images.shape[1]
    reads_digits = name in ("lenet", "mlp") or (name in BUNDLED and name != "cifar10-robust")
    if reads_digits and tuple(images.images.shape[1:]) != (1, 28, 28):
        raise MassmoverError(
            f"{name} takes digits of 1x28x28, and {data} has {channels} channels of "
            f"{images.images.shape[2]}x{images.images.shape[3]}: pass --model (and --weights) of a classifier for them"
        )
    return Subject(
        model=load_model(name, weights=weights, tell=say),
        images=chosen.images_as_float(),
        labels=chosen.labels,
        data="mnist" if data.startswith("mnist") else data,
        model_name=name if weights is None else f"{name} ({weights.name})",
        available=len(images),
    )


def load_images(data: str) -> ImageSet:
    """The test images of a data set."""
    try:
        return datasets.load(data, split="test")
    except DataError:
        if data != "mnist":
            raise
        console.print("MNIST has not been fetched (massmover data fetch mnist): using the bundled digits, mnist-sample")
        return datasets.load("mnist-sample")


def measure(name: str, subject: Subject, *, progress: Progress, out: Path | None) -> dict[str, Any]:
    """Measure, print, draw, and return what is kept."""
    about = {
        "name": name,
        "model": subject.model_name,
        "data": subject.data,
        "count": len(subject.images),
        "clean_accuracy": subject.clean_accuracy(),
    }
    if name in STUDIES:
        return {**about, **STUDIES[name](subject, progress=progress, out=out)}
    if name == "dimming":
        dimmed = dimming(subject)
        print_dimming(dimmed)
        return {**about, "dimming": asdict(dimmed)}
    if name == "clamping":
        clamped = clamping(subject, progress=progress)
        print_clamping(clamped)
        return {**about, "clamping": asdict(clamped)}
    curves = CURVES[name](subject, progress=progress)
    print_curves(name, curves, subject)
    if out is not None:
        place = draw(
            curves, out / f"{name}.png", title=f"{subject.model_name}, {len(subject.images)} {subject.data} images"
        )
        console.print(f"figure: {escape(str(place))}")
    return {**about, "curves": [asdict(curve) for curve in curves]}


def print_curves(name: str, curves: Sequence[Curve], subject: Subject) -> None:
    """One line per row of the table; under it the paper's, where it has one."""
    radii = curves[0].radii_pixels
    table = Table(title=f"accuracy in % at radius x {subject.pixels}", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("attack", no_wrap=True)
    for radius in radii:
        table.add_column(f"{radius:g}", justify="right", min_width=4)
    for column in ("mean", "s"):
        table.add_column(column, justify="right", min_width=5)
    for curve in curves:
        mean = "" if curve.mean_radius is None else f"{curve.mean_radius:.3f}"
        cells = [f"{accuracy:.1f}" if accuracy < 99.95 else "100" for accuracy in curve.accuracy]
        label = curve.name if curve.protocol == "ramp" else f"{curve.name}, fixed"
        table.add_row(label, *cells, mean, f"{curve.seconds:.0f}")
        printed = printed_row(name, curve, subject)
        if printed is not None:
            table.add_row("  printed", *printed, style="dim")
    console.print(table)
    console.print(
        "The radius grows until an image is broken; fixed: attacked at each radius by itself. "
        "mean: breaking radius; s: seconds.\n"
        f"{sum(curve.outside for curve in curves)} returned images are outside their ball by exact transport."
    )
    if name == "attack-table" or name == "ablation":
        console.print(
            "Printed numbers are for the models of Wong et al.; their 100 % cells count clean mistakes as right."
        )
    if name == "runtime":
        console.print("Printed seconds are for all 10,000 test images on one P100.")
    if name == "step-size":
        console.print("Printed numbers are for the paper's own defended model; its code fails above a step of 0.08.")
    unbroken = {curve.name: curve.unbroken for curve in curves if curve.unbroken}
    if name == "runtime" and unbroken:
        console.print(f"never broken, counted with the last radius tried: {unbroken}")
    seconds = sum(curve.seconds for curve in curves)
    whole = seconds * subject.available / len(subject.images)
    console.print(
        f"{seconds:.0f} s for {len(subject.images)} images; all {subject.available} take about {whole / 60:.0f} minutes"
        f" (--count {subject.available})"
    )


def printed_row(name: str, curve: Curve, subject: Subject) -> list[str] | None:
    """The paper's line for a row of ours."""
    blank = [""] * len(curve.radii_pixels)
    if name == "runtime" and subject.data == "mnist":
        return [*blank, f"{paper.RUNTIME_MEAN_RADIUS[curve.name]:.3f}", f"{60 * paper.RUNTIME_MINUTES[curve.name]}"]
    if curve.paper is None:
        return None
    seconds = ""
    if name == "runtime":
        console.print("Printed seconds are for all 10,000 test images on one P100.")
    if name == "step-size":
        seconds = f"{3600 * paper.STEP_HOURS[subject.data][float(curve.name.removeprefix('step '))]:.0f}"
    return [*(f"{accuracy:g}" for accuracy in curve.paper), "", seconds]


def print_dimming(found: Dimming) -> None:
    """What dimming does."""
    console.print(
        f"divided by {found.factor:g}: {found.wrong_after:.2f} % wrong, printed {found.paper:g} % "
        f"(undimmed {found.wrong_before:.2f} %), {found.count} images, distance 0 after normalisation"
    )
    others = ", ".join(f"{factor}: {wrong:.2f} %" for factor, wrong in found.wrong_at.items())
    console.print(f"wrong by factor: {others}")


def print_clamping(found: Clamping) -> None:
    """How far clamping leaves the ball."""
    console.print(
        f"{found.outside} of {found.broken} broken images are outside their ball after clamping; over budget by "
        f"{found.mean_over:.0f} % on average (printed {found.paper_mean_over:g} %) and {found.worst_over:.0f} % at "
        f"worst (printed {found.paper_worst_over:g} %); clamping cut {found.mean_mass_lost:.1f} % of the mass"
    )


def keep(record: dict[str, Any], path: Path) -> None:
    """Write what was measured."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise MassmoverError(f"--out {path.parent} cannot be written to ({error.strerror}): choose another") from None
    console.print(f"numbers: {escape(str(path))}")


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
            [CLEAN, *PERTURBATIONS],
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
    for name in (CLEAN, *PERTURBATIONS):
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
            PERTURBATIONS,
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
