"""The cheapest plan of a window between two given images, in Numba: what the search re-plans with.

A plan that makes an image need not be the cheapest that makes it: mass may go round in circles longer than a swap
(docs/algorithms.md, section 2, (1c)). Here mass that can stay does, and what is left goes along shortest ways, one
after the other, in the graph of what can still be changed: forward along any move, backward along a move that carries
mass. Heights of rows and columns keep all lengths at 0 or above (Dijkstra's condition), so every plan on the way is
the cheapest for what it carries, whatever the costs of the window.

Numba infers the types of what it compiles and reads no annotations, so the kernels carry none. Its cache watches this
file alone: every constant and every function that a kernel uses stands here.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

from massmover.ball import Balls
from massmover.compiling import kernel
from massmover.geometry import Window, reachable, scatter
from massmover.threads import in_parallel
from massmover.types import Flows, Images

SPECK = 1e-14  # mass that is not worth a way of its own; it stays
WHOLE = 32  # rows and columns of the largest image that is planned at once
TILE = 16  # rows and columns that are planned at a time in larger ones; with 32, 0.1 % cheaper in 3 times the time
UNREACHED, DONE = -1, -2  # in place of a move or of a place in the heap


class Ways(NamedTuple):
    """The ways from one pixel to all others, as far as they were looked for; one number a pixel each."""

    row_height: Any
    height: Any  # of columns
    row_length: Any
    length: Any  # of the way to a column; infinite where none was found yet
    missing: Any  # mass that a column still lacks
    came: Any  # the move by which a column was reached
    took: Any  # the move along which a row's mass is taken back; UNREACHED before
    heap: Any  # columns to look at, the nearest first
    place: Any  # of a column in the heap; DONE once it was looked at
    rows: Any  # that were reached, in the order in which they were
    columns: Any
    counts: Any  # of rows reached, of columns reached, and of columns in the heap


def cheapest_flows(moved: Images, balls: Balls) -> Flows:
    """The cheapest flows of the window from each original to what became of it: (B, C, K, H, W), in float64.

    Some plan of the window has to make the moved image. What cannot be brought there stays, so rows are always exact.
    """
    before, after = (images.double().contiguous().numpy() for images in (balls.originals, moved))
    offsets, costs = moves_of(balls.window)
    flows = np.zeros((*before.shape[:2], len(costs), *before.shape[2:]))

    def work(part: slice) -> None:
        ways = _no_ways(before.shape[2] * before.shape[3])
        for b in range(*part.indices(len(before))):
            for c in range(before.shape[1]):
                plan_channel(before[b, c], after[b, c], flows[b, c], offsets, costs, ways)

    in_parallel(work, count=len(before))
    return torch.from_numpy(flows)


def cheaper_flows(flows: Flows, balls: Balls) -> Flows:
    """Flows that make the same images for less: the cheapest ones within each tile, and within tiles half a tile off.

    How long the cheapest plan of a whole photograph takes grows faster than its size. Within a tile only flows that
    begin and end there are planned anew, so that rows and images stay what they were.
    """
    offsets, costs = moves_of(balls.window)
    found, (high, wide) = flows.double().clone(), flows.shape[-2:]
    for start in (0, -TILE // 2):
        for top, left in product(range(start, high, TILE), range(start, wide, TILE)):
            rows, columns = slice(max(top, 0), min(top + TILE, high)), slice(max(left, 0), min(left + TILE, wide))
            tile = found[..., rows, columns]
            inner = tile * reachable(balls.window, height=tile.shape[-2], width=tile.shape[-1], like=tile)
            before, after = inner.sum(dim=-3), scatter(inner, window=balls.window)
            ways, planned = _no_ways(before[0, 0].numel()), np.zeros(tuple(inner.shape))
            for b, c in product(range(before.shape[0]), range(before.shape[1])):
                pair = before[b, c].numpy(), after[b, c].contiguous().numpy()
                plan_channel(*pair, planned[b, c], offsets, costs, ways)
            tile.add_(torch.from_numpy(planned) - inner)
    return found


def _no_ways(count: int) -> Ways:
    """No way yet. Made here: to allocate and fill arrays takes longer to compile than all that is done with them."""
    heights, lengths, missing = np.zeros((2, count)), np.full((2, count), np.inf), np.zeros((1, count))
    marks, counts = np.full((6, count), UNREACHED), np.zeros((1, 3), np.int64)
    return Ways._make([*heights, *lengths, *missing, *marks, *counts])


@lru_cache(maxsize=64)
def moves_of(window: Window) -> tuple[Any, Any]:
    """The moves of a window in the order of a written-out plan, (K, 2), and what each costs."""
    return np.array(window.offsets, dtype=np.int64), np.array(window.costs, dtype=np.float64)


@kernel(nogil=True)
def plan_channel(before, after, flows, offsets, costs, ways):  # type: ignore[no-untyped-def]
    """Let stay what can, then send what is over at each pixel to the nearest ones that miss it."""
    high, wide = before.shape
    for y in range(high):
        for x in range(wide):
            p = y * wide + x
            flows[0, y, x] = min(before[y, x], after[y, x])
            ways.missing[p] = after[y, x] - flows[0, y, x]
            ways.row_height[p] = 0.0
            ways.height[p] = 0.0
    for y in range(high):
        for x in range(wide):
            over, sent = before[y, x] - after[y, x], 1.0
            while over > SPECK and sent > 0.0:
                sent = _send_from(y * wide + x, over, flows, offsets, costs, ways)
                over -= sent
            if over > 0.0:  # what found no place
                flows[0, y, x] += over


@kernel()
def _send_from(source, over, flows, offsets, costs, ways):  # type: ignore[no-untyped-def]
    """Send what is over at a pixel to the nearest columns that miss mass, until some way is used up; returns how much.

    Dijkstra's method on columns: a row is reached with the first column that takes mass from it. What is sent changes
    no other length, so the same ways serve until a move that is taken back carries nothing any more.
    """
    high, wide = flows.shape[1], flows.shape[2]
    sent, far, blocked = 0.0, 0.0, False
    ways.took[source] = 0
    _leave(source, 0.0, high, wide, offsets, costs, ways)
    while ways.counts[2] > 0 and over - sent > SPECK and not blocked:
        column = _first(ways)
        far = ways.length[column]
        if ways.missing[column] > SPECK:
            amount, blocked = _send(source, column, min(over - sent, ways.missing[column]), flows, offsets, ways)
            ways.missing[column] -= amount
            sent += amount
        y, x = column // wide, column % wide
        for k in range(costs.shape[0]):  # whoever sends mass here could send it elsewhere
            py, px = y - offsets[k, 0], x - offsets[k, 1]
            if 0 <= py < high and 0 <= px < wide and flows[k, py, px] > SPECK:
                row = py * wide + px
                if ways.took[row] == UNREACHED:
                    ways.took[row] = k
                    _leave(row, far, high, wide, offsets, costs, ways)
    _forget(far, ways)
    return sent


@kernel()
def _leave(row, length, high, wide, offsets, costs, ways):  # type: ignore[no-untyped-def]
    """From a row that was reached, reach every column that it can send mass to by a shorter way than known."""
    ways.row_length[row] = length
    ways.rows[ways.counts[0]] = row
    ways.counts[0] += 1
    y, x = row // wide, row % wide
    for k in range(costs.shape[0]):
        qy, qx = y + offsets[k, 0], x + offsets[k, 1]
        if not (0 <= qy < high and 0 <= qx < wide):
            continue
        column = qy * wide + qx
        there = length + max(costs[k] + ways.row_height[row] - ways.height[column], 0.0)
        if there < ways.length[column]:
            if ways.place[column] == UNREACHED:
                ways.columns[ways.counts[1]] = column
                ways.counts[1] += 1
                ways.place[column] = ways.counts[2]
                ways.counts[2] += 1
            ways.length[column] = there
            ways.came[column] = k
            _rise(column, ways)


@kernel()
def _rise(column, ways):  # type: ignore[no-untyped-def]
    """Move a column up the heap to where its length belongs."""
    at, length = ways.place[column], ways.length[column]
    while at > 0:
        above = ways.heap[(at - 1) // 2]
        if ways.length[above] <= length:
            break
        ways.heap[at] = above
        ways.place[above] = at
        at = (at - 1) // 2
    ways.heap[at] = column
    ways.place[column] = at


@kernel()
def _first(ways):  # type: ignore[no-untyped-def]
    """Take the nearest column from the heap."""
    column = ways.heap[0]
    ways.place[column] = DONE
    ways.counts[2] -= 1
    count, at = ways.counts[2], 0
    if count == 0:
        return column
    last = ways.heap[count]
    length = ways.length[last]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and ways.length[ways.heap[child + 1]] < ways.length[ways.heap[child]]:
            child += 1
        below = ways.heap[child]
        if ways.length[below] >= length:
            break
        ways.heap[at] = below
        ways.place[below] = at
        at = child
    ways.heap[at] = last
    ways.place[last] = at
    return column


@kernel()
def _send(source, target, most, flows, offsets, ways):  # type: ignore[no-untyped-def]
    """Send along a way what every move that is taken back carries: how much, and whether one carries nothing now."""
    wide = flows.shape[2]
    amount, blocked = most, False
    for turn in range(2):
        column = target
        while True:
            k = ways.came[column]
            y, x = column // wide - offsets[k, 0], column % wide - offsets[k, 1]
            row = y * wide + x
            if turn == 1:
                flows[k, y, x] += amount
            if row == source:
                break
            k = ways.took[row]
            if turn == 1:
                flows[k, y, x] -= amount
                blocked |= flows[k, y, x] <= SPECK
            else:
                amount = min(amount, flows[k, y, x])
            column = (y + offsets[k, 0]) * wide + x + offsets[k, 1]
    return amount, blocked


@kernel()
def _forget(far, ways):  # type: ignore[no-untyped-def]
    """Shift heights so that the ways just used have length 0 and none is below, and clear what was written down."""
    for i in range(ways.counts[0]):
        row = ways.rows[i]
        ways.row_height[row] += ways.row_length[row] - far
        ways.took[row] = UNREACHED
    for i in range(ways.counts[1]):
        column = ways.columns[i]
        ways.height[column] += min(ways.length[column] - far, 0.0)
        ways.length[column] = np.inf
        ways.place[column] = UNREACHED
    ways.counts[0] = 0
    ways.counts[1] = 0
    ways.counts[2] = 0
