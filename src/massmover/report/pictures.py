"""Images of the gallery: pixels as PNG, the signed difference, and the plan as arrows."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from massmover.drawing import ARROWS
from massmover.report.svg import element

Array = NDArray[Any]

GONE, ARRIVED = (0, 114, 178), (230, 97, 1)  # blue where mass left, orange where it arrived
CHANNEL_CLASSES = ("red", "green", "blue")
LARGEST_WHOLE = 64  # pixels a side up to which a plan is drawn over the whole image
DETAIL = 20  # pixels a side of the part that is drawn of a larger one


def png(pixels: Array) -> str:
    """A data address of a PNG; pixels (H, W), (H, W, 3) or (H, W, 4) as bytes."""
    height, width = pixels.shape[:2]
    kind = {2: 0, 3: 2}[pixels.ndim] if pixels.ndim == 2 or pixels.shape[2] == 3 else 6
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels, dtype=np.uint8))
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def _chunk(name: bytes, contents: bytes) -> bytes:
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(name + contents))


def picture(image: Array) -> str:
    """An image (C, H, W) in [0, 1] as a PNG; other channel counts than 3 are shown as their mean."""
    levels = np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return png(levels.transpose(1, 2, 0)) if len(levels) == 3 else png(levels.mean(axis=0).round().astype(np.uint8))


def difference(original: Array, adversarial: Array) -> str:
    """Where mass left (blue) and arrived (orange), as strong as the change, transparent where nothing changed."""
    change = (adversarial.astype(np.float64) - original).mean(axis=0)  # (H, W)
    largest = max(float(np.abs(change).max()), 1e-9)
    strength = np.abs(change) / largest
    pixels = np.zeros((*change.shape, 4), dtype=np.uint8)
    pixels[change < 0, :3], pixels[change > 0, :3] = GONE, ARRIVED
    pixels[..., 3] = np.round(255 * np.sqrt(strength))  # the root lets small changes be seen
    return png(pixels)


class Detail(NamedTuple):
    """The square of an image that its plan is drawn in, in pixels."""

    left: int
    top: int
    side: int


def detail(moves: Array, *, height: int, width: int) -> Detail:
    """The whole of a small image; of a large one the square where most mass moves, so that arrows can be seen."""
    whole = max(height, width)
    if whole <= LARGEST_WHOLE:
        return Detail(0, 0, whole)
    moving = moves[moves[:, 5] > 0][:ARROWS]
    best, most = Detail(0, 0, DETAIL), -1.0
    for _, y, x, *_ in moving:  # squares around each move: the fullest one wins
        left = int(min(max(x - DETAIL // 2, 0), max(width - DETAIL, 0)))
        top = int(min(max(y - DETAIL // 2, 0), max(height - DETAIL, 0)))
        inside = (abs(moving[:, 1] - top - DETAIL / 2) < DETAIL / 2) & (
            abs(moving[:, 2] - left - DETAIL / 2) < DETAIL / 2
        )
        mass = float(moving[inside, 5].sum())
        if mass > most:
            best, most = Detail(left, top, DETAIL), mass
    return best


def arrows(original: Array, moves: Array, *, title: str) -> Markup:
    """The heaviest moves of the plan drawn over the faded original, or over the part of it where most of them are."""
    channels, height, width = original.shape
    moving = moves[moves[:, 5] > 0][:ARROWS]
    heaviest = float(moving[:, 5].max()) if len(moving) else 1.0
    part = detail(moves, height=height, width=width)
    shown, place = original, {"width": width, "height": height}
    if part.side < max(height, width):  # the page holds of a photograph only what it shows
        shown = original[:, part.top : part.top + part.side, part.left : part.left + part.side]
        place = {"x": part.left, "y": part.top, "width": shown.shape[2], "height": shown.shape[1]}
    view = f"{place.get('x', 0)} {place.get('y', 0)} {place['width']} {place['height']}"
    faded = element("image", href=picture(shown), **place, class_="faded")
    drawn = [_arrow(move, heaviest=heaviest, colour=channels == 3) for move in moving if move[5] > 0.04 * heaviest]
    return element("svg", faded, *drawn, viewBox=view, role="img", aria_label=title, class_="panel plan")


def _arrow(move: Array, *, heaviest: float, colour: bool) -> Markup:
    channel, y, x, to_y, to_x, mass = (float(value) for value in move)
    thick = 0.2 + 0.32 * math.sqrt(mass / heaviest)
    corners = arrow_corners((x + 0.5, y + 0.5), (to_x + 0.5, to_y + 0.5), thick=thick)
    points = " ".join(f"{cx:.2f},{cy:.2f}" for cx, cy in corners)
    kind = CHANNEL_CLASSES[int(channel)] if colour else "grey"
    tip = f"{mass:.3f} of a white pixel moved {math.hypot(to_x - x, to_y - y):.2g} pixels"
    return element("polygon", points=points, class_=f"arrow tip {kind}", data_tip=tip)


def arrow_corners(start: tuple[float, float], end: tuple[float, float], *, thick: float) -> list[tuple[float, float]]:
    """The outline of an arrow, with a shaft as thick as told and a head that fits its length."""
    (x, y), (to_x, to_y) = start, end
    length = math.hypot(to_x - x, to_y - y) or 1.0
    along_x, along_y = (to_x - x) / length, (to_y - y) / length
    head = min(3 * thick, 0.65 * length)
    neck_x, neck_y = to_x - head * along_x, to_y - head * along_y
    return [
        (x - along_y * thick / 2, y + along_x * thick / 2),
        (neck_x - along_y * thick / 2, neck_y + along_x * thick / 2),
        (neck_x - along_y * head / 2, neck_y + along_x * head / 2),
        (to_x, to_y),
        (neck_x + along_y * head / 2, neck_y - along_x * head / 2),
        (neck_x + along_y * thick / 2, neck_y - along_x * thick / 2),
        (x + along_y * thick / 2, y - along_x * thick / 2),
    ]
