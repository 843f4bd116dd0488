"""`massmover certify`: how far can a classifier not be broken?"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from massmover.cli import options
from massmover.cli.screen import console, progress_bar, refuses_clearly, say

How, Where = "How it is certified", "What is kept"


@refuses_clearly
def certify(
    out: Annotated[Path, typer.Option(help="Folder for the results; must be new or empty.", rich_help_panel=Where)],
    model: options.Model = "mnist-certified",
    weights: options.Weights = None,
    mean: options.Mean = None,
    std: options.Std = None,
    data: options.Data = "mnist-sample",
    split: options.Split = "test",
    start: options.Start = 0,
    count: options.Count = None,
    method: Annotated[
        str,
        typer.Option(help="auto, potentials or linear (networks of convolutions and ReLU).", rich_help_panel=How),
    ] = "auto",
    radius_pixels: Annotated[
        str, typer.Option(help="Radii x pixels at which the share is told.", rich_help_panel=How)
    ] = "10,20,50,100,200,400",
    ground: Annotated[
        str, typer.Option(help="Distance of pixels: euclidean, manhattan or chebyshev.", rich_help_panel=How)
    ] = "euclidean",
    power: Annotated[float, typer.Option(help="Power of the pixel distance.", rich_help_panel=How)] = 1.0,
    normalisation: Annotated[
        str, typer.Option(help="Divide costs by the mass of the image or of each channel.", rich_help_panel=How)
    ] = "image",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=How)] = "auto",
) -> None:
    """Prove for each image a radius within which no movement of mass changes the right answer.

    The other half of `evaluate`: an attack says that a radius is too large, this says that one is small enough. The
    folder gets summary.json and certified.jsonl.
    """
    asked = options.radii(radius=None, radius_pixels=radius_pixels, smallest=False)
    metric = options.ground(ground), options.power(power), options.normalisation(normalisation)
    from massmover.evaluation.certify import certify_images, keep, summary_of
    from massmover.evaluation.settings import Settings
    from massmover.evaluation.store import check_new
    from massmover.evaluation.subject import load_subject

    check_new(out)
    settings = Settings(
        model=model,
        weights=None if weights is None else str(weights),
        mean=None if mean is None else options.numbers(mean, option="--mean", example="0.1307"),
        std=None if std is None else options.numbers(std, option="--std", example="0.3081"),
        data=data,
        split=split,
        start=start,
        count=count,
        device=device,
        radii=asked.values,
        ground=metric[0],
        power=metric[1],
        normalisation=metric[2],
    )
    subject = load_subject(settings)
    say(*subject.notes)
    radii = asked.radii(numbers_per_image=subject.numbers_per_image)
    settings = replace(settings, count=len(subject.images), radii=radii)
    with progress_bar() as bar:
        task = bar.add_task("images", total=len(subject.images), note="")
        found = certify_images(
            subject, settings, method=method, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    summary = summary_of(found, settings, numbers_per_image=subject.numbers_per_image)
    keep(found, {**summary, "settings": asdict(settings), "method": method}, out)
    table = Table(title=f"{summary['images']} images, clean accuracy {summary['clean_accuracy']:.1%}")
    for heading in ("radius", "radius x pixels", "certified"):
        table.add_column(heading, justify="right")
    for point in summary["certified"]:
        table.add_row(f"{point['radius']:.5g}", f"{point['radius_pixels']:.5g}", f"{point['accuracy']:.1%}")
    console.print(table)
    console.print(f"numbers: {escape(str(out))}")
