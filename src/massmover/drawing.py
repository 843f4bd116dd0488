"""One example drawn with matplotlib: the image, what became of it, the difference, and the plan as arrows.

Needs no torch: the report draws with it as well as `AttackResult.show`.
"""

from __future__ import annotations

import importlib
import io
from functools import partial
from typing import Any

from numpy.typing import NDArray

from massmover.types import MassmoverError

Array = NDArray[Any]

PANELS = ("original", "adversarial", "difference", "plan")
ARROWS = 40  # moves of a plan that are drawn


def draw_example(panels: Any, original: Array, adversarial: Array, moves: Array) -> None:
    """Fill four axes with one example.

    Images are (C, H, W) in [0, 1]; moves (M, 6), heaviest first, hold channel, from row and column, to row and column,
    mass.
    """
    change = (adversarial - original).mean(axis=0)
    largest = max(float(abs(change).max()), 1e-9)
    panels[0].imshow(shown(original), cmap="gray", vmin=0, vmax=1)
    panels[1].imshow(shown(adversarial), cmap="gray", vmin=0, vmax=1)
    panels[2].imshow(change, cmap="PuOr_r", vmin=-largest, vmax=largest)
    panels[3].imshow(shown(original), cmap="gray", vmin=0, vmax=1, alpha=0.35)
    _, y, x, to_y, to_x, _ = moves[moves[:, 5] > 0][:ARROWS].T
    panels[3].quiver(x, y, to_x - x, to_y - y, angles="xy", scale_units="xy", scale=1, color="#d9480f", width=0.012)
    for axes in panels:
        axes.set(xticks=[], yticks=[])


def name_panels(panels: Any) -> None:
    """Write what each of the four axes shows above it."""
    for axes, title in zip(panels, PANELS, strict=True):
        axes.set_title(title, fontsize=9)


def shown(image: Array) -> Array:
    """An image (C, H, W) as matplotlib wants it; other channel counts than 3 are shown as their mean."""
    return image.transpose(1, 2, 0) if len(image) == 3 else image.mean(axis=0)


def notebook_figure(*, width: float, height: float) -> Any:
    """Return an empty figure, in inches, that a notebook shows by itself, whether or not pyplot was imported."""
    try:
        library = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MassmoverError(
            "Figures need matplotlib, which is not installed. Run: pip install matplotlib (or 'massmover[cli]')"
        ) from error
    figure = library.Figure(figsize=(width, height))
    figure._repr_png_ = partial(png, figure)  # what IPython asks an object for
    return figure


def png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, bbox_inches="tight")
    return file.getvalue()
