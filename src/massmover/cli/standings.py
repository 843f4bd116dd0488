"""`massmover standings`: one table of who stands how long, from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from massmover.cli import options
from massmover.cli.screen import console, refuses_clearly
from massmover.types import MassmoverError


@refuses_clearly
def standings(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders that massmover evaluate wrote, one for each model.", metavar="DIR...")
    ],
    out: Annotated[Path, typer.Option(help="File of the page.")] = Path("standings.html"),
    radius_pixels: Annotated[
        str | None,
        typer.Option(help="Radii x pixels to show; without it all that the runs share.", show_default=False),
    ] = None,
) -> None:
    """Rank models by the accuracy they keep, with intervals, proofs, and what of a difference is more than chance.

    Evaluate every model on the same images, at the same radii, with the same attack: the page says where it is not so.
    """
    for folder in folders:
        if not folder.is_dir():
            raise MassmoverError(f"{folder} is no folder: give folders that massmover evaluate wrote")
    if out.is_dir():
        raise MassmoverError(f"--out {out} is a folder: give the name of a file, such as {out / 'standings.html'}")
    radii = None
    if radius_pixels is not None:
        radii = options.numbers(radius_pixels, option="--radius-pixels", example="100,200")
    from massmover.report.standings import write_standings

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        console.print(f"standings: {escape(str(write_standings(folders, out, radii=radii)))}")
    except OSError as problem:
        raise MassmoverError(f"--out {out} cannot be written to ({problem.strerror}): choose another place") from None
