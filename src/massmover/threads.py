"""Threads for kernels: plain ones that sleep while they wait, as many as torch uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


def in_parallel(work: Callable[[slice], None], *, count: int) -> None:
    """Do work that releases Python's lock on slices of a batch, on as many threads as torch uses.

    The busy waiting of OpenMP is ruinous where cores are shared, and Numba's own threads would change how many torch
    uses; these do neither. `torch.set_num_threads` and OMP_NUM_THREADS decide how many there are.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        work(slice(0, count))
        return
    size = -(-count // (4 * threads))  # smaller slices than threads: some images take longer than others
    waiting = iter([slice(start, min(start + size, count)) for start in range(0, count, size)])

    def take() -> None:
        for part in waiting:
            work(part)

    others = [_pool(threads - 1).submit(take) for _ in range(threads - 1)]
    take()  # the caller works too: a thread that only waits would leave its core to one that has to be woken
    for other in others:
        other.result()


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="massmover")


# A forked process inherits the pools but not their threads: it would wait for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
