from __future__ import annotations

import pickle
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from massmover.models import lenet, load_weights, save_weights
from massmover.types import MassmoverError


def test_saved_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, other = lenet(), lenet()
    path = save_weights(model, tmp_path / "deeper" / "digits.safetensors")
    load_weights(other, path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "digits.safetensors"
    save_weights(lenet(), path)
    first = path.read_bytes()
    save_weights(lenet(), path)
    assert path.read_bytes() != first
    assert [file.name for file in tmp_path.iterdir()] == ["digits.safetensors"]


def test_an_interrupted_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_weights(lenet(), tmp_path / "digits.safetensors")
    before = path.read_bytes()

    def interrupted(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_weights(lenet(), path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="rights are written otherwise there")
def test_saved_weights_have_the_rights_of_an_ordinary_file(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    path = save_weights(lenet(), tmp_path / "digits.safetensors")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    path = save_weights(model, tmp_path / "tied.safetensors")
    assert torch.equal(load_file(path)["0.weight"], load_file(path)["1.weight"])


def test_saving_under_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"ending in \.safetensors"):
        save_weights(lenet(), tmp_path / "digits.pt")


def changed(tmp_path: Path, **changes: Tensor | None) -> Path:
    """Write LeNet's weights with some of them exchanged, or left out where None."""
    state = dict(lenet().state_dict())
    for name, value in changes.items():
        if value is None:
            del state[name]
        else:
            state[name] = value
    path = tmp_path / "changed.safetensors"
    save_file(state, path)
    return path


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"missing keys: 5\.weight"):
        load_weights(lenet(), changed(tmp_path, **{"5.weight": None}))


def test_unexpected_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"unexpected keys: module\.extra"):
        load_weights(lenet(), changed(tmp_path, **{"module.extra": torch.zeros(1)}))


def test_wrong_shapes_are_given_and_needed(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"7\.weight given \(3, 100\), needed \(10, 100\)"):
        load_weights(lenet(), changed(tmp_path, **{"7.weight": torch.zeros(3, 100)}))


def test_all_differences_are_told_at_once(tmp_path: Path) -> None:
    path = changed(tmp_path, **{"0.bias": None, "extra": torch.zeros(1), "7.bias": torch.zeros(3)})
    with pytest.raises(MassmoverError, match=r"missing keys: 0\.bias; unexpected keys: extra; wrong shapes: 7\.bias"):
        load_weights(lenet(), path)


def test_a_long_list_of_keys_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({f"layer{number}": torch.zeros(1) for number in range(20)}, path)
    with pytest.raises(MassmoverError, match="and 12 more"):
        load_weights(lenet(), path)


def test_a_failed_load_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = lenet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(MassmoverError):
        load_weights(model, changed(tmp_path, **{"7.bias": torch.full((10,), torch.nan)}))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_numbers_are_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(MassmoverError, match=r"NaN or infinity in 7\.bias"):
        load_weights(lenet(), changed(tmp_path, **{"7.bias": torch.full((10,), value)}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_are_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    model = lenet()
    load_weights(model, changed(tmp_path, **{"7.bias": torch.arange(10).to(dtype)}))
    assert model.state_dict()["7.bias"].dtype == torch.float32
    assert torch.equal(model.state_dict()["7.bias"], torch.arange(10.0))


def test_a_number_too_large_for_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"too large .* 7\.bias"):
        load_weights(lenet(), changed(tmp_path, **{"7.bias": torch.full((10,), 1e300, dtype=torch.float64)}))


def test_integers_in_place_of_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"7\.bias given torch\.int8, needed torch\.float32"):
        load_weights(lenet(), changed(tmp_path, **{"7.bias": torch.zeros(10, dtype=torch.int8)}))


class Trap:
    """An object whose pickle, when opened, leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.safetensors"])
def test_a_pickle_is_never_opened(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(MassmoverError):
        load_weights(lenet(), path)
    assert not trace.exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match=r"no weights file .*absent\.safetensors"):
        load_weights(lenet(), tmp_path / "absent.safetensors")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = save_weights(lenet(), tmp_path / "digits.safetensors")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(MassmoverError, match="cannot be read as safetensors"):
        load_weights(lenet(), path)


def test_another_suffix_is_refused() -> None:
    with pytest.raises(MassmoverError, match=r"\.safetensors, \.pt and \.pth files only; got weights\.npz"):
        load_weights(lenet(), "weights.npz")
