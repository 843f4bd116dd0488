"""Who hears how a run goes. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from massmover.types import Stage

if TYPE_CHECKING:
    from massmover.evaluation.sanity import Check


class Progress(NamedTuple):
    """How far a run has come."""

    done: int  # images, of this process
    total: int
    accuracy: float  # at the largest radius, over the images done


class Watcher:
    """Hears how a run goes; this one keeps silent."""

    def probed(self, checks: Sequence[Check]) -> None:
        """The model was tried on a few images before the run."""

    def progressed(self, progress: Progress) -> None:
        """A batch was finished."""

    def searching(self, batch: range, radius: float | None, stage: Stage) -> None:
        """An attack on a batch has come to a stage; no radius where the smallest is searched."""
