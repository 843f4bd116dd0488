"""An epoch of each recipe over a plain epoch, interleaved in one run."""

from __future__ import annotations

import dataclasses
from functools import partial

import torch

from benchmarks.clock import interleaved
from massmover.data import load
from massmover.models import lenet
from massmover.training import RECIPES, train


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    digits = load("mnist-sample").subset(0, 512)
    tasks = {}
    for name, recipe in RECIPES.items():
        short = dataclasses.replace(recipe, epochs=1, held_out=0.0)
        if short.adversary is not None:  # the cost of the end of a run, at the full radius
            short = dataclasses.replace(short, adversary=dataclasses.replace(short.adversary, growth=0.0))
        tasks[name] = partial(train, lenet, digits.images, digits.labels, recipe=short)
    seconds = interleaved(tasks, rounds=3)
    for name, value in seconds.items():
        each = 1e3 * value / len(digits)
        print(f"epoch of {name}: {each:.2f} ms an image, {value / seconds['standard']:.1f} plain epochs")


if __name__ == "__main__":
    main()
