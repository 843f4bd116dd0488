"""The fused kernel of the search: one image per call, everything in cache (docs/algorithms.md, section 4).

The arithmetic of `potential.move_mass_torch`, written for Numba. Rows and price are those of `rows_kernel`; here their
mass arrives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from massmover.transport.potential import SEND_BACK_SWEEPS
from massmover.transport.rows_kernel import add_up, cancel_swaps, copy, lay_out, price_of, scale_of

LEAST_MOBILE = np.float32(1e-6)
SPECK = np.float32(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow
ROOT_ACCURACY = 1e-6  # of the budget; the certificate solves it to float64


class Answer(NamedTuple):
    """Where the answers go."""

    images: Any
    crowding: Any
    price: Any
    spent: Any


@njit(cache=True, nogil=True)
def move_images(batch, answer, table, floor):  # type: ignore[no-untyped-def]
    """Move the mass of every image of a batch."""
    height, width = batch.originals.shape[2:]
    for b in range(batch.originals.shape[0]):
        field = lay_out(batch, b, table)
        price, reference = price_of(batch, b, field, table, floor, ROOT_ACCURACY)
        first, last = max(field.left, 0), min(field.left + field.wide, width)
        answer.price[b] = price
        answer.images[b] = 0.0
        answer.crowding[b] = -1.0 / LEAST_MOBILE
        answer.spent[b] = 0.0
        for c in range(batch.originals.shape[1]):
            moved, crowding, spent = _arrive(field, table, c, (price - reference) * batch.relative[b, c])
            answer.spent[b] += spent * batch.weights[b, c]
            for y in range(max(field.top, 0), min(field.top + field.high, height)):
                at = table.reach[1] + (y - field.top) * field.wide - field.left
                copy(moved[at + first : at + last], answer.images[b, c, y, first:last])
                copy(crowding[at + first : at + last], answer.crowding[b, c, y, first:last])


@njit(cache=True, error_model="numpy")
def _arrive(field, table, c, rate):  # type: ignore[no-untyped-def]
    """The channel after the move, how crowded its pixels would be if none sent mass back, and what the move costs."""
    mass = field.mass[c]
    size = mass.shape[0]
    inflow, leaving, crowding, paid = _write_arrivals(field, table, c, rate)
    stays, saved = cancel_swaps(field, table, c)
    for p in range(size):
        inflow[p] = max(inflow[p] - stays[p], np.float32(0.0))
        leaving[p] = max(leaving[p] - stays[p], np.float32(0.0))
    for i in range(field.length):
        paid[i] -= saved[i]
    share, sent_back = _send_back(field, c, inflow, leaving)
    if sent_back:
        _pay(field, table, c, share, paid)
    spent = np.float64(max(add_up(paid, field.length), np.float32(0.0)))
    moved = np.empty(size, dtype=np.float32)
    for p in range(size):
        moved[p] = min(max(mass[p] - leaving[p] + share[p] * inflow[p], np.float32(0.0)), np.float32(1.0))
    return moved, crowding, spent


@njit(cache=True, error_model="numpy")
def _write_arrivals(field, table, c, rate):  # type: ignore[no-untyped-def]
    """Turn shares into mass and let it arrive: inflow, what leaves, crowding, and what each pixel pays."""
    start, count, mass = field.start, field.length, field.mass[c]
    size = mass.shape[0]
    inflow, leaving = np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    mobile = np.full(size, LEAST_MOBILE)  # how fast a pixel's mass grows with its potential
    left, mine = leaving[start : start + count], mobile[start : start + count]
    inverse = np.empty(count, dtype=np.float32)
    for i in range(count):
        there = mass[start + i]
        inverse[i] = np.float32(1.0) / there if there > SPECK else np.float32(0.0)
    decay, source, paid = scale_of(field, table, c, rate)
    for k in range(field.shift.shape[0]):
        flow, at, d = field.shares[c, k], start + field.shift[k], decay[table.ring_of[k]]
        arriving, growing = inflow[at : at + count], mobile[at : at + count]
        for i in range(count):
            flow[i] *= d * source[i]
        for i in range(count):
            f = flow[i]
            arriving[i] += f
            growing[i] += f * (np.float32(1.0) - f * inverse[i])
        for i in range(count):
            left[i] += flow[i]
    for i in range(count):
        mine[i] += left[i] * (np.float32(1.0) - left[i] * inverse[i])
    crowding = np.empty(size, dtype=np.float32)
    for p in range(size):
        crowding[p] = (mass[p] - leaving[p] + inflow[p] - np.float32(1.0)) / mobile[p]
    return inflow, leaving, crowding, paid


@njit(cache=True, error_model="numpy")
def _send_back(field, c, inflow, leaving):  # type: ignore[no-untyped-def]
    """The share of its inflow each pixel keeps, lowered sweep by sweep until all fit. Updates `leaving`."""
    start, count, mass = field.start, field.length, field.mass[c]
    share, sent_back = np.ones(mass.shape[0], dtype=np.float32), False
    left = leaving[start : start + count]
    for _ in range(SEND_BACK_SWEEPS):
        overfull = 0
        for p in range(mass.shape[0]):
            room = max(np.float32(1.0) - mass[p] + leaving[p], np.float32(0.0))
            if share[p] * inflow[p] > room + np.float32(1e-6):
                share[p] = room / inflow[p]
                overfull += 1
        if overfull == 0:
            break
        sent_back = True
        left[:] = 0.0
        for k in range(field.shift.shape[0]):
            flow, at = field.shares[c, k], start + field.shift[k]
            kept = share[at : at + count]
            for i in range(count):
                left[i] += flow[i] * kept[i]
    return share, sent_back


@njit(cache=True, error_model="numpy")
def _pay(field, table, c, share, paid):  # type: ignore[no-untyped-def]
    """What each pixel pays for the mass that its targets keep."""
    paid[:] = 0.0
    for k in range(field.shift.shape[0]):
        flow, at = field.shares[c, k], field.start + field.shift[k]
        kept, cost = share[at : at + field.length], np.float32(table.costs[table.ring_of[k]])
        for i in range(field.length):
            paid[i] += flow[i] * kept[i] * cost
