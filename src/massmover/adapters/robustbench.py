"""A finished evaluation as JSON in the style of RobustBench's model cards; needs no other library."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from massmover.evaluation.settings import settings_from_json
from massmover.evaluation.store import RunFolder, read_json
from massmover.files import replace_file
from massmover.types import MassmoverError


def model_cards(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return one card for each radius of a run that `massmover evaluate` finished.

    Keys that RobustBench knows keep its spelling: percentages are strings with two digits.
    The robust accuracy is called `wasserstein_acc`, because AutoAttack did not measure it.
    """
    run = RunFolder(Path(folder))
    if not run.summary.exists():
        raise MassmoverError(f"{run.path} holds no summary.json: finish the run with massmover evaluate --resume.")
    manifest, summary = read_json(run.manifest), read_json(run.summary)
    try:
        return [card(point, manifest=manifest, summary=summary) for point in summary["accuracy"]]
    except (KeyError, TypeError) as error:
        raise MassmoverError(f"{run.path} is damaged ({error!r} is missing): run the evaluation again.") from error


def card(point: dict[str, Any], *, manifest: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """Return what one point of an accuracy curve says about the model."""
    settings = settings_from_json(manifest["settings"])
    return {
        "name": settings.model,
        "dataset": settings.data,
        "threat_model": "Wasserstein",
        "eps": f"{point['radius']:.6g}",
        "eps_pixels": f"{point['radius_pixels']:.6g}",  # radius x n_pixel, the unit of the published tables
        "ground": settings.ground,
        "power": settings.power,
        "normalisation": settings.normalisation,
        "window": settings.window,
        "attack": settings.attack,
        "draws": settings.draws,  # of a model that answers by chance
        "images": summary["images"],
        "clean_acc": f"{100 * summary['clean_accuracy']:.2f}",
        "wasserstein_acc": f"{100 * point['accuracy']:.2f}",
        "violations": point["violations"],
        "unreliable": not all(check["passed"] for check in summary["checks"]),
        "weights_sha256": manifest["weights"]["checksum"],
        "massmover": manifest["versions"]["massmover"],
    }


def write_model_cards(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write the cards of a run to a JSON file, whole or not at all, and return its path."""
    path = Path(out)
    replace_file(path, (json.dumps(model_cards(folder), indent=2, allow_nan=False) + "\n").encode())
    return path
