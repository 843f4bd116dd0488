"""The charts of the page as PNG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # files only: no window, no display needed

from matplotlib.figure import Figure

from massmover.drawing import draw_example, name_panels
from massmover.evaluation.summary import Goal
from massmover.report import charts, gallery
from massmover.report.palette import colours
from massmover.report.published import RADII_PIXELS
from massmover.report.runs import Run

PAPER_STYLES = (("#8b8577", "--"), ("#a8793a", ":"), ("#6b7f94", "-."))
BAR_COLOURS = {"mistake": "#b42318", "broken": "#0b62a4", "standing": "#0a7d5c"}
EXAMPLES = 6
TYPES = ("png", "pdf")


def write_figures(runs: Sequence[Run], folder: Path, *, paper: bool = False) -> list[Path]:
    """Write every chart in both formats and return the files; `paper` adds the paper's curves for any model."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure] = {"accuracy": accuracy_figure(runs, paper=paper)}
    for run in runs:
        tail = f"-{run.name.replace('/', '-')}" if len(runs) > 1 else ""
        for goal in run.goals:
            end = f"{'-target' if goal == 'target' else ''}{tail}"
            drawn[f"smallest-radii{end}"] = breaking_figure(run, goal)
            drawn[f"confusion{end}"] = confusion_figure(run, goal)
        if gallery.available([run]):
            drawn[f"examples{tail}"] = examples_figure(run)
    written = []
    for name, figure in drawn.items():
        for kind in TYPES:
            path = folder / f"{name}.{kind}"
            figure.savefig(path, dpi=200, bbox_inches="tight")
            written.append(path)
    return written


def accuracy_figure(runs: Sequence[Run], *, paper: bool = False) -> Figure:
    """Accuracy against radius x pixels with 95 % intervals, and the paper's curves where they apply."""
    figure = Figure(figsize=(6.4, 3.8))
    axes = figure.add_subplot()
    for curve, (colour, style) in zip(charts.paper_curves(runs, asked=paper), PAPER_STYLES, strict=False):
        axes.plot(RADII_PIXELS, curve.percent, style, color=colour, linewidth=1.2, label=curve.name)
    for run, (colour, _) in zip(runs, colours(len(runs)), strict=True):
        points = [(radius, 100 * accuracy) for radius, accuracy in run.curve() if radius > 0]
        ends = [run.interval(accuracy / 100) for _, accuracy in points]
        low, high = [100 * end.low for end in ends], [100 * end.high for end in ends]
        axes.fill_between([radius for radius, _ in points], low, high, color=colour, alpha=0.13, linewidth=0)
        name = f"{run.name} (clean {100 * run.summary['clean_accuracy']:.1f} %)"
        axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=4, linewidth=2, label=name)
    axes.set(xscale="log", xlabel="radius × pixels", ylabel="accuracy, %", ylim=(-2, 102))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    _bare(axes)
    return figure


def breaking_figure(run: Run, goal: Goal = "wrong") -> Figure:
    """How many images break in each interval of radii."""
    figure = Figure(figsize=(6.4, 3.0))
    axes = figure.add_subplot()
    bars = charts.breaking_bars(run, goal)
    drawn = axes.bar(
        [bar.name for bar in bars], [bar.images for bar in bars], color=[BAR_COLOURS[bar.kind] for bar in bars]
    )
    axes.bar_label(drawn, fontsize=8)
    reached = ", target reached" if goal == "target" else ""
    axes.set(xlabel=f"smallest radius × pixels{reached}", ylabel="images")
    _bare(axes)
    return figure


def confusion_figure(run: Run, goal: Goal = "wrong") -> Figure:
    """Labels against answers at the largest radius."""
    figure = Figure(figsize=(5.0, 4.6))
    axes = figure.add_subplot()
    classes = run.classes
    counts = run.confusion(None if run.settings.smallest else run.settings.radii[-1], goal)
    table = [[counts[label, answer] for answer in classes] for label in classes]
    axes.imshow(table, cmap="Blues", vmax=1.6 * max(1, max(map(max, table))))
    for row, label in enumerate(classes):
        for column, answer in enumerate(classes):
            if counts[label, answer] and len(classes) <= 20:
                axes.text(column, row, str(counts[label, answer]), ha="center", va="center", fontsize=8)
    places = range(len(classes))
    reached = ", targets reached" if goal == "target" else ""
    axes.set(xlabel=f"answer under attack{reached}", ylabel="label", xticks=places, yticks=places)
    slant = 90 if run.class_names else 0
    axes.set_xticklabels([run.class_name(label) for label in classes], rotation=slant)
    axes.set_yticklabels([run.class_name(label) for label in classes])
    return figure


def examples_figure(run: Run) -> Figure:
    """A few examples: original, adversarial, signed difference, and the heaviest moves."""
    rows = gallery.turns(run)[:EXAMPLES]
    figure = Figure(figsize=(6.4, 1.75 * len(rows)))
    grid = figure.subplots(len(rows), 4, squeeze=False)
    assert run.examples is not None
    for line, (record, row) in zip(grid, rows, strict=True):
        draw_example(line, *(run.examples[name][row] for name in ("original", "adversarial", "moves")))
        line[0].set_ylabel(
            f"{run.class_name(record.prediction_before)} → {run.class_name(record.prediction_after)}\n"
            f"≤ {record.radius_pixels:.4g}",
            fontsize=9,
        )
    name_panels(grid[0])
    return figure


def _bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
