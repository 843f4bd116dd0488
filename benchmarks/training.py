"""An epoch of each recipe over a plain epoch, in processor time, interleaved in one run.

What is counted is an epoch in the middle of a run: in the first one an adversary has nothing to remember yet.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import torch

from benchmarks.clock import timed
from massmover.data import load
from massmover.models import lenet, load_model, mlp
from massmover.training import RECIPES, Teachers, train


def main(*, count: int = 512, epochs: int = 5, rounds: int = 3) -> None:
    """Print the ratios, of a run of several epochs without its first one."""
    torch.set_num_threads(1)
    digits = load("mnist-sample").subset(0, count)
    # As large as those that the recipe taught trains.
    teachers = Teachers([load_model(name) for name in ("mnist-certified", "mnist-certified-far", "mnist-robust-97")])
    for architecture in (lenet, mlp):
        tasks, names = {}, [name for name, recipe in RECIPES.items() if recipe.margin is None]
        for name in names:
            recipe = dataclasses.replace(RECIPES[name], held_out=0.0)
            if recipe.adversary is not None:  # the cost of the end of a run, at the full radius
                recipe = dataclasses.replace(recipe, adversary=dataclasses.replace(recipe.adversary, growth=0.0))
            teacher = teachers if recipe.taught else None
            for length in (1, epochs):
                short = dataclasses.replace(recipe, epochs=length)
                tasks[f"{name} {length}"] = partial(
                    train, architecture, digits.images, digits.labels, recipe=short, teacher=teacher
                )
        seconds = {name: spent.processor for name, spent in timed(tasks, rounds=rounds).items()}
        epoch = {name: (seconds[f"{name} {epochs}"] - seconds[f"{name} 1"]) / (epochs - 1) for name in names}
        for name, value in epoch.items():
            each = 1e3 * value / len(digits)
            print(
                f"{architecture.__name__}, epoch of {name}: {each:.2f} ms an image, "
                f"{value / epoch['standard']:.1f} plain epochs"
            )


if __name__ == "__main__":
    main()
