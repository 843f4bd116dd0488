"""Results for the eye: a figure of a few examples, a small table, a data frame."""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from massmover.drawing import draw_example, name_panels, notebook_figure
from massmover.transport.plan import Plan
from massmover.types import Images, MassmoverError

ROW_HEIGHT = 1.75  # inches
WIDTH = 6.4
MOVES = 60  # how many of a plan's largest moves are kept


def figure_of(plan: Plan, images: Images, *, rows: Sequence[int], captions: Sequence[str]) -> Any:
    """Return a matplotlib figure: a row of original, adversarial, difference and plan for each image named."""
    if not rows:
        raise MassmoverError("There is no image to show: the result is empty, or an empty list of rows was given.")
    figure = notebook_figure(width=WIDTH, height=ROW_HEIGHT * len(rows))
    grid = figure.subplots(len(rows), 4, squeeze=False)
    originals = plan.select(
        torch.as_tensor(rows, device=plan.flows.device)
    ).rows()  # what left each pixel is what was there
    for panels, original, row, caption in zip(grid, originals, rows, captions, strict=True):
        before, after = (image.detach().cpu().double().numpy() for image in (original, images[row]))
        draw_example(panels, before, after, largest_moves(plan, row))
        panels[0].set_ylabel(caption, fontsize=9)
    name_panels(grid[0])
    return figure


def rows_to_show(wanted: int | Sequence[int], *, success: Tensor) -> list[int]:
    """Return the images to show: those named, or the first few, successes before failures."""
    count = len(success)
    if isinstance(wanted, int):
        ranked = sorted(range(count), key=lambda row: not bool(success[row]))
        return sorted(ranked[: max(wanted, 0)])
    outside = [row for row in wanted if not 0 <= row < count]
    if outside:
        raise MassmoverError(f"There is no image {outside[0]} to show: the result holds images 0 to {count - 1}.")
    return list(wanted)


def table_of(title: str, entries: Mapping[str, str]) -> str:
    """Return a title and named values as a small HTML table."""
    lines = (
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in entries.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"


def frame_of(columns: Mapping[str, Tensor]) -> Any:
    """Return a pandas data frame with one row for each image."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MassmoverError("to_dataframe needs pandas, which is not installed. Run: pip install pandas") from error
    arrays = {name: values.detach().cpu().numpy() for name, values in columns.items()}
    return pandas.DataFrame(arrays).rename_axis("image")


def spread(values: Tensor) -> str:
    """Return one number where all agree, the smallest and largest where they do not, a dash where there are none."""
    if not len(values):
        return "-"
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def largest_moves(plan: Plan, row: int) -> NDArray[np.float32]:
    """The largest moves of one image's plan, heaviest first; what stays is no move. Unused rows have mass 0.

    Returns (MOVES, 6): channel, from row, from column, to row, to column, mass.
    """
    flows = plan.flows[row].detach().cpu().clone()  # (C, K, H, W)
    flows[:, 0] = 0
    mass, position = flows.flatten().topk(min(MOVES, flows.numel()))
    channel, move, y, x = np.unravel_index(position.numpy(), tuple(flows.shape))
    step = np.asarray(plan.window.offsets)[move]
    columns = (channel, y, x, y + step[:, 0], x + step[:, 1], mass.numpy())
    table = np.stack([np.asarray(column, dtype=np.float32) for column in columns], axis=1)
    table[table[:, 5] <= 0] = 0
    return np.concatenate([table, np.zeros((MOVES - len(table), 6), dtype=np.float32)])
