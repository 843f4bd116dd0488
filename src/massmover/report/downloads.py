"""The numbers of a page as files to keep, held by the page itself."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from massmover.report.intervals import wilson
from massmover.report.runs import Run


class Download(NamedTuple):
    """A file inside the page."""

    name: str
    about: str
    address: str  # of data, for a link


def downloads(runs: Sequence[Run]) -> list[Download]:
    """Accuracy, accuracy by class, one line an image, and all of it as JSON."""
    return [
        table_inside("accuracy.csv", "accuracy at each radius", accuracy_lines(runs)),
        table_inside("classes.csv", "the same by class", class_lines(runs)),
        table_inside("images.csv", "every image and what broke it", image_lines(runs)),
        file_inside("report.json", "all of it, with settings", json.dumps(everything(runs)), kind="application/json"),
    ]


def accuracy_lines(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One line for every run and radius, radius 0 first."""
    return [
        {
            "run": run.name,
            "radius": radius / run.scale,
            "radius_pixels": radius,
            "images": run.images,
            "accuracy": accuracy,
            "low_95": run.interval(accuracy).low,
            "high_95": run.interval(accuracy).high,
        }
        for run in runs
        for radius, accuracy in run.curve()
    ]


def class_lines(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One line for every run, class and radius."""
    return [
        {
            "run": run.name,
            "label": row.label,
            "class": run.class_name(row.label),
            "radius_pixels": radius,
            "images": row.images,
            "right": right,
            "accuracy": right / row.images,
            "low_95": wilson(right, row.images).low,
            "high_95": wilson(right, row.images).high,
        }
        for run in runs
        for row in run.by_class()
        for (radius, _), right in zip(run.curve(), row.right, strict=True)
    ]


def image_lines(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One line for every run and image; no radius where nothing broke it. A targeted attack has a radius of its own."""
    lines = []
    targeted = any(run.settings.targeted for run in runs)
    for run in runs:
        breaking, led = run.breaking(), run.breaking("target")
        between = {row.image: row for row in run.between()}
        for index, record in run.verdicts().items():
            radius = breaking[index]
            aimed = {
                "target": record.target,
                "target_radius": _pixels(led[index], run),
                "target_radius_pixels": led[index],
            }
            lines.append(
                {
                    "run": run.name,
                    "image": index,
                    "label": record.label,
                    "class": run.class_name(record.label),
                    "answer_clean": record.prediction_before,
                    "answer": record.prediction_after if record.misled else record.prediction_before,
                    "smallest_radius": _pixels(radius, run),
                    "smallest_radius_pixels": radius,
                    "cost": record.cost,
                    "distance": record.distance,
                    "margin_before": record.margin_before,
                    "margin": record.margin,
                    **(aimed if targeted else {}),
                    "certified_radius": record.certified,
                    "certified_radius_pixels": between[index].proved if index in between else None,
                    "stood_radius_pixels": between[index].stood if index in between else None,
                }
            )
    return lines


def _pixels(radius: float | None, run: Run) -> float | None:
    """A radius x pixels as a radius."""
    return None if radius is None else radius / run.scale


def everything(runs: Sequence[Run]) -> dict[str, Any]:
    """The three tables, and what each run was asked to do."""
    return {
        "runs": [
            {"name": run.name, "settings": run.settings.as_json(), "manifest": run.manifest, "summary": run.summary}
            for run in runs
        ],
        "accuracy": accuracy_lines(runs),
        "classes": class_lines(runs),
        "images": image_lines(runs),
    }


def table_inside(name: str, about: str, lines: Sequence[dict[str, Any]]) -> Download:
    """Lines as a file of comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file_inside(name, about, text.getvalue(), kind="text/csv")


def file_inside(name: str, about: str, text: str, *, kind: str) -> Download:
    """A file whose whole text is in its link."""
    address = f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
    return Download(name, about, address)
