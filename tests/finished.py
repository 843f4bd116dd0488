"""A finished evaluation of the bundled model on a few bundled digits."""

from __future__ import annotations

from pathlib import Path

from massmover.evaluation.run import run
from massmover.evaluation.settings import Settings
from massmover.evaluation.subject import load_subject

MODEL, DATA = "mnist-standard", "mnist-sample"


def finished_run(out: Path, *, count: int, radii: tuple[float, ...]) -> Path:
    settings = Settings(
        model=MODEL,
        weights=None,
        mean=None,
        std=None,
        data=DATA,
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
        save_examples=None,
    )
    subject = load_subject(
        model=MODEL, weights=None, mean=None, std=None, images=DATA, split="test", start=0, count=count, device="cpu"
    )
    run(subject, settings, out=out)
    return out
