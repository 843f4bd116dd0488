"""The judge on photographs, against plain POT: processor time a channel, and whether the verdicts agree.

    python -m benchmarks.photographs FILE --witness 3

FILE is an .npz with originals as `original`, examples as `adversarial` and a `radius`, such as the examples.npz of
`massmover evaluate` or what examples/photographs/radii.py keeps. Each photograph is judged at its radius and at 0.9 of
its distance. With --witness, POT solves so many channels instead, to a thousandth of the optimum: moves of up to
three pixels, then all pairs priced one by one, those that pay added, and again; the judge has to find each inside at
1.01 and outside at 0.9 of that distance. It shares nothing with the judge but POT itself.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import ot
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import coo_matrix

from massmover import verify

Array = NDArray[Any]
INSIDE, OUTSIDE = 1.01, 0.9  # times the distance: where verdicts are compared with POT's
REACH, MOST = 3, 1_000_000  # moves to begin with; pairs that are added at a time
PAYS, GAP = 1e-9, 1e-3  # reduced cost in pixels below which a pair pays; relative gap at which POT's bounds have met


def by_pot(before: Array, after: Array) -> tuple[float, float]:
    """Bounds of the distance of one channel in units of mass times pixels, closer than GAP: by duals, by a plan."""
    change = after * (before.sum() / after.sum()) - before
    here, there = np.argwhere(change < 0), np.argwhere(change > 0)
    supply, demand = -change[change < 0], change[change > 0]
    masses = supply / supply.sum(), demand / demand.sum()
    number = np.full(np.add(change.shape, 2 * REACH), -1)
    number[there[:, 0] + REACH, there[:, 1] + REACH] = np.arange(len(there))
    near = np.stack([number[here[:, 0] + dy, here[:, 1] + dx] for dy, dx in np.ndindex(2 * REACH + 1, 2 * REACH + 1)])
    arcs, new = np.zeros(0, np.int64), [np.stack([np.nonzero(near >= 0)[1], near[near >= 0]]), _staircase(*masses)]
    while True:
        arcs = np.unique(np.concatenate([arcs, *(rows * len(there) + columns for rows, columns in new)]))
        rows, columns = np.divmod(arcs, len(there))
        costs = np.hypot(*(here[rows] - there[columns]).T)
        graph = coo_matrix((costs, (rows, columns)), shape=(len(here), len(there)))
        cost, log = ot.emd2(*masses, graph, numItermax=1_000_000_000, log=True, check_marginals=False)
        u, v = log["u"], log["v"]
        lowest, paying = _paying(here, there, u, v)
        least = masses[0] @ (u + lowest) + masses[1] @ v  # lowered by what the best pair would save, duals are feasible
        if cost - least <= GAP * cost:
            return float(least * supply.sum()), float(cost * supply.sum())
        new = [paying]


def _staircase(a: Array, b: Array) -> Array:
    """Arcs that can carry everything: what the corner rule takes, two steps wide against rounding."""
    ends = np.sort(np.concatenate([np.cumsum(a), np.cumsum(b)]))
    pairs = [np.minimum(np.searchsorted(np.cumsum(mass), ends), len(mass) - 1) for mass in (a, b)]
    steps = [[np.maximum(pairs[0] - dy, 0), np.maximum(pairs[1] - dx, 0)] for dy, dx in np.ndindex(2, 2)]
    return np.concatenate([np.stack(step) for step in steps], axis=1)


@njit()
def _priced(here: Array, there: Array, u: Array, v: Array, least: Array, most: int) -> tuple[Array, Array, Array]:
    """The lowest reduced cost d - u - v of each source, and the first pairs whose cost is below the least asked for.

    A target that is more rows away than u and the highest dual of its row add up to cannot pay; every other is priced.
    """
    lowest, sources, targets, found = np.zeros(len(u)), np.empty(most, np.int64), np.empty(most, np.int64), 0
    begins = np.searchsorted(there[:, 0], np.arange(there[-1, 0] + 2))  # the first target of each row
    highest = np.full(len(begins) - 1, -np.inf)
    for target in range(len(v)):
        highest[there[target, 0]] = max(highest[there[target, 0]], v[target])
    for source in range(len(u)):
        for row in range(len(highest)):
            down = here[source, 0] - row
            if abs(down) >= u[source] + highest[row]:
                continue
            for target in range(begins[row], begins[row + 1]):
                right = here[source, 1] - there[target, 1]
                reduced = math.sqrt(down * down + right * right) - u[source] - v[target]
                lowest[source] = min(lowest[source], reduced)
                if reduced < least[source] and found < most:
                    sources[found], targets[found], found = source, target, found + 1
    return lowest, sources[:found], targets[:found]


def _paying(here: Array, there: Array, u: Array, v: Array) -> tuple[Array, Array]:
    """The lowest reduced costs, and the pairs that pay: all of them, or where those are too many each source's best."""
    lowest, rows, columns = _priced(here, there, u, v, np.full(len(u), -PAYS), MOST)
    for share in (0.5, 0.9):
        if len(rows) < MOST:
            break
        _, rows, columns = _priced(here, there, u, v, np.minimum(share * lowest, -PAYS), MOST)
    return lowest, np.stack([rows, columns])


def judged(before: Array, after: Array, radius: float) -> tuple[Any, float]:
    """The verdict on one image, settled, and the processor time that it took."""
    begin = time.process_time()
    return verify(before[None], after[None], radius, settle=True, threads=1), time.process_time() - begin


def beside_pot(before: Array, after: Array) -> tuple[bool, float, float]:
    """Whether the judge and POT agree on one channel, inside and outside, and the processor time that each took.

    The judge's is that of one verdict.
    """
    begin = time.process_time()
    least, most = (bound / before.sum() for bound in by_pot(before, after))
    spent, pair = time.process_time() - begin, (before[None], after[None])
    (near, first), (far, second) = judged(*pair, INSIDE * most), judged(*pair, OUTSIDE * least)
    return bool(near.inside) and not bool(far.inside), (first + second) / 2, spent


def by_itself(before: Array, after: Array, radius: float) -> str:
    """What the judge says of a photograph at its radius, and at less than its distance."""
    (inside, first), channels = judged(before, after, radius), len(before)
    outside, second = judged(before, after, OUTSIDE * float(inside.distance))
    return (
        f"at its radius {'inside' if inside.inside else 'OUTSIDE'}, {first / channels:.2f} s "
        f"a channel, distance at most {float(inside.distance) / radius:.4f} of it; at {OUTSIDE} of the distance "
        f"{'INSIDE' if outside.inside else 'outside'} (at least {float(outside.distance_lower) / radius:.4f}), "
        f"{second / channels:.2f} s a channel"
    )


def main() -> None:
    """Print a line for each photograph that has changed, or with POT for each channel, and the ratio."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("file")
    arguments.add_argument("--photographs", type=int, nargs="+", help="which of them; all by default")
    arguments.add_argument("--witness", type=int, default=0, help="channels that POT solves as well")
    asked = arguments.parse_args()
    with np.load(asked.file) as file:
        originals, examples = file["original"], file["adversarial"]
        radii = np.broadcast_to(file["radius"], len(originals))
    compared: list[tuple[bool, float, float]] = []
    for number in asked.photographs or range(len(radii)):
        before, after = (images[number].astype(np.float64) for images in (originals, examples))
        if np.array_equal(before, after):
            continue
        if not asked.witness:
            print(f"photograph {number}: {by_itself(before, after, float(radii[number]))}", flush=True)
        for channel in range(min(asked.witness - len(compared), len(before))):
            agree, judge, pot = beside_pot(before[channel], after[channel])
            compared.append((agree, judge, pot))
            verdicts = "agree" if agree else "DIFFER"
            print(
                f"photograph {number}, channel {channel}: verdicts {verdicts}, judge {judge:.2f} s, POT {pot:.1f} s",
                flush=True,
            )
    if compared:
        agreed, judge, pot = (sum(values) for values in zip(*compared, strict=True))
        print(
            f"{agreed} of {len(compared)} channels agree; the judge takes {judge / len(compared):.2f} s a channel, "
            f"POT {pot / judge:.1f} times as long"
        )


if __name__ == "__main__":
    main()
