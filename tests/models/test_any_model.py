"""Whatever maps images to scores is a model, and images that do not fit one are named in the error."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import massmover
from massmover.models import load_model
from massmover.types import MassmoverError

RADIUS = 0.2


class WithLogits(nn.Module):
    """As Hugging Face's image classifiers answer: an object that holds the logits among other things."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: Tensor) -> Any:
        return SimpleNamespace(loss=None, logits=self.network(pixel_values), hidden_states=None)


def shapes_of(network: nn.Module) -> dict[str, Any]:
    return {"module with .logits": WithLogits(network), "function": lambda images: network(images)}


@pytest.mark.parametrize("kind", ["module with .logits", "function"])
def test_other_kinds_of_models_are_attacked_alike(digits: tuple[Tensor, Tensor], kind: str) -> None:
    network = load_model("mnist-standard")
    model = shapes_of(network)[kind]
    images, labels = (values[:6] for values in digits)
    result = massmover.attack(model, images, labels, radius=RADIUS, method="ascent")
    assert result.steps.max() > 0 and result.success.any()
    assert massmover.verify(images, result.images, radius=RADIUS).violations == 0
    torch.testing.assert_close(
        result.images, massmover.attack(network, images, labels, radius=RADIUS, method="ascent").images
    )


def attack_with(model: Any, images: Tensor) -> str:
    with pytest.raises(MassmoverError) as caught:
        massmover.attack(model, images, torch.zeros(len(images), dtype=torch.long), radius=0.1)
    assert caught.value.__cause__ is not None
    return str(caught.value)


def test_a_wrong_channel_count_names_both_shapes() -> None:
    message = attack_with(load_model("mnist-standard"), torch.rand(2, 3, 28, 28))
    assert "images of shape (B, 3, 28, 28), torch.float32 on cpu" in message
    assert "weights 0.weight are (16, 1, 4, 4), torch.float32" in message
    assert message.endswith("Give images with 1 channel, not 3.")


def test_a_wrong_number_type_names_both_types() -> None:
    class OfItsOwn(nn.Module):
        """Asks in float64 whatever its weights are."""

        def __init__(self) -> None:
            super().__init__()
            self.network = load_model("mnist-standard")

        def forward(self, images: Tensor) -> Tensor:
            answer: Tensor = self.network(images.double())
            return answer

    message = attack_with(OfItsOwn(), torch.rand(2, 1, 28, 28))
    assert re.search(r"\(B, 1, 28, 28\), torch.float32 .*0\.weight are .*torch\.float32", message)
    assert "RuntimeError" in message


def test_another_number_type_is_converted_to_the_models(digits: tuple[Tensor, Tensor]) -> None:
    network = load_model("mnist-standard")
    images, labels = digits[0][:4].double(), digits[1][:4]
    result = massmover.attack(network, images, labels, radius=RADIUS, method="ascent")
    assert result.images.dtype == torch.float64
    assert result.steps.min() > 0 and result.success.any()
    assert massmover.verify(images, result.images, radius=RADIUS).violations == 0


def test_a_wrong_size_says_what_torch_says() -> None:
    message = attack_with(load_model("mnist-standard"), torch.rand(2, 1, 32, 32))
    assert "(B, 1, 32, 32)" in message
    assert "RuntimeError: mat1 and mat2" in message
    assert "the size the model was made for" in message


def test_a_function_that_fails_is_named_with_its_images() -> None:
    def fails(images: Tensor) -> Tensor:
        raise KeyError("logits")

    message = attack_with(fails, torch.rand(2, 1, 8, 8))
    assert message.startswith("The model cannot take images of shape (B, 1, 8, 8), torch.float32 on cpu (KeyError")


def test_a_later_error_is_the_models_own() -> None:
    calls = []

    def fails_later(images: Tensor) -> Tensor:
        calls.append(len(images))
        if len(calls) > 1:
            raise RuntimeError("the tenth layer is tired")
        return images.flatten(1)

    with pytest.raises(RuntimeError, match=r"^the tenth layer is tired$"):
        massmover.attack(fails_later, torch.rand(2, 1, 4, 4), torch.tensor([0, 1]), radius=0.1)
