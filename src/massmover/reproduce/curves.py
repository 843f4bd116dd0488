"""Accuracy against radius, the shape of most of the paper's tables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from massmover.attacks.base import AttackResult, Problem
from massmover.attacks.pgd import Ramp, SinkhornAttack
from massmover.ball import WassersteinBall, pixel_count
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


def ramp_curve(
    name: str,
    attack: SinkhornAttack,
    subject: Subject,
    *,
    radii_pixels: Sequence[float],
    paper: Sequence[float] | None,
    progress: Progress | None = None,
) -> Curve:
    """Let the radius of every image grow until it is broken, and read the accuracy at each radius off that."""
    ramp = ramp_for(subject, max(radii_pixels))
    started = time.perf_counter()
    results = []
    done = 0
    for images, labels in batches(subject):
        results.append(
            suited(attack, subject).ramp(subject.model, Problem(WassersteinBall(0.0).around(images), labels), ramp)
        )
        done += len(images)
        if progress is not None:
            progress(name, done, len(subject.images))
    seconds = time.perf_counter() - started
    breaking = torch.cat([torch.where(result.success, result.radius, torch.inf) for result in results])
    tried = torch.cat([result.radius for result in results])
    return Curve(
        name=name,
        protocol="ramp",
        radii_pixels=tuple(radii_pixels),
        accuracy=tuple(accuracy_at(breaking, radius / subject.pixels) for radius in radii_pixels),
        paper=None if paper is None else tuple(paper),
        mean_radius=float(tried.mean()),
        unbroken=int(torch.isinf(breaking).sum()),
        outside=sum(outside(images, result) for (images, _), result in zip(batches(subject), results, strict=True)),
        seconds=seconds,
        count=len(subject.images),
    )


def fixed_curve(
    name: str,
    attack: SinkhornAttack,
    subject: Subject,
    *,
    radii_pixels: Sequence[float],
    paper: Sequence[float] | None,
    progress: Progress | None = None,
) -> Curve:
    """Attack at each radius by itself."""
    started = time.perf_counter()
    accuracy, left = [], 0
    for number, radius in enumerate(radii_pixels):
        ball, won = WassersteinBall.from_pixels(radius, subject.images), 0
        for images, labels in batches(subject):
            result = suited(attack, subject).run(subject.model, Problem(ball.around(images), labels))
            won += int(result.success.sum())
            left += outside(images, result)
        accuracy.append(100 * (1 - won / len(subject.images)))
        if progress is not None:
            progress(name, number + 1, len(radii_pixels))
    return Curve(
        name=name,
        protocol="fixed radius",
        radii_pixels=tuple(radii_pixels),
        accuracy=tuple(accuracy),
        paper=None if paper is None else tuple(paper),
        mean_radius=None,
        unbroken=0,
        outside=left,
        seconds=time.perf_counter() - started,
        count=len(subject.images),
    )


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
