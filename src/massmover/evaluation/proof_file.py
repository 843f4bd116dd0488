"""Proofs as arrays of an .npz file, beside the examples they prove: docs/proof-format.md.

Needs no pickle to write or to read. A file without these arrays is a file without proofs, not a damaged one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from massmover.evaluation.proof import COARSEST, FINEST, Claim, Moves, Verdict, check
from massmover.types import MassmoverError

VERSION = 1
NO_PROOF = 0  # the unit of an example that comes without moves; one that did not move at all has a unit, and no moves
WHOLE_IMAGE = 0  # the window that reaches everywhere
ONE_VECTOR = 0  # the width of a field that is the same everywhere
NAMES = ("version", "window", "ground", "power", "normalisation", "start", "unit", "source", "step", "mass")
COLUMNS = tuple(f"proof_{name}" for name in NAMES)

Arrays = dict[str, NDArray[Any]]


class Proofs(NamedTuple):
    """The proofs of a file: one entry per example."""

    claim: Claim  # its radius is 0: every example claims its own
    moves: tuple[Moves | None, ...]  # None where an example has no proof

    def __len__(self) -> int:
        return len(self.moves)


def proof_arrays(moves: Sequence[Moves | None], claim: Claim) -> Arrays:
    """The arrays to save for the moves of some examples, in their order; the claim's radius is not among them."""
    found = [entry for entry in moves if entry is not None]
    counts = [0 if entry is None else len(entry.mass) for entry in moves]
    values = {
        "version": np.int64(VERSION),
        "window": np.int64(WHOLE_IMAGE if claim.window is None else claim.window),
        "ground": np.str_(claim.ground),
        "power": np.float64(claim.power),
        "normalisation": np.str_(claim.normalisation),
        "start": np.cumsum([0, *counts], dtype=np.int64),
        "unit": np.array([NO_PROOF if entry is None else entry.unit for entry in moves], dtype=np.int16),
        "source": np.concatenate([np.zeros(0, np.int32), *(entry.source for entry in found)]).astype(np.int32),
        "step": np.concatenate([np.zeros((0, 2), np.int16), *(entry.step for entry in found)]).astype(np.int16),
        "mass": np.concatenate([np.zeros(0, np.int64), *(entry.mass for entry in found)]).astype(np.int64),
    }
    if claim.scatter is not None:
        values |= {
            "scatter": np.float64(claim.scatter),
            "width": np.int64(ONE_VECTOR if claim.width is None else claim.width),
        }
    return {f"proof_{name}": np.asarray(value) for name, value in values.items()}


def proofs_in(arrays: Mapping[str, NDArray[Any]]) -> Proofs | None:
    """The proofs among the arrays of a file; None where the file has none, as files of earlier versions."""
    if "proof_version" not in arrays:
        return None
    version = arrays["proof_version"]
    if version.shape != () or version.dtype.kind not in "iu" or int(version) != VERSION:
        raise MassmoverError(f"proofs of version {version} cannot be read: this package reads version {VERSION}")
    missing = [name for name in COLUMNS if name not in arrays]
    if missing:
        raise MassmoverError(f"the proofs are damaged: {', '.join(missing)} missing. Make the file again.")
    start, unit = arrays["proof_start"], arrays["proof_unit"]
    source, step, mass = (arrays[f"proof_{name}"] for name in ("source", "step", "mass"))
    _check_ends(start, unit, lengths={len(source), len(step), len(mass)})
    parts = [slice(first, last) for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)]
    moves = tuple(
        None if one == NO_PROOF else Moves(source[part], step[part], mass[part], one)
        for part, one in zip(parts, unit.tolist(), strict=True)
    )
    return Proofs(claim=_claim(arrays), moves=moves)


def checked_proofs(
    arrays: Mapping[str, NDArray[Any]], *, tolerance: float = 0.0, claim: Claim | None = None
) -> list[Verdict | None]:
    """Check every example of a file: arrays original, adversarial, radius, and proofs. None for one without a proof.

    An array `mask`, of one mask an example, says where mass may move. A `claim` is checked in place of the file's own;
    radius and tolerance are those given beside it.
    """
    originals, images = arrays["original"], arrays["adversarial"]
    proofs = proofs_in(arrays)
    if proofs is None:
        return [None] * len(originals)
    if not len(proofs) == len(originals) == len(images):
        raise MassmoverError(
            f"{len(proofs)} proofs for {len(originals)} originals and {len(images)} images: one for each"
        )
    claim = proofs.claim if claim is None else claim
    radii = np.broadcast_to(arrays["radius"], len(originals)).tolist()
    masks = arrays["mask"] if "mask" in arrays else [None] * len(originals)
    return [
        None
        if moves is None
        else check(original, image, moves, replace(claim, radius=radius, tolerance=tolerance), free=free)
        for original, image, moves, radius, free in zip(originals, images, proofs.moves, radii, masks, strict=True)
    ]


def _claim(arrays: Mapping[str, NDArray[Any]]) -> Claim:
    """What the proofs are about, but for the radius."""
    window, scatter, width = int(arrays["proof_window"]), None, ONE_VECTOR
    if "proof_scatter" in arrays:
        if "proof_width" not in arrays:
            raise MassmoverError("the proofs are damaged: proof_width missing. Make the file again.")
        scatter, width = float(arrays["proof_scatter"]), int(arrays["proof_width"])
    ground: Any = str(arrays["proof_ground"])
    normalisation: Any = str(arrays["proof_normalisation"])
    return Claim(
        radius=0.0,
        window=None if window == WHOLE_IMAGE else window,
        ground=ground,
        power=float(arrays["proof_power"]),
        normalisation=normalisation,
        scatter=scatter,
        width=None if width == ONE_VECTOR else width,
    )


def _check_ends(start: NDArray[Any], unit: NDArray[Any], *, lengths: set[int]) -> None:
    """Every example has its moves between two entries of `start`, and all moves belong to one."""
    whole = start.dtype.kind in "iu" and unit.dtype.kind in "iu" and start.ndim == unit.ndim == 1
    if not whole or len(start) != len(unit) + 1 or {int(start[-1])} != lengths:
        raise MassmoverError("the proofs are damaged: proof_start does not fit the other arrays. Make the file again.")
    if start[0] != 0 or (np.diff(start) < 0).any():
        raise MassmoverError("the proofs are damaged: proof_start must rise from 0. Make the file again.")
    if not ((unit == NO_PROOF) | ((unit >= COARSEST) & (unit <= FINEST))).all():
        raise MassmoverError(f"the proofs are damaged: proof_unit must be 0 or from {COARSEST} to {FINEST}.")
