"""The accuracy curves the paper prints, to hold a run against.

Hu, Yang, Swaminathan and Salman, "Improved Wasserstein Attacks and Defenses", table of attacks. The victim is the
adversarially trained model of Wong, Schmidt and Kolter, so a curve of another model is no like-for-like comparison:
a page shows these for that model, and for others only when asked.
"""

from __future__ import annotations

from typing import NamedTuple

RADII_PIXELS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class PaperCurve(NamedTuple):
    """Accuracy in percent at each of the radii above."""

    name: str
    percent: tuple[int, ...]


# The weights of that model, as `manifest.json` fingerprints them; those for CIFAR-10 were not to be had.
VICTIMS = frozenset({"f5ee26930fb24937278ee628e6044dbb7f80cd5e3795ead5cea7e62aa1a1edc5"})

CURVES = {
    "mnist": (
        PaperCurve("Wong et al. attack", (100, 100, 100, 100, 94, 91, 83, 71)),
        PaperCurve("larger steps", (100, 96, 96, 94, 88, 69, 12, 0)),
        PaperCurve("the paper's attack", (100, 90, 85, 68, 39, 8, 1, 1)),
    ),
    "cifar10": (
        PaperCurve("Wong et al. attack", (82, 82, 82, 82, 82, 81, 80, 77)),
        PaperCurve("larger steps", (81, 80, 78, 70, 55, 23, 1, 0)),
        PaperCurve("the paper's attack", (76, 68, 58, 35, 20, 9, 1, 0)),
    ),
}


def curves_for(data: str, shape: tuple[int, ...]) -> tuple[PaperCurve, ...]:
    """The paper's curves for a data set, empty where the paper has none."""
    if data in ("mnist", "mnist-sample") and shape == (1, 28, 28):
        return CURVES["mnist"]
    if data == "cifar10" and shape == (3, 32, 32):
        return CURVES["cifar10"]
    return ()
