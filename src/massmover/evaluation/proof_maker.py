"""From a plan in floating point to moves that prove: masses become whole numbers, and no row sends more than it has.

Shares no code with the checker, only the form of what is handed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from massmover.evaluation.proof import Moves
from massmover.transport.plan import Plan

UNITS = {torch.float64: 60}  # float64 images want all that a proof may have
USUAL_UNIT = 48  # 4e-15: far below what float32 rounds, in shorter numbers


def proving_moves(plan: Plan, originals: torch.Tensor, row: int) -> Moves:
    """The moves of one image's plan as a proof of its image, ordered by where they start; what stays is left out.

    Masses are rounded to the nearest unit, which leaves the plan's image where it was up to a few units a pixel, far
    less than the rounding of the image that is paid for already. Where a row then sends more than its pixel holds, by
    some units, its largest moves are cut.
    """
    unit = UNITS.get(originals.dtype, USUAL_UNIT)
    flows = plan.flows[row, :, 1:].detach().cpu().double().numpy()  # (C, K - 1, H, W)
    masses = np.rint(np.ldexp(flows, unit)).astype(np.int64)
    held = np.floor(np.ldexp(originals[row].detach().cpu().double().numpy(), unit)).astype(np.int64)
    _cut(masses, held)
    masses = np.moveaxis(masses, 1, -1)  # (C, H, W, K - 1)
    channel_and_pixel, move = np.nonzero(masses.reshape(held.size, masses.shape[-1]))
    steps = np.asarray(plan.window.offsets[1:], dtype=np.int16).reshape(-1, 2)
    return Moves(source=channel_and_pixel.astype(np.int32), step=steps[move], mass=masses[masses != 0], unit=unit)


def _cut(masses: NDArray[Any], held: NDArray[Any]) -> None:
    """Take from the largest moves of a row what they send beyond what its pixel holds, where they are."""
    excess = masses.sum(axis=1) - held
    while (excess > 0).any():
        channel, y, x = np.nonzero(excess > 0)
        rows = masses[channel, :, y, x]
        largest = rows.argmax(axis=1)
        cut = np.minimum(excess[channel, y, x], rows.max(axis=1))
        masses[channel, largest, y, x] -= cut
        excess[channel, y, x] -= cut
