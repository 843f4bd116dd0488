"""The training curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from massmover.training.state import Epoch


def draw_curve(history: Sequence[Epoch], path: Path) -> Path:
    """Draw loss, and held-out accuracy clean and by radius, over the epochs, and write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    epochs = [line.epoch for line in history]
    left.plot(epochs, [line.loss for line in history], "o-", markersize=3)
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    if history and history[-1].clean is not None:
        right.plot(epochs, [100 * (line.clean or 0) for line in history], "o-", markersize=3, label="clean")
        for radius in history[-1].robust:
            values = [100 * line.robust[radius] for line in history]
            right.plot(epochs, values, "o-", markersize=3, label=f"radius {float(radius):.3g}")
        right.legend(fontsize=8)
    right.set(xlabel="epoch", ylabel="held-out accuracy (%)", ylim=(0, 101))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    return path
