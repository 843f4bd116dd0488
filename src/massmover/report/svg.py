"""Scalable drawings written by hand: elements, scales and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """One element; underscores in attribute names become hyphens, children are taken as they are."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    written = "".join(f' {names[name]}="{escape(_text(value))}"' for name, value in attributes.items())
    inside = "".join(children)
    return Markup(f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>")


def words(x: float, y: float, text: str, **attributes: object) -> Markup:
    """Text at a place."""
    return element("text", escape(text), x=x, y=y, **attributes)


def _text(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """Straight lines through points."""
    return " ".join(f"{'L' if step else 'M'}{x:.1f} {y:.1f}" for step, (x, y) in enumerate(points))


@dataclass(frozen=True)
class Frame:
    """The rectangle of a chart inside its drawing."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Of the rectangle."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Of the rectangle."""
        return self.bottom - self.top


@dataclass(frozen=True)
class RadiusScale:
    """Radii on a logarithmic axis, with a place for 0 before the break."""

    low: float
    high: float
    frame: Frame
    zero_width: float = 36.0

    def __call__(self, radius: float) -> float:
        """Where a radius is drawn."""
        if radius <= 0:
            return self.frame.left
        start = self.frame.left + self.zero_width
        if self.high <= self.low:
            return (start + self.frame.right) / 2
        share = math.log(radius / self.low) / math.log(self.high / self.low)
        return start + share * (self.frame.right - start)

    def ticks(self) -> list[float]:
        """1, 2 and 5 times powers of ten within the range, and its end."""
        powers = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        marks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        inside = [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]
        return [*inside, self.high] if not inside or inside[-1] < 0.8 * self.high else inside
