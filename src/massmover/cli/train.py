"""`massmover train`: train a classifier and keep its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.markup import escape

from massmover import data as datasets
from massmover.cli.screen import console, progress_bar, refuses_clearly
from massmover.models import ARCHITECTURES, save_weights
from massmover.training import StandardRecipe, accuracy, train_standard
from massmover.types import MassmoverError


@refuses_clearly
def train(
    out: Annotated[Path, typer.Option(help="Folder for the weights.")],
    data: Annotated[str, typer.Option(help="mnist, fashion-mnist, cifar10, a .npz file or a folder.")] = "mnist",
    model: Annotated[str, typer.Option(help=f"One of {', '.join(ARCHITECTURES)}.")] = "lenet",
    recipe: Annotated[str, typer.Option(help="standard: no adversary.")] = "standard",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same weights, on the same number of threads.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads; small networks train fastest on one.")] = 1,
) -> None:
    """Train a classifier from scratch and say how it does on the test images."""
    if model not in ARCHITECTURES:
        raise MassmoverError(f"--model is {model!r}: use one of {', '.join(ARCHITECTURES)}")
    if recipe != "standard":
        raise MassmoverError(f"--recipe is {recipe!r}: use standard")
    training, test = datasets.load(data, split="train"), datasets.load(data, split="test")
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise MassmoverError(f"--out {out} cannot be written to: choose another folder")
    settings = StandardRecipe() if epochs is None else StandardRecipe(epochs=epochs)
    torch.set_num_threads(threads)
    with progress_bar() as bar:
        task = bar.add_task("training", total=None, note="")

        def show(epoch: int, step: int, steps: int, loss: float) -> None:
            note = f"epoch {epoch + 1}/{settings.epochs} loss {loss:.4f}"
            bar.update(task, completed=step, total=steps, note=note)

        trained = train_standard(
            ARCHITECTURES[model], training.images, training.labels, recipe=settings, seed=seed, progress=show
        )
    place = save_weights(trained.model, out / f"{model}.safetensors")
    score = accuracy(trained.model, test.images, test.labels)
    console.print(f"{escape(str(place))}: {100 * score:.2f} % of {len(test)} test images, {trained.seconds:.0f} s")
