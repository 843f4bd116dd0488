"""The judge on photographs, against plain POT: processor time a channel, and whether the verdicts agree.

    python -m benchmarks.photographs FILE --witness 3

FILE is an .npz with originals as `original`, examples as `adversarial` and a `radius`, such as the examples.npz of
`massmover evaluate`. Each photograph is judged at its radius and at 0.9 of its distance. POT solves the first --witness
channels to the optimum, as the judge once did: moves of up to three pixels, all pairs priced one by one, the best eight
of each source added. Not in `make bench`: POT takes a minute and more a channel.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import ot
from numpy.typing import NDArray
from scipy.sparse import coo_matrix

from massmover import verify

Array = NDArray[Any]
INSIDE, OUTSIDE = 1.01, 0.9  # times the distance: where verdicts are compared with POT's
REACH, BEST, BLOCK = 3, 8, 100  # moves to begin with; arcs that are added for each source; sources priced at a time


def by_pot(before: Array, after: Array) -> float:
    """The exact distance of one channel, in units of mass times pixels."""
    change = after * (before.sum() / after.sum()) - before
    here, there = np.argwhere(change < 0), np.argwhere(change > 0)
    supply, demand = -change[change < 0], change[change > 0]
    masses = supply / supply.sum(), demand / demand.sum()
    number = np.full(np.add(change.shape, 2 * REACH), -1)
    number[there[:, 0] + REACH, there[:, 1] + REACH] = np.arange(len(there))
    near = np.stack([number[here[:, 0] + dy, here[:, 1] + dx] for dy, dx in np.ndindex(2 * REACH + 1, 2 * REACH + 1)])
    arcs = [np.stack([np.nonzero(near >= 0)[1], near[near >= 0]]), _staircase(*masses)]
    while True:
        rows, columns = np.unique(np.concatenate(arcs, axis=1), axis=1)
        costs = np.hypot(*(here[rows] - there[columns]).T)
        graph = coo_matrix((costs, (rows, columns)), shape=(len(here), len(there)))
        cost, log = ot.emd2(*masses, graph, numItermax=1_000_000_000, log=True, check_marginals=False)
        new = _paying(here, there, log["u"], log["v"])
        if not new.shape[1]:
            return float(cost * supply.sum())
        arcs = [np.stack([rows, columns]), new]


def _staircase(a: Array, b: Array) -> Array:
    """Arcs that can carry everything: what the corner rule takes, two steps wide against rounding."""
    ends = np.sort(np.concatenate([np.cumsum(a), np.cumsum(b)]))
    pairs = [np.minimum(np.searchsorted(np.cumsum(mass), ends), len(mass) - 1) for mass in (a, b)]
    steps = [[np.maximum(pairs[0] - dy, 0), np.maximum(pairs[1] - dx, 0)] for dy, dx in np.ndindex(2, 2)]
    return np.concatenate([np.stack(step) for step in steps], axis=1)


def _paying(here: Array, there: Array, u: Array, v: Array) -> Array:
    """Of each source the best arcs that cost less than the duals say, of all pairs."""
    found = [np.zeros((2, 0), np.int64)]
    for start in range(0, len(here), BLOCK):
        part = here[start : start + BLOCK]
        apart = np.hypot(part[:, None, 0] - there[:, 0], part[:, None, 1] - there[:, 1])
        reduced = apart - u[start : start + BLOCK, None] - v
        best = np.argpartition(reduced, min(BEST, len(there) - 1), axis=1)[:, :BEST]
        rows, places = np.nonzero(np.take_along_axis(reduced, best, axis=1) < -1e-9)
        found.append(np.stack([rows + start, best[rows, places]]))
    return np.concatenate(found, axis=1)


def judged(before: Array, after: Array, radius: float) -> tuple[Any, float]:
    """The verdict on one image, settled, and the processor time that it took."""
    begin = time.process_time()
    return verify(before[None], after[None], radius, settle=True, threads=1), time.process_time() - begin


def main() -> None:
    """Print a line for each photograph, and the ratio where POT was asked."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("file")
    arguments.add_argument("--photographs", type=int, nargs="+", help="which of them; all by default")
    arguments.add_argument("--witness", type=int, default=0, help="channels that POT solves as well")
    asked = arguments.parse_args()
    file = np.load(asked.file)
    radii = np.broadcast_to(file["radius"], len(file["original"]))
    left, seconds = asked.witness, {"judge": 0.0, "POT": 0.0}
    for number in asked.photographs or range(len(radii)):
        before, after = (file[name][number].astype(np.float64) for name in ("original", "adversarial"))
        radius, channels = float(radii[number]), len(before)
        inside, first = judged(before, after, radius)
        outside, second = judged(before, after, OUTSIDE * float(inside.distance))
        print(
            f"photograph {number}: at its radius {'inside' if inside.inside else 'OUTSIDE'}, {first / channels:.2f} s "
            f"a channel, distance at most {float(inside.distance) / radius:.4f} of it; at {OUTSIDE} of the distance "
            f"{'INSIDE' if outside.inside else 'outside'} (at least {float(outside.distance_lower) / radius:.4f}), "
            f"{second / channels:.2f} s a channel",
            flush=True,
        )
        for channel in range(min(left, channels)):
            begin = time.process_time()
            truth = by_pot(before[channel], after[channel]) / before[channel].sum()
            spent, left = time.process_time() - begin, left - 1
            pair = before[channel][None], after[channel][None]
            verdicts = [judged(*pair, share * truth) for share in (INSIDE, OUTSIDE)]
            agree = bool(verdicts[0][0].inside) and not bool(verdicts[1][0].inside)
            seconds["judge"] += sum(time_ for _, time_ in verdicts) / 2
            seconds["POT"] += spent
            print(f"  channel {channel}: POT {spent:.1f} s, verdicts {'agree' if agree else 'DIFFER'}", flush=True)
    if asked.witness:
        print(f"POT takes {seconds['POT'] / seconds['judge']:.1f} times the judge's processor time")


if __name__ == "__main__":
    main()
