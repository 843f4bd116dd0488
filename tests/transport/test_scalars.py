from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import wrightomega
from torch import Tensor

from massmover.transport.scalars import NEVER, decreasing_root, sectioned_root, wright_omega

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
        assert found.point.tolist() == pytest.approx((np.log(300) / rates.numpy()).tolist(), rel=1e-12)
        assert found.converged.all()

    def test_says_when_it_ran_out_of_steps(self) -> None:
        rates, target = torch.tensor([1.0, 1.0]), torch.tensor([3 / np.e, 1e-30], dtype=torch.float64)
        found = decreasing_root(exponentials(rates), target=target, guess=torch.ones(2), accuracy=1e-9, steps=2)
        assert found.converged.tolist() == [True, False]

    def test_is_zero_where_nothing_has_to_be_paid(self) -> None:
        found = decreasing_root(
            lambda price: (torch.exp(-price), -torch.exp(-price)),
            target=torch.tensor([1.0, 2.0]),
            guess=torch.ones(2),
            accuracy=1e-6,
        )
        assert found.point.tolist() == [0.0, 0.0]

    def test_a_bad_guess_does_not_matter(self) -> None:
        target = torch.tensor([0.3, 1e-5], dtype=torch.float64)
        for guess in (0.0, 1e-9, 50.0, 1e6):
            found = decreasing_root(
                lambda price: (1 / (1 + price**2), -2 * price / (1 + price**2) ** 2),
                target=target,
                guess=torch.full((2,), guess),
                accuracy=1e-12,
            )
            assert found.point.tolist() == pytest.approx([(1 / t - 1) ** 0.5 for t in target.tolist()], rel=1e-9)

    def test_a_target_of_nothing_costs_what_nobody_pays(self) -> None:
        found = decreasing_root(exponentials(torch.ones(1)), target=torch.zeros(1), guess=torch.ones(1), accuracy=1e-6)
        assert found.point.item() == pytest.approx(NEVER)


class TestSectionedRoot:
    @pytest.mark.parametrize("off", [0.85, 1.0, 1.15])
    def test_a_guess_that_is_nearly_right_gives_the_root(self, off: float) -> None:
        rates = torch.tensor([0.5, 1.0, 7.0], dtype=torch.float64)
        target = torch.full((3,), 0.01, dtype=torch.float64)
        truth = torch.log(torch.tensor(300.0, dtype=torch.float64)) / rates
        found = sectioned_root(lambda prices: 3 * torch.exp(-rates[:, None] * prices), target=target, guess=off * truth)
        assert found.tolist() == pytest.approx(truth.tolist(), rel=1e-6)

    @pytest.mark.parametrize("guess", [0.0, 1e-9, 0.3, 50.0, 1e6])
    def test_a_bad_guess_is_affordable(self, guess: float) -> None:
        target = torch.tensor([0.3, 1e-5], dtype=torch.float64)
        found = sectioned_root(
            lambda prices: 1 / (1 + prices**2), target=target, guess=torch.full((2,), guess, dtype=torch.float64)
        )
        assert (1 / (1 + found**2) <= target * (1 + 1e-5)).all(), found

    def test_is_zero_where_nothing_has_to_be_paid(self) -> None:
        found = sectioned_root(lambda prices: torch.exp(-prices), target=torch.tensor([1.0, 2.0]), guess=torch.ones(2))
        assert found.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)

    def test_the_number_of_looks_does_not_depend_on_what_is_seen(self) -> None:
        asked: list[torch.Size] = []

        def function(prices: Tensor) -> Tensor:
            asked.append(prices.shape)
            return 3 * torch.exp(-prices)

        for guess in (0.0, 1.0, 1e5):
            asked.clear()
            sectioned_root(function, target=torch.full((4,), 0.1), guess=torch.full((4,), guess), rounds=3)
            assert len(asked) == 4
            assert all(shape[0] == 4 for shape in asked)
