"""Bars over perturbations: accuracies and distances, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Series:
    """One row of bars; `printed` says that the numbers are the paper's."""

    label: str
    values: Mapping[str, float | None]  # by the name of the perturbation
    colour: int = 0
    printed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart: what its axis shows, and its bars."""

    axis: str
    series: tuple[Series, ...]
    top: float | None = None  # end of the axis; chosen by the values without it


def draw_panels(panels: Sequence[Panel], names: Sequence[str], path: Path, *, title: str) -> Path:
    """Draw one chart below the other, all over the same perturbations, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 0.85 * max(len(names), 4), 0.8 + 2.6 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        draw_bars(axes, panel, names)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def draw_bars(axes: Any, panel: Panel, names: Sequence[str]) -> None:
    """Groups of bars, each with its number; the paper's hatched and pale."""
    width = 0.84 / len(panel.series)
    for number, series in enumerate(panel.series):
        known = [
            (place, series.values[name]) for place, name in enumerate(names) if series.values.get(name) is not None
        ]
        places = [place + width * (number - (len(panel.series) - 1) / 2) for place, _ in known]
        style = {"alpha": 0.45, "hatch": "///", "edgecolor": "white"} if series.printed else {}
        bars = axes.bar(
            places, [value for _, value in known], width, color=f"C{series.colour}", label=series.label, **style
        )
        crowded = {"fontsize": 6, "rotation": 90} if len(panel.series) > 2 else {"fontsize": 8}
        axes.bar_label(bars, fmt="%.3g", padding=2, **crowded)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel(panel.axis, fontsize=9)
    axes.set_ylim(0, panel.top)
    axes.margins(y=0.15)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.series) > 1:
        axes.legend(fontsize=7, ncols=len(panel.series), loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
