from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from dense import cost_matrix
from massmover.attacks import METHODS, attack
from massmover.attacks.base import Problem
from massmover.attacks.pgd import DIRECTIONS, Direction, Ramp, Schedule, SinkhornAttack, scaled, wong
from massmover.ball import WassersteinBall
from massmover.evaluation.verify import verify
from massmover.models import load_model
from massmover.transport.sinkhorn import ConstrainedSinkhorn
from massmover.types import MassmoverError
from scenes import random_images


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return load_model("mnist-standard")


def posed(images: Tensor, labels: Tensor, *, radius: float) -> Problem:
    return Problem(WassersteinBall(radius).around(images), labels)


def predicted(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(images).argmax(dim=1))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_image_is_inside_and_success_is_what_the_model_says(
    direction: Direction, model: nn.Module, digits: tuple[Tensor, Tensor], backend: str
) -> None:
    count, steps = (12, 15) if backend == "numba" else (2, 3)
    images, labels = digits[0][:count], digits[1][:count]
    result = attack(
        model, images, labels, ball=WassersteinBall(0.2), method=SinkhornAttack(steps=steps, direction=direction)
    )
    assert verify(images, result.images, result.radius).violations == 0
    assert result.trusted.all()
    assert result.backend == backend
    assert (result.steps > 0).equal(predicted(model, images) == labels)
    assert result.steps.max() > 0
    assert torch.equal(result.success, predicted(model, result.images) != labels)


def test_the_papers_direction_beats_signs(model: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:24], digits[1][:24]
    ball = WassersteinBall(0.1)
    ours = attack(model, images, labels, ball=ball, method=SinkhornAttack(steps=15))
    signs = attack(model, images, labels, ball=ball, method=SinkhornAttack(steps=15, direction="sign"))
    assert ours.success.sum() > signs.success.sum()
    assert ours.success.float().mean() > 0.4


def test_the_ramp_finds_breaking_radii_and_calls_clean_mistakes_zero(
    model: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels = digits[0][:16], digits[1][:16].clone()
    labels[3] = (labels[3] + 1) % 10  # a clean mistake
    ramp = Ramp(limit=0.6)
    result = SinkhornAttack().ramp(model, posed(images, labels, radius=0.0), ramp)
    assert result.radius[3] == 0 and result.success[3] and torch.equal(result.images[3], images[3])
    assert result.steps[3] == 0
    broken = result.success & (result.radius > 0)
    assert broken.sum() >= 10
    steps = (result.radius[broken] / 0.01).round()
    torch.testing.assert_close(result.radius[broken], steps * 0.01)
    assert torch.equal(steps.long(), result.steps[broken])  # one step per radius
    assert verify(images, result.images, result.radius).violations == 0
    assert torch.equal(result.success, predicted(model, result.images) != labels)


def test_ramps_grow_by_steps_or_by_a_factor() -> None:
    assert Ramp(limit=0.05).radii() == pytest.approx((0.01, 0.02, 0.03, 0.04, 0.05))
    assert Ramp(start=0.1, step=0, factor=2, limit=1).radii() == pytest.approx((0.1, 0.2, 0.4, 0.8))
    for wrong in ({"step": 0.0}, {"start": 0.0}, {"factor": 0.5}, {"limit": 0.001}):
        with pytest.raises(MassmoverError):
            Ramp(**wrong)


@pytest.mark.usefixtures("backend")
def test_never_stronger_than_the_best_plan_against_a_linear_classifier() -> None:
    """The best attack on a linear model is a linear programme; the attack comes close and never passes it."""
    images = random_images(3, batch=3, channels=1, height=4, width=4) * 0.9
    images[:, 0, 1, 1] = 0.7
    weight = torch.randn(16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # The true class stays ahead, so that every image is climbed to the end.
    model = nn.Linear(16, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.stack([-weight, weight]))
        model.bias.copy_(torch.tensor([1e3, -1e3]))
    flat = nn.Sequential(nn.Flatten(), model)
    labels = torch.zeros(3, dtype=torch.int64)
    radius = 0.3
    solver = ConstrainedSinkhorn(1e-3, sweeps=2000)
    attacker = SinkhornAttack(steps=40, step_size=0.5, loss="margin", projection=solver)
    result = attack(flat, images, labels, ball=WassersteinBall(radius, window=None), method=attacker)
    costs = cost_matrix(4, 4)
    for before, after in zip(images.flatten(1).numpy(), result.images.flatten(1).numpy(), strict=True):
        best = linprog(
            -np.tile(weight.numpy(), 16),
            A_eq=np.kron(np.eye(16), np.ones((1, 16))),
            b_eq=before,
            A_ub=np.vstack([costs.ravel() / before.sum(), np.kron(np.ones((1, 16)), np.eye(16))]),
            b_ub=np.concatenate([[radius], np.ones(16)]),
        )
        gain, possible = weight.numpy() @ (after - before), -best.fun - weight.numpy() @ before
        assert gain <= possible + 1e-9
        assert gain >= 0.9 * possible


def test_targets_are_reached_or_there_is_no_success(model: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:8], digits[1][:8]
    targets = (labels + 3) % 10
    result = attack(
        model,
        images,
        labels,
        ball=WassersteinBall(1.0),
        targets=targets,
        method=SinkhornAttack(steps=40, loss="margin"),
    )
    assert torch.equal(result.success, predicted(model, result.images) == targets)
    assert result.success.any()
    assert verify(images, result.images, result.radius).violations == 0


def test_a_batch_equals_its_members_and_nothing_is_written_to(model: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:5].clone(), digits[1][:5]
    before = images.clone()
    model.train()
    attacker = SinkhornAttack(steps=6)
    together = attack(model, images, labels, ball=WassersteinBall(0.05), method=attacker)
    assert model.training
    model.eval()
    assert torch.equal(images, before)
    for index in range(5):
        alone = attack(
            model, images[index : index + 1], labels[index : index + 1], ball=WassersteinBall(0.05), method=attacker
        )
        torch.testing.assert_close(alone.images[0], together.images[index], rtol=0, atol=1e-3)
        assert alone.success[0] == together.success[index]


@pytest.mark.usefixtures("backend")
def test_radius_zero_and_black_images_stay(model: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:3].clone(), digits[1][:3]
    images[1] = 0
    attacker = SinkhornAttack(steps=3)
    assert torch.equal(attack(model, images, labels, ball=WassersteinBall(0.0), method=attacker).images, images)
    moved = attack(model, images, labels, ball=WassersteinBall(0.1), method=attacker).images
    assert torch.equal(moved[1], images[1])
    assert torch.isfinite(moved).all()


def test_wong_leaves_the_ball_by_clamping_and_what_is_returned_does_not(
    model: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels = digits[0][:10], digits[1][:10]
    ball = WassersteinBall(0.1)
    strong = replace(wong(), direction="gradient", step_size=0.06, step_unit="mass", steps=8)
    problem = posed(images, labels, radius=0.1)
    raw = strong.pursue(model, problem, Schedule.fixed(problem, steps=8), certify=False).found
    assert verify(images, raw.images, 0.1).violations > 0
    result = attack(model, images, labels, ball=ball, method=strong)
    assert verify(images, result.images, 0.1).violations == 0


def test_the_progress_is_told(model: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    told: list[tuple[int, int, int]] = []
    images, labels = digits[0][:4], digits[1][:4]
    SinkhornAttack().ramp(
        model,
        posed(images, labels, radius=0.0),
        Ramp(limit=0.03),
        progress=lambda *news: told.append(news),
    )
    assert [step for step, _, _ in told] == list(range(len(told)))
    assert all(left >= right for (_, _, left), (_, _, right) in itertools.pairwise(told))


def test_directions_of_nothing_are_nothing() -> None:
    for direction in DIRECTIONS:
        assert torch.equal(scaled(torch.zeros(2, 1, 3, 3), direction), torch.zeros(2, 1, 3, 3))
    steep = torch.tensor([[[[3.0, -4.0]]]])
    assert scaled(steep, "gradient").flatten().tolist() == pytest.approx([0.75, -1])
    assert scaled(steep, "l2").flatten().tolist() == pytest.approx([0.6, -0.8])
    assert scaled(steep, "sign").flatten().tolist() == [1, -1]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("method", ["sinkhorn", "wong"])
def test_both_are_methods_of_the_one_call(
    method: str, model: nn.Module, digits: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert method in METHODS
    images, labels = digits[0][:2], digits[1][:2]
    short = replace(METHODS[method], steps=3)  # type: ignore[type-var]
    monkeypatch.setattr("massmover.attacks.api.METHODS", {method: short})
    result = attack(model, images, labels, radius=0.1, method=method)
    assert result.steps.max() > 0
    assert verify(images, result.images, 0.1).violations == 0


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"step_size": 0.0}, {"direction": "down"}, {"step_unit": "inch"}])
def test_refuses_settings_that_attack_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(MassmoverError):
        SinkhornAttack(**wrong)  # type: ignore[arg-type]
