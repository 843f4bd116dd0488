"""The defence figure: one colour for each classifier, one line style for each attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from massmover.reproduce.defence import Defence, Printed
from massmover.reproduce.figure import finish
from massmover.reproduce.lineup import short_name


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
