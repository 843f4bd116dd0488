"""`massmover natural`: accuracy and distances under translation, rotation, blur and elastic deformation."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from massmover.cli import options
from massmover.cli.screen import console, errors, progress_bar, refuses_clearly, say
from massmover.types import Images, Labels, MassmoverError

if TYPE_CHECKING:
    from massmover.evaluation.subject import Subject
    from massmover.natural import Effect, Perturbation, Study
    from massmover.natural.figure import Panel
    from massmover.natural.perturbations import Direction, Interpolation

BATCH = 50  # images perturbed at once: small, so that the bar moves while distances are measured
DISTANCES = 200  # about 20 s of exact transport on digits, and half an hour on 3x32x32 photographs
NOTE = (
    "Wasserstein: exact, in pixels, each channel scaled back to its old mass first; "
    "mass: mean change of the mass of an image."
)

How, Where = "How it is perturbed", "What is kept"


@refuses_clearly
def natural(
    out: Annotated[
        Path, typer.Option(help="Folder for natural.json, natural.png and report.html.", rich_help_panel=Where)
    ],
    model: options.Model = "mnist-standard",
    weights: options.Weights = None,
    mean: options.Mean = None,
    std: options.Std = None,
    data: options.Data = "mnist-sample",
    split: options.Split = "test",
    start: options.Start = 0,
    count: options.Count = None,
    translate: Annotated[
        str, typer.Option(help="Translations in % of the width, or none.", rich_help_panel=How)
    ] = "5,10,20",
    rotate: Annotated[str, typer.Option(help="Rotations in degrees, or none.", rich_help_panel=How)] = "5,10,20",
    blur: Annotated[
        str, typer.Option(help="Gaussian blurs by their width in pixels, or none.", rich_help_panel=How)
    ] = ("3,5,7"),
    elastic: Annotated[
        str, typer.Option(help="Elastic deformations by their mean move in pixels, or none.", rich_help_panel=How)
    ] = "none",
    direction: Annotated[
        str,
        typer.Option(
            help="random: each image moves by whole pixels, up to the given %; fixed: all move right by just that.",
            rich_help_panel=How,
        ),
    ] = "random",
    interpolation: Annotated[
        str, typer.Option(help="nearest or bilinear, of translations and rotations.", rich_help_panel=How)
    ] = "nearest",
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Of the blur, cut at its width; (width - 1)/2 with its tails without it.",
            show_default=False,
            rich_help_panel=How,
        ),
    ] = None,
    distances: Annotated[
        int, typer.Option(help="For how many images exact distances are measured.", rich_help_panel=How)
    ] = DISTANCES,
    seed: Annotated[int, typer.Option(help="Same seed, same result.", rich_help_panel=How)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=How)] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads for the classifier.", rich_help_panel=How)] = 1,
) -> None:
    """Measure accuracy under translation, rotation, blur and bending, and how far these carry an image.

    Distances are l2 and exact 1-Wasserstein, as means over images. What the paper leaves open about the
    perturbations is said in docs/natural.md.
    """
    if distances < 0:
        raise MassmoverError(f"--distances is {distances}: give 0 or more")
    if seed < 0:
        raise MassmoverError(f"--seed is {seed}: give 0 or more")
    chosen = perturbations(
        translate=translate,
        rotate=rotate,
        blur=blur,
        elastic=elastic,
        direction=direction,
        interpolation=interpolation,
        sigma=sigma,
    )
    options.threads(threads)
    import torch

    from massmover.evaluation.settings import Choice
    from massmover.evaluation.subject import load_subject
    from massmover.natural.figure import draw_panels
    from massmover.natural.perturbations import kornia
    from massmover.natural.study import MEASURED, PERTURBED, study
    from massmover.report import write_study

    kornia("kornia")
    torch.set_num_threads(threads)
    choice = Choice(
        model=model,
        weights=None if weights is None else str(weights),
        mean=None if mean is None else options.numbers(mean, option="--mean", example="0.1307"),
        std=None if std is None else options.numbers(std, option="--std", example="0.3081"),
        data=data,
        split=split,
        start=start,
        count=count,
        device=device,
    )
    subject = load_subject(choice)
    say(*subject.notes)
    prepare(out)
    count = len(subject.images)
    with bars(**{PERTURBED: count * len(chosen), MEASURED: min(count, distances) * len(chosen)}) as show:
        found = study(subject.model, batches(subject), chosen, distances=distances, seed=seed, progress=show)
    name = model if weights is None else f"{model} ({weights.name})"
    title = f"{name}, {found.count} images, clean accuracy {found.clean_accuracy:.1f} %"
    print_study(found, title=title)
    record = {"model": name, "data": data, "split": split, "start": start, "seed": seed, "direction": direction}
    record |= {"interpolation": interpolation, "sigma": sigma, "command": " ".join(["massmover", *sys.argv[1:]])}
    path = out / "natural.json"
    record |= asdict(found)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    console.print(f"numbers: {escape(str(path))}")
    place = draw_panels(panels(found), [effect.name for effect in found.effects], out / "natural.png", title=title)
    console.print(f"figure: {escape(str(place))}")
    page = write_study(
        out / "report.html", title=f"{name} under translation, rotation and blur", record=record, figures=[place]
    )
    console.print(f"report: {escape(str(page))}")


def perturbations(
    *, translate: str, rotate: str, blur: str, elastic: str, direction: str, interpolation: str, sigma: float | None
) -> tuple[Perturbation, ...]:
    """The perturbations asked for, each amount once."""
    towards, between = direction_of(direction), interpolation_of(interpolation)
    if sigma is not None and not (math.isfinite(sigma) and sigma > 0):
        raise MassmoverError(f"--sigma is {sigma}: give a positive number of pixels, such as 1")
    percents = amounts(translate, option="--translate", example="5,10,20")
    degrees = amounts(rotate, option="--rotate", example="5,10,20")
    widths = amounts(blur, option="--blur", example="3,5,7")
    bends = amounts(elastic, option="--elastic", example="1,2,3")
    for percent in percents:
        if not 0 <= percent <= 100:
            raise MassmoverError(f"--translate is {translate!r}: give percents of the width from 0 to 100")
    for width in widths:
        if width < 1 or width % 2 != 1:
            raise MassmoverError(f"--blur is {blur!r}: give odd numbers of pixels, such as 3,5,7")
    if any(bend < 0 for bend in bends):
        raise MassmoverError(f"--elastic is {elastic!r}: give numbers of pixels from 0, such as 1,2,3")
    if not (percents or degrees or widths or bends):
        raise MassmoverError(
            "--translate, --rotate, --blur and --elastic are all none: give one of them, such as --rotate 5,10,20"
        )
    from massmover.natural import Blur, Elastic, Rotation, Translation  # needs torch, and nothing is refused any more

    return (
        *(Translation(percent / 100, direction=towards, interpolation=between) for percent in percents),
        *(Rotation(angle, interpolation=between) for angle in degrees),
        *(Blur(int(width), sigma=sigma) for width in widths),
        *(Elastic(bend) for bend in bends),
    )


def amounts(text: str, *, option: str, example: str) -> tuple[float, ...]:
    """Numbers separated by commas, each once and in their order; nothing for none."""
    return () if text == "none" else tuple(dict.fromkeys(options.numbers(text, option=option, example=example)))


def direction_of(text: str) -> Direction:
    """Where images are moved."""
    if text == "random":
        return "random"
    if text == "fixed":
        return "fixed"
    raise MassmoverError(f"--direction is {text!r}: use random or fixed")


def interpolation_of(text: str) -> Interpolation:
    """What is between pixels."""
    if text == "nearest":
        return "nearest"
    if text == "bilinear":
        return "bilinear"
    raise MassmoverError(f"--interpolation is {text!r}: use nearest or bilinear")


def prepare(out: Path) -> None:
    """Make the folder, and refuse one that cannot be written to before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MassmoverError(f"--out {out} cannot be made ({error.strerror}): choose another folder") from None
    if not os.access(out, os.W_OK):
        raise MassmoverError(f"--out {out} cannot be written to: choose another folder")


def batches(subject: Subject) -> Iterator[tuple[Images, Labels]]:
    """The images a batch at a time."""
    stop = subject.start + len(subject.images)
    for first in range(subject.start, stop, BATCH):
        batch = range(first, min(first + BATCH, stop))
        yield subject.pixels(batch), subject.labels(batch)


@contextmanager
def bars(**totals: int) -> Iterator[Callable[[str, int], None]]:
    """A bar for everything that there is something of to do."""
    with progress_bar() as bar:
        tasks = {what: bar.add_task(what, total=total, note="") for what, total in totals.items() if total}
        yield lambda what, more: bar.advance(tasks[what], more)


def print_study(found: Study, *, title: str) -> None:
    """One line per perturbation, and what the means leave out."""
    table = Table(title=escape(title), box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("perturbation", no_wrap=True)
    for heading in ("accuracy %", "l2", "Wasserstein", "mass %"):
        table.add_column(heading, justify="right")
    for effect in found.effects:
        wasserstein = "" if effect.wasserstein is None else f"{effect.wasserstein:.3f}"
        table.add_row(
            effect.name, f"{effect.accuracy:.1f}", f"{effect.l2:.2f}", wasserstein, f"{effect.mass_change:+.2f}"
        )
    console.print(table)
    console.print(NOTE)
    print_caveats(found.effects)


def print_caveats(effects: Sequence[Effect]) -> None:
    """How many images are behind the mean distance, and which are not."""
    if any(effect.measured for effect in effects):
        fewest, most = min(effect.measured for effect in effects), max(effect.measured for effect in effects)
        console.print(f"Wasserstein means over {most if fewest == most else f'{fewest} to {most}'} images.")
    for effect in effects:
        if effect.blackened:
            errors.print(
                f"{effect.name}: {effect.blackened} images lost a whole channel, have no distance and are left out"
            )
        if effect.inexact:
            errors.print(
                f"{effect.name}: {effect.inexact} distances were not solved exactly and count with their bound"
            )


def panels(found: Study) -> tuple[Panel, ...]:
    """Accuracy, and the two distances below it."""
    from massmover.natural.figure import Panel, Series

    return (
        Panel("accuracy (%)", (Series("", {effect.name: effect.accuracy for effect in found.effects}),), top=112),
        Panel("l2", (Series("", l2_of(found.effects), colour=1),)),
        Panel("1-Wasserstein (pixels)", (Series("", wasserstein_of(found.effects), colour=2),)),
    )


def l2_of(effects: Sequence[Effect]) -> Mapping[str, float | None]:
    """The l2 distance by the name of the perturbation."""
    return {effect.name: effect.l2 for effect in effects}


def wasserstein_of(effects: Sequence[Effect]) -> Mapping[str, float | None]:
    """The Wasserstein distance by the name of the perturbation."""
    return {effect.name: effect.wasserstein for effect in effects}
