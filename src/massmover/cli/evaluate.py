"""`massmover evaluate`: how accurate is a classifier when mass may move?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from massmover.cli import options
from massmover.cli.screen import console, errors, progress_bar, refuses_clearly, say
from massmover.compiling import working_seconds
from massmover.evaluation.watcher import Progress, Watcher
from massmover.names import ATTACKS
from massmover.ranks import Ranks, joined
from massmover.types import MassmoverError, Stage

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from massmover.evaluation.run import Destination
    from massmover.evaluation.sanity import Check
    from massmover.evaluation.settings import Settings
    from massmover.evaluation.subject import Subject

BEST, SEARCHER = "auto", "ascent"

UNTRUSTED = 3  # exit code of --strict
PATIENCE = 30.0  # seconds between two lines where there is no terminal to draw a bar on

How, Where = "How it is attacked", "What is kept"


@refuses_clearly
def evaluate(
    out: Annotated[Path, typer.Option(help="Folder for the results; must be new or empty.", rich_help_panel=Where)],
    model: options.Model = "mnist-standard",
    weights: options.Weights = None,
    mean: options.Mean = None,
    std: options.Std = None,
    data: options.Data = "mnist-sample",
    split: options.Split = "test",
    start: options.Start = 0,
    count: options.Count = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(ATTACKS)}; without it {BEST}, or {SEARCHER} with --smallest.",
            show_default=False,
            rich_help_panel=How,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the attack; its own without it.", show_default=False, rich_help_panel=How),
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(
            help="Further ascents of what still stands: auto, ascent.", show_default=False, rich_help_panel=How
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Average a model with randomness over so many draws.", show_default=False, rich_help_panel=How
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="A .npy file, True where mass may move: other pixels neither send nor receive.",
            show_default=False,
            rich_help_panel=How,
        ),
    ] = None,
    radius: Annotated[
        str | None, typer.Option(help="Radii, such as 0.01,0.05.", show_default=False, rich_help_panel=How)
    ] = None,
    radius_pixels: Annotated[
        str | None,
        typer.Option(help="Radii x pixels, as in published tables: 10,20,50.", show_default=False, rich_help_panel=How),
    ] = None,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="Search each image's smallest radius instead.", rich_help_panel=How)
    ] = False,
    window: Annotated[
        str, typer.Option(help="How far mass may move: an odd size, or all for the whole image.", rich_help_panel=How)
    ] = "5",
    normalisation: Annotated[
        str, typer.Option(help="Divide costs by the mass of the image or of each channel.", rich_help_panel=How)
    ] = "image",
    ground: Annotated[
        str, typer.Option(help="Distance of pixels: euclidean, manhattan or chebyshev.", rich_help_panel=How)
    ] = "euclidean",
    power: Annotated[float, typer.Option(help="Power of the pixel distance.", rich_help_panel=How)] = 1.0,
    scatter: Annotated[
        float | None,
        typer.Option(
            help="Pixels that mass may stray from a smooth field; as it likes without it.",
            show_default=False,
            rich_help_panel=How,
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            help="Pixels over which that field bends; one vector for all mass without it.",
            show_default=False,
            rich_help_panel=How,
        ),
    ] = None,
    targeted: Annotated[
        bool, typer.Option("--targeted", help="Aim at one wrong class, drawn from the seed.", rich_help_panel=How)
    ] = False,
    seed: Annotated[int, typer.Option(help="Same seed, same result.", rich_help_panel=How)] = 0,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Images at once; chosen by attack and memory without it.", show_default=False, rich_help_panel=How
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=How)] = "auto",
    backend: Annotated[
        str, typer.Option(help="Who moves the mass: auto, numba, torch or triton.", rich_help_panel=How)
    ] = "auto",
    save_examples: Annotated[
        str, typer.Option(help="How many successes to keep: all, none or a number.", rich_help_panel=Where)
    ] = "100",
    eight_bit: Annotated[
        bool,
        typer.Option("--eight-bit", help="Save exact 8-bit images, and say how many survive.", rich_help_panel=Where),
    ] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Prove a radius for each image beside the attack.", rich_help_panel=How)
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 3 if a check says not to trust the run.", rich_help_panel=Where)
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was interrupted.", rich_help_panel=Where)
    ] = False,
) -> None:
    """Measure accuracy against an adversary that moves pixel mass.

    An example counts once its proof was checked, and exact transport measures it too (of photographs, a random tenth).
    The folder gets manifest.json, records.jsonl, summary.json, examples.npz and report.html. Exit code 1 means that an
    example broke the rules, 2 that the command could not be carried out, 3 that a check failed and --strict was asked.

    Over several processes: torchrun --nproc-per-node 2 -m massmover evaluate ...
    """
    method = options.attack(attack or (SEARCHER if smallest else BEST))
    if batch_size is not None and batch_size < 1:
        raise MassmoverError(f"--batch-size is {batch_size}: give 1 or more")
    options.at_least(steps, 1, option="--steps")
    options.at_least(restarts, 0, option="--restarts")
    options.at_least(draws, 1, option="--draws")
    if seed < 0:
        raise MassmoverError(f"--seed is {seed}: give 0 or more")
    asked = options.radii(radius=radius, radius_pixels=radius_pixels, smallest=smallest)
    ball: dict[str, Any] = {
        "window": options.window(window),
        "ground": options.ground(ground),
        "normalisation": options.normalisation(normalisation),
        "power": options.power(power),
        **options.coherence(scatter, width, attack=method),
    }
    if ball["scatter"] is not None and eight_bit:
        raise MassmoverError(
            f"--scatter is {scatter}, and --eight-bit rounds images after their plan, which then no longer says how "
            "far mass strayed: leave out one of the two"
        )
    mover, kept = options.backend(backend), options.save_examples(save_examples)
    from massmover.attacks.api import method_of  # needs torch: after all that can be refused without
    from massmover.evaluation.run import Destination
    from massmover.evaluation.settings import Settings
    from massmover.evaluation.subject import load_subject

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
        attack=method,
        steps=steps,
        restarts=restarts,
        draws=draws,
        mask=None if mask is None else str(mask),
        radii=asked.values,
        smallest=smallest,
        **ball,
        targeted=targeted,
        eight_bit=eight_bit,
        seed=seed,
        batch_size=batch_size or 1,
        backend=mover,
        save_examples=kept,
        certify=certify,
    )
    method_of(method, steps=steps, restarts=restarts)  # refuses what this attack does not have
    with joined() as ranks:
        subject = load_subject(settings)
        settings = replace(
            settings,
            count=len(subject.images),
            radii=asked.radii(numbers_per_image=subject.numbers_per_image),
            device=subject.device.type,
            batch_size=batch_size or _batch_size(subject, settings, out=out, resume=resume, ranks=ranks),
        )
        summary = perform(subject, settings, Destination(out, resume, ["massmover", *sys.argv[1:]]), ranks=ranks)
    if summary["violations"] or summary.get("contradictions"):
        raise typer.Exit(1)
    if strict and not all(check["passed"] for check in summary["checks"]):
        raise typer.Exit(UNTRUSTED)


def _batch_size(subject: Subject, asked: Settings, *, out: Path, resume: bool, ranks: Ranks) -> int:
    """The size chosen when the run was started, or one that fits the memory; the same for all processes."""

    from massmover.evaluation.store import RunFolder, read_json
    from massmover.evaluation.subject import fitting_batch_size

    def choose() -> int:
        manifest = RunFolder(out).manifest
        if resume and manifest.exists():
            settings = read_json(manifest).get("settings")
            if isinstance(settings, dict) and isinstance(settings.get("batch_size"), int):
                return int(settings["batch_size"])
        return fitting_batch_size(subject, asked, processes=ranks.size)

    return ranks.once(choose)


def perform(
    subject: Subject, settings: Settings, destination: Destination, *, ranks: Ranks | None = None
) -> dict[str, Any]:
    """Run an evaluation with a progress bar, write its report, print its table; its summary."""
    from massmover.evaluation.run import run
    from massmover.report import write_page

    ranks = ranks or Ranks()
    say(*(subject.notes if ranks.first else ()))
    with progress_bar(time_left=False) as bar:
        summary = run(subject, settings, destination, ranks=ranks, watcher=Shown(bar, first=ranks.first))
    if ranks.first:
        page = write_page([destination.out], destination.out / "report.html")
        print_summary(summary)
        console.print(f"report: {escape(str(page))}")
    return summary


class Shown(Watcher):
    """Shows how a run goes: what speaks against the model at once, then a bar."""

    def __init__(self, bar: Bar, *, first: bool, clock: Callable[[], float] = working_seconds) -> None:
        """`first` is the process that speaks."""
        self.bar, self.first, self.clock = bar, first, clock
        self.started = self.spoke = clock()
        self.before, self.note, self.progress = -1, "", Progress(0, 0, 0.0)
        self.task = bar.add_task("images", total=None, note="")
        self.steps = bar.add_task("steps", total=None, note="", visible=False)

    def probed(self, checks: Sequence[Check]) -> None:
        """Say what speaks against the model before hours are spent on it."""
        for check in checks:
            if self.first and not check.passed:
                warn(check.as_json())

    def progressed(self, progress: Progress) -> None:
        """Move the bar."""
        self.before = progress.done if self.before < 0 else self.before
        seconds = self.clock() - self.started
        self.progress = progress
        self.note = progress_note(progress, fresh=progress.done - self.before, seconds=seconds)
        self.bar.update(self.task, completed=progress.done, total=progress.total, note=self.note)
        self.bar.update(self.steps, visible=False, stage="")
        self.log(self.note)

    def searching(self, batch: range, radius: float | None, stage: Stage) -> None:
        """Move the bar of steps, and say where the attack on a batch is: a photograph takes minutes."""
        where = stage_note(batch, self.ball_of(radius), stage)
        self.bar.update(self.steps, completed=stage.step, total=stage.steps, stage=where, visible=True)
        self.log(", ".join(part for part in (self.note, where) if part))

    def ball_of(self, radius: float | None) -> str:
        """Which ball is searched."""
        return "smallest radius" if radius is None else f"radius {radius:.4g}"

    def log(self, note: str) -> None:
        """A line now and then where there is no terminal to draw a bar on."""
        if self.first and self.bar.disable and self.clock() - self.spoke >= PATIENCE:
            self.spoke = self.clock()
            say(f"{self.progress.done}/{self.progress.total} images{', ' + note if note else ''}")


def warn(check: Mapping[str, Any]) -> None:
    """Say what a failed check saw."""
    errors.print(
        f"[bold yellow]do not trust this evaluation yet:[/] {escape(check['name'])}: "
        f"{escape(check['seen'])} (see {escape(check['read'])})"
    )


def progress_note(progress: Progress, *, fresh: int, seconds: float) -> str:
    """Accuracy so far, rate and time left; `fresh` images were done since it was started."""
    if not fresh:
        return ""
    rate = fresh / max(seconds, 1e-9)
    left = timedelta(seconds=round((progress.total - progress.done) / rate))
    return f"accuracy {progress.accuracy:.1%}, {rate:.3g} images/s, {left} left"


def stage_note(batch: range, ball: str, stage: Stage) -> str:
    """Which attack on which images, how far it is and how many still stand."""
    images = f"images {batch[0]} to {batch[-1]}" if len(batch) > 1 else f"image {batch[0]}"
    return f"{images}, {ball}: {stage.attack}, step {stage.step}/{stage.steps}, {stage.standing} stand"


def print_summary(summary: dict[str, Any]) -> None:
    """The table of accuracy against radius, and what to be careful about."""
    table = Table(title=f"{summary['images']} images, clean accuracy {summary['clean_accuracy']:.1%}")
    bracket = "contradictions" in summary
    proved, won = ["certified"] if bracket else [], "targets reached" if summary["targeted"] else "successes"
    for heading in ("radius", "radius x pixels", *proved, "accuracy", won, "clean mistakes", "violations"):
        table.add_column(heading, justify="right")
    for point in summary["accuracy"]:
        cells = [f"{point['radius']:.5g}", f"{point['radius_pixels']:.5g}"]
        cells += [f"{point['certified']:.1%}"] if bracket else []
        counts = (str(point[count]) for count in ("successes", "clean_mistakes", "violations"))
        table.add_row(*cells, f"{point['accuracy']:.1%}", *counts)
    console.print(table)
    sample = summary.get("sample")
    drawn = f" (those of {sample['images']} images, drawn at random)" if sample else ""
    console.print(
        f"{1000 * summary['seconds_per_image']:.1f} ms of attack an image; {summary['proved']} examples proved, "
        f"{summary['measured']} measured by exact transport{drawn}"
    )
    if "eight_bit" in summary:
        counts = summary["eight_bit"]
        console.print(f"{counts['survive']} of {counts['successes']} successes survive as exact 8-bit images")
    for check in summary["checks"]:
        if not check["passed"]:
            warn(check)
    if summary.get("contradictions"):
        images = ", ".join(map(str, summary["contradictions"]))
        errors.print(
            f"[bold red]certified and broken at the same radius:[/] image {images}; one of the two halves is wrong"
        )
    if summary["violations"]:
        errors.print(f"[bold red]{summary['violations']} examples broke the rules[/] and were not counted")
