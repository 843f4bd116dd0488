"""Importing a library that not everybody has."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch

from massmover.attacks import AttackResult, SmallestResult, attack, smallest_radius
from massmover.attacks.base import Attack
from massmover.ball import WassersteinBall
from massmover.classifier import Drawn, first_logits_of
from massmover.types import Classifier, Images, Labels, MassmoverError


class MissingExtraError(MassmoverError, ImportError):
    """A library is needed that is not installed, or does not import; the message names the extra that brings it."""


def needed(module: str, *, extra: str) -> Any:
    """Import a module of another library, or say which extra of this package brings it."""
    library = module.partition(".")[0]
    try:
        importlib.import_module(library)
        return importlib.import_module(module)
    except Exception as error:  # a library that is installed but broken may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == library
        found = "is not installed" if absent else f"does not import ({type(error).__name__}: {error})"
        raise MissingExtraError(
            f"massmover.adapters.{extra} needs {library}, which {found}. Run: pip install 'massmover[{extra}]'"
        ) from error


BALL = WassersteinBall(0.1)


class Chance(TypedDict):
    """What decides what chance does."""

    draws: int | None
    seed: int


@dataclass(frozen=True)
class Mover:
    """How mass may move and how a place for it is looked for."""

    ball: WassersteinBall = BALL
    method: str | Attack = field(default="auto")
    seed: int = 0
    draws: int | None = None  # of a model that answers by chance

    def within(self, model: Classifier, images: Images, labels: Labels, *, targeted: bool = False) -> AttackResult:
        """Attack within the ball; `labels` are the true classes, or those to reach if the attack is targeted."""
        truth, aims = truth_and_aims(self.judge(model), images, labels, targeted=targeted)
        return attack(model, images, truth, targets=aims, ball=self.ball, method=self.method, **self._drawn())

    def closest(self, model: Classifier, images: Images, labels: Labels, *, targeted: bool = False) -> SmallestResult:
        """Look for the smallest radius of each image, up to that of the ball."""
        truth, aims = truth_and_aims(self.judge(model), images, labels, targeted=targeted)
        return smallest_radius(model, images, truth, targets=aims, ball=self.ball, method=self.method, **self._drawn())

    def judge(self, model: Classifier) -> Classifier:
        """The model as success is decided: the mean over draws that no search has seen, or as it is."""
        return model if self.draws is None else Drawn(model, draws=self.draws, seed=self.seed, judge=True)

    def _drawn(self) -> Chance:
        return {"draws": self.draws, "seed": self.seed}


def truth_and_aims(
    model: Classifier, images: Images, labels: Labels, *, targeted: bool
) -> tuple[Labels, Labels | None]:
    """Labels and targets as massmover wants them, from the one tensor that other libraries pass.

    A targeted attack does not look at the true class, and other libraries do not tell it; the
    class after the target stands in for it, since a target must differ from the label.
    """
    if not targeted:
        return labels, None
    if not len(images):
        return labels, labels
    with torch.no_grad():
        classes = first_logits_of(model, images[:1]).shape[1]
    return (labels + 1) % classes, labels
