"""The moves of a plan that can be kept, in Numba, one channel at a time: `repair.kept_moves` on the CPU, in float64.

Rows, swaps and columns are put right where the plan lies (docs/algorithms.md, section 2). What comes out is measured
by `plan.certify`, which shares no code with it. The code is as frugal as that of `kernels.plan`, and for its
reasons; so it carries no annotations either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from massmover.ball import Balls
from massmover.compiling import kernel, part
from massmover.threads import in_parallel
from massmover.transport.kernels.plan import boxes
from massmover.transport.plan import Plan
from massmover.transport.repair import Kept

PROPORTIONAL_SWEEPS, OVERFLOW = 64, 1e-13  # as in `repair`
INFLOW, LEAVING, SHARE, SCALE, PLANES = range(5)


class Channel(NamedTuple):
    """One channel's plan, the box that holds its mass, and memory as large as the image for each of PLANES."""

    flows: Any  # (K, H, W), "stay" first
    mass: Any  # (H, W)
    moves: Any  # (K, 2)
    box: Any  # (4,)
    planes: Any  # (PLANES, H, W)


def kept_moves_numba(plan: Plan, balls: Balls) -> Kept:
    """`repair.kept_moves` for images on the CPU. Takes the flows over, which are float64 and contiguous."""
    flows = plan.flows.numpy()
    originals = balls.originals.double().contiguous().numpy()
    change, sweeps = np.zeros_like(originals), np.zeros(len(balls), dtype=np.int64)
    moves, box = np.array(plan.window.offsets, dtype=np.int64), boxes(originals)

    def work(some: slice) -> None:
        planes = np.empty((PLANES, *originals.shape[2:]))
        keep_moves(flows[some], originals[some], moves, box[some], planes, change[some], sweeps[some])

    in_parallel(work, count=len(balls))
    return Kept(*map(torch.from_numpy, (flows, change, sweeps)))


@kernel(nogil=True)
def keep_moves(flows, originals, moves, box, planes, change, sweeps):  # type: ignore[no-untyped-def]
    """Put right the plans of some images."""
    for b in range(originals.shape[0]):
        for c in range(originals.shape[1]):
            channel = Channel(flows[b, c], originals[b, c], moves, box[b], planes)
            _scale_rows(channel)
            _cancel_swaps(channel)
            _let_arrive(channel)
            done = 0
            while _lower_shares(channel, done < PROPORTIONAL_SWEEPS):
                _let_leave(channel)
                done += 1
            sweeps[b] = max(sweeps[b], done)
            _write_kept(channel, change[b, c])


@part()
def _columns(channel, k, y):  # type: ignore[no-untyped-def]
    """The columns of the box from which move k stays in the image, first and behind the last; none in a wrong row."""
    height, width = channel.mass.shape
    dy, dx = channel.moves[k, 0], channel.moves[k, 1]
    if y + dy < 0 or y + dy >= height:
        return 0, 0
    return max(channel.box[2], -dx), min(channel.box[3], width - dx)


@part(error_model="numpy")
def _scale_rows(channel):  # type: ignore[no-untyped-def]
    """Drop what is no flow or leaves the image, and scale down rows that send more than they have. Equation (1)."""
    height, width = channel.mass.shape
    for y in range(height):
        total, scale, mass = channel.planes[LEAVING, y], channel.planes[SCALE, y], channel.mass[y]
        for x in range(width):
            total[x] = 0.0
        for k in range(channel.moves.shape[0]):
            flow = channel.flows[k, y]
            for x in range(width):
                sent = flow[x]
                flow[x] = sent if sent > 0.0 and sent <= 2.0 else 0.0  # no pixel holds more than 1
                total[x] += flow[x]  # what stays and what leaves the image included, so that proportions are kept
        for x in range(width):
            scale[x] = mass[x] / total[x] if total[x] > mass[x] else 1.0
        for k in range(1, channel.moves.shape[0]):
            flow = channel.flows[k, y]
            first, last = _columns(channel, k, y)
            for x in range(width):
                flow[x] = flow[x] * scale[x] if x >= first and x < last else 0.0


@part()
def _cancel_swaps(channel):  # type: ignore[no-untyped-def]
    """Let stay what two pixels would exchange. Equation (1b)."""
    count, box = channel.moves.shape[0], channel.box
    for k in range(1, count):
        dy, dx = channel.moves[k, 0], channel.moves[k, 1]
        if dy < 0 or (dy == 0 and dx < 0):  # a move and the one that undoes it are dealt with once
            continue
        back = k
        for other in range(1, count):
            if channel.moves[other, 0] == -dy and channel.moves[other, 1] == -dx:
                back = other
        for y in range(box[0], box[1] - dy):
            there, here = channel.flows[k, y], channel.flows[back, y + dy]
            for x in range(max(box[2], box[2] - dx), min(box[3], box[3] - dx)):
                both = min(there[x], here[x + dx])
                there[x] -= both
                here[x + dx] -= both


@part()
def _let_arrive(channel):  # type: ignore[no-untyped-def]
    """What leaves each pixel and what arrives, where every pixel keeps all that arrives."""
    inflow, leaving, share = channel.planes[INFLOW], channel.planes[LEAVING], channel.planes[SHARE]
    for y in range(inflow.shape[0]):
        for x in range(inflow.shape[1]):
            inflow[y, x], leaving[y, x], share[y, x] = 0.0, 0.0, 1.0
    for k in range(1, channel.moves.shape[0]):
        dy, dx = channel.moves[k, 0], channel.moves[k, 1]
        for y in range(channel.box[0], channel.box[1]):
            first, last = _columns(channel, k, y)
            if first >= last:
                continue
            flow, left, arriving = channel.flows[k, y], leaving[y], inflow[y + dy]
            for x in range(first, last):
                left[x] += flow[x]
            for x in range(first, last):
                arriving[x + dx] += flow[x]


@part(error_model="numpy")
def _lower_shares(channel, proportionally):  # type: ignore[no-untyped-def]
    """Lower the share of its inflow that an overfull pixel keeps, or close it; says if there was one. Equation (2)."""
    inflow, leaving, share = channel.planes[INFLOW], channel.planes[LEAVING], channel.planes[SHARE]
    overfull = 0
    for y in range(inflow.shape[0]):
        for x in range(inflow.shape[1]):
            room = max(1.0 - channel.mass[y, x] + leaving[y, x], 0.0)
            if share[y, x] * inflow[y, x] > room + OVERFLOW:
                fits = room / max(inflow[y, x], OVERFLOW) if proportionally else 0.0
                share[y, x] = min(share[y, x], fits)
                overfull += 1
    return overfull > 0


@part()
def _let_leave(channel):  # type: ignore[no-untyped-def]
    """What leaves each pixel when every target keeps only its share."""
    leaving, share = channel.planes[LEAVING], channel.planes[SHARE]
    for y in range(channel.box[0], channel.box[1]):
        for x in range(channel.box[2], channel.box[3]):
            leaving[y, x] = 0.0
        for k in range(1, channel.moves.shape[0]):
            first, last = _columns(channel, k, y)
            if first >= last:
                continue
            dy, dx = channel.moves[k, 0], channel.moves[k, 1]
            flow, left, kept = channel.flows[k, y], leaving[y], share[y + dy]
            for x in range(first, last):
                left[x] += flow[x] * kept[x + dx]


@part()
def _write_kept(channel, change):  # type: ignore[no-untyped-def]
    """Send back what targets do not keep, write what stays, and by how much each pixel changes."""
    inflow, leaving, share = channel.planes[INFLOW], channel.planes[LEAVING], channel.planes[SHARE]
    for k in range(1, channel.moves.shape[0]):
        dy, dx = channel.moves[k, 0], channel.moves[k, 1]
        for y in range(channel.box[0], channel.box[1]):
            first, last = _columns(channel, k, y)
            if first >= last:
                continue
            flow, kept = channel.flows[k, y], share[y + dy]
            for x in range(first, last):
                flow[x] *= kept[x + dx]
    for y in range(change.shape[0]):
        for x in range(change.shape[1]):
            change[y, x] = share[y, x] * inflow[y, x] - leaving[y, x]
            channel.flows[0, y, x] = max(channel.mass[y, x] - leaving[y, x], 0.0)
