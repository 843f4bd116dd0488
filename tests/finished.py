"""A finished evaluation of the bundled model on a few bundled digits."""

from __future__ import annotations

from pathlib import Path

from massmover.evaluation.run import Destination, run
from massmover.evaluation.settings import Settings
from massmover.evaluation.subject import load_subject

MODEL, DATA = "mnist-standard", "mnist-sample"


def settings_of(
    *, count: int, radii: tuple[float, ...], model: str = MODEL, data: str = DATA, save_examples: int | None = None
) -> Settings:
    """Plan ascent on some images, everything else as it is by default."""
    return Settings(
        model=model,
        data=data,
        count=count,
        attack="ascent",
        radii=radii,
        batch_size=count,
        device="cpu",
        save_examples=save_examples,
    )


def finished_run(out: Path, *, count: int, radii: tuple[float, ...]) -> Path:
    settings = settings_of(count=count, radii=radii)
    run(load_subject(settings), settings, Destination(out))
    return out
