"""The moves of a potential that can be kept, in float64, one image at a time (docs/algorithms.md, sections 2 and 4).

The arithmetic of `potential.priced_plan` and of `repair.kept_moves`, for Numba. What the kernel returns is measured by
`plan.certify`, which shares no code with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from massmover.transport.repair import OVERFLOW, PROPORTIONAL_SWEEPS
from massmover.transport.rows_kernel import cancel_swaps, copy, lay_out, price_of, write_flows

ACCURACY = 1e-12  # of the budget


class Found(NamedTuple):
    """Where the answers go: `repair.Kept` and the price, as arrays."""

    flows: Any  # (B, C, K, H, W)
    change: Any  # (B, C, H, W)
    sweeps: Any
    price: Any


@njit(cache=True, nogil=True)
def keep_moves(batch, found, table, floor):  # type: ignore[no-untyped-def]
    """Price, plan and repair every image of a batch."""
    for b in range(batch.originals.shape[0]):
        field = lay_out(batch, b, table)
        price, reference = price_of(batch, b, field, table, floor, ACCURACY)
        found.price[b] = price
        found.sweeps[b] = 0
        found.flows[b] = 0.0
        found.change[b] = 0.0
        for c in range(batch.originals.shape[1]):
            write_flows(field, table, c, (price - reference) * batch.relative[b, c])
            leaving = _sendable(field, c)
            stays, _ = cancel_swaps(field, table, c)
            leaving -= stays
            share, inflow, sweeps = _returned_share(field, c, leaving)
            found.sweeps[b] = max(found.sweeps[b], sweeps)
            _keep(field, c, share)
            _write_out(field, c, leaving, table, found.flows[b, c])
            _write_change(field, c, share, inflow, leaving, table.reach, found.change[b, c])


@njit(cache=True, error_model="numpy")
def _sendable(field, c):  # type: ignore[no-untyped-def]
    """What leaves each pixel, after rows that send more than they have are scaled down. Equation (1)."""
    start, count = field.start, field.length
    mass = field.mass[c, start : start + count]
    leaving = np.zeros(field.mass.shape[1])
    left = leaving[start : start + count]
    for k in range(field.shift.shape[0]):
        flow = field.shares[c, k]
        for i in range(count):
            f = flow[i]
            flow[i] = f if f >= 0.0 and f <= 2.0 else 0.0  # no pixel holds more than 1
            left[i] += flow[i]
    scale = np.empty(count)
    for i in range(count):
        scale[i] = 1.0
        if left[i] > mass[i]:
            scale[i] = mass[i] / left[i]
            left[i] = mass[i]
    for k in range(field.shift.shape[0]):
        flow = field.shares[c, k]
        for i in range(count):
            flow[i] *= scale[i]
    return leaving


@njit(cache=True, error_model="numpy")
def _returned_share(field, c, leaving):  # type: ignore[no-untyped-def]
    """The share of its inflow that each pixel may keep, as `repair.returned_share`; equation (2). Updates `leaving`."""
    start, count, mass = field.start, field.length, field.mass[c]
    size = mass.shape[0]
    inflow, share = np.zeros(size), np.ones(size)
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], start + field.shift[k]
        arriving = inflow[at : at + count]
        for i in range(count):
            arriving[i] += flow[i]
    left = leaving[start : start + count]
    sweep = 0
    while True:
        overfull = 0
        for p in range(size):
            room = max(1.0 - mass[p] + leaving[p], 0.0)
            if share[p] * inflow[p] > room + OVERFLOW:
                fits = room / max(inflow[p], OVERFLOW) if sweep < PROPORTIONAL_SWEEPS else 0.0
                share[p] = min(share[p], fits)
                overfull += 1
        if overfull == 0:
            return share, inflow, sweep
        sweep += 1
        left[:] = 0.0
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept = share[at : at + count]
            for i in range(count):
                left[i] += flow[i] * kept[i]


@njit(cache=True, error_model="numpy")
def _keep(field, c, share):  # type: ignore[no-untyped-def]
    """Send back what the targets do not keep."""
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], field.start + field.shift[k]
        kept = share[at : at + field.length]
        for i in range(field.length):
            flow[i] *= kept[i]


@njit(cache=True)
def _write_out(field, c, leaving, table, flows):  # type: ignore[no-untyped-def]
    """Copy the rows of the box that holds mass into the plan, (K, H, W), what stays among them."""
    rows, columns = table.reach
    count, left = field.wide - 2 * columns, field.left + columns
    for row in range(field.high - 2 * rows):
        y, at = field.top + rows + row, row * field.wide + columns
        for k in range(table.place.shape[0]):
            copy(field.shares[c, k, at : at + count], flows[table.place[k], y, left : left + count])
        for x in range(count):
            p = field.start + at + x
            flows[0, y, left + x] = max(field.mass[c, p] - leaving[p], 0.0)


@njit(cache=True)
def _write_change(field, c, share, inflow, leaving, reach, change):  # type: ignore[no-untyped-def]
    """By how much each pixel of the image that mass can reach changes."""
    height, width = change.shape
    for y in range(max(field.top, 0), min(field.top + field.high, height)):
        at = reach[1] + (y - field.top) * field.wide - field.left
        for x in range(max(field.left, 0), min(field.left + field.wide, width)):
            change[y, x] = share[at + x] * inflow[at + x] - leaving[at + x]
