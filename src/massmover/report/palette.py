"""A colour for every run, however many there are: none twice, legible on light and on dark."""

from __future__ import annotations

import colorsys
from typing import NamedTuple

GOLDEN = 0.6180339887498949  # steps of this share of the circle never meet an earlier hue


class Colour(NamedTuple):
    """One series, on light and on dark paper."""

    light: str
    dark: str


CHOSEN = (
    Colour("#0b62a4", "#6cb6f0"),
    Colour("#c2500a", "#f0924e"),
    Colour("#0a7d5c", "#4fc7a0"),
    Colour("#9a3d7a", "#de8fc2"),
    Colour("#8a6d00", "#d8bd4f"),
    Colour("#4b5563", "#b3bcc6"),
    Colour("#5b3fc4", "#a593f5"),
    Colour("#b3261e", "#ff8d80"),
)


def colours(count: int) -> list[Colour]:
    """As many colours as there are series."""
    return [CHOSEN[number] if number < len(CHOSEN) else _further(number) for number in range(count)]


def _further(number: int) -> Colour:
    hue = (0.13 + number * GOLDEN) % 1
    level = (number % 3) * 0.06  # neighbours in hue differ in lightness as well
    return Colour(_hex(hue, 0.30 + level, 0.62), _hex(hue, 0.64 + level, 0.58))


def _hex(hue: float, lightness: float, saturation: float) -> str:
    parts = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def style(count: int) -> str:
    """The colours as style sheet: class s0 has the first, s1 the second."""
    chosen = colours(count)
    light = "".join(f".s{number}{{--c:{colour.light}}}" for number, colour in enumerate(chosen))
    dark = "".join(f".s{number}{{--c:{colour.dark}}}" for number, colour in enumerate(chosen))
    return f"{light}\n@media (prefers-color-scheme: dark){{{dark}}}"
