from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch

from massmover import attack, names
from massmover.models import FunctionModel, Normalised, lenet, load_model, resnet20, save_weights
from massmover.training import accuracy
from massmover.types import MassmoverError

BUNDLED = Path(__file__).parents[2] / "src" / "massmover" / "bundled"

OWN_MODELS = """
import torch
from torch import nn

NUMBER = 3

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Dropout())

def function():
    return lambda images: images.flatten(1)

def number():
    return 3

def greedy(argument):
    return argument

def broken():
    raise RuntimeError("no luck")

def lazy():
    import massmover_test_neighbour
    return massmover_test_neighbour.model
"""


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "massmover_test_models"
    (tmp_path / f"{name}.py").write_text(OWN_MODELS)
    (tmp_path / "massmover_test_neighbour.py").write_text("def model(images):\n    return images.flatten(1)\n")
    monkeypatch.chdir(tmp_path)
    yield name
    for module in (name, "massmover_test_neighbour"):
        sys.modules.pop(module, None)


def test_the_bundled_model_is_accurate_on_the_bundled_sample() -> None:
    with numpy.load(BUNDLED / "mnist-sample.npz") as sample:
        images, labels = torch.from_numpy(sample["images"]), torch.from_numpy(sample["labels"])
    assert accuracy(load_model("mnist-standard"), images, labels) >= 0.985
    assert accuracy(load_model("mnist-robust"), images, labels) >= 0.97


def test_the_robust_model_stands_where_the_standard_one_falls(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    images, labels = digits[0][:40], digits[1][:40]
    left = [
        int((~attack(load_model(name), images, labels, radius=200 / 784, method="ascent").success).sum())
        for name in ("mnist-standard", "mnist-robust", "mnist-robust-97", "mnist-robust-95")
    ]
    assert left[0] <= 4 and min(left[1:]) >= 20, left


@pytest.mark.parametrize("name", names.BUNDLED)
def test_every_bundled_model_has_a_card_with_its_checksum_and_is_small(name: str) -> None:
    weights, card = BUNDLED / f"{name}.safetensors", (BUNDLED / f"{name}.md").read_text(encoding="utf-8")
    assert f"`{hashlib.sha256(weights.read_bytes()).hexdigest()}`" in card
    assert "| training time |" in card and "massmover train" in card
    assert weights.stat().st_size < 3e6


def test_the_bundled_colour_model_answers() -> None:
    model = load_model("cifar10-robust")
    assert (BUNDLED / "cifar10-robust.safetensors").stat().st_size < 1.5e6
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_the_bundled_model_is_ready_for_measurement() -> None:
    model = load_model("mnist-standard", device="cpu")
    assert not any(module.training for module in model.modules())
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)


def test_the_bundled_model_takes_no_other_weights() -> None:
    with pytest.raises(MassmoverError, match="brings its own weights"):
        load_model("mnist-standard", weights="other.safetensors")
    with pytest.raises(MassmoverError, match="as they are"):
        load_model("mnist-standard", mean=[0.1], std=[0.3])


def test_an_architecture_with_weights(tmp_path: Path) -> None:
    original = lenet()
    model = load_model("lenet", weights=save_weights(original, tmp_path / "digits.safetensors"))
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(model(images), original(images))
    assert not model.training


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet8", "resnet20", "resnet18"])
def test_an_architecture_without_weights_is_refused(name: str) -> None:
    with pytest.raises(MassmoverError, match=rf"random weights are pointless.*massmover\.models\.{name}\(\)"):
        load_model(name)


def test_the_wrong_architecture_is_refused(tmp_path: Path) -> None:
    path = save_weights(lenet(), tmp_path / "digits.safetensors")
    with pytest.raises(MassmoverError, match="missing keys: stem"):
        load_model("resnet20", weights=path)


def test_mean_and_std_go_into_the_model(tmp_path: Path) -> None:
    original = resnet20().eval()
    path = save_weights(original, tmp_path / "colours.safetensors")
    model = load_model("resnet20", weights=path, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    assert isinstance(model, Normalised)
    images = torch.rand(2, 3, 32, 32)
    by_hand = (images - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    torch.testing.assert_close(model(images), original(by_hand))


def test_mean_and_std_belong_together() -> None:
    with pytest.raises(MassmoverError, match="only mean was given"):
        load_model("resnet20", mean=[0.5])
    with pytest.raises(MassmoverError, match="only std was given"):
        load_model("resnet20", std=[0.5])


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        MassmoverError,
        match=rf"'alexnet'.*{', '.join(names.BUNDLED)}, lenet.*module:function",
    ):
        load_model("alexnet")


def test_a_function_of_the_callers_own(own_models: str) -> None:
    path_before = list(sys.path)
    model = load_model(f"{own_models}:network")
    assert model(torch.rand(3, 1, 2, 2)).shape == (3, 2)
    assert not any(module.training for module in model.modules())
    assert sys.path == path_before


def test_weights_load_into_the_callers_own_model(own_models: str, tmp_path: Path) -> None:
    original = load_model(f"{own_models}:network")
    path = save_weights(original, tmp_path / "own.safetensors")
    images = torch.rand(3, 1, 2, 2)
    assert torch.equal(load_model(f"{own_models}:network", weights=path)(images), original(images))


def test_a_plain_function_becomes_a_module(own_models: str) -> None:
    model = load_model(f"{own_models}:function", mean=[0.0], std=[1.0], device="cpu")
    assert isinstance(load_model(f"{own_models}:function"), FunctionModel)
    assert model(torch.ones(3, 1, 2, 2)).shape == (3, 4)


def test_the_function_may_import_its_neighbours(own_models: str) -> None:
    assert load_model(f"{own_models}:lazy")(torch.ones(3, 1, 2, 2)).shape == (3, 4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "has no function absent"),
        ("NUMBER", "has no function NUMBER"),
        ("number", "it returned int"),
        ("greedy", "failed when called without arguments.*TypeError"),
        ("broken", "RuntimeError: no luck"),
    ],
)
def test_functions_that_give_no_model_are_refused(own_models: str, function: str, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        load_model(f"{own_models}:{function}")


def test_a_plain_function_takes_no_weights(own_models: str) -> None:
    with pytest.raises(MassmoverError, match="no weights to load"):
        load_model(f"{own_models}:function", weights="own.safetensors")


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(MassmoverError, match="massmover_test_absent cannot be imported"):
        load_model("massmover_test_absent:build")


@pytest.mark.parametrize("name", ["my models:build", "models.py:", ":build", "C:\\models.py"])
def test_an_address_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(MassmoverError, match="not of the form"):
        load_model(name)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(MassmoverError, match=r"device 'toaster' cannot be used"):
        load_model("mnist-standard", device="toaster")
