"""Accuracy against radius as figures: attacks of one classifier, and defences under two attacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from massmover.reproduce.curves import Curve, short_name
from massmover.reproduce.defence import Defence, Printed


def draw(curves: Sequence[Curve], path: Path, *, title: str) -> Path:
    """Draw every curve, the paper's numbers dashed in the same colour, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        colour = f"C{number}"
        axes.plot(
            curve.radii_pixels,
            curve.accuracy,
            "o-",
            color=colour,
            label=f"{curve.name}, {curve.protocol}",
            markersize=4,
        )
        if curve.paper is not None:
            axes.plot(curve.radii_pixels, curve.paper, "x--", color=colour, alpha=0.6, label=f"{curve.name}, printed")
    return finish(figure, path, radii=curves[0].radii_pixels, title=title)


def finish(figure: Any, path: Path, *, radii: Sequence[float], title: str) -> Path:
    """Give a figure of accuracy against radius its axes, title and legend, and write a PNG."""
    (axes,) = figure.axes
    axes.set_xscale("log")
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
    axes.minorticks_off()
    axes.set_ylim(-2, 102)
    axes.set_xlabel("radius × number of pixels")
    axes.set_ylabel("accuracy under attack (%)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def draw_defence(found: Sequence[Defence], printed: Sequence[Printed], path: Path, *, title: str) -> Path:
    """Draw every classifier under both attacks, and the printed curves dotted in grey, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, (colour, mark) in zip(printed, (("0.45", "x"), ("0.65", "+")), strict=False):
        label = f"{row.name}, Hu et al., printed"
        axes.plot(row.radii_pixels, row.accuracy, ":", marker=mark, color=colour, label=label, markersize=6)
    for number, model in enumerate(found):
        colour = f"C{number}"
        for curve, style, attack in ((model.hu, "o--", "Hu et al."), (model.auto, "o-", "auto")):
            label = f"{short_name(model.model)}, {attack}"
            axes.plot(curve.radii_pixels, curve.accuracy, style, color=colour, label=label, markersize=4)
    return finish(figure, path, radii=found[0].hu.radii_pixels, title=title)
