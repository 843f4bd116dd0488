"""Where the mass of an example goes: the moves of its plan, their field as arrows, and moves packed to fly."""

from __future__ import annotations

import base64
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from massmover.evaluation.proof import Moves
from massmover.report.pictures import arrow_corners, picture
from massmover.report.svg import element
from massmover.types import MassmoverError

Array = NDArray[Any]

ACROSS = 14  # arrows along the longer side of an image, at most
DIRECTIONS = 12  # colours of arrows
LEAST = 0.02  # of the longest arrow: shorter ones are dots
MOST = 0.8  # of the arrows
FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # by which short movements are drawn longer
SHARPEST = 112  # pixels a side of the image under the arrows
MOST_FLYING = 400  # moves of an example that fly; the rest of the change fades in
LEVELS = 255  # that the mass of a flying move may have
FARTHEST = 127  # rows or columns that fit a byte
LAST_SOURCE = (1 << 24) - 1  # that three bytes hold


def all_moves(proof: Moves | None, heaviest: Array, *, shape: tuple[int, ...]) -> Array:
    """The moves of an example, (M, 6): channel, from row and column, to row and column, mass; heaviest first.

    All of them where the file has a proof, else the few that every file has.
    """
    if proof is None:
        return heaviest[heaviest[:, 5] > 0].astype(np.float64)
    source, (down, right) = proof.source.astype(np.int64), proof.step.astype(np.int64).reshape(-1, 2).T
    channel, row, column = np.unravel_index(np.clip(source, 0, math.prod(shape) - 1), shape)
    to_row, to_column = row + down, column + right
    there = (to_row >= 0) & (to_row < shape[1]) & (to_column >= 0) & (to_column < shape[2])
    if not (there & (source >= 0) & (source < math.prod(shape))).all():
        raise MassmoverError("the proofs are damaged: a move leaves its image. Run the evaluation again.")
    mass = np.ldexp(proof.mass.astype(np.float64), -proof.unit)
    moves = np.stack([channel, row, column, to_row, to_column, mass], axis=1)
    return moves[np.argsort(-mass, kind="stable")]


class Field(NamedTuple):
    """The mean displacement of some pixels' mass, in pixels."""

    place: Array  # (K, 2): row and column
    step: Array  # (K, 2): down and to the right
    cell: int  # pixels a side of the square that each stands for


def field_of(original: Array, moves: Array) -> Field:
    """The mean displacement of each pixel's mass over all channels, what stays counted with 0.

    One pixel of each square cell is kept, where most mass goes farthest; cells where nothing moves have none. No mean
    is taken over neighbours: where they move against each other, arrows show it.
    """
    _, height, width = original.shape
    cell = math.ceil(max(height, width) / ACROSS)
    row, column, mass = moves[:, 1].astype(np.int64), moves[:, 2].astype(np.int64), moves[:, 5]
    source = row * width + column
    carried = np.stack(
        [np.bincount(source, mass * (moves[:, to] - moves[:, to - 2]), height * width) for to in (3, 4)], axis=1
    )  # (N, 2)
    size = np.hypot(*carried.T)
    moved = np.flatnonzero(size > 0)
    across = math.ceil(width / cell)
    cells = (moved // width // cell) * across + moved % width // cell
    order = np.lexsort((-size[moved], cells))  # the first of each cell is the one to keep
    kept = moved[order][np.unique(cells[order], return_index=True)[1]]
    held = original.astype(np.float64).sum(axis=0).ravel()[kept]
    step = carried[kept] / np.maximum(held, np.finfo(np.float64).tiny)[:, None]
    return Field(np.stack([kept // width, kept % width], axis=1), step, cell)


def factor_of(field: Field) -> int:
    """By how much arrows are drawn longer than mass moves: most no longer than a cell, the longest than three."""
    lengths = np.hypot(*field.step.T)
    longest, most = float(lengths.max(initial=0.0)), float(np.quantile(lengths, MOST)) if len(lengths) else 0.0
    fitting = [factor for factor in FACTORS if factor * most <= field.cell and factor * longest <= 3 * field.cell]
    return fitting[-1] if fitting and longest > 0 else 1


def drawn(adversarial: Array, field: Field, *, title: str) -> Markup:
    """The field as arrows over the faded adversarial image, coloured by direction: one colour is one movement."""
    _, height, width = adversarial.shape
    factor = factor_of(field)
    lengths = factor * np.hypot(*field.step.T)
    shapes: dict[int, list[str]] = {}
    for (row, column), (down, right), length in zip(field.place, field.step, lengths, strict=True):
        if length > LEAST * lengths.max():
            x, y = column + 0.5, row + 0.5
            turn = round(math.atan2(down, right) / math.tau * DIRECTIONS) % DIRECTIONS
            corners = arrow_corners((x, y), (x + factor * right, y + factor * down), thick=0.22 * field.cell)
            shapes.setdefault(turn, []).append(_closed(corners))
    faded = element("image", href=picture(small(adversarial)), width=width, height=height, class_="faded")
    arrows = [element("path", d="".join(parts), class_=f"arrow d{turn}") for turn, parts in sorted(shapes.items())]
    stroke = f"--edge:{0.06 * field.cell:.2f}px"
    return element(
        "svg",
        faded,
        *arrows,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=title,
        class_="panel plan",
        style=stroke,
    )


def small(image: Array, *, most: int = SHARPEST) -> Array:
    """An image with no more than so many pixels a side, each the mean of a square."""
    side = math.ceil(max(image.shape[1:]) / most)
    rows, columns = (math.ceil(length / side) * side for length in image.shape[1:])
    filled = np.pad(
        image, ((0, 0), (0, rows - image.shape[1]), (0, columns - image.shape[2])), mode="edge"
    )  # a square at the edge has as many pixels as the others
    shrunk: Array = filled.reshape(len(image), rows // side, side, columns // side, side).mean(axis=(2, 4))
    return shrunk


def packed(moves: Array, *, shape: tuple[int, ...]) -> str:
    """The heaviest moves for the page's script, as base64 of six bytes each.

    Three say where a move starts, (channel x rows + row) x columns + column, the lowest first; then how far it goes
    down and to the right, as bytes with a sign; then its mass in 255ths of a white pixel. What is lighter than half of
    one, or goes too far, does not fly.
    """
    numbers = moves[:, :5].astype(np.int64)
    source = np.ravel_multi_index((numbers[:, 0], numbers[:, 1], numbers[:, 2]), shape)
    steps = numbers[:, 3:5] - numbers[:, 1:3]
    mass = np.rint(moves[:, 5] * LEVELS).astype(np.int64)
    flies = (mass > 0) & (np.abs(steps) <= FARTHEST).all(axis=1) & (source <= LAST_SOURCE)
    source, steps, mass = source[flies][:MOST_FLYING], steps[flies][:MOST_FLYING], mass[flies][:MOST_FLYING]
    columns = [source & 255, source >> 8 & 255, source >> 16, steps[:, 0] & 255, steps[:, 1] & 255, mass]
    return base64.b64encode(np.stack(columns, axis=1).astype(np.uint8).tobytes()).decode()


def _closed(corners: list[tuple[float, float]]) -> str:
    """A closed path through points, written short: the first as it is, the others by how far they lie from the last."""
    points = [(round(x, 1), round(y, 1)) for x, y in corners]
    steps = [(now[0] - last[0], now[1] - last[1]) for last, now in itertools.pairwise(points)]
    return f"M{_pair(points[0])}l{' '.join(map(_pair, steps))}z"


def _pair(point: tuple[float, float]) -> str:
    return " ".join(f"{value:.1f}".removesuffix(".0") for value in point)
