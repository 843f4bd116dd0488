"""`move_mass` for float32 images on CPUs: the fused kernel, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch

from massmover.geometry import Window
from massmover.transport.fused_kernel import Answer, Batch, Table, move_images
from massmover.transport.potential import Move, relative_weights
from massmover.types import Images, PerChannel, PerImage


def move_mass_fused(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> Move:
    """`move_mass` for float32 images on the CPU."""
    table = table_of(window)
    moved = torch.empty_like(originals, memory_format=torch.contiguous_format)
    crowding, prices, spent = torch.empty_like(moved), torch.empty_like(budget), torch.empty_like(budget)
    batch = Batch(
        potential.contiguous().numpy(),
        originals.contiguous().numpy(),
        budget.double().numpy(),
        weights.double().contiguous().numpy(),
        relative_weights(weights, originals).double().contiguous().numpy(),
        (torch.ones_like(budget) if price is None else price).double().numpy(),
    )
    answer = Answer(moved.numpy(), crowding.numpy(), prices.numpy(), spent.numpy())

    def work(part: slice) -> None:
        mine, out = Batch(*(array[part] for array in batch)), Answer(*(array[part] for array in answer))
        move_images(mine, out, table, floor)

    in_parallel(work, count=len(originals))
    return Move(images=moved, price=prices, crowding=crowding, spent=spent)


def in_parallel(work: Callable[[slice], None], *, count: int) -> None:
    """Do work that releases Python's lock on slices of a batch, on as many threads as torch uses.

    Plain threads that sleep while they wait: the busy waiting of OpenMP is ruinous where cores are shared.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        work(slice(0, count))
        return
    size = -(-count // (4 * threads))  # smaller slices than threads: some images take longer than others
    list(_pool(threads).map(work, [slice(start, start + size) for start in range(0, count, size)]))


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="massmover")


@lru_cache(maxsize=64)
def table_of(window: Window) -> Table:
    """The moves of a window in the order of their rings."""
    number = {pair: r for r, ring in enumerate(window.rings) for pair in ring.pairs}
    moves = sorted(window.offsets[1:], key=lambda move: number[abs(move[0]), abs(move[1])])
    rings = [number[abs(dy), abs(dx)] for dy, dx in moves]
    costs = [ring.cost for ring in window.rings]
    return Table(
        np.array(moves, dtype=np.int64).reshape(-1, 2),
        np.array(rings, dtype=np.int64),
        np.array(costs, dtype=np.float64),
        np.array([window.rows, window.columns], dtype=np.int64),
    )
