"""The judge's ruler: exact Wasserstein distances between images, by network simplex.

This module shares no code with any solver or with the geometry they use, so that an error there cannot
hide here. It works channel by channel in float64 on the whole pixel grid. When the cost is a metric (power <= 1),
mass that both images share may stay home, and only pixels that changed enter the problem.

Small problems are solved on the full bipartite graph. Large ones (a 224 x 224 photograph has 50,176 pixels a
channel) start from short moves only; pairs whose reduced cost is negative are added until there are none,
which is the same optimum with a fraction of the arcs. Either way a lower and an upper bound come out, ever closer;
who only asks on which side of a radius the distance lies need not wait until they meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from massmover.types import Ground, MassmoverError, Normalisation

Array = NDArray[np.float64]
_Interval = tuple[float, float]

DENSE_ARCS = 100_000  # above this many arcs the sparse path is faster, and its bounds prove themselves
SHORT_MOVES = 2  # the sparse path starts with moves of up to this many rows and columns; with 3, 1.5 times the time
CURVES = 3  # along which mass that finds no place nearby is passed on; with 2 a bound from below takes twice the time
HEAVY = 0.97  # of the mass that travels: what the heaviest pixels carry that are measured first
HEAVY_ARCS = 4_000_000  # at most between them, and
HEAVY_SHARE = 0.01  # of all arcs at most: or the rest is measured at once
ADDED, BEST = 500_000, 8  # arcs that are added at a time, about, and for each source at least
ROUNDS = 60  # of adding arcs, before bounds are returned instead of the optimum
PAYS = 1e-12  # reduced cost, below zero by more than which an arc pays
NEARLY = 0.01  # relative gap below which the duals tell which arcs matter
SLACK = 0.5  # reduced cost, in pixels for power 1, up to which an arc then stays
TILE = 8  # rows and columns of the tiles by which pairs of pixels are priced
NEGATIVE = 1e-6  # how far below 0 a pixel may be by arithmetic alone
LARGEST_POWER = 32  # of a distance: beyond it float64 has no digits left for the nearer of two pixels
AGREE = 1e-9  # relative gap between the bounds below which a distance counts as exact


class Distances(NamedTuple):
    """Per image, the interval that holds the distance; both ends agree to 1e-9 unless a limit or a radius was met."""

    lower: Array  # (B,)
    upper: Array  # (B,)

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Where the two bounds agree."""
        return np.asarray(self.lower >= self.upper * (1 - AGREE) - 1e-21)


def exact_distance(
    x: Any,
    z: Any,
    *,
    ground: Ground = "euclidean",
    power: float = 1.0,
    normalisation: Normalisation = "image",
    threads: int | None = None,
) -> torch.Tensor:
    """The exact transport cost between images x and z, one number per image, in float64.

    x and z are (B, C, H, W), as tensors or arrays. Each channel of z is scaled to the mass of the
    channel of x first; if only one of the two is black the distance is infinite. Negative pixels are refused.
    """
    found = distance_bounds(x, z, ground=ground, power=power, normalisation=normalisation, threads=threads)
    if not found.exact.all():
        worst = int(np.argmin(found.exact))
        raise MassmoverError(
            f"image {worst} was not solved to the optimum: its distance lies between {found.lower[worst]:.9g} and "
            f"{found.upper[worst]:.9g}; distance_bounds returns both ends"
        )
    return torch.from_numpy(found.upper)


def distance_bounds(
    x: Any,
    z: Any,
    *,
    ground: Ground = "euclidean",
    power: float = 1.0,
    normalisation: Normalisation = "image",
    threads: int | None = None,
    radius: Any = None,
) -> Distances:
    """Bounds of the transport cost per image; equal unless the problem was too large to finish.

    With a `radius`, one number or one an image, bounds need not meet: they are returned once the upper one is at most
    the radius or the lower one above it. Images are spread over threads: the simplex runs outside Python's lock.
    """
    before, after = _images(x, "x"), _images(z, "z")
    if before.shape != after.shape:
        raise MassmoverError(f"x is {before.shape} and z is {after.shape}: they must have the same shape")
    if normalisation not in ("image", "channel"):
        raise MassmoverError(f"unknown normalisation {normalisation!r}: use 'image' or 'channel'")
    if not 0 < power <= LARGEST_POWER:
        raise MassmoverError(f"power is {power}: it must be a positive number up to {LARGEST_POWER}, such as 1.0")
    _ground_cost(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), ground=ground, power=power)  # known?
    radii = np.asarray(math.nan if radius is None else radius, np.float64)
    if radii.shape not in ((), (len(before),)):
        raise MassmoverError(f"radius has shape {radii.shape}: one number, or one for each of {len(before)} images")
    radii = np.broadcast_to(radii, len(before))

    def one(index: int) -> _Interval:
        low, high, pair = 0.0, math.inf, (before[index], after[index])
        for low, high in _image_narrowing(*pair, ground=ground, power=power, normalisation=normalisation):
            if high <= radii[index] or low > radii[index]:  # never where it is NaN
                break
        return low, high

    with ThreadPoolExecutor(threads or torch.get_num_threads()) as pool:
        pairs = list(pool.map(one, range(len(before))))
    bounds = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return Distances(lower=bounds[:, 0], upper=bounds[:, 1])


def _images(values: Any, name: str) -> Array:
    array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values).astype(np.float64)
    if array.ndim != 4:
        raise MassmoverError(f"{name} has shape {array.shape}: (images, channels, rows, columns) is needed")
    if not np.isfinite(array).all():
        raise MassmoverError(f"{name} holds NaN or infinite pixels: there is no distance to measure")
    if array.size and array.min() < -NEGATIVE:
        raise MassmoverError(
            f"{name} has pixels down to {array.min():g}: mass is 0 or more. Undo the normalisation, or clip the images."
        )
    return np.clip(array, 0, None)


def _image_narrowing(
    x: Array, z: Array, *, ground: Ground, power: float, normalisation: Normalisation
) -> Iterator[_Interval]:
    """Bounds of an image's distance, ever closer: all channels take a step, then all take the next one."""
    found: list[Iterator[_Interval]] = []
    for before, after in zip(x, z, strict=True):
        mass, other = before.sum(), after.sum()
        if mass == 0 and other == 0:
            continue
        if mass == 0 or other == 0:
            yield math.inf, math.inf
            return
        unit = x.sum() if normalisation == "image" else mass
        found.append(_channel_narrowing(before, after * (mass / other), unit, ground=ground, power=power))
    bounds: dict[int, _Interval] = dict.fromkeys(range(len(found)), (0.0, math.inf))
    going = True
    while going:
        steps = {channel: step for channel, way in enumerate(found) if (step := next(way, None)) is not None}
        going, bounds = bool(steps), bounds | steps
        yield math.fsum(low for low, _ in bounds.values()), math.fsum(high for _, high in bounds.values())


def _channel_narrowing(x: Array, z: Array, unit: float, *, ground: Ground, power: float) -> Iterator[_Interval]:
    """Bounds of a channel's distance in units of mass, ever closer; the last ones are the best that can be had."""
    if power <= 1:  # a metric: only the difference travels
        supply, demand = np.clip(x - z, 0, None), np.clip(z - x, 0, None)
    else:
        supply, demand = x, z
    sources, targets = np.argwhere(supply > 0), np.argwhere(demand > 0)
    if len(sources) == 0 or len(targets) == 0:
        yield 0.0, 0.0
        return
    mass = float(supply.sum()) / unit
    a, b = supply[supply > 0] / supply.sum(), demand[demand > 0] / demand.sum()
    if len(a) * len(b) <= DENSE_ARCS:
        solved = _simplex(a, b, _ground_cost(sources[:, None], targets[None], ground=ground, power=power))
        if solved.warning is not None:
            raise MassmoverError(f"the network simplex did not finish: {solved.warning}")
        yield solved.cost * mass, solved.cost * mass
        return
    for low, high in _sparse_narrowing(a, b, sources, targets, ground=ground, power=power):
        yield low * mass, high * mass


class _Solved(NamedTuple):
    """What the network simplex found."""

    cost: float
    u: Array  # duals of sources and of targets
    v: Array
    warning: str | None  # why this is not the optimum


def _simplex(a: Array, b: Array, costs: Any) -> _Solved:
    """POT's network simplex, on all arcs or on those of a sparse matrix."""
    import ot  # POT imports scikit-learn where it finds it: seconds that only the judge should take

    value, log = ot.emd2(a, b, costs, numItermax=1_000_000_000, log=True, check_marginals=False)
    return _Solved(float(value), np.asarray(log["u"]), np.asarray(log["v"]), log["warning"])


def _ground_cost(here: NDArray[np.int64], there: NDArray[np.int64], *, ground: Ground, power: float) -> Array:
    dy, dx = np.moveaxis(np.abs(here - there).astype(np.float64), -1, 0)
    if ground == "euclidean":
        distance = np.sqrt(dy * dy + dx * dx)
    elif ground == "manhattan":
        distance = dy + dx
    elif ground == "chebyshev":
        distance = np.maximum(dy, dx)
    else:
        raise MassmoverError(f"unknown ground metric {ground!r}: use 'euclidean', 'manhattan' or 'chebyshev'")
    return np.ascontiguousarray(distance if power == 1 else distance**power)


def _sparse_narrowing(
    a: Array, b: Array, sources: NDArray[np.int64], targets: NDArray[np.int64], *, ground: Ground, power: float
) -> Iterator[_Interval]:
    """Solve on few arcs, price all pairs, add the arcs that would pay, and repeat.

    The heaviest pixels give a first lower bound, where they are few. Once the bounds nearly agree, arcs far from paying
    are left out, once. Those that carry mass have reduced cost 0 and stay, so the upper bound cannot rise, and whatever
    was left out is priced again like any other pair.
    """
    from scipy.sparse import coo_matrix

    arcs = np.unique(np.concatenate([_short_arcs(sources, targets), _corner_arcs(a, b, sources, targets)]))
    lower, upper, thinned = 0.0, math.inf, False
    u, v, lift, best = np.zeros(len(a)), np.zeros(len(b)), 1.0, BEST
    for turn in range(ROUNDS):
        rows, columns = np.divmod(arcs, len(b))
        costs = _ground_cost(sources[rows], targets[columns], ground=ground, power=power)
        # What an arc costs beyond the last duals says the same of plans, and halves the simplex's time; lifted above 0,
        # for sparse formats drop zeros.
        beyond = coo_matrix((costs - u[rows] - v[columns] + lift, (rows, columns)), shape=(len(a), len(b)))
        solved = _simplex(a, b, beyond)
        if solved.warning is not None:
            return
        upper = min(upper, solved.cost - lift + float(a @ u + b @ v))
        yield lower, upper
        if turn == 0:
            lower = _heavy_bound(a, b, sources, targets, ground=ground, power=power)
            yield min(lower, upper), upper
        u, v = u + solved.u - lift, v + solved.v
        missing, deficit = _profitable_arcs(u, v, sources, targets, ground=ground, power=power, best=best)
        lower = max(lower, float(a @ (u - deficit) + b @ v))  # lowering u by its worst deficit makes the duals feasible
        lift = 1.0 + float(deficit.max())
        yield min(lower, upper), upper
        if upper - lower <= AGREE * upper / 10 or len(missing) == 0:
            return
        if not thinned and upper - lower <= NEARLY * upper:
            arcs, thinned = arcs[costs - u[rows] - v[columns] <= SLACK], True
        arcs = np.unique(np.concatenate([arcs, missing]))
        # Few sources that pay are specks far from any target: with a handful of arcs a round they would take hundreds.
        best = max(BEST, ADDED // int((deficit > PAYS).sum()))


def _heavy_bound(
    a: Array, b: Array, sources: NDArray[np.int64], targets: NDArray[np.int64], *, ground: Ground, power: float
) -> float:
    """A lower bound from the few pixels that carry nearly all the mass; 0 where they are not few.

    Long attacks change some hundred pixels, and rounding changes all others by a speck. Specks hardly cost anything,
    yet their duals take far longer to find than those of the heavy pixels. Where the cost is a metric, the lowest of
    any cones, one over each target and as high there as minus its dual, is a price of mass that differs between two
    pixels by no more than the way costs: what it says of all the mass bounds the distance from below (Kantorovich).
    """
    heavy, target = _heaviest(a), _heaviest(b)
    few = len(heavy) * len(target)
    if power > 1 or few > min(HEAVY_ARCS, HEAVY_SHARE * len(a) * len(b)):
        return 0.0
    apart = _ground_cost(sources[heavy, None], targets[target][None], ground=ground, power=power)
    solved = _simplex(a[heavy] / a[heavy].sum(), b[target] / b[target].sum(), apart)

    def price(pixels: NDArray[np.int64]) -> Array:
        parts = np.array_split(pixels, 1 + len(target) * len(pixels) // HEAVY_ARCS)
        cones = (_ground_cost(part[:, None], targets[target][None], ground=ground, power=power) for part in parts)
        return np.concatenate([(cone - solved.v).min(axis=1) for cone in cones])

    return max(float(a @ price(sources) - b @ price(targets)), 0.0)


def _heaviest(masses: Array) -> NDArray[np.int64]:
    """The fewest pixels that carry HEAVY of the mass."""
    order = np.argsort(-masses)
    return order[: int(np.searchsorted(np.cumsum(masses[order]), HEAVY * masses.sum())) + 1]


def _short_arcs(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Arcs between pixels at most SHORT_MOVES rows and columns apart, as source x number of targets + target."""
    edge = int(max(sources.max(), targets.max())) + 1 + 2 * SHORT_MOVES
    number = np.full((edge, edge), -1, dtype=np.int64)
    number[targets[:, 0] + SHORT_MOVES, targets[:, 1] + SHORT_MOVES] = np.arange(len(targets))
    found = []
    for dy in range(2 * SHORT_MOVES + 1):
        for dx in range(2 * SHORT_MOVES + 1):
            target = number[sources[:, 0] + dy, sources[:, 1] + dx]
            source = np.flatnonzero(target >= 0)
            found.append(source * len(targets) + target[source])
    return np.concatenate(found)


def _corner_arcs(a: Array, b: Array, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Arcs that alone carry all the mass, so that the problem is feasible: the corner rule along CURVES Hilbert curves.

    Pixels that follow each other on such a curve are neighbours, so what one region has too much of goes to the next
    region and not along a row through the whole image: a plan of short moves, and with it useful duals.
    """
    edge = int(max(sources.max(), targets.max())) + 1
    found = []
    for number in range(CURVES):
        shift = np.array([number * edge // 3, number * edge // 5])
        here, there = (np.argsort(_along_curve(pixels + shift, 2 * edge)) for pixels in (sources, targets))
        rows, columns = np.divmod(_corner_steps(a[here], b[there]), len(b))
        found.append(here[rows] * len(b) + there[columns])
    return np.concatenate(found)


def _along_curve(pixels: NDArray[np.int64], edge: int) -> NDArray[np.int64]:
    """Where each pixel comes on a Hilbert curve: the quadrants of a square in turn, each turned to join the next."""
    (y, x), place = pixels.T, np.zeros(len(pixels), np.int64)
    for bit in reversed(range(edge.bit_length())):
        half = 1 << bit
        lower, right = (y & half) > 0, (x & half) > 0
        place += half * half * np.where(right, np.where(lower, 2, 3), np.where(lower, 1, 0))
        y, x = y & (half - 1), x & (half - 1)
        mirrored = right & ~lower
        y, x = np.where(mirrored, half - 1 - y, y), np.where(mirrored, half - 1 - x, x)
        y, x = np.where(lower, y, x), np.where(lower, x, y)
    return place


def _corner_steps(a: Array, b: Array) -> NDArray[np.int64]:
    """The arcs of the north-west corner rule, in the order in which the masses are given."""
    ends = np.unique(np.concatenate([np.cumsum(a)[:-1], np.cumsum(b)[:-1]]))
    middles = np.concatenate([[0.0], ends]) + 1e-18
    source = np.minimum(np.searchsorted(np.cumsum(a), middles, side="right"), len(a) - 1)
    target = np.minimum(np.searchsorted(np.cumsum(b), middles, side="right"), len(b) - 1)
    steps = np.concatenate([source * len(b) + target, np.arange(len(a)) * len(b) + _follow(a, b)])
    return np.unique(np.concatenate([steps, _follow(b, a) * len(b) + np.arange(len(b))]))


def _follow(a: Array, b: Array) -> NDArray[np.int64]:
    """For each entry of a, the entry of b that the corner rule reaches with it."""
    return np.minimum(np.searchsorted(np.cumsum(b), np.cumsum(a)), len(b) - 1)


class _Tile(NamedTuple):
    """Some neighbouring pixels."""

    place: NDArray[np.int64]  # row and column among the tiles
    members: NDArray[np.int64]  # numbers of its pixels
    highest: float  # largest dual of a member


def _tiles(pixels: NDArray[np.int64], duals: Array) -> list[_Tile]:
    places = pixels // TILE
    number = places[:, 0] * (places[:, 1].max() + 1) + places[:, 1]
    order = np.argsort(number, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
    return [_Tile(places[members[0]], members, float(duals[members].max())) for members in groups]


def _profitable_arcs(
    u: Array,
    v: Array,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    ground: Ground,
    power: float,
    best: int = BEST,
) -> tuple[NDArray[np.int64], Array]:
    """Arcs with negative reduced cost (so many of each source, the best), and each source's worst deficit.

    Two tiles that lie farther apart than their highest duals add up to hold no such arc. Duals rise by no more than
    distance does, so that nearly all pairs of tiles are done with at one glance, and all pairs of pixels are priced.
    """
    found, deficit = [np.zeros(0, np.int64)], np.zeros(len(u))
    there = _tiles(targets, v)
    places, highest = np.array([tile.place for tile in there]), np.array([tile.highest for tile in there])
    for tile in _tiles(sources, u):
        apart = np.maximum(np.abs(places - tile.place) * TILE - (TILE - 1), 0)  # rows and columns, at least
        least = _ground_cost(apart, np.zeros_like(apart), ground=ground, power=power)
        near = np.flatnonzero(least < tile.highest + highest)
        if not len(near):
            continue
        rows, columns = tile.members, np.concatenate([there[number].members for number in near])
        costs = _ground_cost(sources[rows, None], targets[columns][None], ground=ground, power=power)
        reduced = costs - u[rows, None] - v[columns][None]
        deficit[rows] = np.maximum(-reduced.min(axis=1), 0)
        short = np.flatnonzero(deficit[rows] > PAYS)  # sources that some missing arc would serve better
        first = np.argpartition(reduced[short], min(best, len(columns) - 1), axis=1)[:, :best]
        pays = np.take_along_axis(reduced[short], first, axis=1) < -PAYS
        found.append((rows[short][:, None] * len(v) + columns[first])[pays])
    return np.concatenate(found), deficit
