"""Who moves the mass: Numba on processors, Triton on graphics cards, plain torch anywhere."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from massmover.types import Backend, MassmoverError

BACKENDS: tuple[Backend, ...] = ("numba", "torch", "triton")
CHOICE = "MASSMOVER_BACKEND"  # environment variable: the backend where the caller names none
SLOWER = 8  # times the processor time that plan ascent takes in plain torch; `python -m benchmarks.backends` prints it


def backend_for(images: Tensor, *, wanted: str | None = None) -> Backend:
    """The backend for images on their device: the one that is wanted, or the fastest there is.

    Without a wish the environment variable MASSMOVER_BACKEND decides, then the device.
    """
    wanted = wanted or os.environ.get(CHOICE) or None
    if images.device.type == "mps":
        raise MassmoverError("The images are on an MPS device, which has no float64 to prove with: use images.cpu().")
    on_cpu = images.device.type == "cpu"
    if wanted is None:
        if on_cpu:
            return "numba" if installed("numba") else _plain_torch()
        return "triton" if images.device.type == "cuda" and installed("triton") else "torch"
    for backend in BACKENDS:
        if wanted == backend:
            _refuse(backend, on_cpu=on_cpu)
            return backend
    raise MassmoverError(f"unknown backend {wanted!r}: use one of {', '.join(BACKENDS)}, or None for the fastest")


def _refuse(backend: Backend, *, on_cpu: bool) -> None:
    """Raise where a backend cannot run."""
    if backend != "torch" and not installed(backend):
        raise MassmoverError(f"backend {backend!r} needs {backend}, which is not installed: pip install {backend}")
    if backend == "numba" and not on_cpu:
        raise MassmoverError("backend 'numba' runs on the CPU: move the images there, or use 'triton' or 'torch'")
    if backend == "triton" and on_cpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise MassmoverError(
            "backend 'triton' needs a graphics card: move the images to one, or use 'numba' or 'torch'. "
            "(To check its arithmetic on a CPU, set TRITON_INTERPRET=1 before Python starts.)"
        )


@lru_cache(maxsize=1)
def _plain_torch() -> Backend:
    """Say once that the slow path runs, and why."""
    warnings.warn(
        f"Numba is not installed, so plain torch moves the mass; plan ascent then takes about {SLOWER} times the "
        "processor time. pip install numba",
        stacklevel=5,
    )
    return "torch"


@lru_cache(maxsize=8)
def installed(library: str) -> bool:
    """Whether a library can be imported."""
    try:
        return find_spec(library) is not None
    except ValueError:  # it was blocked on purpose: sys.modules holds None
        return False


def default_block(backend: Backend) -> int:
    """Steps of a search between two looks at which images are done.

    A look waits for the device. Beside a processor it is free; a graphics card would idle.
    """
    return 1 if backend == "numba" else 10


def synchronised(device: torch.device) -> None:
    """Wait until a device has done all that it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
