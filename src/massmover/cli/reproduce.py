"""`massmover reproduce`: the tables of Hu et al. 2020, the paper's number beside ours."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from massmover.cli import options
from massmover.cli.screen import console, progress_bar, refuses_clearly
from massmover.types import MassmoverError

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
    out: Annotated[Path | None, typer.Option(help="Folder for the JSON file, the figure and the page.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the classifier.")] = 1,
) -> None:
    """Measure a table of the paper again: its number beside ours, every image judged by exact transport."""
    if name not in NAMES:
        raise MassmoverError(f"there is nothing called {name!r} to reproduce: use one of {', '.join(NAMES)}")
    options.threads(threads)
    import torch

    from massmover.cli.studies import keep, measure, subject_of
    from massmover.report import write_study

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
