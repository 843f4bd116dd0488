"""Timing on a shared machine: tasks take turns, and medians are compared, of wall or of processor time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Seconds(NamedTuple):
    """What a task took: by the clock on the wall, which runs for everybody, and of processors."""

    wall: float
    processor: float


def interleaved(tasks: Mapping[str, Callable[[], object]], *, rounds: int = 7) -> dict[str, float]:
    """Median seconds of each task by the clock, after one warm-up, the tasks taking turns in every round."""
    return {name: seconds.wall for name, seconds in timed(tasks, rounds=rounds).items()}


def timed(tasks: Mapping[str, Callable[[], object]], *, rounds: int = 7) -> dict[str, Seconds]:
    """Median seconds of each task, after one warm-up, the tasks taking turns in every round."""
    for task in tasks.values():
        task()
    seconds: dict[str, list[Seconds]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            wall, processor = time.perf_counter(), time.process_time()
            task()
            seconds[name].append(Seconds(time.perf_counter() - wall, time.process_time() - processor))
    return {name: Seconds(*map(statistics.median, zip(*values, strict=True))) for name, values in seconds.items()}
