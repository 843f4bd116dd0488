"""A problem any network can learn: noisy images with one bright row or column."""

from __future__ import annotations

import torch
from torch import Tensor


def bars(count: int = 96) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    images = torch.randint(0, 60, (count, 1, 28, 28), dtype=torch.uint8, generator=draws)
    labels = torch.arange(count) % 2
    images[labels == 0, :, 12:16, :] = 250
    images[labels == 1, :, :, 12:16] = 250
    return images, labels
