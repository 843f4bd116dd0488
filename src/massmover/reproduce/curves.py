"""Accuracy against radius, the shape of most of the paper's tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from massmover.attacks.base import Attack, AttackResult, Problem
from massmover.attacks.pgd import Ramp, SinkhornAttack
from massmover.ball import WassersteinBall, pixel_count
from massmover.compiling import working_seconds
from massmover.evaluation.verify import verify
from massmover.models import BUNDLED, load_model
from massmover.types import Classifier, Images, Labels, PerImage

Progress = Callable[[str, int, int], None]  # (what, done, total)
BATCH = 250  # images attacked at once: bounds the memory that certificates take
COLD_PIXELS = 1000  # images with more numbers than this get the settings for photographs


@dataclass(frozen=True, eq=False)
class Subject:
    """A classifier and the images it is attacked on."""

    model: Classifier
    images: Images
    labels: Labels
    data: str  # "mnist", "cifar10": which of the paper's columns applies
    model_name: str
    available: int  # images in the whole set

    @property
    def pixels(self) -> int:
        """The n_pixel of the published tables."""
        return pixel_count(self.images)

    @property
    def large(self) -> bool:
        """Whether the images are more like photographs than like digits."""
        return self.pixels > COLD_PIXELS

    def clean_accuracy(self) -> float:
        """Percent right without any attack."""
        with torch.no_grad():
            logits = torch.cat([self.model(part) for part in torch.split(self.images, 1000)])
        return 100 * float((logits.argmax(dim=1) == self.labels).float().mean())


@dataclass(frozen=True)
class Curve:
    """One row of a table: percent still right at each radius, and how it was measured."""

    name: str
    protocol: str  # "ramp" or "fixed radius"
    radii_pixels: tuple[float, ...]  # radius x n_pixel
    accuracy: tuple[float, ...]  # percent
    paper: tuple[float, ...] | None
    mean_radius: float | None  # mean breaking radius; an image never broken counts with the last radius tried
    unbroken: int
    outside: int  # returned images that the exact judge finds outside their ball
    seconds: float
    count: int


def suited(attack: SinkhornAttack, subject: Subject) -> SinkhornAttack:
    """The attack at a temperature that suits the pixels: a tenth for photographs, whose mass is spread thin."""
    factor = 0.1 if subject.large else 1.0
    return replace(attack, projection=replace(attack.projection, temperature=attack.projection.temperature * factor))


def ramp_for(subject: Subject, largest: float) -> Ramp:
    """The paper's ramp up to radius x n_pixel = largest: steps of 0.01, and of 0.001 for photographs.

    At 3072 numbers per image a radius of 0.01 is already 31 in the unit of the tables, which start at 5.
    """
    step = 0.001 if subject.large else 0.01
    return Ramp(start=step, step=step, limit=step * math.ceil(largest / subject.pixels / step))


class Contender(NamedTuple):
    """A row to be measured: an attack, what it is called, and what the paper prints for it."""

    name: str
    attack: Any  # an attack; a SinkhornAttack where the radius is to grow
    paper: Sequence[float] | None = None


def ramp_curve(
    contender: Contender, subject: Subject, *, radii_pixels: Sequence[float], progress: Progress | None = None
) -> Curve:
    """Let the radius of every image grow until it is broken, and read the accuracy at each radius off that."""
    ramp, attack = ramp_for(subject, max(radii_pixels)), suited(contender.attack, subject)
    started = working_seconds()
    results = []
    done = 0
    for images, labels in batches(subject):
        results.append(attack.ramp(subject.model, Problem(WassersteinBall(0.0).around(images), labels), ramp))
        done += len(images)
        if progress is not None:
            progress(contender.name, done, len(subject.images))
    seconds = working_seconds() - started
    breaking = torch.cat([torch.where(result.success, result.radius, torch.inf) for result in results])
    tried = torch.cat([result.radius for result in results])
    return Curve(
        name=contender.name,
        protocol="ramp",
        radii_pixels=tuple(radii_pixels),
        accuracy=tuple(accuracy_at(breaking, radius / subject.pixels) for radius in radii_pixels),
        paper=None if contender.paper is None else tuple(contender.paper),
        mean_radius=float(tried.mean()),
        unbroken=int(torch.isinf(breaking).sum()),
        outside=sum(outside(images, result) for (images, _), result in zip(batches(subject), results, strict=True)),
        seconds=seconds,
        count=len(subject.images),
    )


def fixed_curve(
    contender: Contender,
    subject: Subject,
    *,
    radii_pixels: Sequence[float],
    carry: bool = False,
    progress: Progress | None = None,
) -> Curve:
    """Attack at each radius by itself; an image falls when the exact judge agrees that its twin is in the ball.

    With `carry` only images that stood at all smaller radii are attacked: what is in a ball is in every larger one.
    """
    started = working_seconds()
    everyone = standing = torch.arange(len(subject.images))
    accuracy, left = [], 0
    for number, radius in enumerate(sorted(radii_pixels)):
        kept = []
        for part in torch.split(standing if carry else everyone, BATCH):
            fallen, refused = judged(contender.attack, subject, part, radius_pixels=radius)
            left += refused
            kept.append(part[~fallen])
        standing = torch.cat([everyone[:0], *kept])
        accuracy.append(100 * len(standing) / len(everyone))
        if progress is not None:
            progress(contender.name, number + 1, len(radii_pixels))
    return Curve(
        name=contender.name,
        protocol="fixed radius",
        radii_pixels=tuple(sorted(radii_pixels)),
        accuracy=tuple(accuracy),
        paper=None if contender.paper is None else tuple(contender.paper),
        mean_radius=None,
        unbroken=len(standing),
        outside=left,
        seconds=working_seconds() - started,
        count=len(everyone),
    )


def judged(attack: Attack, subject: Subject, part: Labels, *, radius_pixels: float) -> tuple[Tensor, int]:
    """Which images of a part fall within a radius, and how many successes the judge does not accept."""
    images = subject.images[part]
    if isinstance(attack, SinkhornAttack):
        attack = suited(attack, subject)
    ball = WassersteinBall.from_pixels(radius_pixels, images)
    result = attack.run(subject.model, Problem(ball.around(images), subject.labels[part]))
    won = result.success.clone()
    verdicts = verify(images[won], result.images[won], result.radius[won])
    won[result.success] = verdicts.inside
    return won, verdicts.violations


def accuracy_at(breaking: PerImage, radius: float) -> float:
    """Percent of images that are not broken within a radius."""
    return 100 * float((breaking > radius * (1 + 1e-9)).float().mean())


def batches(subject: Subject) -> list[tuple[Images, Labels]]:
    """The images a batch at a time."""
    return list(zip(torch.split(subject.images, BATCH), torch.split(subject.labels, BATCH), strict=True))


def outside(images: Images, result: AttackResult) -> int:
    """How many returned images the exact judge finds outside their ball."""
    return verify(images, result.images, result.radius).violations


STANDARD, ROBUST = "mnist-standard", "mnist-robust"
DIGITS = (1, 28, 28)


def lineup(subject: Subject, *, standard: str = STANDARD, robust: str = ROBUST) -> tuple[Subject, ...]:
    """The bundled standard classifier, the one asked for, the bundled robust one; each once, on the same images.

    Bundled classifiers read digits: on other images the one asked for stands alone.
    """
    if tuple(subject.images.shape[1:]) != DIGITS:
        return (subject,)
    others = [
        replace(subject, model=load_model(name), model_name=name)
        for name in (standard, robust)
        if name in BUNDLED and name != subject.model_name
    ]
    first = [other for other in others if other.model_name == standard]
    last = [other for other in others if other.model_name != standard]
    if subject.model_name == robust:
        return (*first, *last, subject)
    return (*first, subject, *last)


def short_name(model: str) -> str:
    """What a classifier is called where there is little room: the file of its weights, if it has one."""
    _, opening, file = model.partition(" (")
    return file.removesuffix(")").removesuffix(".safetensors") if opening else model
