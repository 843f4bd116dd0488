"""Several processes on one run, started by torchrun; one process needs none of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

from massmover.types import MassmoverError

T = TypeVar("T")
PATIENCE = timedelta(days=7)  # a process that is done waits for the slowest


class ToldElsewhereError(MassmoverError):
    """The first process has told this problem to the user; the others only have to stop."""


@dataclass(frozen=True)
class Ranks:
    """Which process this is, and of how many."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process prepares, merges and prints."""
        return self.rank == 0

    def once(self, work: Callable[[], T]) -> T:
        """Let the first process work, hand its answer to all, and let all of them fail together."""
        if self.size == 1:
            return work()
        import torch.distributed as dist  # as below: one process needs no torch for this

        box: list[object] = [None, None]
        told: MassmoverError | None = None
        if self.first:
            try:
                box[0] = work()
            except MassmoverError as problem:
                box[1], told = str(problem), problem
        dist.broadcast_object_list(box, src=0)
        if box[1] is not None:
            raise told or ToldElsewhereError(str(box[1]))
        return cast(T, box[0])  # the broadcast hands on the very answer of `work`

    def wait(self) -> None:
        """Wait until every process has come this far."""
        if self.size > 1:
            import torch.distributed as dist

            dist.barrier()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the other processes if torchrun started some. Files carry the results; gloo only keeps step."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield Ranks(rank=dist.get_rank(), size=dist.get_world_size())
    finally:
        dist.destroy_process_group()
