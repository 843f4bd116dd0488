"""The largest moves of a plan, as rows of a table: what the arrows of a picture show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from massmover.transport.plan import Plan

MOVES = 60  # how many of a plan's largest moves are kept


def largest_moves(plan: Plan, row: int) -> NDArray[np.float32]:
    """The largest moves of one image's plan, heaviest first; what stays is no move. Unused rows have mass 0.

    Returns (MOVES, 6): channel, from row, from column, to row, to column, mass.
    """
    flows = plan.flows[row].detach().cpu().clone()  # (C, K, H, W)
    flows[:, 0] = 0
    mass, position = flows.flatten().topk(min(MOVES, flows.numel()))
    channel, move, y, x = np.unravel_index(position.numpy(), tuple(flows.shape))
    step = np.asarray(plan.window.offsets)[move]
    columns = (channel, y, x, y + step[:, 0], x + step[:, 1], mass.numpy())
    table = np.stack([np.asarray(column, dtype=np.float32) for column in columns], axis=1)
    table[table[:, 5] <= 0] = 0
    return np.concatenate([table, np.zeros((MOVES - len(table), 6), dtype=np.float32)])
