"""Records and settings with everything filled in, for tests that care about a few fields."""

from __future__ import annotations

from typing import Any

from massmover.evaluation.settings import Settings
from massmover.evaluation.store import Record


def record(index: int = 0, radius: float = 0.1, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "index": index,
        "label": 3,
        "radius": radius,
        "radius_pixels": radius * 100,
        "prediction_before": 3,
        "prediction_after": 3,
        "target": None,
        "success": False,
        "attack_success": False,
        "carried_from": None,
        "violation": None,
        "cost": radius,
        "distance": None,
        "mass_drift": 0.0,
        "range": (0.0, 1.0),
        "steps": 60,
        "seconds": 0.5,
        "trusted": True,
        "eight_bit": None,
    }
    return Record(**{**values, **changes})


def broken(index: int, radius: float, **changes: Any) -> Record:
    won: dict[str, Any] = {"success": True, "attack_success": True, "prediction_after": 8, "distance": radius}
    return record(index, radius, **{**won, **changes})


def settings(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "model": "mnist-standard",
        "weights": None,
        "mean": None,
        "std": None,
        "data": "mnist-sample",
        "split": "test",
        "start": 0,
        "count": 4,
        "attack": "ascent",
        "radii": (0.1, 0.2),
        "smallest": False,
        "window": 5,
        "ground": "euclidean",
        "normalisation": "image",
        "power": 1.0,
        "targeted": False,
        "eight_bit": False,
        "seed": 0,
        "batch_size": 2,
        "device": "cpu",
        "backend": None,
        "save_examples": None,
    }
    return Settings(**{**values, **changes})
