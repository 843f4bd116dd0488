"""Weights on disk: safetensors only, so that opening a file never runs code from it."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from massmover.types import MassmoverError

PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".tar"})
SHOWN = 8  # how many differing keys an error lists before it says "and n more"


def save_weights(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write a model's weights to a safetensors file, whole or not at all, and return its path.

    The bytes go to a temporary file beside the target, which then takes its place, so an
    interrupted run never leaves half a file under the final name.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise MassmoverError(f"Weights are saved as safetensors; got {target.name}. Use a name ending in .safetensors.")
    library = safetensors_torch()
    # Clones: safetensors refuses tensors that share memory, as tied weights do.
    state = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    contents: bytes = library.save(state)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give this one the rights an ordinary file would have.
        Path(temporary).chmod(0o666 & ~current_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a model with the weights in a safetensors file, or say exactly how the two differ."""
    source = Path(path)
    fill(model, read_weights(source), origin=str(source))


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the named tensors in a safetensors file."""
    source = Path(path)
    if source.suffix.lower() in PICKLE_SUFFIXES:
        raise MassmoverError(
            f"{source} looks like a pickle, which can run code when opened; weights are read from .safetensors only. "
            "If you trust the file, convert it once: "
            f"safetensors.torch.save_file(torch.load({source.name!r}, map_location='cpu', weights_only=True), "
            f"{source.with_suffix('.safetensors').name!r})."
        )
    if source.suffix.lower() != ".safetensors":
        raise MassmoverError(f"Weights are read from .safetensors files only; got {source}.")
    if not source.is_file():
        raise MassmoverError(f"There is no weights file {source.absolute()}. Check the path.")
    library = safetensors_torch()
    try:
        state: dict[str, Tensor] = library.load(source.read_bytes())
    except Exception as error:  # the library raises its own class, and KeyError for a dtype it does not know
        raise MassmoverError(
            f"{source} cannot be read as safetensors ({error}). Download or convert it again."
        ) from error
    return state


def fill(model: nn.Module, state: Mapping[str, Tensor], *, origin: str) -> None:
    """Copy named tensors into a model of the same keys and shapes; other float types are converted."""
    needed = model.state_dict()
    problems = differences(state, needed)
    if problems:
        raise MassmoverError(
            f"The weights in {origin} do not fit the model: {'; '.join(problems)}. "
            "Choose the architecture the file was saved from, or rename its keys."
        )
    broken = [name for name, value in state.items() if value.is_floating_point() and not torch.isfinite(value).all()]
    if broken:
        raise MassmoverError(
            f"The weights in {origin} hold NaN or infinity in {listed(broken)}. Use another checkpoint."
        )
    converted = {name: value.to(needed[name].dtype) for name, value in state.items()}
    overflowed = [
        name for name, value in converted.items() if value.is_floating_point() and not torch.isfinite(value).all()
    ]
    if overflowed:
        raise MassmoverError(
            f"The weights in {origin} are too large for the model's number type in {listed(overflowed)}. "
            "Build the model in the number type of the file."
        )
    model.load_state_dict(converted)


def differences(given: Mapping[str, Tensor], needed: Mapping[str, Tensor]) -> list[str]:
    """Return how two sets of named tensors differ, one phrase for each kind of difference."""
    problems = []
    missing = [name for name in needed if name not in given]
    unexpected = sorted(name for name in given if name not in needed)
    shared = [name for name in needed if name in given]
    shapes = [
        f"{name} given {tuple(given[name].shape)}, needed {tuple(needed[name].shape)}"
        for name in shared
        if given[name].shape != needed[name].shape
    ]
    # Integers in place of weights are a quantised model or a mistake; a cast would hide either.
    kinds = [
        f"{name} given {given[name].dtype}, needed {needed[name].dtype}"
        for name in shared
        if given[name].is_floating_point() != needed[name].is_floating_point()
    ]
    for label, entries in (
        ("missing keys", missing),
        ("unexpected keys", unexpected),
        ("wrong shapes", shapes),
        ("wrong number types", kinds),
    ):
        if entries:
            problems.append(f"{label}: {listed(entries)}")
    return problems


def listed(entries: list[str]) -> str:
    """Return the entries in one line, cut where nobody would read on."""
    more = len(entries) - SHOWN
    return ", ".join(entries[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def current_umask() -> int:
    """Return which rights new files are denied; asking means setting it, so it is set back at once."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def safetensors_torch() -> ModuleType:
    """Import safetensors when it is first needed, since the core of the package works without it."""
    try:
        return importlib.import_module("safetensors.torch")
    except ImportError as error:
        raise MassmoverError(
            "Weights need the safetensors package, which is not installed. Run: pip install 'massmover[data]'"
        ) from error
