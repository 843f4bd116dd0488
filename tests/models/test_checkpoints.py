"""Weights as people have them: state dicts of torch.save, wrapped, with prefixes, and what must not be opened."""

from __future__ import annotations

import argparse
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from massmover.models import lenet, load_model, load_weights, save_weights
from massmover.types import MassmoverError

State = dict[str, Tensor]


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: value for name, value in state.items()}


WRAPPED: dict[str, tuple[Callable[[State], Any], str]] = {
    "alone": (lambda state: state, ""),
    "state_dict": (lambda state: {"state_dict": state, "epoch": 3}, "took ['state_dict']"),
    "model": (lambda state: {"model": state, "optimizer": {"lr": 0.1}}, "took ['model']"),
    "net": (lambda state: {"net": state, "acc": 91.5}, "took ['net']"),
    "model_state_dict": (lambda state: {"model_state_dict": state}, "took ['model_state_dict']"),
    "a list of one": (lambda state: [state], "took [0]"),
    "a list inside": (lambda state: {"state_dict": [state], "err": 0.1}, "took ['state_dict'][0]"),
    "averaged too": (lambda state: {"ema": state, "state_dict": state}, "took ['state_dict'] (left ema)"),
    "module.": (lambda state: prefixed(state, "module."), "dropped 'module.' before every name"),
    "_orig_mod.": (lambda state: prefixed(state, "_orig_mod."), "dropped '_orig_mod.' before every name"),
    "both prefixes": (
        lambda state: {"net": prefixed(state, "module._orig_mod.")},
        "took ['net'] and dropped 'module._orig_mod.' before every name",
    ),
}


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_checkpoint_is_read_and_what_was_done_is_said(tmp_path: Path, kind: str, suffix: str) -> None:
    wrap, said = WRAPPED[kind]
    original, other = lenet(), lenet()
    path = tmp_path / f"digits{suffix}"
    torch.save(wrap(dict(original.state_dict())), path)
    note = load_weights(other, path)
    assert note == (f"{path}: {said}" if said else "")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in original.state_dict().items())


def test_a_prefix_in_safetensors_is_dropped_too(tmp_path: Path) -> None:
    original, other = lenet(), lenet()
    path = save_weights(nn.DataParallel(original), tmp_path / "digits.safetensors")
    assert "dropped 'module.'" in load_weights(other, path)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in original.state_dict().items())


def test_a_model_that_has_the_prefix_itself_keeps_it(tmp_path: Path) -> None:
    original, other = nn.DataParallel(lenet()), nn.DataParallel(lenet())
    torch.save(original.state_dict(), tmp_path / "digits.pt")
    assert load_weights(other, tmp_path / "digits.pt") == ""
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in original.state_dict().items())


def test_the_files_of_old_torch_are_read(tmp_path: Path) -> None:
    original, other = lenet(), lenet()
    torch.save(original.state_dict(), tmp_path / "digits.pth", _use_new_zipfile_serialization=False)
    load_weights(other, tmp_path / "digits.pth")
    assert torch.equal(original.state_dict()["7.bias"], other.state_dict()["7.bias"])


def test_load_model_tells(tmp_path: Path) -> None:
    torch.save({"state_dict": lenet().state_dict()}, tmp_path / "digits.pt")
    heard: list[str] = []
    load_model("lenet", weights=tmp_path / "digits.pt", tell=heard.append)
    assert heard == [f"{tmp_path / 'digits.pt'}: took ['state_dict']"]
    load_model("mnist-standard", tell=heard.append)
    assert len(heard) == 1


class Trap:
    """An object whose pickle, when opened, leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.pth.tar", "model.bin"])
def test_nothing_in_a_checkpoint_is_run(tmp_path: Path, name: str, new: bool) -> None:
    trace = tmp_path / "trace"
    contents = {"state_dict": dict(lenet().state_dict()), "args": Trap(trace)}
    torch.save(contents, tmp_path / name, _use_new_zipfile_serialization=new)
    with pytest.raises(MassmoverError, match="could run code, so it is not opened"):
        load_weights(lenet(), tmp_path / name)
    assert not trace.exists()


def write_script(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(lenet(), torch.zeros(1, 1, 28, 28)), path)  # type: ignore[no-untyped-call]


def write_exported(path: Path) -> None:
    torch.export.save(torch.export.export(lenet(), (torch.zeros(4, 1, 28, 28),)), path.with_suffix(".pt2"))
    path.with_suffix(".pt2").rename(path)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "settings beside it": (
        lambda path: torch.save({"state_dict": lenet().state_dict(), "args": argparse.Namespace(lr=1)}, path),
        r"holds argparse\.Namespace beside numbers.*If you trust the file",
    ),
    "a whole module": (lambda path: torch.save(lenet(), path), r"holds torch\.nn\.modules\.container\.Sequential"),
    "TorchScript": (write_script, r"is a whole model: pass it as model \(--model\)"),
    "torch.export": (write_exported, r"is a whole model: pass it as model \(--model\)"),
    "two networks": (lambda path: torch.save([lenet().state_dict()] * 2, path), "holds a list of 2 and no state dict"),
    "two inside": (
        lambda path: torch.save({"net": [lenet().state_dict()] * 2}, path),
        r"holds a list of 2 under \['net'\] and no state dict",
    ),
    "other names": (
        lambda path: torch.save({"weights": lenet().state_dict(), "epoch": 1}, path),
        "holds a dictionary of weights, epoch and no state dict",
    ),
    "a number": (lambda path: torch.save(3, path), "holds a int and no state dict"),
    "nothing": (lambda path: torch.save({}, path), "holds an empty dictionary and no state dict"),
    "sparse": (lambda path: torch.save({"7.weight": torch.eye(3).to_sparse()}, path), r"sparse in 7\.weight"),
    "text": (lambda path: path.write_text("hello"), "cannot be read as a file of torch.save"),
    "an empty file": (lambda path: path.touch(), "cannot be read as a file of torch.save"),
    "a plain pickle": (
        lambda path: path.write_bytes(pickle.dumps({"a": Path("x")})),
        "could run code|cannot be read as a file",
    ),
    "another network": (lambda path: torch.save(nn.Linear(2, 2).state_dict(), path), "do not fit the model: missing"),
    "one name with the prefix": (
        lambda path: torch.save({**lenet().state_dict(), "module.extra": torch.zeros(1)}, path),
        r"unexpected keys: module\.extra",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_files_are_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    write, message = REFUSED[kind]
    path = tmp_path / "digits.pt"
    write(path)
    with pytest.raises(MassmoverError, match=message) as refusal:
        load_weights(lenet(), path)
    assert "\n" not in str(refusal.value) and "\x1b" not in str(refusal.value)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits.pt"
    torch.save(lenet().state_dict(), path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(MassmoverError, match=r"cannot be read as a file of torch\.save"):
        load_weights(lenet(), path)


def test_an_old_torch_opens_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(lenet().state_dict(), tmp_path / "digits.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(MassmoverError, match=r"only torch 2\.6 and newer.*this is 2\.5\.1"):
        load_weights(lenet(), tmp_path / "digits.pt")


def test_bundled_weights_load_from_the_core_install() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 and newer read pyproject.toml")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(line.startswith("safetensors") for line in project["dependencies"])
    extras = project["optional-dependencies"].values()
    assert not any(line.startswith("safetensors") for lines in extras for line in lines)
