"""The accuracy curves the paper prints, to hold a run against.

The victim is the adversarially trained model of Wong, Schmidt and Kolter, so a curve of another model is no
like-for-like comparison: a page shows these for that model, and for others only when asked.
"""

from __future__ import annotations

from typing import NamedTuple

from massmover.paper import ATTACK, ATTACK_RADII

RADII_PIXELS = tuple(float(radius) for radius in ATTACK_RADII)
NAMES = {"wong": "Wong et al. attack", "large step": "larger steps", "large step, gradient": "the paper's attack"}


class PaperCurve(NamedTuple):
    """Accuracy in percent at each of the radii above."""

    name: str
    percent: tuple[int, ...]


CURVES = {
    data: tuple(PaperCurve(NAMES[attack], percent) for attack, percent in rows.items()) for data, rows in ATTACK.items()
}


def curves_for(data: str, shape: tuple[int, ...]) -> tuple[PaperCurve, ...]:
    """The paper's curves for a data set, empty where the paper has none."""
    if data in ("mnist", "mnist-sample") and shape == (1, 28, 28):
        return CURVES["mnist"]
    if data == "cifar10" and shape == (3, 32, 32):
        return CURVES["cifar10"]
    return ()
