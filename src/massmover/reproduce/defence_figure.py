"""The defence figure: one colour for each classifier, one line style for each attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from massmover.reproduce.defence import Defence, Printed


def draw_defence(found: Sequence[Defence], printed: Sequence[Printed], path: Path, *, title: str) -> Path:
    """Draw every classifier under both attacks, and the printed curves dotted in grey, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve, (colour, mark) in zip(printed, (("0.45", "x"), ("0.65", "+")), strict=False):
        label = f"{curve.name}, Hu et al., printed"
        axes.plot(curve.radii_pixels, curve.accuracy, ":", marker=mark, color=colour, label=label, markersize=6)
    for number, model in enumerate(found):
        colour = f"C{number}"
        axes.plot(model.hu.radii_pixels, model.hu.accuracy, "o--", color=colour, label=model.hu.name, markersize=4)
        axes.plot(model.auto.radii_pixels, model.auto.accuracy, "o-", color=colour, label=model.auto.name, markersize=4)
    axes.set_xscale("log")
    radii = sorted({*found[0].hu.radii_pixels, *(radius for curve in printed for radius in curve.radii_pixels)})
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(-2, 102)
    axes.set_xlabel("radius × number of pixels")
    axes.set_ylabel("accuracy under attack (%)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
