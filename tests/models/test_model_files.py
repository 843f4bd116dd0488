"""A model in a file gives the same scores and can be attacked as it was before it was written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import massmover
from massmover.models import Normalised, load_model, save_weights
from massmover.types import MassmoverError

EXAMPLE = torch.zeros(4, 1, 28, 28)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return load_model("mnist-standard")


def script(model: nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(model, EXAMPLE), path)  # type: ignore[no-untyped-call]
    return path


def export(model: nn.Module, path: Path, *, batch: Any = None) -> Path:
    shapes = None if batch is None else ({0: batch},)
    torch.export.save(torch.export.export(model, (EXAMPLE,), dynamic_shapes=shapes), path)
    return path


def attack_and_judge(model: nn.Module, digits: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = (values[:6] for values in digits)
    result = massmover.attack(model, images, labels, radius=0.2, method="ascent")
    assert massmover.verify(images, result.images, radius=0.2).violations == 0
    return result.images


@pytest.mark.parametrize("suffix", [".pt", ".ts"])
def test_torchscript(model: nn.Module, digits: tuple[Tensor, Tensor], tmp_path: Path, suffix: str) -> None:
    loaded = load_model(str(script(model, tmp_path / f"model{suffix}")))
    assert not any(module.training for module in loaded.modules())
    torch.testing.assert_close(loaded(digits[0]), model(digits[0]))
    torch.testing.assert_close(attack_and_judge(loaded, digits), attack_and_judge(model, digits))


@pytest.mark.parametrize(
    "batch",
    [torch.export.Dim("batch"), torch.export.Dim("batch", min=3, max=5), None],
    ids=["any batch", "3 to 5 images", "exactly 4 images"],
)
def test_torch_export(model: nn.Module, digits: tuple[Tensor, Tensor], tmp_path: Path, batch: Any) -> None:
    loaded = load_model(str(export(model, tmp_path / "model.pt2", batch=batch)))
    assert not any(module.training for module in loaded.modules())
    for count in (0, 1, 4, 7):
        torch.testing.assert_close(loaded(digits[0][:count]), model(digits[0][:count]))
    torch.testing.assert_close(attack_and_judge(loaded, digits), attack_and_judge(model, digits))


def test_batches_of_an_exported_model_do_not_mix(model: nn.Module, tmp_path: Path) -> None:
    loaded = load_model(str(export(model, tmp_path / "model.pt2")))
    images = torch.rand(5, 1, 28, 28, requires_grad=True)
    (gradient,) = torch.autograd.grad(loaded(images)[4].sum(), images)
    assert gradient[4].abs().sum() > 0
    assert gradient[:4].abs().sum() == 0


def test_mean_and_std_wrap_a_file(model: nn.Module, digits: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    loaded = load_model(str(export(model, tmp_path / "model.pt2")), mean=[0.1], std=[0.5], device="cpu")
    assert isinstance(loaded, Normalised)
    torch.testing.assert_close(loaded(digits[0]), model((digits[0] - 0.1) / 0.5))


def test_a_program_with_two_inputs_is_refused(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, images: Tensor, more: Tensor) -> Tensor:
            return (images + more).flatten(1)

    torch.export.save(torch.export.export(Two(), (EXAMPLE, EXAMPLE)), tmp_path / "two.pt2")
    with pytest.raises(MassmoverError, match="takes 2 inputs; a classifier takes images only"):
        load_model(str(tmp_path / "two.pt2"))


def test_a_program_that_takes_no_images_is_refused(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(nn.Linear(4, 2), (torch.zeros(3, 4),)), tmp_path / "flat.pt2")
    with pytest.raises(MassmoverError, match=r"an input with 2 axes; images are \(B, C, H, W\)"):
        load_model(str(tmp_path / "flat.pt2"))


def test_weights_are_no_torchscript(model: nn.Module, tmp_path: Path) -> None:
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(MassmoverError, match=r"cannot be read as a TorchScript file.*pass it as weights="):
        load_model(str(tmp_path / "weights.pt"))


@pytest.mark.parametrize("name", ["model.pt", "model.ts", "model.pt2"])
def test_damaged_and_absent_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(MassmoverError, match=f"There is no model file .*{name}"):
        load_model(str(tmp_path / name))
    (tmp_path / name).write_bytes(b"nothing of use")
    with pytest.raises(MassmoverError, match="damaged or no model file"):
        load_model(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.onnx", "ONNX is not read here.*package.module:function"),
        ("model.safetensors", "weights without a network.*--weights"),
        ("model.pth", "weights without a network.*--weights"),
        ("model.pkl", "most likely a pickle.*pt2"),
    ],
)
def test_other_files_are_refused_with_a_way_out(name: str, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        load_model(name)


def test_a_file_takes_no_other_weights(model: nn.Module, tmp_path: Path) -> None:
    path = script(model, tmp_path / "model.pt")
    with pytest.raises(MassmoverError, match="brings its own weights"):
        load_model(str(path), weights=save_weights(model, tmp_path / "weights.safetensors"))


def test_an_address_may_end_like_a_file() -> None:
    with pytest.raises(MassmoverError, match="massmover_test_absent cannot be imported"):
        load_model("massmover_test_absent:zoo.ts")
