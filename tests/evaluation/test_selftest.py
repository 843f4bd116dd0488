"""The self-test runs on the CPU as it would on a card, and sees what is wrong."""

from __future__ import annotations

import pytest
import torch

from massmover.ball import Balls
from massmover.evaluation import selftest
from massmover.evaluation.selftest import compare_backends, usable_backends
from massmover.transport.potential import Move, Pull, move_mass

CPU = torch.device("cpu")


def test_all_backends_of_the_processor_pass() -> None:
    assert usable_backends(CPU) == ("numba", "torch")
    checks = compare_backends(CPU, count=6, steps=10)
    assert [check.backend for check in checks] == ["numba", "torch"]
    for check in checks:
        assert check.passed
        assert check.largest_difference < 1e-4
        assert check.step_over_gradient > 0
    assert len({check.broken for check in checks}) == 1


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_a_backend_that_moves_otherwise_fails(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    def crooked(pull: Pull, balls: Balls) -> Move:
        move = move_mass(pull, balls)
        return move._replace(images=move.images + error)

    monkeypatch.setattr(selftest, "move_mass", crooked)
    assert not any(check.passed for check in compare_backends(CPU, count=2, steps=2))
