"""Names for the shapes that travel through the package, and what a classifier is.

B images, C channels, H rows, W columns; K offsets in a window, R rings of equal cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:  # torch takes two seconds to import, and a refused argument needs none of it
    from torch import Tensor

Images: TypeAlias = "Tensor"  # (B, C, H, W), pixels in [0, 1]
Labels: TypeAlias = "Tensor"  # (B,), class numbers
Logits: TypeAlias = "Tensor"  # (B, classes)
PerImage: TypeAlias = "Tensor"  # (B,)
PerChannel: TypeAlias = "Tensor"  # (B, C)
Flows: TypeAlias = "Tensor"  # (B, C, K, H, W), mass sent from a pixel along each offset of the window

Classifier: TypeAlias = Callable[["Tensor"], "Tensor"]  # images to logits

Ground = Literal["euclidean", "manhattan", "chebyshev"]
Normalisation = Literal["image", "channel"]
Backend = Literal["numba", "torch", "triton"]


class Stage(NamedTuple):
    """Where an attack is, for whoever watches it."""

    attack: str
    step: int  # steps done
    steps: int  # at most
    standing: int  # images that are not broken yet


Watch: TypeAlias = Callable[[Stage], None]


LARGEST_POWER = 32  # of a distance: beyond it float64 has no digits left for the nearer of two pixels


class MassmoverError(ValueError):
    """Something the caller gave cannot be used; the message says what is needed instead."""


class StoppedError(MassmoverError):
    """A run ended early through no fault of what was asked; what was done is kept, and the run can go on."""
