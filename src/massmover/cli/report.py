"""`massmover report`: the page and the figures of one run, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from massmover.cli.screen import console, refuses_clearly
from massmover.types import MassmoverError


@refuses_clearly
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders that massmover evaluate wrote.", metavar="DIR")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of the page; DIR/report.html for one run, comparison.html for several.", show_default=False
        ),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Also write the charts as PNG and PDF, into the folder figures beside the page."
        ),
    ] = False,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Show the paper's curves beside any model, not only beside its own victim."),
    ] = False,
    class_names: Annotated[
        Path | None,
        typer.Option(help="File with what the classes are called: a name a line, or JSON.", show_default=False),
    ] = None,
) -> None:
    """Make the page of a run again, or one page that compares several runs."""
    for folder in folders:
        if not folder.is_dir():
            raise MassmoverError(f"{folder} is no folder: give a folder that massmover evaluate wrote")
    place = out or (folders[0] / "report.html" if len(folders) == 1 else Path("comparison.html"))
    if place.is_dir():
        raise MassmoverError(f"--out {place} is a folder: give the name of a file, such as {place / 'report.html'}")
    from massmover.report import load_runs, write_page
    from massmover.report.charts import paper_curves
    from massmover.report.classes import read_class_names

    names = () if class_names is None else read_class_names(class_names)
    runs = load_runs(folders, names=names)
    if paper and not paper_curves(runs, asked=True):
        raise MassmoverError(
            "--paper: the paper has curves for mnist and cifar10, and these runs are not all on one of them"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        console.print(f"report: {escape(str(write_page(folders, place, paper=paper, class_names=names)))}")
        if figures:
            from massmover.report.figures import write_figures  # matplotlib takes a second to import

            for path in write_figures(runs, place.parent / "figures", paper=paper):
                console.print(f"figure: {escape(str(path))}")
    except OSError as problem:
        raise MassmoverError(f"--out {place} cannot be written to ({problem.strerror}): choose another place") from None
