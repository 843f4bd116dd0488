"""Weights on disk: safetensors, and state dicts of `torch.save` read so that nothing in the file is ever run."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from massmover.types import MassmoverError

STATE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".tar"})  # what people name files of torch.save
# Where a state dict is kept inside a checkpoint; the first that is there is taken.
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "ema")
PREFIXES = ("module.", "_orig_mod.")  # of nn.DataParallel, and of torch.compile
SAFE_TORCH = (2, 6)  # older releases can be made to run code with weights_only=True as well (CVE-2025-32434)
SHOWN = 8  # how many differing keys an error lists before it says "and n more"


def save_weights(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write a model's weights to a safetensors file, whole or not at all, and return its path.

    The bytes go to a temporary file beside the target, which then takes its place, so an
    interrupted run never leaves half a file under the final name.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise MassmoverError(f"Weights are saved as safetensors; got {target.name}. Use a name ending in .safetensors.")
    # Clones: safetensors refuses tensors that share memory, as tied weights do.
    state = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    contents: bytes = safetensors.torch.save(state)
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


class Weights(NamedTuple):
    """Named tensors, and what was done to get at them."""

    tensors: dict[str, Tensor]
    steps: tuple[str, ...] = ()  # empty where the file held just these


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> str:
    """Fill a model with the weights in a file, or say exactly how the two differ.

    The file is safetensors, or a state dict written by `torch.save` (`.pt`, `.pth`), alone or inside a checkpoint.
    Returns what was done to make it fit, in one line; empty where nothing was.
    """
    source = Path(path)
    found = without_prefixes(read_weights(source), needed=model.state_dict())
    fill(model, found.tensors, origin=str(source))
    return f"{source}: {' and '.join(found.steps)}" if found.steps else ""


def read_weights(path: str | os.PathLike[str]) -> Weights:
    """Return the named tensors in a file."""
    source = Path(path)
    suffix = source.suffix.lower()
    if suffix not in {".safetensors", *STATE_SUFFIXES}:
        raise MassmoverError(f"Weights are read from .safetensors, .pt and .pth files only; got {source}.")
    if not source.is_file():
        raise MassmoverError(f"There is no weights file {source.absolute()}. Check the path.")
    return unwrapped(read_saved(source), source=source) if suffix in STATE_SUFFIXES else read_safetensors(source)


def read_safetensors(source: Path) -> Weights:
    """Return what a safetensors file holds."""
    try:
        return Weights(safetensors.torch.load(source.read_bytes()))
    except Exception as error:  # the library raises its own class, and KeyError for a dtype it does not know
        raise MassmoverError(
            f"{source} cannot be read as safetensors ({error}). Download or convert it again."
        ) from error


def read_saved(source: Path) -> object:
    """Return what a file of `torch.save` holds, if that is numbers, names and plain containers; nothing is run."""
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if release < SAFE_TORCH:
        raise MassmoverError(
            f"{source} is a pickle, which only torch {SAFE_TORCH[0]}.{SAFE_TORCH[1]} and newer open without running "
            f"code from it; this is {torch.__version__}. Upgrade torch, or convert the file to .safetensors."
        )
    if holds_program(source):
        raise MassmoverError(f"{source} is a whole model: pass it as model (--model), without weights.")
    try:
        with warnings.catch_warnings():  # of other pickle protocols, and of storages of old files
            warnings.simplefilter("ignore", UserWarning)
            found: object = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises UnpicklingError, RuntimeError, EOFError, KeyError and others
        blocked = re.search(r"GLOBAL (\S+)", str(error))
        if blocked is None:
            raise MassmoverError(
                f"{source} cannot be read as a file of torch.save ({type(error).__name__}). Download or save it again."
            ) from error
        raise MassmoverError(
            f"{source} holds {blocked[1]} beside numbers, and building it could run code, so it is not opened. "
            "If you trust the file, save its numbers once: torch.save(torch.load(FILE, weights_only=False)"
            "['state_dict'], 'weights.pt'), with the name under which the file keeps them."
        ) from error
    return found


def holds_program(source: Path) -> bool:
    """Whether a file is TorchScript or of `torch.export`: programs, not weights."""
    if not zipfile.is_zipfile(source):
        return False
    with zipfile.ZipFile(source) as archive:
        inside = {name.rpartition("/")[2] for name in archive.namelist()}
    return "constants.pkl" in inside or "archive_format" in inside or "serialized_exported_program.json" in inside


def unwrapped(found: object, *, source: Path) -> Weights:
    """Return the state dict inside a checkpoint: under one of the usual names, in a list of one, or by itself."""
    taken, left = "", ""
    while not is_state(found):
        inside = found if isinstance(found, Mapping) else {}
        names = [name for name in WRAPPERS if isinstance(inside.get(name), (Mapping, list, tuple))]
        if isinstance(found, (list, tuple)) and len(found) == 1:
            found, taken = found[0], f"{taken}[0]"
        elif names:
            found, taken = inside[names[0]], f"{taken}[{names[0]!r}]"
            left = f" (left {', '.join(names[1:])})" if names[1:] else left
        else:
            raise MassmoverError(
                f"{source} holds {described(found)}{f' under {taken}' if taken else ''} and no state dict, alone or "
                f"under {', '.join(WRAPPERS)}. Save one: torch.save(model.state_dict(), {source.name!r})."
            )
    assert isinstance(found, Mapping)
    tensors = dict(found)
    odd = [name for name, value in tensors.items() if value.layout != torch.strided]
    if odd:
        raise MassmoverError(f"The weights in {source} are sparse in {listed(odd)}. Save them dense.")
    return Weights(tensors, (f"took {taken}{left}",) if taken else ())


def is_state(found: object) -> bool:
    """Whether something is a state dict: names with tensors."""
    return (
        isinstance(found, Mapping)
        and len(found) > 0
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items())
    )


def described(found: object) -> str:
    """Return what something is, short enough for one line."""
    if isinstance(found, Mapping):
        return f"a dictionary of {listed([str(name) for name in found])}" if found else "an empty dictionary"
    return f"a list of {len(found)}" if isinstance(found, (list, tuple)) else f"a {type(found).__name__}"


def without_prefixes(weights: Weights, *, needed: Mapping[str, Tensor]) -> Weights:
    """Drop what wrappers put before every name, unless the model has just these names."""
    tensors, stripped = weights.tensors, ""
    while tensors.keys() != needed.keys():
        prefix = next((prefix for prefix in PREFIXES if all(name.startswith(prefix) for name in tensors)), None)
        if prefix is None or not tensors:
            break
        tensors = {name[len(prefix) :]: value for name, value in tensors.items()}
        stripped += prefix
    return Weights(tensors, (*weights.steps, f"dropped {stripped!r} before every name") if stripped else weights.steps)


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
