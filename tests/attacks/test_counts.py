"""How much a step asks of a device: counts are exact, unlike times, and so there is a ceiling."""

from __future__ import annotations

import pytest
import torch
from benchmarks.backends import step_counts
from torch import nn

from massmover.attacks import PlanAscent
from massmover.types import Backend
from scenes import random_images


@pytest.mark.parametrize(("backend", "most", "window"), [("numba", 100, 5), ("torch", 700, 5), ("torch", 700, 9)])
def test_a_step_launches_little_and_waits_rarely(backend: Backend, most: int, window: int) -> None:
    """Beside the model's own gradient, at any window; on a processor to look who is done costs nothing."""
    images = random_images(22, batch=3, channels=1, height=10, width=9, dtype=torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, 4)).eval()
    launches, waits = step_counts(PlanAscent, backend, images, model=model, window=window)
    assert 0 < launches <= most
    assert waits <= (1 if backend == "numba" else 0.2)
