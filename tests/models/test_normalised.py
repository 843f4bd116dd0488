from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from massmover.models import Normalised, lenet, load_weights, resnet20, save_weights
from massmover.types import MassmoverError

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def test_it_equals_normalising_by_hand() -> None:
    inner = resnet20().eval()
    images = torch.rand(2, 3, 32, 32)
    by_hand = torch.stack([(images[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(Normalised(inner, MEAN, STD)(images), inner(by_hand))


def test_it_leaves_the_images_alone() -> None:
    images = torch.rand(2, 1, 28, 28)
    before = images.clone()
    Normalised(lenet(), [0.1], [0.3])(images)
    assert torch.equal(images, before)


def test_its_keys_are_those_of_the_inner_model() -> None:
    assert list(Normalised(lenet(), [0.1], [0.3]).state_dict()) == list(lenet().state_dict())


def test_checkpoints_load_with_and_without_the_wrapper(tmp_path: Path) -> None:
    plain, wrapped, back = lenet(), Normalised(lenet(), [0.1], [0.3]), lenet()
    load_weights(wrapped, save_weights(plain, tmp_path / "plain.safetensors"))
    load_weights(back, save_weights(wrapped, tmp_path / "wrapped.safetensors"))
    for name, value in plain.state_dict().items():
        assert torch.equal(value, wrapped.model.state_dict()[name])
        assert torch.equal(value, back.state_dict()[name])


def test_a_strict_load_still_notices_what_is_wrong() -> None:
    state = dict(lenet().state_dict())
    state["extra"] = state.pop("0.bias")
    with pytest.raises(RuntimeError, match=r"(?s)0\.bias.*extra"):
        Normalised(lenet(), [0.1], [0.3]).load_state_dict(state)


def test_it_can_be_nested_in_another_module() -> None:
    first = nn.Sequential(Normalised(Normalised(lenet(), [0.1], [0.3]), [0.0], [1.0]), nn.Softmax(dim=1))
    second = nn.Sequential(Normalised(Normalised(lenet(), [0.1], [0.3]), [0.0], [1.0]), nn.Softmax(dim=1))
    second.load_state_dict(first.state_dict())
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(first(images), second(images))


def test_it_wraps_a_plain_function() -> None:
    model = Normalised(lambda images: images.flatten(1), [0.5], [0.5])
    assert torch.equal(model(torch.ones(1, 1, 1, 2)), torch.ones(1, 2))


def test_it_keeps_the_images_precision() -> None:
    model = Normalised(lambda images: images.flatten(1), [0.5], [0.5])
    assert model(torch.ones(1, 1, 1, 2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.1, 0.2], [0.3], "2 means and 1 stds"),
        ([], [], "0 means"),
        ([float("nan")], [0.3], "mean must be finite"),
        ([0.1], [0.0], "> 0"),
        ([0.1], [-1.0], "> 0"),
        ([0.1], [float("inf")], "finite"),
    ],
)
def test_unusable_means_and_stds_are_refused(mean: list[float], std: list[float], message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        Normalised(lenet(), mean, std)


def test_the_channels_must_agree() -> None:
    with pytest.raises(MassmoverError, match=r"normalises 3 channels.*got \(2, 1, 28, 28\)"):
        Normalised(lenet(), MEAN, STD)(torch.rand(2, 1, 28, 28))
