"""Scores added up: those of a free network and of networks of potentials, from parts, from a file and under attack."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from massmover import attack, verify
from massmover.models import Blend, PotentialNetwork, blended, lenet, load_blend, load_model, mlp, save_weights
from massmover.models.certified import CertifiedNetwork
from massmover.types import MassmoverError

SHAPE = (1, 28, 28)


def potentials(seed: int, *, mass_units: int = 0) -> CertifiedNetwork:
    torch.manual_seed(seed)
    return PotentialNetwork(SHAPE, groups=2, members=2, mass_units=mass_units).frozen()


@pytest.fixture(scope="module")
def parts() -> tuple[nn.Module, dict[str, CertifiedNetwork]]:
    torch.manual_seed(0)
    return lenet().eval(), {"near": potentials(1), "far": potentials(2, mass_units=3)}


Parts = tuple[nn.Module, dict[str, CertifiedNetwork]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_are_the_weighted_sum(parts: Parts, dtype: torch.dtype, digits: tuple[Tensor, Tensor]) -> None:
    free, certified = parts
    images = digits[0][:5].clone()
    images[3] = 0  # black
    images[4] = 1  # saturated
    model = blended(free, certified, lean=3.0)
    with torch.no_grad():
        wanted = free(images) + 3 * sum(part(images) for part in certified.values())
        scores = model.to(dtype)(images.to(dtype))
        model.to(torch.float32)
    assert scores.dtype == dtype and scores.shape == (5, 10)
    torch.testing.assert_close(scores, wanted.to(dtype), rtol=1e-4, atol=1e-4)


def test_gradients_reach_the_image_through_every_part(parts: Parts, digits: tuple[Tensor, Tensor]) -> None:
    free, certified = parts
    image = digits[0][:1].clone().requires_grad_()
    sums = [model(image)[0, 3] for model in (free, blended(free, certified, lean=5.0))]
    alone, together = (torch.autograd.grad(score, image)[0] for score in sums)
    assert torch.isfinite(together).all() and not torch.allclose(alone, together)


def test_a_blend_is_read_as_it_was_written(parts: Parts, tmp_path: Path, digits: tuple[Tensor, Tensor]) -> None:
    free, certified = parts
    model = blended(free, certified, lean=2.5)
    file = save_weights(model, tmp_path / "blend.safetensors")
    for again in (load_blend(file), load_model("blend", weights=file)):
        assert isinstance(again, Blend) and list(again.duels) == ["far", "near"]
        assert torch.equal(again.eval()(digits[0][:4]), model(digits[0][:4]))
    assert not load_model("blend", weights=file).training
    small = sum(part.numel() for part in model.state_dict().values() if part.dtype == torch.int16)
    assert file.stat().st_size < 2 * small + 4 * 170_000 + 10_000  # potentials take two bytes a number


def test_files_that_hold_no_blend_are_refused(parts: Parts, tmp_path: Path) -> None:
    free, certified = parts
    whole = {name: value.clone() for name, value in blended(free, certified, lean=1.0).state_dict().items()}

    def refused(state: dict[str, Tensor], words: str) -> None:
        file = tmp_path / "odd.safetensors"
        file.write_bytes(safetensors.torch.save(state))
        with pytest.raises(MassmoverError, match=words):
            load_model("blend", weights=file)

    refused(lenet().state_dict(), "does not hold a blend. Train one with the recipe blended")
    refused({name: value for name, value in whole.items() if name.startswith("free")}, "does not hold a blend")
    refused({name: value for name, value in whole.items() if name != "duels.near.lean"}, "lacks its weight")
    refused({name: value for name, value in whole.items() if name != "duels.far.biases"}, "certified network")
    refused({name: value for name, value in whole.items() if name != "free.0.bias"}, "none of the architectures")
    refused({**whole, "duels.near.lean": torch.tensor(torch.nan)}, "NaN or infinity")
    with pytest.raises(MassmoverError, match="pass weights="):
        load_model("blend")


def test_the_free_part_may_be_any_architecture(parts: Parts, tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = save_weights(blended(mlp(), parts[1], lean=1.0), tmp_path / "blend.safetensors")
    assert load_blend(file).free.state_dict().keys() == mlp().state_dict().keys() != lenet().state_dict().keys()


@pytest.mark.usefixtures("backend")
def test_a_blend_is_attacked_like_any_model(parts: Parts, digits: tuple[Tensor, Tensor]) -> None:
    model = blended(*parts, lean=1.0)
    images = digits[0][:6]
    with torch.no_grad():
        labels = model(images).argmax(dim=1)  # it was not trained: what it says is right
    result = attack(model, images, labels, radius=0.3, method="ascent", steps=20)
    assert result.steps.min() > 0 and result.success.any() and result.trusted.all()
    assert verify(images, result.images, 0.3).violations == 0
