"""Words of the command line turned into numbers, with errors that name the option."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from massmover.names import ARCHITECTURES, ATTACKS, BUNDLED, COHERENT
from massmover.types import LARGEST_POWER, Backend, Ground, MassmoverError, Normalisation

BACKENDS: tuple[Backend, ...] = ("numba", "torch", "triton")
GROUNDS: tuple[Ground, ...] = ("euclidean", "manhattan", "chebyshev")

What = "What is measured"
Model = Annotated[
    str,
    typer.Option(
        help=f"{', '.join((*BUNDLED, *ARCHITECTURES))}, package.module:function, or a .pt, .ts or .pt2 file.",
        rich_help_panel=What,
    ),
]
Weights = Annotated[
    Path | None, typer.Option(help="A .safetensors, .pt or .pth file.", show_default=False, rich_help_panel=What)
]
Mean = Annotated[
    str | None,
    typer.Option(help="What the model subtracts from each channel.", show_default=False, rich_help_panel=What),
]
Std = Annotated[
    str | None, typer.Option(help="What the model divides each channel by.", show_default=False, rich_help_panel=What)
]
Data = Annotated[
    str,
    typer.Option(help="mnist, mnist-sample, fashion-mnist, cifar10, a .npz file or a folder.", rich_help_panel=What),
]
Split = Annotated[str, typer.Option(help="test or train.", rich_help_panel=What)]
Start = Annotated[int, typer.Option(help="Number of the first image.", rich_help_panel=What)]
Count = Annotated[
    int | None, typer.Option(help="How many images; all without it.", show_default=False, rich_help_panel=What)
]


def numbers(text: str, *, option: str, example: str) -> tuple[float, ...]:
    """Finite numbers separated by commas."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise MassmoverError(f"{option} is {text!r}: give numbers separated by commas, such as {example}") from None
    if not all(math.isfinite(number) for number in found):
        raise MassmoverError(f"{option} is {text!r}: NaN and infinity are no use here; give numbers such as {example}")
    return found


def attack(name: str) -> str:
    """The name of an attack."""
    if name not in ATTACKS:
        raise MassmoverError(f"--attack is {name!r}: use one of {', '.join(ATTACKS)}")
    return name


class Radii(NamedTuple):
    """The radii asked for, increasing, each once."""

    values: tuple[float, ...]
    in_pixels: bool  # the values are radius x pixels

    def radii(self, *, numbers_per_image: int) -> tuple[float, ...]:
        """The radii proper."""
        return tuple(value / numbers_per_image for value in self.values) if self.in_pixels else self.values


def radii(*, radius: str | None, radius_pixels: str | None, smallest: bool) -> Radii:
    """The radii asked for; exactly one of the three ways must be used."""
    ways = [radius is not None, radius_pixels is not None, smallest]
    if sum(ways) != 1:
        raise MassmoverError(
            f"{'--radius is missing' if not any(ways) else 'too many radii'}: give one of --radius 0.01,0.05, "
            "--radius-pixels 10,20,50 and --smallest"
        )
    if radius is not None:
        return Radii(_not_negative(radius, option="--radius", example="0.01,0.05"), in_pixels=False)
    if radius_pixels is not None:
        return Radii(_not_negative(radius_pixels, option="--radius-pixels", example="10,20,50"), in_pixels=True)
    from massmover.evaluation.settings import PUBLISHED_RADII  # needs NumPy

    return Radii(PUBLISHED_RADII, in_pixels=True)


def one_radius(value: float, *, option: str) -> float:
    """A finite radius, 0 or larger."""
    if not (math.isfinite(value) and value >= 0):
        raise MassmoverError(f"{option} is {value}: give a finite number, 0 or larger")
    return value


def _not_negative(text: str, *, option: str, example: str) -> tuple[float, ...]:
    values = numbers(text, option=option, example=example)
    if min(values) < 0:
        raise MassmoverError(f"{option} is {text!r}: a radius is 0 or larger; give numbers such as {example}")
    return tuple(sorted(set(values)))


def window(text: str) -> int | None:
    """An odd size, or None for the whole image."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) % 2 == 0:
        raise MassmoverError(f"--window is {text!r}: give an odd size such as 5, or all for the whole image")
    return int(text)


def normalisation(text: str) -> Normalisation:
    """What a distance is divided by."""
    if text == "image":
        return "image"
    if text == "channel":
        return "channel"
    raise MassmoverError(f"--normalisation is {text!r}: use image or channel")


def ground(text: str) -> Ground:
    """How the distance of pixels is measured."""
    for known in GROUNDS:
        if text == known:
            return known
    raise MassmoverError(f"--ground is {text!r}: use one of {', '.join(GROUNDS)}")


def backend(text: str) -> Backend | None:
    """Who moves the mass; None for the fastest there is."""
    if text == "auto":
        return None
    for known in BACKENDS:
        if text == known:
            return known
    raise MassmoverError(f"--backend is {text!r}: use auto or one of {', '.join(BACKENDS)}")


def threads(number: int) -> int:
    """How many processor threads."""
    if number < 1:
        raise MassmoverError(f"--threads is {number}: give 1 or more")
    return number


def at_least(value: int | None, least: int, *, option: str) -> None:
    """Refuse a whole number that is too small."""
    if value is not None and value < least:
        raise MassmoverError(f"{option} is {value}: give {least} or more")


def power(value: float) -> float:
    """The power of the pixel distance."""
    if not 0 < value <= LARGEST_POWER:
        raise MassmoverError(f"--power is {value}: give a positive number up to {LARGEST_POWER}, such as 1")
    return value


def coherence(scatter: float | None, width: int | None, *, attack: str | None) -> dict[str, float | int | None]:
    """How far mass may stray from a smooth field, and over how many pixels that bends; infinity is as it likes."""
    if scatter is not None and not scatter >= 0:
        raise MassmoverError(f"--scatter is {scatter}: give 0 or more pixels, such as 0.05")
    if width is not None and scatter is None:
        raise MassmoverError(
            f"--width is {width}, and --scatter is not given: say how far mass may stray, such as 0.05"
        )
    at_least(width, 1, option="--width")
    free = scatter is None or scatter == math.inf
    if not free and attack is not None and attack not in COHERENT:
        raise MassmoverError(f"--scatter is {scatter}, and {attack} lets mass scatter: use {' or '.join(COHERENT)}")
    return {"scatter": None if free else scatter, "width": None if free else width}


def save_examples(text: str) -> int | None:
    """How many successes to keep; None for all."""
    if text in ("all", "none"):
        return None if text == "all" else 0
    if not text.isdecimal():
        raise MassmoverError(f"--save-examples is {text!r}: give all, none or a number such as 100")
    return int(text)
