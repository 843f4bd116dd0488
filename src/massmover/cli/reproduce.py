"""`massmover reproduce`: the tables of Hu et al. 2020, the paper's number beside ours."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from massmover.cli import options
from massmover.cli.screen import console, errors, progress_bar, refuses_clearly
from massmover.types import MassmoverError

if TYPE_CHECKING:
    from rich.progress import Progress

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
    "coherent": 10_000,
}
COUNTS_CIFAR = {"distance": 10}  # exact transport between photographs takes seconds
NAMES = tuple(COUNTS)
TRAINED = "coherent"  # trains its own networks


@refuses_clearly
def reproduce(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    data: Annotated[
        str, typer.Option(help="mnist, cifar10, another data set by name, a .npz file or a folder.")
    ] = "mnist",
    model: Annotated[
        str | None,
        typer.Option(help="Classifier to attack; lenet if there are weights, else mnist-standard (cifar10-robust)."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of the classifier: a .safetensors, .pt or .pth file.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many images; a subset that ends in minutes by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the JSON file, the figure and the page.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of coherent: how long each network is trained.")] = None,
    train_count: Annotated[
        int | None, typer.Option(help="Of coherent: how many images it is trained on; all but a twelfth by default.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the classifier.")] = 1,
) -> None:
    """Measure a table of the paper again: its number beside ours, every image judged by exact transport."""
    if name not in NAMES:
        raise MassmoverError(f"there is nothing called {name!r} to reproduce: use one of {', '.join(NAMES)}")
    if name == TRAINED:
        check_training(model=model, weights=weights, out=out)
    elif epochs is not None or train_count is not None:
        raise MassmoverError(f"{name} trains nothing: --epochs and --train-count belong to {TRAINED}, leave them out")
    options.threads(threads)
    import torch

    from massmover.cli.coherent_study import coherent_study, lesson_on
    from massmover.cli.studies import measure, subject_of

    torch.set_num_threads(threads)
    usual = COUNTS_CIFAR.get(name, COUNTS[name]) if data == "cifar10" else COUNTS[name]
    count = usual if count is None else count
    if name == TRAINED:
        assert out is not None
        lesson = lesson_on(data, count=count, train_count=train_count)
        with progress_bar() as bar:
            record = coherent_study(lesson, progress=shown(bar, tell=not sys.stderr.isatty()), out=out, epochs=epochs)
        finish(name, record, out=out)
        return
    subject = subject_of(data, model=model, weights=weights, count=count)
    console.print(
        f"{escape(subject.model_name)}: {subject.clean_accuracy():.1f} % of {len(subject.images)} images right "
        f"({escape(subject.data)}, {subject.pixels} numbers an image)"
    )
    with progress_bar() as bar:
        record = measure(name, subject, progress=shown(bar), out=out)
    if out is not None:
        finish(name, record, out=out)


def shown(bar: Progress, *, tell: bool = False) -> Callable[[str, int, int], None]:
    """A bar for everything that is told; with `tell` a line in its place, for a run that nobody watches."""
    tasks: dict[str, Any] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total, note="")
        bar.update(tasks[what], completed=done, total=total)
        if tell and done == total:
            errors.print(f"{what}: {total} done")

    return show


def finish(name: str, record: dict[str, Any], *, out: Path) -> None:
    """Keep what was measured, and write its page."""
    from massmover.cli.studies import keep
    from massmover.report import write_study

    keep(record, out / f"{name}.json")
    title = "training against mass that moves together" if name == TRAINED else f"{name} of the paper"
    record["command"] = shlex.join(["massmover", *sys.argv[1:]])
    page = write_study(
        out / f"{name}.html", title=f"{title}, printed and measured", record=record, figures=[out / f"{name}.png"]
    )
    console.print(f"report: {escape(str(page))}")


def check_training(*, model: str | None, weights: Path | None, out: Path | None) -> None:
    """Refuse a study of networks that it trains itself if there is nowhere to keep them, or another is given."""
    if model is not None or weights is not None:
        raise MassmoverError("coherent trains its own networks: leave --model and --weights out")
    if out is None:
        raise MassmoverError("coherent trains networks and keeps them: give a folder with --out")
