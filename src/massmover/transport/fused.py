"""The kernels of search and proof for images on CPUs, on as many threads as torch uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch

from massmover.geometry import Window
from massmover.transport.fused_kernel import Answer, move_images
from massmover.transport.potential import Move, relative_weights
from massmover.transport.proof_kernel import Found, keep_moves
from massmover.transport.repair import Kept
from massmover.transport.rows_kernel import Batch, Table
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
    batch = _batch(potential, originals, budget, weights, price)
    moved = torch.empty_like(originals, memory_format=torch.contiguous_format)
    crowding, prices, spent = torch.empty_like(moved), torch.empty_like(budget), torch.empty_like(budget)
    answer = Answer(moved.numpy(), crowding.numpy(), prices.numpy(), spent.numpy())

    def work(part: slice) -> None:
        mine, out = Batch(*(array[part] for array in batch)), Answer(*(array[part] for array in answer))
        move_images(mine, out, table, floor)

    in_parallel(work, count=len(originals))
    return Move(images=moved, price=prices, crowding=crowding, spent=spent)


def kept_moves_fused(
    potential: Images,
    *,
    originals: Images,
    budget: PerImage,
    weights: PerChannel,
    window: Window,
    price: PerImage | None = None,
    floor: float = 0.0,
) -> tuple[Kept, PerImage]:
    """The moves of a potential's plan that can be kept, and their price: for images on the CPU, in float64."""
    table = table_of(window)
    batch = _batch(potential.double(), originals.double(), budget, weights, price)
    shape = originals.shape
    # Plans are large, and NumPy, unlike torch, asks for large pages: new memory then costs next to nothing.
    written_out = np.empty((*shape[:2], len(window.offsets), *shape[2:]))
    found = Found(written_out, np.empty(shape), np.empty(shape[0], dtype=np.int64), np.empty(shape[0]))

    def work(part: slice) -> None:
        mine, out = Batch(*(array[part] for array in batch)), Found(*(array[part] for array in found))
        keep_moves(mine, out, table, floor)

    in_parallel(work, count=len(originals))
    flows, change, sweeps, prices = map(torch.from_numpy, found)
    return Kept(flows=flows, change=change, sweeps=sweeps), prices


def _batch(
    potential: Images, originals: Images, budget: PerImage, weights: PerChannel, price: PerImage | None
) -> Batch:
    return Batch(
        potential.contiguous().numpy(),
        originals.contiguous().numpy(),
        budget.double().numpy(),
        weights.double().contiguous().numpy(),
        relative_weights(weights, originals).double().contiguous().numpy(),
        (torch.ones_like(budget) if price is None else price).double().numpy(),
    )


def in_parallel(work: Callable[[slice], None], *, count: int) -> None:
    """Do work that releases Python's lock on slices of a batch, on as many threads as torch uses.

    Plain threads that sleep while they wait: the busy waiting of OpenMP is ruinous where cores are shared.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        work(slice(0, count))
        return
    size = -(-count // (4 * threads))  # smaller slices than threads: some images take longer than others
    waiting = iter([slice(start, start + size) for start in range(0, count, size)])

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
        np.array([window.offsets.index(move) for move in moves], dtype=np.int64),
        np.array([moves.index((-dy, -dx)) for dy, dx in moves], dtype=np.int64),
    )
