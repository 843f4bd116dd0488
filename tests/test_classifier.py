from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from massmover.classifier import borrowed, dtype_of, first_logits_of, logits_of
from massmover.types import MassmoverError


def half_frozen_model() -> nn.Sequential:
    """A model in train mode, of which one layer is in eval mode and one parameter frozen, with a gradient."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2)).train()
    model[2].eval()
    model.get_parameter("1.bias").requires_grad_(False)
    model.get_parameter("1.weight").grad = torch.full((3, 4), 7.0)
    return model


def flags(model: nn.Module) -> tuple[list[bool], list[bool]]:
    return [module.training for module in model.modules()], [value.requires_grad for value in model.parameters()]


def test_a_model_is_given_back_as_it_was() -> None:
    model = half_frozen_model()
    before = flags(model)
    with borrowed(model):
        assert not any(flags(model)[0] + flags(model)[1])
    assert flags(model) == before


def test_a_model_is_given_back_after_an_exception_too() -> None:
    model = half_frozen_model()
    before = flags(model)
    with pytest.raises(RuntimeError, match="halfway"), borrowed(model):
        raise RuntimeError("halfway")
    assert flags(model) == before


def test_gradients_reach_the_images_and_only_them() -> None:
    model = half_frozen_model()
    statistics = model.get_buffer("2.running_mean").clone()
    images = torch.rand(5, 1, 2, 2, requires_grad=True)
    with borrowed(model):
        torch.autograd.backward(model(images).sum())
    assert images.grad is not None
    assert images.grad.any()
    kept = model.get_parameter("1.weight").grad
    assert kept is not None
    assert torch.equal(kept, torch.full((3, 4), 7.0))
    assert model.get_parameter("4.weight").grad is None
    assert torch.equal(model.get_buffer("2.running_mean"), statistics)


def test_a_function_is_left_alone() -> None:
    with borrowed(lambda images: images.flatten(1)):
        pass


def test_logits_pass_through_with_their_gradient() -> None:
    images = torch.rand(2, 1, 2, 2, requires_grad=True)
    logits = logits_of(lambda batch: batch.flatten(1) * 2, images)
    assert torch.equal(logits, images.flatten(1) * 2)
    assert logits.requires_grad


def test_an_answer_with_logits_is_opened() -> None:
    answer = logits_of(lambda batch: SimpleNamespace(logits=batch.flatten(1)), torch.ones(2, 1, 2, 2))  # type: ignore[arg-type,return-value]
    assert answer.shape == (2, 4)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (torch.zeros(3, 10), r"\(2, classes\) for 2 images; got \(3, 10\)"),
        (torch.zeros(2), r"got \(2,\)"),
        (torch.zeros(2, 10, 1, 1), r"got \(2, 10, 1, 1\)"),
        (torch.zeros(2, 0), r"got \(2, 0\)"),
        (torch.zeros(2, 10, dtype=torch.long), "not the predicted classes"),
        (torch.tensor([[0.0, 1.0], [math.nan, 0.0]]), "1 of 2 images, the first is number 1"),
        (torch.tensor([[math.inf, 1.0], [0.0, 0.0]]), "the first is number 0"),
        ((torch.zeros(2, 10),), "got tuple"),
        (None, "got NoneType"),
    ],
)
def test_answers_that_are_no_logits_are_refused(answer: object, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        logits_of(lambda _: answer, torch.zeros(2, 1, 2, 2))  # type: ignore[arg-type,return-value]


def test_no_logits_for_no_images() -> None:
    assert logits_of(lambda batch: batch.flatten(1), torch.zeros(0, 1, 2, 2)).shape == (0, 4)


class Seeing(nn.Module):
    """A linear layer that remembers the dtype of what it was shown."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3, dtype=dtype)
        self.seen: torch.dtype | None = None

    def forward(self, images: Tensor) -> Tensor:
        self.seen = images.dtype
        answer: Tensor = self.layer(images.flatten(1))
        return answer


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("weights", FLOATS, ids=str)
@pytest.mark.parametrize("given", [torch.float32, torch.float64], ids=str)
def test_a_model_is_asked_in_its_own_dtype(given: torch.dtype, weights: torch.dtype) -> None:
    model, images = Seeing(weights), torch.rand(2, 1, 2, 2, dtype=given)
    assert dtype_of(model, images) == weights
    logits = logits_of(model, images)
    assert model.seen == weights
    assert logits.dtype == (weights if weights in (torch.float32, torch.float64) else torch.float32)
    assert first_logits_of(model, images).dtype == logits.dtype


def test_a_model_of_several_dtypes_is_asked_in_that_of_the_images() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3).double())
    assert dtype_of(model, torch.rand(1, 1, 2, 2)) == torch.float32
    assert dtype_of(model, torch.rand(1, 1, 2, 2).double()) == torch.float64


def test_a_model_without_weights_is_asked_in_the_dtype_of_the_images() -> None:
    for dtype in FLOATS:
        images = torch.rand(1, 1, 2, 2).to(dtype)
        assert dtype_of(nn.Flatten(), images) == dtype
        assert dtype_of(lambda batch: batch.flatten(1), images) == dtype


def test_the_gradient_reaches_the_images_through_another_dtype() -> None:
    images = torch.rand(2, 1, 2, 2, requires_grad=True)
    torch.autograd.backward(logits_of(Seeing(torch.float16), images).sum())
    assert images.grad is not None and images.grad.dtype == torch.float32 and images.grad.any()


def test_threads_that_share_a_model_give_it_back_as_it_was() -> None:
    """The second borrower comes while the first one has it, and leaves later."""
    model = half_frozen_model()
    before = flags(model)
    first, second = borrowed(model), borrowed(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(flags(model)[0] + flags(model)[1])
    second.__exit__(None, None, None)
    assert flags(model) == before


def test_a_model_that_writes_into_its_input_changes_no_image_and_has_gradients() -> None:
    def normalising(images: Tensor) -> Tensor:
        return images.sub_(0.5).div_(0.25).flatten(1)

    images = torch.rand(3, 1, 2, 2)
    before = images.clone()
    with torch.no_grad():
        logits_of(normalising, images)
    assert torch.equal(images, before)
    variable = images.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(logits_of(normalising, variable).sum(), variable)
    assert torch.equal(gradient, torch.full_like(images, 4.0))


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(1, 2, 2)], ids=["linear", "convolution"])
@pytest.mark.parametrize("weights", [torch.float16, torch.float64], ids=str)
def test_a_function_of_another_number_type_is_told_to_convert(layer: nn.Module, weights: torch.dtype) -> None:
    """The size of the images is not the matter, so nothing is said of it."""
    hidden = nn.Sequential(layer, nn.Flatten()) if isinstance(layer, nn.Conv2d) else nn.Sequential(nn.Flatten(), layer)
    hidden = hidden.to(weights)
    with pytest.raises(MassmoverError, match=r"let it convert its images, as lambda images") as refused:
        first_logits_of(lambda images: hidden(images), torch.rand(2, 1, 2, 2))
    assert "size" not in str(refused.value)
    assert first_logits_of(lambda images: hidden(images.to(weights)), torch.rand(2, 1, 2, 2)).shape[0] == 2
