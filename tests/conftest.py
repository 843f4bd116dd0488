from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))  # dense.py and scenes.py

# Deterministic, and without a deadline: the machine is shared.
settings.register_profile("massmover", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("massmover")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """The first 100 bundled digits and their labels."""
    from massmover.data import load

    sample = load("mnist-sample").subset(0, 100)
    return sample.images_as_float(), sample.labels


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)
