"""The proof checker: does a list of moves prove that an image lies in the ball it claims?

To prove is to add up, so this needs no solver: whole numbers and NumPy, nothing of the code that makes plans. Masses
are whole multiples of 2 ** -unit and every float is a dyadic rational, so rows, images, masses and costs are compared
exactly; what is not rational (square roots, the carrying of rounding errors) enters with a rigorous bound.

What `proved` establishes, for an original x, an image z, moves, and the window, ground, power and so on of a claim:

1. Every move has a mass of 0 or more, starts and ends inside the image, stays within the window, and keeps its channel
   (it is written as a pixel and a step, so it cannot do otherwise).
2. No pixel sends more than x holds there; what it does not send stays. So the moves are a plan with exactly the rows x.
3. The image y of that plan differs from z by at most 2 ** -23 in every pixel: one rounding to float32.
4. 0 <= x <= 1, 0 <= z <= 1, and no channel's mass changed by more than 1e-6 of the mass of the image.
5. cost(plan) + cost(y -> z') <= radius (1 + tolerance), where z' is z with every channel scaled to the mass it has in
   x, as the judges scale it. The second term is an upper bound, so the Wasserstein distance of x and z' is at most
   that. The tolerance is 0 unless the claim says otherwise.

About 5. Where the cost is a metric (power <= 1), the difference of y and z' is carried from pixel to pixel to the end
of its row and then down the last column; each step crosses one pixel edge and costs 1, and the triangle inequality adds
that to the plan. For other powers, mass that y has too much somewhere is sent to where z' wants it instead, which costs
at most the longest way there is.

6. Where the claim names a scatter: the plan's mass strays no further from a smooth field, in the root mean square and
   beyond what the grid itself makes of a smooth move, a bilinear split (docs/coherent.md): what means stray from the
   field, what a pixel's mass spreads along each axis beyond its two nearest whole moves, and twice what the two axes do
   together, as a covariance. Any field of the stated width is a witness, so the checker takes the one that fits best by
   its own arithmetic and adds up what the moves stray from it, in float64 with a bound of its errors. (1e-5 pixels)^2
   of its square are left to masses that were rounded. With a mask, mass that may not move is left out.

`refuted` says that the proof is wrong, and where. `not proved` says that the sums are right but cannot decide, for what
rounding may add does not fit in the radius. Neither says that the image is outside: that takes exact transport.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from massmover.types import Ground, MassmoverError, Normalisation

COARSEST, FINEST = 30, 60  # units a proof may count in: 2 ** -30 to 2 ** -60, so that sums of a pixel fit in 64 bits
ROUNDING = 23  # a pixel may differ from the plan's by 2 ** -23, which is float32's epsilon
MASS_DRIFT = Fraction(1, 1_000_000)  # of a channel, relative to the mass of the image; the judge's rule
LARGEST_CHANNEL = 1 << 22  # pixels; beyond that sums of rounding errors might not fit in 64 bits
MOST_MOVES = 1 << 23  # sums of half a mass, 30 bits, over that many moves are exact in float64
HALF = 30  # masses are added up in halves of this many bits
STRAY_ERROR = 1e-11  # pixels: more than float64 errs in what a pixel's mean strays from a field
STRAY_SLACK = 1e-5  # pixels: the root of what masses in whole units may add to the square of a scatter
STRAY_SUMS = 1e-10  # relative: more than float64 errs in sums of what mass strays
CROSS_SUMS = 1e-12  # of the absolute values: more than float64 errs in a covariance, whose terms may cancel
FINE = 64  # costs are whole multiples of 2 ** -64

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
Status = Literal["proved", "refuted", "not proved"]


@dataclass(frozen=True)
class Claim:
    """The ball that an image is said to lie in."""

    radius: float
    window: int | None = 5  # odd size, None for the whole image
    ground: Ground = "euclidean"
    power: float = 1.0
    normalisation: Normalisation = "image"
    tolerance: float = 0.0  # of the radius: what a plan may cost beyond it and still count
    scatter: float | None = None  # pixels that mass may stray from a smooth field; None where it may as it likes
    width: int | None = None  # pixels between the knots of that field; None for one vector

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise MassmoverError(f"radius is {self.radius}: it must be a finite number, 0 or larger")
        if self.window is not None and (self.window < 1 or self.window % 2 == 0):
            raise MassmoverError(f"window is {self.window}: it must be an odd size, or None for the whole image")
        if self.ground not in ("euclidean", "manhattan", "chebyshev"):
            raise MassmoverError(f"unknown ground {self.ground!r}: use 'euclidean', 'manhattan' or 'chebyshev'")
        if not (math.isfinite(self.power) and self.power > 0):
            raise MassmoverError(f"power is {self.power}: it must be a positive number, such as 1.0")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise MassmoverError(f"tolerance is {self.tolerance}: it must be 0 or larger, such as 1e-9")
        if self.scatter is not None and not (math.isfinite(self.scatter) and self.scatter >= 0):
            raise MassmoverError(f"scatter is {self.scatter}: it must be 0 or larger, or None to let mass scatter")
        if self.width is not None and self.width < 1:
            raise MassmoverError(f"width is {self.width}: it must be 1 or more, or None for one vector")
        if self.normalisation not in ("image", "channel"):
            raise MassmoverError(f"unknown normalisation {self.normalisation!r}: use 'image' or 'channel'")


class Moves(NamedTuple):
    """The moves of one image's plan; what is not moved stays. The same move may stand there twice."""

    source: NDArray[Any]  # (M,) whole numbers: (channel x rows + row) x columns + column
    step: NDArray[Any]  # (M, 2) whole numbers: rows down and columns to the right
    mass: NDArray[Any]  # (M,) whole numbers, in units of 2 ** -unit
    unit: int


class Verdict(NamedTuple):
    """What became of a proof."""

    status: Status
    reason: str  # the first pixel, move or sum that fails; empty where the proof holds
    bound: float  # the distance that was proved, rounded up; infinite where the proof is refuted
    scatter: float = math.inf  # pixels that mass strays from a smooth field, rounded up; infinite where nobody asked

    @property
    def proved(self) -> bool:
        """Whether the image is known to be in its ball."""
        return self.status == "proved"


class _WrongProofError(Exception):
    """What is wrong with a proof, in words."""


class _Units(NamedTuple):
    """Pixels in units: value = (whole + rest) x 2 ** -unit, without error."""

    whole: Whole  # (C, H, W)
    rest: Real  # (C, H, W), in [0, 1)

    @classmethod
    def of(cls, pixels: Real, unit: int) -> _Units:
        scaled = np.ldexp(pixels, unit)
        whole = np.floor(scaled)
        return cls(whole.astype(np.int64), scaled - whole)


class _Between(NamedTuple):
    """A number that is known to lie between two others."""

    low: Fraction
    high: Fraction


def check(
    original: NDArray[Any],
    image: NDArray[Any],
    moves: Moves,
    claim: Claim,
    *,
    free: NDArray[np.bool_] | None = None,
) -> Verdict:
    """Check the proof that an image lies in the ball around its original; both are (C, H, W) in floating point.

    Takes one pass over the moves: a millisecond for a digit, some tens of them for a photograph. What the numbers of a
    proof say wrongly is refuted; arrays that are not of the documented form raise MassmoverError. `free` says where
    mass may move: a proof whose moves begin or end elsewhere, or an image that differs there, is refuted.
    """
    _check_form(original, image, moves)
    before, after = original.astype(np.float64), image.astype(np.float64)
    try:
        _check_pixels(before, "the original")
        _check_pixels(after, "the image")
        moves = _whole_moves(moves)
        target = _targets(moves, shape=before.shape, claim=claim)
        if free is not None:
            _check_frozen(moves, target, before != after, np.broadcast_to(free, before.shape))
        x, z = _Units.of(before, moves.unit), _Units.of(after, moves.unit)
        error = _image_error(moves, target, x, z)
        stray = math.inf if claim.scatter is None else _checked_stray(moves, x, free, claim)
        return _verdict(moves, x, z, after, error, claim)._replace(scatter=stray)
    except _WrongProofError as fault:
        return Verdict("refuted", str(fault), math.inf)


def _check_form(original: NDArray[Any], image: NDArray[Any], moves: Moves) -> None:
    for name, array in (("original", original), ("image", image)):
        if array.ndim != 3 or array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.size == 0:
            raise MassmoverError(
                f"the {name} is {array.dtype} of shape {array.shape}: (channels, rows, columns) in float32 or float64"
            )
    if original.shape != image.shape:
        raise MassmoverError(f"the original is {original.shape} and the image {image.shape}: same shape needed")
    if original[0].size > LARGEST_CHANNEL:
        raise MassmoverError(
            f"the image has {original[0].size} pixels a channel: at most {LARGEST_CHANNEL} can be checked"
        )
    count = len(moves.source)
    if moves.source.shape != (count,) or moves.step.shape != (count, 2) or moves.mass.shape != (count,):
        raise MassmoverError(
            f"source, step and mass are {moves.source.shape}, {moves.step.shape} and {moves.mass.shape}: "
            "(moves,), (moves, 2) and (moves,) are needed"
        )
    if count > MOST_MOVES:
        raise MassmoverError(f"the proof has {count} moves: at most {MOST_MOVES} can be added up exactly")
    if not COARSEST <= moves.unit <= FINEST:
        raise MassmoverError(f"masses count in 2 ** -{moves.unit}: units from {COARSEST} to {FINEST} are allowed")


def _check_pixels(pixels: Real, name: str) -> None:
    good = (pixels >= 0) & (pixels <= 1)  # false for NaN
    if not good.all():
        first = int(np.argmin(good))
        raise _WrongProofError(f"{name} has {pixels.flat[first]!s} at {_place(first, pixels.shape)}: outside [0, 1]")


def _whole_moves(moves: Moves) -> Moves:
    """The same moves in 64 bits, once no mass is negative or more than a pixel can hold."""
    for name, array in zip(("source", "step", "mass"), moves[:3], strict=True):
        if array.dtype.kind not in "iu":
            raise _WrongProofError(f"{name} is {array.dtype}: whole numbers are needed")
    good = (moves.mass >= 0) & (moves.mass <= 1 << moves.unit)
    if not good.all():
        first = int(np.argmin(good))
        raise _WrongProofError(f"move {first} carries {int(moves.mass[first])} x 2 ** -{moves.unit}: not in [0, 1]")
    source, step, mass = (array.astype(np.int64) for array in moves[:3])
    return Moves(source, step, mass, int(moves.unit))


def _targets(moves: Moves, *, shape: tuple[int, ...], claim: Claim) -> Whole:
    """Where each move ends, as its source is written; every move must be one that the window allows."""
    _, height, width = shape
    good = (moves.source >= 0) & (moves.source < math.prod(shape))
    if not good.all():
        first = int(np.argmin(good))
        raise _WrongProofError(
            f"move {first} starts at pixel {int(moves.source[first])}, which the image does not have"
        )
    rows, columns = moves.step.T
    for name, size, steps in (("rows", height, rows), ("columns", width, columns)):
        reach = size if claim.window is None else claim.window // 2
        good = (steps >= -reach) & (steps <= reach)
        if not good.all():
            first = int(np.argmin(good))
            raise _WrongProofError(
                f"move {first} goes {int(steps[first])} {name} far: outside the window of {claim.window}"
            )
    down, across = moves.source // width % height + rows, moves.source % width + columns
    good = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    if not good.all():
        first = int(np.argmin(good))
        place = _place(int(moves.source[first]), shape)
        raise _WrongProofError(f"move {first} leaves the image: from {place} by {moves.step[first].tolist()}")
    return np.asarray(moves.source + rows * width + columns)


def _check_frozen(moves: Moves, target: Whole, changed: NDArray[np.bool_], free: NDArray[np.bool_]) -> None:
    """Refute moves that begin or end at a frozen pixel, and frozen pixels that changed."""
    flat = free.reshape(-1)
    good = flat[moves.source] & flat[target]
    if not good.all():
        first = int(np.argmin(good))
        raise _WrongProofError(
            f"move {first} touches a frozen pixel: from {_place(int(moves.source[first]), free.shape)} to "
            f"{_place(int(target[first]), free.shape)}"
        )
    touched = np.flatnonzero(changed & ~free)
    if len(touched):
        raise _WrongProofError(f"the frozen pixel {_place(int(touched[0]), free.shape)} changed")


def _image_error(moves: Moves, target: Whole, x: _Units, z: _Units) -> Whole:
    """Whole units by which each pixel of z differs from the plan's image; the rests, z.rest - x.rest, come on top."""
    shape, size = x.whole.shape, x.whole.size
    leaving = _sums(moves.source, moves.mass, size).reshape(shape)
    heavy = leaving > x.whole  # x.rest cannot help, for what leaves is whole
    if heavy.any():
        first = int(np.argmax(heavy))
        sent, held = (f"{int(array.flat[first]) / 2**moves.unit:.17g}" for array in (leaving, x.whole))
        raise _WrongProofError(f"row: {_place(first, shape)} sends {sent} and holds {held}")
    arriving = _sums(target, moves.mass, size).reshape(shape)
    error = z.whole - (x.whole - leaving + arriving)
    wrong = np.abs(error) >= 1 << (moves.unit - ROUNDING)
    if wrong.any():
        first = int(np.argmax(wrong))
        shown = int(z.whole.flat[first]) / 2**moves.unit
        planned = int(z.whole.flat[first] - error.flat[first]) / 2**moves.unit
        raise _WrongProofError(f"column: {_place(first, shape)} is {shown:.17g} and the plan puts {planned:.17g} there")
    return np.asarray(error)


def _sums(place: Whole, mass: Whole, size: int) -> Whole:
    """Masses added up by place, exactly; sums above 4 (in any unit), which no proof can hold, may come out smaller.

    Each half of a mass has 30 bits, so its sums over 2 ** 23 moves are exact in the float64 of bincount.
    """
    high = np.bincount(place, weights=mass >> HALF, minlength=size)
    low = np.bincount(place, weights=mass & ((1 << HALF) - 1), minlength=size)
    return np.asarray(np.minimum(high, 1 << 32).astype(np.int64) * (1 << HALF) + low.astype(np.int64))


def _verdict(moves: Moves, x: _Units, z: _Units, after: Real, error: Whole, claim: Claim) -> Verdict:
    masses = [_mass(channel, rest) for channel, rest in zip(x.whole, x.rest, strict=True)]
    whole = _Between(sum((m.low for m in masses), Fraction()), sum((m.high for m in masses), Fraction()))
    costs = _costs(moves, shape=x.whole.shape, claim=claim)
    plan_low, plan_high, added = Fraction(), Fraction(), Fraction()
    for channel, mass in enumerate(masses):
        other = _mass(z.whole[channel], z.rest[channel])
        if not z.whole[channel].any() and not z.rest[channel].any():
            if mass.high > 0:
                raise _WrongProofError(f"channel {channel} is black in the image and not in the original")
            continue  # black stays black: nothing can move, nothing is added
        if mass.high == 0:
            raise _WrongProofError(f"channel {channel} is black in the original and not in the image")
        _check_drift(mass, other, whole, channel=channel)
        unit = whole if claim.normalisation == "image" else mass
        plan_low += costs[channel].low / unit.high
        plan_high += costs[channel].high / unit.low
        rests = z.rest[channel] - x.rest[channel]
        gap = float((mass.low + mass.high - other.low - other.high) / 2)
        added += Fraction(_carrying(error[channel], rests, after[channel], gap, claim)) / unit.low
    radius, bound = Fraction(claim.radius) * (1 + Fraction(claim.tolerance)), plan_high + added
    if plan_low > radius:
        raise _WrongProofError(f"cost: the plan costs {float(plan_low):.17g} and the radius is {claim.radius:.17g}")
    rounded_up = math.nextafter(float(bound), math.inf) if bound else 0.0
    if bound <= radius:
        return Verdict("proved", "", rounded_up)
    reason = f"the plan costs {float(plan_high):.17g} and rounding its image may add {float(added):.3g}"
    return Verdict("not proved", f"{reason}: more than the radius {claim.radius:.17g}", rounded_up)


def _checked_stray(moves: Moves, x: _Units, free: NDArray[np.bool_] | None, claim: Claim) -> float:
    """What the moves stray from a smooth field, rounded up; refuted where that is more than is claimed."""
    stray = _stray(moves, x, free, claim.width)
    assert claim.scatter is not None
    if stray > math.hypot(claim.scatter * (1 + claim.tolerance), STRAY_SLACK) * (1 + 2 * STRAY_SUMS):
        raise _WrongProofError(
            f"scatter: mass strays {stray:.10g} pixels from the nearest smooth field; {claim.scatter:.10g} is claimed"
        )
    return stray


def _stray(moves: Moves, x: _Units, free: NDArray[np.bool_] | None, width: int | None) -> float:
    """The root mean square, in pixels, of what mass strays from the smooth field that fits best; an upper bound."""
    shape, size = x.whole.shape, x.whole.size
    counted = np.ones(size) if free is None else np.broadcast_to(free, shape).reshape(size).astype(np.float64)
    held = (x.whole + x.rest).reshape(size) * counted
    stays = (x.whole.reshape(size) - _sums(moves.source, moves.mass, size) + x.rest.reshape(size)) * counted
    mass = moves.mass.astype(np.float64)
    means, spread = np.zeros((2, size)), np.zeros(size)
    for axis, step in enumerate(moves.step.T):
        sent = np.bincount(moves.source, weights=mass * step, minlength=size)
        means[axis] = np.divide(sent, held, out=np.zeros(size), where=held > 0)
        spread += np.minimum(
            *(
                np.bincount(moves.source, weights=mass * _pair(step - cell[moves.source]), minlength=size)
                + stays * _pair(-cell)
                for cell in (np.floor(means[axis]), np.ceil(means[axis]) - 1)
            )
        )
    field = np.stack([_nearest_field(mean.reshape(shape), held.reshape(shape), width) for mean in means])
    apart = np.abs(means.reshape(2, *shape) - field[:, None]) + STRAY_ERROR
    total = (apart**2).sum(axis=0).reshape(size) @ held + spread.sum() + 2 * _covariances(moves, stays, means).sum()
    return math.sqrt(total / held.sum()) * (1 + STRAY_SUMS) if held.any() else 0.0


def _covariances(moves: Moves, stays: Real, means: Real) -> Real:
    """What the two axes of each pixel's mass do together, in units: mass times |covariance|, an upper bound.

    Means that are wrong by some e add mass times e ** 2, for around the true ones the first moments are 0.
    """
    away, aside = moves.step.T - means[:, moves.source]
    both, home = moves.mass * away * aside, stays * means[0] * means[1]
    signed, absolute = (
        np.bincount(moves.source, weights=each, minlength=len(stays)) + still
        for each, still in ((both, home), (np.abs(both), np.abs(home)))
    )
    sent = np.bincount(moves.source, weights=moves.mass, minlength=len(stays))
    return np.asarray(np.abs(signed) + CROSS_SUMS * absolute + STRAY_ERROR**2 * (stays + sent))


def _pair(steps: Real) -> Real:
    """k (k - 1): 0 for the two whole moves around a fractional one."""
    return np.asarray(steps * (steps - 1))


def _nearest_field(means: Real, held: Real, width: int | None) -> Real:
    """One component of a smooth field, (H, W): the least squares fit to means (C, H, W) by the mass behind them."""
    height, columns = means.shape[1:]
    mass, moment = held.sum(axis=0).ravel(), (held * means).sum(axis=0).ravel()
    if width is None:
        return np.full((height, columns), moment.sum() / max(mass.sum(), 1e-300))
    hats = []
    for length in (height, columns):
        knots = np.arange(0, length - 1 + width, width)
        hats.append(np.stack([np.interp(np.arange(length), knots, row) for row in np.eye(len(knots))], axis=1))
    basis, root = np.kron(*hats), np.sqrt(mass)
    target = np.divide(moment, root, out=np.zeros_like(root), where=root > 0)
    fitted = np.linalg.lstsq(basis * root[:, None], target, rcond=None)[0]
    return np.asarray((basis @ fitted).reshape(height, columns))


def _check_drift(mass: _Between, other: _Between, whole: _Between, *, channel: int) -> None:
    if mass.low <= 0:
        raise _WrongProofError(f"sum: channel {channel} holds less than the unit can tell from nothing")
    drift = max(mass.high - other.low, other.high - mass.low)
    if drift > MASS_DRIFT * whole.low:
        share = float(drift / whole.low)
        raise _WrongProofError(
            f"sum: channel {channel} changes its mass by {share:.3g} of the image's; at most 1e-6 is allowed"
        )


def _mass(whole: Whole, rest: Real) -> _Between:
    """The mass of a channel in units: exact where no pixel has a rest."""
    exact = (int((whole >> HALF).sum()) << HALF) + int((whole & ((1 << HALF) - 1)).sum())
    rests = float(rest.sum())
    slack = Fraction(rest.size * rest.size, 1 << 53) if rests else Fraction()  # rests are below 1 each
    return _Between(exact + Fraction(rests) - slack, exact + Fraction(rests) + slack)


def _costs(moves: Moves, *, shape: tuple[int, ...], claim: Claim) -> list[_Between]:
    """What the moves of each channel cost, in units of mass: exact sums of mass by length, times a bounded length."""
    channels, height, width = shape
    step, area = np.abs(moves.step), height * width
    kind = moves.source // area * area + step[:, 0] * width + step[:, 1]
    highs = np.bincount(kind, weights=moves.mass >> HALF, minlength=channels * area)
    lows = np.bincount(kind, weights=moves.mass & ((1 << HALF) - 1), minlength=channels * area)
    low, high = [0] * channels, [0] * channels
    for used in np.flatnonzero(highs + lows).tolist():
        channel, length = divmod(used, area)
        mass = (int(highs[used]) << HALF) + int(lows[used])
        least, most = _length(*divmod(length, width), claim.ground, claim.power)
        low[channel] += mass * least
        high[channel] += mass * most
    return [_Between(Fraction(a, 1 << FINE), Fraction(b, 1 << FINE)) for a, b in zip(low, high, strict=True)]


@lru_cache(maxsize=1 << 16)
def _length(down: int, across: int, ground: Ground, power: float) -> tuple[int, int]:
    """Bounds of ground(down, across) ** power, in units of 2 ** -64; equal where it is rational."""
    square = {"euclidean": down**2 + across**2, "manhattan": (down + across) ** 2, "chebyshev": max(down, across) ** 2}
    if power.is_integer() and power <= 64:
        radicand = square[ground] ** int(power) << 2 * FINE
        root = math.isqrt(radicand)
        return root, root + (root * root != radicand)
    value = Fraction(float(square[ground]) ** (power / 2)) * (1 << FINE)
    slack = Fraction(1, 1 << 48)  # of pow, which libraries keep within 2 ** -52
    return math.floor(value * (1 - slack)), math.ceil(value * (1 + slack))


def _carrying(error: Whole, rests: Real, after: Real, gap: float, claim: Claim) -> float:
    """An upper bound of the cost, in units of mass, of what is left between the plan's image and the scaled image.

    That is error + rests + ratio x after, pixel by pixel, where the ratio spreads the gap between the masses over the
    image. Sums of the first are exact; to the others float64 does, over n pixels, at most
    (4 n + 64) 2 ** -52 of their absolute values, and n ** 3 2 ** -49 units in all to the rests.
    """
    if not (error.any() or rests.any() or gap):
        return 0.0
    pixels = error.size
    ratio = gap / float(after.sum())
    if claim.power <= 1:  # carried along rows, then down the last column
        parts = [_along(array) for array in (error, rests, after)]
        length = 1.0
    else:
        parts = [array.ravel() for array in (error, rests, after)]
        height, width = error.shape
        length = math.nextafter(_length(height - 1, width - 1, claim.ground, claim.power)[1] / 2**FINE, math.inf) / 2
    spread = ratio * parts[2]
    carried = float(np.abs(parts[0] + parts[1] + spread).sum())
    slack = (4 * pixels + 64) * 2.0**-52 * float((np.abs(parts[0]) + np.abs(spread)).sum())
    rest_slack = pixels**3 * 2.0**-49 if rests.any() else 0.0
    return math.nextafter((carried + slack + rest_slack) * length * (1 + 2.0**-50), math.inf)


def _along(array: NDArray[Any]) -> NDArray[Any]:
    """What crosses each pixel edge when everything is carried to the end of its row and then down the last column."""
    rows = array.cumsum(axis=1)
    down = rows[:, -1].cumsum()
    return np.concatenate([rows[:, :-1].ravel(), down[:-1]])


def _place(number: int, shape: tuple[int, ...]) -> str:
    channel, row, column = np.unravel_index(number, shape)
    return f"channel {channel}, row {row}, column {column}"
