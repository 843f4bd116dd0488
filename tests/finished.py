"""A finished evaluation of the bundled model on a few bundled digits."""

from __future__ import annotations

from pathlib import Path

from massmover.evaluation.run import run
from massmover.evaluation.settings import Settings
from massmover.evaluation.subject import load_subject

MODEL, DATA = "mnist-standard", "mnist-sample"


def settings_of(
    *, count: int, radii: tuple[float, ...], model: str = MODEL, data: str = DATA, save_examples: int | None = None
) -> Settings:
    """Plan ascent on some images, everything else as it is by default."""
    return Settings(
        model=model,
        weights=None,
        mean=None,
        std=None,
        data=data,
        split="test",
        start=0,
        count=count,
        attack="ascent",
        radii=radii,
        smallest=False,
        window=5,
        ground="euclidean",
        normalisation="image",
        power=1.0,
        targeted=False,
        eight_bit=False,
        seed=0,
        batch_size=count,
        device="cpu",
        backend=None,
        save_examples=save_examples,
    )


def finished_run(out: Path, *, count: int, radii: tuple[float, ...]) -> Path:
    subject = load_subject(
        model=MODEL, weights=None, mean=None, std=None, images=DATA, split="test", start=0, count=count, device="cpu"
    )
    run(subject, settings_of(count=count, radii=radii), out=out)
    return out
