"""`massmover train`: train a classifier, with or without an adversary, and keep its weights."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from massmover import names
from massmover.cli import options
from massmover.cli.screen import console, errors, progress_bar, refuses_clearly
from massmover.ranks import Ranks, joined
from massmover.types import MassmoverError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from massmover.data import ImageSet
    from massmover.models import PotentialNetwork
    from massmover.training import Recipe, Teachers, Trained
    from massmover.training.recipe import AttackName
    from massmover.training.state import Epoch

CURVE = "curve.png"
MASS_UNITS = 32  # of a network of potentials, for what the masses of the channels say
HOLD_OUT = 10  # of data without test images every tenth image is one


@refuses_clearly
def train_command(
    out: Annotated[Path, typer.Option(help="Folder for weights, checkpoint, history, curve and page.")],
    data: Annotated[str, typer.Option(help="mnist, fashion-mnist, cifar10, a .npz file or a folder.")] = "mnist",
    model: Annotated[
        str, typer.Option(help=f"One of {', '.join(names.ARCHITECTURES)}; the recipes certified have their own.")
    ] = "lenet",
    recipe: Annotated[
        str,
        typer.Option(
            help="standard: no adversary; robust: plan ascent (robust-colour: for photographs; coherent: mass that "
            "moves together); paper: the published recipe; certified: with a proof "
            "(certified-far: for large radii; certified-colour: for photographs); taught: by a robust and two "
            "certified networks that are trained first, for the most that stands."
        ),
    ] = "standard",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.", show_default=False)] = None,
    count: Annotated[int | None, typer.Option(help="Train on the first images only.", show_default=False)] = None,
    attack: Annotated[
        str | None, typer.Option(help=f"Adversary: one of {', '.join(names.ADVERSARIES)}.", show_default=False)
    ] = None,
    attack_steps: Annotated[int | None, typer.Option(help="Steps of the adversary.", show_default=False)] = None,
    remember: Annotated[
        bool | None,
        typer.Option(help="Go on from the potential an image had the epoch before.", show_default=False),
    ] = None,
    radius_pixels: Annotated[
        float | None, typer.Option(help="Largest radius of the adversary x pixels.", show_default=False)
    ] = None,
    growth: Annotated[
        float | None, typer.Option(help="Share of the run over which the radius grows to it.", show_default=False)
    ] = None,
    clean_share: Annotated[
        float | None,
        typer.Option(help="Weight of clean images in the loss; the rest is moved ones.", show_default=False),
    ] = None,
    forgiving: Annotated[
        float | None,
        typer.Option(
            help="Exponent in [0, 1] of the loss on moved images: the higher, the less hopeless ones count.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same weights, on the same number of threads.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads; small networks train fastest on one.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run in --out stopped.")] = False,
) -> None:
    """Train a classifier from scratch and say how it does on the test images.

    Under torchrun every process takes a part of each batch.
    """
    if model not in names.ARCHITECTURES:
        raise MassmoverError(f"--model is {model!r}: use one of {', '.join(names.ARCHITECTURES)}")
    if recipe not in names.RECIPES:
        raise MassmoverError(f"--recipe is {recipe!r}: use one of {', '.join(names.RECIPES)}")
    options.threads(threads)
    import torch

    from massmover.evaluation.subject import resolve_device
    from massmover.models import save_weights
    from massmover.training import Teachers, accuracy

    torch.set_num_threads(threads)
    place = resolve_device(device)
    training, test, words = divided(data)
    training = training if count is None else training.subset(0, count)
    pixels = training.images[0].numel()
    changes = {"attack": attack, "steps": attack_steps, "growth": growth, "remember": remember}
    if radius_pixels is not None:
        changes["radius"] = radius_pixels / pixels
    weighing = {"clean_share": clean_share, "forgiving": forgiving}
    parts = chosen_parts(recipe, epochs=epochs, weighing=weighing, adversary=changes)
    about = {"data": data, "seed": seed, "tested_on": words}
    finished: dict[str, nn.Module] = {}

    def kept(model: nn.Module, file: Path, more: str) -> float:
        """Write weights down, and say how good they are."""
        score = accuracy(model, test.images, test.labels)
        written = save_weights(model, file)
        console.print(f"{escape(str(written))}: {100 * score:.2f} % of {escape(words)}{more}")
        return score

    with joined() as ranks:
        ranks.once(lambda: prepare(out, parts, resume=resume))
        for number, (part, settings) in enumerate(parts.items(), start=1):
            if ranks.first and len(parts) > 1:
                errors.print(f"network {number} of {len(parts)}: {part or 'the pupil'}")
            folder = out / part
            build = architecture(model, settings, training, teaches=len(parts) > 1)
            teacher = Teachers(finished.values()).to(place) if settings.taught else None
            trained = watched(
                settings, build, training, teacher=teacher, out=folder, seed=seed, device=place, ranks=ranks
            )
            finished[part], name = ready(trained, model)
            if ranks.first:
                score = kept(finished[part], folder / f"{name}.safetensors", f", {told(trained)}")
                draw(trained, folder)
                told_of = page(trained, folder, about={"model": name, **about, "test_accuracy": score})
                console.print(f"report: {escape(str(told_of))}")


def divided(data: str) -> tuple[ImageSet, ImageSet, str]:
    """The images to train on, those to test on, and what to call the latter.

    A file or folder without test images of its own is divided: every tenth image is kept for the test, so that all
    classes are among them whatever the order.
    """
    import torch

    from massmover import data as datasets

    training, test = datasets.load(data, split="train"), datasets.load(data, split="test")
    if len(training) != len(test) or training.checksum() != test.checksum():
        return training, test, f"{len(test)} test images"
    if len(test) < HOLD_OUT:
        return training, test, f"the {len(test)} training images, for {test.name} has too few to hold any out"
    kept = torch.arange(len(test)) % HOLD_OUT == HOLD_OUT - 1
    parts = [
        dataclasses.replace(test, name=f"{test.name}, {part}", images=test.images[rows], labels=test.labels[rows])
        for part, rows in (("training part", ~kept), ("test part", kept))
    ]
    return parts[0], parts[1], f"{len(parts[1])} test images, every tenth of {test.name} and not trained on"


def chosen_parts(
    name: str, *, epochs: int | None, weighing: Mapping[str, float | None], adversary: Mapping[str, Any]
) -> dict[str, Recipe]:
    """The recipes to follow, in order, by the folder each has within that of the run: teachers first, if any.

    With what the user changed: epochs of all, fields of the loss and of the adversary of the last, where there is one.
    """
    from massmover.training import RECIPES, TEACHERS

    recipe = RECIPES[name]
    if any(value is not None for value in (*weighing.values(), *adversary.values())):
        if recipe.adversary is None:
            raise MassmoverError(
                f"--recipe {name} has no adversary to change: use robust or paper, or drop its options"
            )
        recipe = changed_recipe(recipe, weighing=weighing, adversary=adversary)
    parts = {**TEACHERS, "": recipe} if recipe.taught else {"": recipe}
    if epochs is None:
        return parts
    return {part: dataclasses.replace(each, epochs=epochs) for part, each in parts.items()}


def changed_recipe(recipe: Recipe, *, weighing: Mapping[str, float | None], adversary: Mapping[str, Any]) -> Recipe:
    """A recipe with an adversary, with other fields of its loss and of its adversary."""
    assert recipe.adversary is not None
    changes = {key: value for key, value in adversary.items() if value is not None}
    weights: dict[str, Any] = {key: value for key, value in weighing.items() if value is not None}
    kind = cast("AttackName", changes.get("attack", recipe.adversary.attack))
    if kind != "ascent":  # what only another adversary can do is left out
        changes = {"remember": False, **changes}
    ramp = recipe.adversary.ramp and kind in ("sinkhorn", "wong")
    return dataclasses.replace(recipe, adversary=dataclasses.replace(recipe.adversary, **changes, ramp=ramp), **weights)


def prepare(out: Path, parts: Iterable[str], *, resume: bool) -> None:
    """Make the folders, and refuse one that holds another run, or none where one is to be resumed."""
    from massmover.training.state import CHECKPOINT

    if resume and not out.is_dir():
        raise MassmoverError(f"--resume: --out {out} is no folder of a run: leave --resume out to start")
    for part in parts:
        (out / part).mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise MassmoverError(f"--out {out} cannot be written to: choose another folder")
    there = any((out / part / CHECKPOINT).exists() for part in parts)
    if resume and not there:
        raise MassmoverError(f"--resume: --out {out} holds no checkpoint to go on from: leave --resume out to start")
    if there and not (resume or restarted()):
        raise MassmoverError(f"--out {out} holds a run: add --resume to go on with it, or choose another folder")


def restarted() -> bool:
    """Whether torchrun started this process anew after a failure; it then goes on from the checkpoint."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def watched(
    recipe: Recipe,
    build: Callable[[], nn.Module],
    training: ImageSet,
    *,
    teacher: Teachers | None,
    out: Path,
    seed: int,
    device: torch.device,
    ranks: Ranks,
) -> Trained:
    """Train with a progress bar, or a line an epoch where there is no terminal."""
    from massmover.training import train

    with progress_bar() as bar:
        task = bar.add_task("batches", total=None, note="reading images", visible=ranks.first)
        latest: list[Epoch] = []

        def show(epoch: int, step: int, steps: int, loss: float) -> None:
            parts = (f"epoch {epoch + 1}/{recipe.epochs}", f"loss {loss:.4f}", held_out(latest))
            note = ", ".join(filter(None, parts))
            bar.update(task, completed=step, total=steps, note=note)

        def ended(line: Epoch) -> None:
            latest[:] = [line]
            if ranks.first and not sys.stderr.isatty():
                errors.print(f"epoch {line.epoch}/{recipe.epochs} loss {line.loss:.4f} {held_out(latest)}")

        return train(
            build,
            training.images,
            training.labels,
            recipe=recipe,
            seed=seed,
            device=device,
            teacher=teacher,
            folder=out,
            ranks=ranks,
            progress=show,
            ended=ended,
        )


def architecture(model: str, recipe: Recipe, training: ImageSet, *, teaches: bool) -> Callable[[], nn.Module]:
    """The network that a recipe trains; potentials that teach have as many classes as their pupil."""
    from massmover.models import ARCHITECTURES

    if recipe.margin is None:
        return ARCHITECTURES[model]
    classes = int(training.labels.max()) + 1
    if teaches:
        answers: Tensor = ARCHITECTURES[model]()(training.images[:2].float() / 255)
        classes = answers.shape[1]
    return potentials_for(training, recipe, classes=classes)


def potentials_for(training: ImageSet, recipe: Recipe, *, classes: int) -> Callable[[], PotentialNetwork]:
    """The network of potentials for images of this shape; mass has a say where there is colour or a recipe wants it.

    Images in colour are taken for photographs, which fill their frame; grey ones for drawings on black.
    """
    from massmover.models import PotentialNetwork

    margin, (channels, height, width) = recipe.margin, training.images.shape[1:]
    assert margin is not None
    units = MASS_UNITS if channels > 1 or recipe.farther > 1 else 0

    def build() -> PotentialNetwork:
        network = PotentialNetwork(
            (channels, height, width),
            classes=classes,
            groups=margin.groups,
            members=margin.members,
            mass_units=units,
        )
        if channels > 1:
            network.centre_()
        elif units:
            network.heed_masses_(training.images / 255)
        return network

    return build


def ready(trained: Trained, model: str) -> tuple[nn.Module, str]:
    """What was trained in the form that is used, and the name of its architecture."""
    from massmover.models import PotentialNetwork

    if isinstance(trained.model, PotentialNetwork):
        return trained.model.frozen(), "potentials"
    return trained.model, model


def held_out(latest: list[Epoch]) -> str:
    """Held-out accuracy of the last epoch, clean and by radius."""
    if not latest or latest[0].clean is None:
        return ""
    robust = "".join(f", {100 * value:.1f} % at radius {radius}" for radius, value in latest[0].robust.items())
    return f"held out {100 * latest[0].clean:.1f} %{robust}"


def draw(trained: Trained, out: Path) -> None:
    """The training curve."""
    from massmover.training.curve import draw_curve  # matplotlib takes a second to import

    draw_curve(trained.history, out / CURVE)


def page(trained: Trained, out: Path, *, about: dict[str, Any]) -> Path:
    """The curve, every epoch and the recipe on one page."""
    from massmover.report import write_study

    record = {
        **about,
        "command": shlex.join(["massmover", *sys.argv[1:]]),
        "recipe": dataclasses.asdict(trained.recipe),
    }
    record["history"] = [dataclasses.asdict(line) for line in trained.history]
    title = f"How {about['model']} was trained"
    return write_study(out / "report.html", title=title, record=record, figures=[out / CURVE])


def told(trained: Trained) -> str:
    """How long it took, and which epoch was kept."""
    from massmover.training.state import kept_epoch

    kept = (
        f", epoch {kept_epoch(trained.history).epoch} of {len(trained.history)} kept" if trained.recipe.held_out else ""
    )
    return f"{trained.seconds:.0f} s{kept}"
