from __future__ import annotations

import numpy as np
import pytest
import torch
from massmover.transport.lambert import wright_omega
from scipy.special import wrightomega

pytest.importorskip("numba")
from massmover.transport.sinkhorn_rings import wright_omega as wright_omega_of_one

POINTS = np.concatenate([np.linspace(-60, 60, 2401), -(10.0 ** np.arange(2, 7)), 10.0 ** np.arange(2, 102, 20)])


def test_agrees_with_scipy_everywhere() -> None:
    reference = wrightomega(POINTS)
    ours = wright_omega(torch.from_numpy(POINTS)).numpy()
    np.testing.assert_allclose(ours, reference, rtol=1e-14, atol=0)
    one_by_one = np.array([wright_omega_of_one(t) for t in POINTS])
    np.testing.assert_allclose(one_by_one, reference, rtol=1e-14, atol=0)


def test_the_ends_of_the_line() -> None:
    assert wright_omega(torch.tensor([-torch.inf])).item() == 0
    assert wright_omega(torch.tensor([1e6], dtype=torch.float32)).item() == pytest.approx(1e6 - np.log(1e6), rel=1e-6)
