"""Images and models of every float type: what is found, in which type it comes back, and that it is proven."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from massmover import PlanAscent, SinkhornAttack, WassersteinBall, attack, smallest_radius, verify
from massmover.models import load_model

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, torch.float64]
COUNT = 6
RADIUS = 0.2


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    return load_model("mnist-standard")


def predicted(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        answer: Tensor = model(images)
    return answer.argmax(dim=1)


def known(model: nn.Module, digits: tuple[Tensor, Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The first digits that a model of some dtype gets right, in that dtype."""
    images, labels = digits[0].to(dtype), digits[1]
    right = torch.nonzero(predicted(model, images) == labels).flatten()[:COUNT]
    return images[right], labels[right]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("of_images", [*FLOATS, *HALVES], ids=str)
@pytest.mark.parametrize("of_model", [*FLOATS, *HALVES], ids=str)
def test_images_and_models_of_every_float_type(
    of_model: torch.dtype, of_images: torch.dtype, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    model = copy.deepcopy(classifier).to(of_model)
    images, labels = known(model, digits, of_model)
    images = images.to(of_images)
    before = images.clone()
    result = attack(model, images, labels, radius=RADIUS, method=PlanAscent(steps=15))
    assert result.images.dtype == (torch.float64 if of_images == torch.float64 else torch.float32)
    assert result.steps.min() > 0
    assert result.success.sum() >= COUNT // 2
    assert torch.equal(result.success, predicted(model, result.images.to(of_model)) != labels)
    assert result.trusted.all()
    assert verify(images.to(result.images.dtype), result.images, RADIUS).violations == 0
    assert torch.equal(images, before)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_judge_takes_half_precision_originals(
    dtype: torch.dtype, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    images = digits[0][:2].to(dtype)
    result = attack(classifier, images, digits[1][:2], radius=RADIUS, method=PlanAscent(steps=3))
    verdicts = verify(images, result.images, RADIUS)
    assert verdicts.violations == 0
    assert (verdicts.distance <= result.cost * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("dtype", [*FLOATS, *HALVES], ids=str)
def test_a_function_sees_images_of_the_type_it_was_given(
    dtype: torch.dtype, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    model = copy.deepcopy(classifier).to(dtype)
    images, labels = known(model, digits, dtype)
    seen: set[torch.dtype] = set()

    def function(shown: Tensor) -> Tensor:
        seen.add(shown.dtype)
        answer: Tensor = model(shown)
        return answer

    result = attack(function, images, labels, radius=RADIUS, method=PlanAscent(steps=15))
    assert seen == {dtype}
    assert result.steps.min() > 0
    assert result.success.any()
    assert torch.equal(result.success, predicted(model, result.images.to(dtype)) != labels)
    found = smallest_radius(function, images[:2], labels[:2], method=PlanAscent(steps=10), rounds=2)
    assert seen == {dtype}
    assert found.images.dtype == (dtype if dtype in FLOATS else torch.float32)


@pytest.mark.parametrize("method", [SinkhornAttack(steps=6), "frank-wolfe"], ids=["sinkhorn", "frank-wolfe"])
@pytest.mark.parametrize("dtype", [torch.float64, *HALVES], ids=str)
def test_other_attacks_take_every_type_too(
    method: str | SinkhornAttack, dtype: torch.dtype, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    model = copy.deepcopy(classifier).to(dtype)
    images, labels = known(model, digits, dtype)
    ball = WassersteinBall(0.4)
    result = attack(model, images, labels, ball=ball, method=method)
    assert result.steps.min() > 0
    assert result.success.any()
    assert verify(images.to(result.images.dtype), result.images, 0.4).violations == 0


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("radius", "scatter", "width"), [(2.0, 0.3, None), (0.5, 0.1, 9)])
@pytest.mark.parametrize("of_images", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_model", [torch.float64, *HALVES], ids=str)
def test_mass_that_moves_together_takes_every_type_too(
    of_model: torch.dtype,
    of_images: torch.dtype,
    radius: float,
    scatter: float,
    width: int | None,
    classifier: nn.Module,
    digits: tuple[Tensor, Tensor],
) -> None:
    model = copy.deepcopy(classifier).to(of_model)
    images, labels = known(model, digits, of_model)
    images, ball = images.to(of_images), WassersteinBall(radius, scatter=scatter, width=width)
    result = attack(model, images, labels, ball=ball, method=PlanAscent(steps=8))
    assert result.images.dtype == (torch.float64 if of_images == torch.float64 else torch.float32)
    assert result.success.any() and not result.success.all()
    assert torch.equal(result.success, predicted(model, result.images.to(of_model)) != labels)
    assert result.trusted.all() and (result.certificate.scatter <= scatter * (1 + 1e-9)).all()
    assert verify(images.to(result.images.dtype), result.images, radius).violations == 0


@pytest.mark.usefixtures("backend")
def test_every_float64_digit_is_proven_inside(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:20].double(), digits[1][:20]
    result = attack(copy.deepcopy(classifier).double(), images, labels, radius=20 / 784, method=PlanAscent(steps=10))
    assert int(result.trusted.sum()) == len(images) == 20
    assert verify(images, result.images, 20 / 784).violations == 0
