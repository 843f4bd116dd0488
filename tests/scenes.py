"""Random images with everything that goes wrong in them: black and saturated pixels, black channels, odd shapes."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor


def random_images(
    seed: int, *, batch: int, channels: int, height: int, width: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, channels, height, width)
    images = torch.rand(shape, generator=generator, dtype=torch.float64)
    kind = torch.rand(shape, generator=generator)
    images[kind < 0.35] = 1.0
    images[kind > 0.65] = 0.0
    black = torch.rand(batch, channels, generator=generator) < 0.15
    images[black] = 0.0
    return images.to(dtype)


shapes = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 7), st.integers(1, 7))
seeds = st.integers(0, 2**31 - 1)
windows = st.sampled_from([1, 3, 5, None])
grounds = st.sampled_from(["euclidean", "manhattan", "chebyshev"])
dtypes = st.sampled_from([torch.float32, torch.float64])
