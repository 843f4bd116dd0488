"""`massmover reproduce coherent`: the study that trains its own networks, measured, printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from massmover.cli.screen import console
from massmover.cli.studies import narrow_table
from massmover.cli.train import divided
from massmover.models import load_model
from massmover.natural.perturbations import kornia
from massmover.reproduce.coherent import ATTACKED, ATTACKS, EPOCHS, Lesson, Outcome, chosen, coherent, lesson_of
from massmover.reproduce.coherent import NAMES as CONDITIONS
from massmover.reproduce.curves import DIGITS, Progress, Subject
from massmover.reproduce.figures import draw_coherent
from massmover.reproduce.natural import ACCURACY
from massmover.types import MassmoverError


def lesson_on(data: str, *, count: int, train_count: int | None) -> Lesson:
    """The images that networks learn from, those that settings are chosen by, and those they are measured on."""
    training, test, _ = divided(data)
    if tuple(training.images.shape[1:]) != DIGITS:
        raise MassmoverError(f"--data {data}: lenet learns from images of 1x28x28; use mnist or fashion-mnist")
    if count < 1:
        raise MassmoverError(f"--count is {count}: at least 1 image is needed")
    measured = test.subset(0, min(count, len(test)))
    subject = Subject(
        model=load_model("mnist-standard"),  # stands in for those that are trained
        images=measured.images_as_float(),
        labels=measured.labels,
        data="mnist" if data.startswith("mnist") else data,
        model_name="",
        available=len(test),
    )
    return lesson_of(training, subject, train_count=train_count)


def coherent_study(lesson: Lesson, *, progress: Progress, out: Path, epochs: int | None) -> dict[str, Any]:
    """Networks trained with nothing, with a scattered and with coherent adversaries, under everything."""
    kornia("kornia")
    epochs = EPOCHS if epochs is None else epochs
    found = coherent(lesson, out, epochs=epochs, progress=progress)
    best, subject = chosen(found), lesson.test
    printed = ACCURACY.get(subject.data, {})
    print_coherent(found, printed, best=best)
    attacked = min(ATTACKED, len(subject.images))
    console.print(
        f"{len(subject.images)} test images, {attacked} of them under attack; trained for {epochs} "
        f"{'epoch' if epochs == 1 else 'epochs'} on {len(lesson.training)} images without shifts or turns.\n"
        f"*: {escape(best)} does best on {len(lesson.held_out.images)} held-out training images.\n"
        f"{sum(outcome.unproved for outcome in found)} successes of the attacks have no proof and are not counted."
    )
    place = draw_coherent(
        found, printed, out / "coherent.png", title=f"{len(subject.images)} {subject.data} images, no augmentation"
    )
    console.print(f"figure: {escape(str(place))}")
    percents = {outcome.model: {**outcome.test, **outcome.attacked} for outcome in found}
    conditions = {name: {model: row.get(name) for model, row in percents.items()} for name in (*CONDITIONS, *ATTACKS)}
    for model, row in printed.items():
        for name, values in conditions.items():
            values[f"{model}, printed"] = row.get(name)
    return {
        "name": "coherent",
        "data": subject.data,
        "count": len(subject.images),
        "attacked": attacked,
        "train_count": len(lesson.training),
        "held_out_count": len(lesson.held_out.images),
        "epochs": epochs,
        "chosen": best,
        "percent_right": conditions,
        "held_out": {outcome.model: {"mean": outcome.score, **outcome.held_out} for outcome in found},
        "training_seconds": {outcome.model: outcome.seconds for outcome in found},
        "unproved": sum(outcome.unproved for outcome in found),
    }


def print_coherent(found: Sequence[Outcome], printed: Mapping[str, Mapping[str, float]], *, best: str) -> None:
    """One line per condition: every network, then the paper's two; what the letters of networks mean below."""
    letters = [chr(ord("a") + number) for number in range(len(found))]
    table = narrow_table("percent right")
    table.add_column("", no_wrap=True)
    for letter, outcome in zip(letters, found, strict=True):
        table.add_column(f"{letter}{'*' if outcome.model == best else ''}", justify="right", no_wrap=True)
    for model in printed:
        table.add_column(f"{model},\nprinted", justify="right", no_wrap=True, style="dim")
    for name in (*CONDITIONS, *ATTACKS):
        ours = [f"{({**outcome.test, **outcome.attacked})[name]:.1f}" for outcome in found]
        table.add_row(name, *ours, *(f"{row[name]:.1f}" if name in row else "" for row in printed.values()))
    console.print(table)
    for letter, outcome in zip(letters, found, strict=True):
        console.print(f"{letter}: trained against {escape(outcome.model)}")
