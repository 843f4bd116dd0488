"""Where a displacement field carries mass, and how the loss rises along it, in Numba: one image at a time, in float32.

The arithmetic of `field.carried_torch` and `field.slope_torch`. Pixels without mass are passed over. Every constant and
every function that a kernel uses stands here, as in `kernels.plan`, and nothing is annotated for the same reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from massmover.ball import Balls
from massmover.compiling import kernel, part
from massmover.threads import in_parallel
from massmover.transport.field import Bounds, Carried, room_in
from massmover.types import Images

ONE, NOTHING = np.float32(1.0), np.float32(0.0)
LEANEST, LEAST_MOBILE, BOLDEST = np.float32(12.0), np.float32(1e-6), np.float32(2.0)
SEARCH_SWEEPS, RESCALINGS = 1, 3  # as in `field`
ARRIVED, MOBILE, PLANES = range(3)
BATCHED = 6  # of the arrays of `Given`, those with an entry for each image


class Given(NamedTuple):
    """Fields and balls, as arrays."""

    field: Any  # (B, 2, N)
    smooth: Any  # (B, 2, N)
    mass: Any  # (B, C, N)
    budget: Any  # (B,)
    weights: Any  # (B, C)
    room: Any  # (B, C, N): what each pixel may hold
    least: Any  # (2, N)
    most: Any  # (2, N)
    costs: Any  # of every move of the window
    size: Any  # (4,): rows and columns of the window's reach, columns of the image, sweeps


class Answer(NamedTuple):
    """Where the answers go."""

    share: Any  # (B,)
    images: Any  # (B, C, N)
    avoided: Any  # (B, C, N)
    cost: Any  # (B,)
    scatter: Any  # (B,)


def _given(field: torch.Tensor, smooth: torch.Tensor, balls: Balls) -> Given:
    bounds = Bounds.of(balls, dtype=torch.float32)
    mass, room = balls.originals.float().flatten(2), room_in(balls, dtype=torch.float32)
    tensors = (field.float(), smooth.float(), mass, balls.budget, balls.weights, room, *bounds)
    size = np.array([balls.window.rows, balls.window.columns, balls.originals.shape[-1], SEARCH_SWEEPS])
    return Given._make((*(tensor.contiguous().numpy() for tensor in tensors), size))


def carried_numba(field: torch.Tensor, smooth: torch.Tensor, balls: Balls, avoided: torch.Tensor) -> Carried:
    """`field.carried` for images on the CPU."""
    given, shape = _given(field, smooth, balls), balls.originals.shape
    answer = Carried(
        share=torch.ones(shape[0]),
        images=torch.zeros(shape),
        avoided=avoided.float().clone(),
        cost=torch.zeros(shape[0], dtype=torch.float64),
        scatter=torch.zeros(shape[0]),
    )
    share, images, kept, cost, scatter = (tensor.numpy() for tensor in answer)
    arrays = Answer(share, images.reshape(given.mass.shape), kept, cost, scatter)

    def work(some: slice) -> None:
        mine = Given(*(array[some] for array in given[:BATCHED]), *given[BATCHED:])
        planes = np.zeros((PLANES, given.mass.shape[2]), np.float32)
        carry(mine, Answer(*(array[some] for array in arrays)), planes)

    in_parallel(work, count=shape[0])
    return answer


def slope_numba(gradient: Images, field: torch.Tensor, avoided: torch.Tensor, balls: Balls) -> torch.Tensor:
    """`field.slope` for images on the CPU."""
    given, rise = _given(field, field, balls), torch.zeros(field.shape)
    slopes, lean = gradient.float().contiguous().numpy().reshape(given.mass.shape), avoided.float().contiguous().numpy()
    answer = rise.numpy()

    def work(some: slice) -> None:
        climb(given.field[some], given.mass[some], slopes[some], lean[some], given[BATCHED:], answer[some])

    in_parallel(work, count=len(field))
    return rise


@part()
def _corner(field, least, most, i):  # type: ignore[no-untyped-def]
    """The whole part of a pixel's displacement along one axis, and the rest."""
    inside = min(max(field[i], least[i]), most[i])
    base = max(min(np.floor(inside), most[i] - ONE), least[i])
    return np.int64(base), inside - base


@part()
def _rise(values, at, right, down, f, g):  # type: ignore[no-untyped-def]
    """How values at four corners, bilinear between them, rise down and right, and how these rises change."""
    first, beside, below, last = values[at], values[at + right], values[at + down], values[at + down + right]
    twist = last - beside - below + first
    return below - first + g * twist, beside - first + f * twist, twist


@part()
def _leant(avoided, at, right, down, f, g):  # type: ignore[no-untyped-def]
    """Where the mean lies once a row gives way to full corners, the odds of it, and how these change; most do not."""
    steep, aside, twist = _rise(avoided, at, right, down, f, g)
    if steep == NOTHING and aside == NOTHING and twist == NOTHING:
        return f, g, ONE, ONE, NOTHING
    below, beside = np.exp(-steep), np.exp(-aside)
    return f * below / (ONE - f + f * below), g * beside / (ONE - g + g * beside), below, beside, twist


@part()
def _paid(given, b, share):  # type: ignore[no-untyped-def]
    """What a share of a field costs where nothing is full."""
    rows, columns = given.size[0], given.size[1]
    wide, total = 2 * columns + 1, 0.0
    for i in range(given.mass.shape[2]):
        held = 0.0
        for c in range(given.mass.shape[1]):
            held += given.mass[b, c, i] * given.weights[b, c]
        if held > 0.0:
            y, f = _scaled_corner(given, b, 0, i, share)
            x, g = _scaled_corner(given, b, 1, i, share)
            here = (y + rows) * wide + x + columns
            below = (min(y + 1, rows) + rows) * wide + x + columns
            side = min(x + 1, columns) - x
            near = (ONE - f) * ((ONE - g) * given.costs[here] + g * given.costs[here + side])
            total += held * (near + f * ((ONE - g) * given.costs[below] + g * given.costs[below + side]))
    return total


@part()
def _scaled_corner(given, b, axis, i, share):  # type: ignore[no-untyped-def]
    least, most = given.least[axis, i], given.most[axis, i]
    inside = min(max(given.field[b, axis, i] * share, least), most)
    base = max(min(np.floor(inside), most - ONE), least)
    return np.int64(base), inside - base


@kernel(nogil=True)
def carry(given, answer, planes):  # type: ignore[no-untyped-def]
    """Carry the mass of some images along a share of their fields that can be paid for, nearly."""
    channels, pixels = given.mass.shape[1], given.mass.shape[2]
    for b in range(given.mass.shape[0]):
        share = ONE
        for _ in range(RESCALINGS):
            cost = _paid(given, b, share)
            if cost <= given.budget[b]:
                break
            share = np.float32(share * given.budget[b] / cost)
        answer.share[b] = share
        stray, mass = 0.0, 0.0
        for c in range(channels):
            for _ in range(given.size[3]):
                _let_arrive(given, answer, planes, b, c)
                for j in range(pixels):
                    crowded = (planes[ARRIVED, j] - given.room[b, c, j]) / (planes[MOBILE, j] + LEAST_MOBILE)
                    step = min(max(crowded, -BOLDEST), BOLDEST)
                    answer.avoided[b, c, j] = min(max(answer.avoided[b, c, j] + step, NOTHING), LEANEST)
            strayed = _let_arrive(given, answer, planes, b, c)
            stray += strayed[0]
            mass += strayed[1]
            answer.cost[b] += strayed[2] * given.weights[b, c]
            for j in range(pixels):
                answer.images[b, c, j] = min(planes[ARRIVED, j], given.room[b, c, j])
        answer.scatter[b] = np.sqrt(stray / max(mass, 1e-30))


@part()
def _let_arrive(given, answer, planes, b, c):  # type: ignore[no-untyped-def]
    """Let a channel's mass arrive; what it strays from the smooth part, its mass, and what it costs."""
    rows, columns, width = given.size[0], given.size[1], given.size[2]
    stray, mass, cost, share, wide = 0.0, 0.0, 0.0, answer.share[b], 2 * columns + 1
    for j in range(planes.shape[1]):
        planes[ARRIVED, j] = NOTHING
        planes[MOBILE, j] = NOTHING
    for i in range(planes.shape[1]):
        held = given.mass[b, c, i]
        if held > NOTHING:
            y, f = _scaled_corner(given, b, 0, i, share)
            x, g = _scaled_corner(given, b, 1, i, share)
            right = 1 if given.most[1, i] > x else 0
            down = width if given.most[0, i] > y else 0
            at = i + y * width + x
            low, aside, _, _, _ = _leant(answer.avoided[b, c], at, right, down, f, g)
            for k in range(4):
                along, before = (low, f) if k // 2 else (ONE - low, ONE - f)
                across, beside = (aside, g) if k % 2 else (ONE - aside, ONE - g)
                sent, place = held * along * across, at + (k % 2) * right + (k // 2) * down
                planes[ARRIVED, place] += sent
                planes[MOBILE, place] += sent * ((ONE - along) * beside + (ONE - across) * before)
                move = (min(y + k // 2, rows) + rows) * wide + min(x + k % 2, columns) + columns
                cost += sent * given.costs[move]
            away = y + low - given.smooth[b, 0, i] * share
            aside = x + aside - given.smooth[b, 1, i] * share
            stray += held * (away * away + aside * aside)
            mass += held
    return stray, mass, cost


@kernel(nogil=True)
def climb(field, mass, gradient, avoided, bounds, rise):  # type: ignore[no-untyped-def]
    """How the loss rises as each pixel's mass goes further down and right."""
    least, most, _, size = bounds
    width = size[2]
    for b in range(mass.shape[0]):
        for i in range(mass.shape[2]):
            total = NOTHING
            for c in range(mass.shape[1]):
                total += mass[b, c, i]
            if total <= NOTHING:
                continue
            y, f = _corner(field[b, 0], least[0], most[0], i)
            x, g = _corner(field[b, 1], least[1], most[1], i)
            right = 1 if most[1, i] > x else 0
            down = width if most[0, i] > y else 0
            at = i + y * width + x
            for c in range(mass.shape[1]):
                held = mass[b, c, i] / total
                low, aside, below, beside, twist = _leant(avoided[b, c], at, right, down, f, g)
                gain, gain_aside, _ = _rise(gradient[b, c], at, right, down, low, aside)
                along, across = ONE - f + f * below, ONE - g + g * beside
                mobile, mobile_aside = low * (ONE - low), aside * (ONE - aside)
                rise[b, 0, i] += held * (gain * below / (along * along) - gain_aside * mobile_aside * twist)
                rise[b, 1, i] += held * (gain_aside * beside / (across * across) - gain * mobile * twist)
