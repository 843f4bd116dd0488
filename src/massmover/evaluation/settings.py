"""What an evaluation was asked to do, resolved to the last detail.

Needs no torch: the report reads the same settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any

from massmover.evaluation.proof import Claim
from massmover.types import Backend, Ground, MassmoverError, Normalisation

PUBLISHED_RADII = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # radius x n_pixel, as the paper's tables
CHEAP_TO_MEASURE = 20_000  # numbers of an image whose exact distance takes a fraction of a second
MEASURED_SHARE = 0.1  # of larger images: the random sample that is measured
SAME_SCORES = 1e-3  # relative difference of scores that arithmetic alone may explain


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which classifier, on which images, where. The defaults are those of every command."""

    model: str = "mnist-standard"
    weights: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    data: str = "mnist-sample"
    split: str = "test"
    start: int = 0
    count: int | None = None  # None takes all from the first on
    device: str = "auto"
    draws: int | None = None  # of a model that answers by chance; None for one that does not
    mask: str | None = None  # file that says which pixels may move; None for all
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Settings(Choice):
    """Everything that decides the result; two runs with equal settings and data give the same records."""

    radii: tuple[float, ...]  # increasing; with `smallest` where the curve is read off
    attack: str = "auto"
    steps: int | None = None  # None for the attack's own
    restarts: int | None = None
    smallest: bool = False
    window: int | None = 5
    ground: Ground = "euclidean"
    normalisation: Normalisation = "image"
    power: float = 1.0
    scatter: float | None = None  # pixels that mass may stray from a smooth field; None where it may as it likes
    width: int | None = None  # pixels between the knots of that field; None for one vector
    targeted: bool = False
    eight_bit: bool = False
    batch_size: int = 100
    backend: Backend | None = None  # who moves the mass; None for the fastest there is
    save_examples: int | None = 100  # None keeps every success
    certify: bool = False  # prove a radius for each image beside the attack

    def __post_init__(self) -> None:
        if not self.radii or any(not (math.isfinite(radius) and radius >= 0) for radius in self.radii):
            raise MassmoverError(f"radii are {list(self.radii)}: give finite numbers, 0 or larger")
        if list(self.radii) != sorted(set(self.radii)):
            raise MassmoverError("radii must increase")
        if self.certify and self.draws is not None:
            raise MassmoverError(
                "--certify proves nothing about a model that answers by chance: leave it out, or --draws"
            )

    @property
    def numbers(self) -> range:
        """The images by their numbers in the data set, once it is known how many there are."""
        if self.count is None:
            raise MassmoverError("count is None: say how many images there are, len(subject.images), before the run")
        return range(self.start, self.start + self.count)

    def claim(self, radius: float = 0.0) -> Claim:
        """What a proof has to establish at a radius; a billionth of it is left to sums in float64."""
        return Claim(
            radius,
            self.window,
            self.ground,
            self.power,
            self.normalisation,
            tolerance=1e-9,
            scatter=self.scatter,
            width=self.width,
        )

    def measures(self, number: int, *, numbers_per_image: int) -> bool:
        """Whether the exact distance of an image's examples is measured: of all where that is cheap, else of a sample.

        The sample is drawn from the seed and the image's number, whatever the attack finds, the batch and the count.
        """
        if numbers_per_image <= CHEAP_TO_MEASURE:
            return True
        return Random(f"{self.seed}, {number}").random() < MEASURED_SHARE

    @property
    def records_per_image(self) -> int:
        """How many records each image gets."""
        return 1 if self.smallest else len(self.radii)

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON knows them, with lists for tuples."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def settings_from_json(values: dict[str, Any]) -> Settings:
    """The settings a manifest holds; what earlier versions did not know has its default."""
    unknown = set(values) - {field.name for field in fields(Settings)}
    if unknown or "radii" not in values:
        odd = ", ".join(sorted(unknown or {"radii"}))
        raise MassmoverError(f"the settings are those of another version of this package (differing: {odd})")
    resolved: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Settings(**resolved)


def option_name(setting: str) -> str:
    """The command line option that sets a setting."""
    return {"radii": "--radius"}.get(setting, "--" + setting.replace("_", "-"))


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Each setting that differs, as `--option: was ..., is ...`."""
    return [
        f"{option_name(name)}: was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(set(before) | set(now))
        if before.get(name) != now.get(name)
    ]


def same_scores(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> bool:
    """Whether two fingerprints agree on the images both have, but for arithmetic."""
    pairs = [pair for rows in zip(one, other, strict=False) for pair in zip(*rows, strict=True)]
    size = max((abs(number) for pair in pairs for number in pair), default=0.0)
    return all(abs(a - b) <= SAME_SCORES * size for a, b in pairs)
