from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from massmover.backend import CHOICE, installed

sys.path.insert(0, str(Path(__file__).parent))  # dense.py and scenes.py

# Deterministic, and without a deadline: the machine is shared. A backend is chosen once for all examples of a test.
settings.register_profile(
    "massmover",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("massmover")
torch.set_num_threads(1)


@pytest.fixture(params=["numba", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who moves the mass where a test names nobody: one after the other."""
    name: str = request.param
    if name == "numba" and not installed(name):
        pytest.skip("Numba is not installed")
    monkeypatch.setenv(CHOICE, name)
    return name


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    """The first 100 bundled digits and their labels."""
    from massmover.data import load

    sample = load("mnist-sample").subset(0, 100)
    return sample.images_as_float(), sample.labels


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)
