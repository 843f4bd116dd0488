"""Accuracies as figures: attacks of one classifier, defences under two attacks, and what training changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from massmover.reproduce.coherent import NOTHING, SCATTERED, Outcome
from massmover.reproduce.curves import Curve, short_name
from massmover.reproduce.defence import Defence, Printed
from massmover.reproduce.natural import CLEAN


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


FAMILIES = {  # by the first word of a condition: what its amount is
    "translate": "translation, up to % of the width",
    "rotate": "rotation, degrees",
    "blur": "blur, width in pixels",
    "elastic": "elastic deformation, pixels",
    "scattered": "scattered attack, radius in pixels",
    "coherent": "coherent attack, radius in pixels",
}
UNCHANGED = {"blur": 1.0}  # the amount that changes nothing, where it is not 0


def draw_coherent(
    found: Sequence[Outcome], printed: Mapping[str, Mapping[str, float]], path: Path, *, title: str
) -> Path:
    """Draw every network against the amount of every condition, the paper's numbers dotted, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    ours = [(outcome.model, {**outcome.test, **outcome.attacked}, style_of(outcome.model)) for outcome in found]
    theirs = [
        (f"{name}, printed", row, {"color": colour, "linestyle": ":", "marker": "x"})
        for (name, row), colour in zip(printed.items(), ("0.35", "0.6"), strict=False)
    ]
    for axes, (family, axis) in zip(figure.subplots(2, 3, sharey=True).flat, FAMILIES.items(), strict=True):
        for place, (name, row, style) in enumerate([*ours, *theirs]):
            points = amounts_of(row, family)
            style = {**style, "color": style.get("color", f"C{place}")}
            if len(points) > 1:
                axes.plot(*zip(*points, strict=True), label=name, markersize=4, **style)
        axes.set(xlabel=axis, ylim=(-2, 102))
        axes.grid(alpha=0.3)
    for axes in figure.axes[::3]:
        axes.set_ylabel("percent right")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def style_of(model: str) -> dict[str, str]:
    """Lines of networks that learned from coherent adversaries are whole, the others broken."""
    return {"marker": "o", "linestyle": "--" if model in (NOTHING, SCATTERED) else "-"}


def amounts_of(row: Mapping[str, float], family: str) -> list[tuple[float, float]]:
    """Accuracy by amount of one family of conditions, from no change at all."""
    start = [(UNCHANGED.get(family, 0.0), row[CLEAN])] if CLEAN in row else []
    named = [(name.split(), value) for name, value in row.items()]
    return start + [(float(words[1].rstrip("°")), value) for words, value in named if words[0] == family]
