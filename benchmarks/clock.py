"""Timing on a shared machine: tasks take turns, and medians are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(tasks: Mapping[str, Callable[[], object]], *, rounds: int = 7) -> dict[str, float]:
    """Median seconds of each task, after one warm-up, the tasks taking turns in every round."""
    for task in tasks.values():
        task()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}
