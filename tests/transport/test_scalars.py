from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import wrightomega
from torch import Tensor

from massmover.transport.scalars import NEVER, decreasing_root, wright_omega

POINTS = np.concatenate([np.linspace(-60, 60, 2401), -(10.0 ** np.arange(2, 7)), 10.0 ** np.arange(2, 102, 20)])


def test_agrees_with_scipy_everywhere() -> None:
    reference = wrightomega(POINTS)
    ours = wright_omega(torch.from_numpy(POINTS)).numpy()
    np.testing.assert_allclose(ours, reference, rtol=1e-14, atol=0)
    kernels = pytest.importorskip("massmover.transport.kernels.sinkhorn")
    one_by_one = np.array([kernels.wright_omega(t) for t in POINTS])
    np.testing.assert_allclose(one_by_one, reference, rtol=1e-14, atol=0)


def test_the_ends_of_the_line() -> None:
    assert wright_omega(torch.tensor([-torch.inf])).item() == 0
    assert wright_omega(torch.tensor([1e6], dtype=torch.float32)).item() == pytest.approx(1e6 - np.log(1e6), rel=1e-6)


def exponentials(rates: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda price: (3 * torch.exp(-rates * price), -3 * rates * torch.exp(-rates * price))


class TestDecreasingRoot:
    def test_finds_a_known_root(self) -> None:
        rates = torch.tensor([0.5, 1.0, 7.0], dtype=torch.float64)
        target = torch.full((3,), 0.01, dtype=torch.float64)
        found = decreasing_root(exponentials(rates), target=target, guess=torch.ones_like(target), accuracy=1e-13)
        assert found.tolist() == pytest.approx((np.log(300) / rates.numpy()).tolist(), rel=1e-12)

    def test_is_zero_where_nothing_has_to_be_paid(self) -> None:
        found = decreasing_root(
            lambda price: (torch.exp(-price), -torch.exp(-price)),
            target=torch.tensor([1.0, 2.0]),
            guess=torch.ones(2),
            accuracy=1e-6,
        )
        assert found.tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("look", [True, False])
    def test_a_bad_guess_does_not_matter(self, look: bool) -> None:
        target = torch.tensor([0.3, 1e-5], dtype=torch.float64)
        for guess in (0.0, 1e-9, 50.0, 1e6):
            found = decreasing_root(
                lambda price: (1 / (1 + price**2), -2 * price / (1 + price**2) ** 2),
                target=target,
                guess=torch.full((2,), guess),
                accuracy=1e-12,
                look=look,
            )
            assert found.tolist() == pytest.approx([(1 / t - 1) ** 0.5 for t in target.tolist()], rel=1e-9)

    def test_a_target_of_nothing_costs_what_nobody_pays(self) -> None:
        for look in (True, False):
            found = decreasing_root(
                exponentials(torch.ones(1)), target=torch.zeros(1), guess=torch.ones(1), accuracy=1e-6, look=look
            )
            assert found.item() == pytest.approx(NEVER)

    def test_without_a_look_it_takes_just_so_many_steps(self) -> None:
        asked: list[float] = []

        def function(price: Tensor) -> tuple[Tensor, Tensor]:
            asked.append(price.item())
            return exponentials(torch.ones(1))(price)

        decreasing_root(function, target=torch.full((1,), 0.1), guess=torch.ones(1), accuracy=1e-6, steps=9, look=False)
        assert len(asked) == 9
