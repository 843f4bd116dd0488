"""Draw docs/pictures/way.svg, the way of an image from pixels to record: `python docs/pictures/way.py`."""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH, HIGH, GAP, DOWN, LEFT = 190, 62, 26, 44, 14
ROWS = [  # title, file, what comes out
    [
        ("checked", "inputs.py, classifier.py", "pixels in [0, 1], labels"),
        ("a ball around each", "ball.py, geometry.py", "Balls: budget, weights, window"),
        ("the problem", "attacks/base.py", "Problem: balls, labels"),
    ],
    [
        ("potential", "attacks/ascent.py", "one number a pixel"),
        ("mass moves", "transport/potential.py, kernels/", "an image in its ball, float32"),
        ("the model answers", "attacks/losses.py", "margin and gradient"),
    ],
    [
        ("plan in float64", "transport/potential.py", "rows exact, cost = budget"),
        ("repair", "transport/repair.py", "box and budget exact"),
        ("certificate", "transport/plan.py", "AttackResult: image, plan, proof"),
    ],
    [
        ("classified again", "evaluation/batch.py", "is the model wrong?"),
        ("judged", "verify.py, transport/exact.py", "is it inside?"),
        ("kept", "evaluation/store.py", "Record, examples.npz"),
    ],
]
NAMES = ["posed", "searched", "proved", "evaluated"]
COLOURS = ["#5b7fb8", "#c9853b", "#4d9a6a", "#8a6bb0"]


def box(x: int, y: int, colour: str, title: str, file: str, result: str) -> str:
    """One station: what happens, where it is written, what comes out."""
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HIGH}" rx="8" fill="{colour}" fill-opacity="0.14" '
        f'stroke="{colour}"/>'
        f'<text x="{x + 10}" y="{y + 20}" font-weight="bold">{escape(title)}</text>'
        f'<text x="{x + 10}" y="{y + 37}" font-size="11" fill="{colour}">{escape(file)}</text>'
        f'<text x="{x + 10}" y="{y + 53}" font-size="11" fill-opacity="0.75">{escape(result)}</text>'
    )


def arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    """A line with a head."""
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="currentColor" marker-end="url(#head)"/>'


def picture() -> str:
    """All stations, row by row; the second row goes round until the model is wrong."""
    parts = []
    across, margin = WIDTH + GAP, 92
    for r, row in enumerate(ROWS):
        y = 12 + r * (HIGH + DOWN)
        parts.append(
            f'<text x="{LEFT}" y="{y + HIGH // 2 + 5}" fill="{COLOURS[r]}" font-weight="bold">{NAMES[r]}</text>'
        )
        for c, station in enumerate(row):
            x = margin + c * across
            parts.append(box(x, y, COLOURS[r], *station))
            if c:
                parts.append(arrow(x - GAP + 2, y + HIGH // 2, x - 3, y + HIGH // 2))
        if r:
            last = margin + 2 * across + WIDTH // 2
            first = margin + WIDTH // 2
            middle = y - 32
            parts.append(
                f'<path d="M{last},{y - DOWN} V{middle} H{first} V{y - 3}" fill="none" stroke="currentColor" '
                'marker-end="url(#head)"/>'
            )
    y = 12 + HIGH + DOWN
    right = margin + 3 * across - GAP
    parts.append(
        f'<path d="M{right},{y + 18} h16 v-32 H{margin + 40} v11" fill="none" stroke="{COLOURS[1]}" '
        'stroke-dasharray="4 3" marker-end="url(#head)"/>'
        f'<text x="{right - 150}" y="{y - 18}" font-size="11" fill="{COLOURS[1]}">100 steps, or until wrong</text>'
    )
    width, height = right + 30, 12 + len(ROWS) * (HIGH + DOWN) - 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        'font-size="13" fill="currentColor" color="#333"><defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="context-stroke"/></marker>'
        "</defs>" + "".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
