"""Print how many of the photographs stand at each radius, what is proved, and what it costs.

    python radii.py 1 3 10 30 100 --attack auto --measure 1

Every result is checked by its proof, whether the attack won or not. Exact transport measures a random sample, at each
radius as many photographs as --measure says. Seconds are those of one processor. --keep writes originals and results to
a file that benchmarks/photographs.py reads.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import massmover
from massmover.data import load
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_maker import proving_moves
from photographs import SAMPLES, efficientnet_lite0


class Outcome(NamedTuple):
    """What became of one photograph."""

    stands: bool
    proved: bool
    attack: float  # seconds of processor time, as are the next two
    proof: float  # to write the plan as a list of moves
    check: float
    steps: int  # gradients of the model
    distance: float | None = None  # exact, over what the plan costs
    inside: bool | None = None


def timed(task: Callable[[], Any]) -> tuple[Any, float]:
    """What a task returns, and the processor time that it took."""
    begin = time.process_time()
    return task(), time.process_time() - begin


def outcome(
    model: Any, image: torch.Tensor, label: torch.Tensor, *, radius: float, method: str, measure: bool
) -> tuple[Outcome, torch.Tensor]:
    """Attack one photograph, check its proof, and measure its distance if asked; what became of it, and the image."""
    result, attack = timed(lambda: massmover.attack(model, image, label, radius=radius, method=method))
    moves, proof = timed(lambda: proving_moves(result.plan, image, 0))
    pictures = image[0].numpy(), result.images[0].numpy()
    verdict, seconds = timed(lambda: check(*pictures, moves, Claim(radius, tolerance=1e-9)))
    found = Outcome(not bool(result.success), verdict.proved, attack, proof, seconds, int(result.steps))
    if not measure or not float(result.cost):
        return found, result.images
    judged = massmover.verify(image, result.images, radius)
    share = float(judged.distance) / float(result.cost)
    return found._replace(distance=share, inside=bool(judged.inside)), result.images


def summary(found: list[Outcome]) -> str:
    """One line for a radius."""
    attacks, proofs, checks = (sorted(getattr(one, name) for one in found) for name in ("attack", "proof", "check"))
    measured = [one for one in found if one.distance is not None]
    words = [
        f"{sum(one.stands for one in found)} of {len(found)} right",
        f"{sum(one.proved for one in found)} proved",
        f"attack {sum(attacks) / len(found):.1f} s (at most {attacks[-1]:.1f})",
        f"proof written in {proofs[-1]:.2f} s and checked in {checks[-1]:.2f} s at most",
        f"{len(measured)} measured, {sum(bool(one.inside) for one in measured)} inside",
    ]
    if measured:
        words.append(f"exact distance over cost at least {min(one.distance or 0 for one in measured):.4f}")
    return ", ".join(words)


def peak_megabytes() -> float:
    """The most memory that this process has taken, where the system says so (Linux)."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(told.group(1)) / 1024 if told else float("nan")


def main() -> None:
    """Attack the photographs one by one, at one radius after the other."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("radii", type=float, nargs="+", help="radius x pixels, such as 30")
    arguments.add_argument("--attack", default="ascent", help="ascent (default), auto or any other")
    arguments.add_argument("--count", type=int, default=SAMPLES, help="of the photographs")
    arguments.add_argument("--measure", type=int, default=0, help="how many to measure exactly at each radius")
    arguments.add_argument("--keep", help="a file for the results, such as results.npz")
    asked = arguments.parse_args()
    whole, model = load("photographs.npz"), efficientnet_lite0()
    images, labels = whole.images_as_float(0, asked.count), whole.labels[: asked.count]
    massmover.attack(model, images[:1], labels[:1], radius=1e-7, method=asked.attack)  # compiles
    kept: dict[str, list[Any]] = {"original": [], "adversarial": [], "radius": []}
    for radius in asked.radii:
        sample, found = set(random.Random(f"{radius}").sample(range(len(images)), asked.measure)), []
        for number in range(len(images)):
            pair, share = (images[number : number + 1], labels[number : number + 1]), radius / images[0].numel()
            measure = number in sample
            one, moved = outcome(model, *pair, radius=share, method=asked.attack, measure=measure)
            found.append(one)
            for name, value in zip(kept, (images[number].numpy(), moved[0].numpy(), share), strict=True):
                kept[name].append(value)
            print(f"  {radius:g}, photograph {number}: {found[-1]}", flush=True)
        print(f"radius x pixels {radius:g}: {summary(found)}", flush=True)
    if asked.keep:
        original, adversarial, radii = (np.stack(values) for values in kept.values())
        np.savez(asked.keep, original=original, adversarial=adversarial, radius=radii)
    print(f"memory at most {peak_megabytes():.0f} MB")


if __name__ == "__main__":
    main()
