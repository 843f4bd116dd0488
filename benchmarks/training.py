"""An epoch of each recipe over a plain epoch, in processor time, interleaved in one run.

What is counted is an epoch in the middle of a run: in the first one an adversary has nothing to remember yet.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import torch

from benchmarks.clock import timed
from massmover.data import load
from massmover.models import lenet, mlp
from massmover.training import RECIPES, train

EPOCHS = 5


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    digits = load("mnist-sample").subset(0, 512)
    for architecture in (lenet, mlp):
        tasks, names = {}, [name for name, recipe in RECIPES.items() if recipe.margin is None]
        for name in names:
            recipe = dataclasses.replace(RECIPES[name], held_out=0.0)
            if recipe.adversary is not None:  # the cost of the end of a run, at the full radius
                recipe = dataclasses.replace(recipe, adversary=dataclasses.replace(recipe.adversary, growth=0.0))
            for epochs in (1, EPOCHS):
                short = dataclasses.replace(recipe, epochs=epochs)
                tasks[f"{name} {epochs}"] = partial(train, architecture, digits.images, digits.labels, recipe=short)
        seconds = {name: spent.processor for name, spent in timed(tasks, rounds=3).items()}
        epoch = {name: (seconds[f"{name} {EPOCHS}"] - seconds[f"{name} 1"]) / (EPOCHS - 1) for name in names}
        for name, value in epoch.items():
            each = 1e3 * value / len(digits)
            print(
                f"{architecture.__name__}, epoch of {name}: {each:.2f} ms an image, "
                f"{value / epoch['standard']:.1f} plain epochs"
            )


if __name__ == "__main__":
    main()
