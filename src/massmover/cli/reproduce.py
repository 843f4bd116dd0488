"""`massmover reproduce`: the tables of Hu et al. 2020, the paper's number beside ours."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from massmover import data as datasets
from massmover.cli.screen import console, progress_bar, refuses_clearly, say
from massmover.cli.studies import STUDIES
from massmover.data import DataError, ImageSet
from massmover.models import BUNDLED, load_model
from massmover.report import write_study
from massmover.reproduce import paper
from massmover.reproduce.ablation import ablation
from massmover.reproduce.attack_table import attack_table
from massmover.reproduce.clamping import Clamping, clamping
from massmover.reproduce.curves import Curve, Progress, Subject
from massmover.reproduce.dimming import Dimming, dimming
from massmover.reproduce.figure import draw
from massmover.reproduce.runtime import runtime
from massmover.reproduce.step_size import step_size
from massmover.types import MassmoverError

CURVES: dict[str, Callable[..., tuple[Curve, ...]]] = {
    "attack-table": attack_table,
    "ablation": ablation,
    "runtime": runtime,
    "step-size": step_size,
}
COUNTS = {
    "attack-table": 100,
    "ablation": 100,
    "runtime": 100,
    "step-size": 100,
    "dimming": 10_000,
    "clamping": 200,
    "natural": 10_000,
    "distance": 500,
    "defence": 50,
}
COUNTS_CIFAR = {"distance": 10}  # exact transport between photographs takes seconds
NAMES = tuple(COUNTS)


@refuses_clearly
def reproduce(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    data: Annotated[
        str, typer.Option(help="mnist, cifar10, another data set by name, a .npz file or a folder.")
    ] = "mnist",
    model: Annotated[
        str | None, typer.Option(help="Classifier to attack; lenet if there are weights, else mnist-standard.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the classifier: a .safetensors, .pt or .pth file.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many images; a subset that ends in minutes by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the JSON file and the figure.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the classifier.")] = 1,
) -> None:
    """Measure a table of the paper again: its number beside ours, every image judged by exact transport."""
    if name not in NAMES:
        raise MassmoverError(f"there is nothing called {name!r} to reproduce: use one of {', '.join(NAMES)}")
    torch.set_num_threads(threads)
    usual = COUNTS_CIFAR.get(name, COUNTS[name]) if data == "cifar10" else COUNTS[name]
    subject = subject_of(data, model=model, weights=weights, count=usual if count is None else count)
    console.print(
        f"{escape(subject.model_name)}: {subject.clean_accuracy():.1f} % of {len(subject.images)} images right "
        f"({escape(subject.data)}, {subject.pixels} numbers an image)"
    )
    with progress_bar() as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, note="")
            bar.update(tasks[what], completed=done, total=total)

        record = measure(name, subject, progress=show, out=out)
    if out is not None:
        keep(record, out / f"{name}.json")
        title = f"{name} of the paper, printed and measured"
        record["command"] = shlex.join(["massmover", *sys.argv[1:]])
        page = write_study(out / f"{name}.html", title=title, record=record, figures=[out / f"{name}.png"])
        console.print(f"report: {escape(str(page))}")


def subject_of(data: str, *, model: str | None, weights: Path | None, count: int) -> Subject:
    """Load the classifier and its images; without MNIST, the digits that ship with the package."""
    images = load_images(data)
    if count < 1:
        raise MassmoverError(f"--count is {count}: at least 1 image is needed")
    chosen = images.subset(0, min(count, len(images)))
    name = model or ("lenet" if weights is not None else "mnist-standard")
    channels = images.images.shape[1]
    if (name == "lenet" or name in BUNDLED) and tuple(images.images.shape[1:]) != (1, 28, 28):
        raise MassmoverError(
            f"{name} takes digits of 1x28x28, and {data} has {channels} channels of "
            f"{images.images.shape[2]}x{images.images.shape[3]}: pass --model and --weights of a classifier for them"
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
