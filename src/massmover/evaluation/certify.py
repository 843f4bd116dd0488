"""Certified accuracy: how many images no plan within a radius can take from a classifier, and which."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from massmover.certificates import certified_radius
from massmover.evaluation.settings import Settings
from massmover.evaluation.subject import Subject, ball_for
from massmover.files import replace_file

SUMMARY, RADII = "summary.json", "certified.jsonl"
BATCH = 200


class Certified(NamedTuple):
    """One image: what the classifier says, and how far it cannot be made to say anything else."""

    number: int  # of the image in its data set
    label: int
    prediction: int
    radius: float  # 0 where the answer is wrong or nothing could be proved


def certify_images(
    subject: Subject, settings: Settings, *, method: str = "auto", progress: Callable[[int, int], None] | None = None
) -> tuple[Certified, ...]:
    """The certified radius of every image; `progress` hears how many are done, of how many."""
    found: list[Certified] = []
    numbers = settings.numbers
    for first in range(0, len(numbers), BATCH):
        part = numbers[first : first + BATCH]
        images, labels = subject.pixels(part), subject.labels(part)
        result = certified_radius(subject.model, images, labels, ball=ball_for(settings, 0.0), method=method)
        answers = (labels.tolist(), subject.predictions(images).tolist(), result.radius.tolist())
        found += [Certified(*row) for row in zip(part, *answers, strict=True)]
        if progress is not None:
            progress(len(found), len(numbers))
    return tuple(found)


def summary_of(found: Sequence[Certified], settings: Settings, *, numbers_per_image: int) -> dict[str, Any]:
    """Clean accuracy, and the share of images that is proved at each radius."""
    right = torch.tensor([image.label == image.prediction for image in found])
    radius = torch.tensor([image.radius for image in found], dtype=torch.float64)
    return {
        "images": len(found),
        "clean_accuracy": float(right.double().mean()),
        "certified": [
            {
                "radius": at,
                "radius_pixels": at * numbers_per_image,
                "accuracy": float((right & (radius >= at) & (radius > 0)).double().mean()),
            }
            for at in settings.radii
        ],
        "median_certified_radius": float(radius.median()),
    }


def keep(found: Sequence[Certified], summary: dict[str, Any], out: Path) -> None:
    """Write the summary and one line an image."""
    out.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({**image._asdict(), "radius": min(image.radius, 1e9)}) + "\n" for image in found)
    replace_file(out / RADII, "".join(lines).encode())
    replace_file(out / SUMMARY, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())
