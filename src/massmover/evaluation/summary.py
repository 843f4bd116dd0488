"""From records to the numbers people quote. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from massmover.evaluation.settings import CHEAP_TO_MEASURE, MEASURED_SHARE, Settings
from massmover.evaluation.store import Record

# When an image is broken: by any wrong answer, which is what accuracy counts, or by its target.
Goal = Literal["wrong", "target"]


def summarise(records: Sequence[Record], settings: Settings, *, numbers_per_image: int) -> dict[str, Any]:
    """Clean accuracy, accuracy at every radius, time, and the area under the curve.

    An image counts as accurate at a radius when the classifier was right on it and no judged example within that radius
    is answered wrongly, whatever the target. Successes are what an attack had to find: a clean mistake is none, nor is
    an original that is answered as its target. The area is the integral of accuracy over the radius, from 0 to the
    largest radius: the mean breaking radius, cut off there.
    """
    clean = {record.index: not record.clean_mistake for record in records}
    count = len(clean)
    points = [
        at_radius(records, radius, smallest=settings.smallest, clean=clean, numbers_per_image=numbers_per_image)
        for radius in settings.radii
    ]
    clean_accuracy = sum(clean.values()) / count if count else 0.0
    curve = [(0.0, clean_accuracy), *((point["radius"], point["accuracy"]) for point in points if point["radius"] > 0)]
    summary: dict[str, Any] = {
        "images": count,
        "targeted": settings.targeted,
        "clean_accuracy": clean_accuracy,
        "accuracy": points,
        "violations": sum(record.violation is not None for record in records),
        "proved": sum(record.proved is True for record in records),
        "measured": sum(record.distance is not None for record in records),
        "seconds_per_image": sum(record.seconds for record in records) / count if count else 0.0,
        "area_under_curve": area(curve),
    }
    if numbers_per_image > CHEAP_TO_MEASURE:
        sample = [index for index in clean if settings.measures(index, numbers_per_image=numbers_per_image)]
        summary["sample"] = {"images": len(sample), "share": MEASURED_SHARE, "seed": settings.seed}
    if settings.certify:
        certified = {record.index: record.certified or 0.0 for record in records}
        for point in points:
            held = sum(clean[index] and radius > 0 and radius >= point["radius"] for index, radius in certified.items())
            point["certified"] = held / count if count else 0.0
        summary["contradictions"] = sorted({record.index for record in records if record.contradicted})
    if settings.smallest:
        summary["median_smallest_radius"] = median_smallest(records)
    if settings.eight_bit:
        summary["eight_bit"] = eight_bit_counts(records)
    return summary


def at_radius(
    records: Sequence[Record], radius: float, *, smallest: bool, clean: dict[int, bool], numbers_per_image: int
) -> dict[str, Any]:
    """One point of the curve."""
    if smallest:
        here = [record for record in records if record.radius <= radius or not record.success]
        broken = [record for record in here if record.success]
    else:
        here = [record for record in records if record.radius == radius]
        broken = [record for record in here if record.success]
    misled = {record.index for record in records if record.misled and record.radius <= radius}
    mistakes = sum(not right for right in clean.values())
    wrong = {record.index for record in broken} | misled | {index for index, right in clean.items() if not right}
    return {
        "radius": radius,
        "radius_pixels": radius * numbers_per_image,
        "accuracy": 1 - len(wrong) / len(clean) if clean else 0.0,
        "successes": sum(found_by_attack(record) for record in broken),
        "clean_mistakes": mistakes,
        "violations": sum(record.violation is not None for record in here),
        "carried": sum(record.carried_from is not None for record in here),
        "attack_successes": sum(record.attack_success is True for record in here),
    }


def found_by_attack(record: Record) -> bool:
    """Whether the success is the attack's: the original was not yet answered as the attack wants."""
    return record.success and (
        not record.clean_mistake if record.target is None else record.prediction_before != record.target
    )


def area(curve: Sequence[tuple[float, float]]) -> float:
    """The area under straight lines between points."""
    return sum((right[0] - left[0]) * (left[1] + right[1]) / 2 for left, right in pairwise(curve))


def median_smallest(records: Sequence[Record]) -> float | None:
    """The radius within which half of the images break; None if fewer do."""
    radii = sorted(record.radius for record in records if record.success)
    middle = (len(records) - 1) // 2
    return radii[middle] if middle < len(radii) else None


def eight_bit_counts(records: Sequence[Record]) -> dict[str, int]:
    """How many successes are still one as an exact 8-bit image."""
    tried = [record for record in records if record.eight_bit is not None]
    return {"successes": len(tried), "survive": sum(bool(record.eight_bit) for record in tried)}


def smallest_radii(records: Sequence[Record], goal: Goal = "wrong") -> dict[int, float | None]:
    """Per image, the smallest radius at which a goal is met: 0 where the original meets it, None if it never was."""
    found: dict[int, float | None] = {}
    for record in sorted(records, key=lambda record: record.radius):
        if meets_unmoved(record, goal):
            found[record.index] = 0.0
        elif meets(record, goal) and found.get(record.index) is None:
            found[record.index] = record.radius
        else:
            found.setdefault(record.index, None)
    return found


def meets(record: Record, goal: Goal) -> bool:
    """Whether the example of a record is proven and answered as the goal says."""
    return record.misled if goal == "wrong" else record.success


def meets_unmoved(record: Record, goal: Goal) -> bool:
    """Whether the original is answered as the goal says."""
    return record.clean_mistake if goal == "wrong" else record.prediction_before == record.target
