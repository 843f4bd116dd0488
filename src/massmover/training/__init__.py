"""Training, with and without an adversary: `train` runs a `Recipe`; `RECIPES` has the ones with a name."""

from massmover.training.adversary import Mover
from massmover.training.batches import accuracy
from massmover.training.loop import Trained, train
from massmover.training.recipe import BLENDED, LEAN, RECIPES, Adversary, Margin, Recipe

__all__ = ["BLENDED", "LEAN", "RECIPES", "Adversary", "Margin", "Mover", "Recipe", "Trained", "accuracy", "train"]
