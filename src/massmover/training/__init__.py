"""Training, with and without an adversary: `train` runs a `Recipe`; `RECIPES` has the ones with a name."""

from massmover.training.adversary import Mover
from massmover.training.batches import accuracy
from massmover.training.lesson import Teachers
from massmover.training.loop import Trained, train
from massmover.training.recipe import RECIPES, TEACHERS, Adversary, Margin, Recipe

__all__ = [
    "RECIPES",
    "TEACHERS",
    "Adversary",
    "Margin",
    "Mover",
    "Recipe",
    "Teachers",
    "Trained",
    "accuracy",
    "train",
]
