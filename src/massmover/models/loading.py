"""From a name to a classifier ready for measurement."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import nn

from massmover.models.architectures import ARCHITECTURES
from massmover.models.certified import load_certified
from massmover.models.files import FILE_SUFFIXES, model_from_file
from massmover.models.weights import load_weights
from massmover.models.wrapping import FunctionModel, Normalised
from massmover.types import MassmoverError

# Networks whose files say how large they are: what the recipes certified train.
READERS: Mapping[str, Callable[[str | os.PathLike[str]], nn.Module]] = {"potentials": load_certified}
BUNDLED: Mapping[str, str] = {  # by architecture
    "mnist-standard": "lenet",
    "mnist-robust": "lenet",
    "mnist-robust-97": "mlp",
    "mnist-robust-95": "mlp",
    "cifar10-robust": "resnet8",
    "mnist-certified": "potentials",
    "mnist-certified-far": "potentials",
}


def load_model(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str | None = None,
    tell: Callable[[str], None] = lambda note: None,
) -> nn.Module:
    """Return a classifier in eval mode that takes images in [0, 1].

    The name is one of four kinds:

    - a bundled model (`mnist-standard`, `mnist-robust`, `mnist-robust-97`, `mnist-robust-95`,
      `cifar10-robust`, `mnist-certified`, `mnist-certified-far`), which brings its weights;
    - an architecture (`lenet`, `mlp`, `resnet8`, `resnet20`, `resnet18`, or `potentials` for what the
      recipes certified train), which needs a file as `weights`: safetensors, or a state dict of
      `torch.save` (`.pt`, `.pth`), alone or inside a checkpoint;
    - `package.module:function`, a function of your own that takes no arguments and returns
      a classifier.  The working directory is importable.  This runs your code; reading
      weights never runs any;
    - a file that holds a whole model: TorchScript (`.pt`, `.ts`) or `torch.export` (`.pt2`).
      Both hold programs, so open only files you trust.

    Pass `mean` and `std`, one number for each channel, if the model was trained on
    normalised images; it is then wrapped in `Normalised`.  `tell` hears in one line what was
    done to make weights fit: which part of a checkpoint was taken, which prefix dropped.
    """
    return as_built(name, weights=weights, mean=mean, std=std, device=device, tell=tell).eval()


def as_built(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str | None = None,
    tell: Callable[[str], None] = lambda note: None,
) -> nn.Module:
    """`load_model`, but what a function of your own returns keeps its modes: they say what is random in it."""
    if (mean is None) != (std is None):
        raise MassmoverError(f"Mean and std belong together; only {'mean' if std is None else 'std'} was given.")
    if name in BUNDLED:
        if weights is not None or mean is not None:
            raise MassmoverError(
                f"{name} brings its own weights and takes images in [0, 1] as they are. "
                "To use other weights, or mean and std, name an architecture such as lenet."
            )
        model = bundled_model(name)
    elif name in ARCHITECTURES or name in READERS:
        if weights is None:
            untrained = "PotentialNetwork" if name in READERS else f"{name}()"
            raise MassmoverError(
                f"{name} is an architecture, and random weights are pointless to measure: pass weights=, "
                f"a .safetensors, .pt or .pth file (--weights on the command line). "
                f"For an untrained network call massmover.models.{untrained}."
            )
        if name in READERS:
            model, weights = READERS[name](weights), None
        else:
            model = ARCHITECTURES[name]()
    elif Path(name).suffix.lower() in FILE_SUFFIXES and not is_address(name):
        if weights is not None:
            raise MassmoverError(f"{name} is a whole model and brings its own weights; drop weights.")
        model = model_from_file(Path(name))
    elif ":" in name:
        model = model_from_function(name)
    else:
        raise MassmoverError(
            f"There is no model called {name!r}. Use {', '.join([*BUNDLED, *ARCHITECTURES, *READERS])}, "
            "package.module:function for a function of your own that returns a model, or a file in TorchScript (.pt, "
            ".ts) or torch.export (.pt2) form."
        )
    if weights is not None:
        if isinstance(model, FunctionModel):
            raise MassmoverError(f"{name} returned a plain function, which has no weights to load; drop weights.")
        note = load_weights(model, weights)
        if note:
            tell(note)
    if mean is not None and std is not None:
        model = Normalised(model, mean, std)
    placed = moved(model, device=device)
    return placed if is_address(name) and ":" in name else placed.eval()


def bundled_model(name: str) -> nn.Module:
    """Return a model that ships inside the package."""
    with as_file(files("massmover").joinpath("bundled", f"{name}.safetensors")) as path:
        if BUNDLED[name] in READERS:
            return READERS[BUNDLED[name]](path)
        model = ARCHITECTURES[BUNDLED[name]]()
        load_weights(model, path)
    return model


def model_from_function(address: str) -> nn.Module:
    """Import `package.module:function`, call it without arguments and return the classifier it gives."""
    module_name, _, function_name = address.partition(":")
    if not is_address(address):
        raise MassmoverError(
            f"{address!r} is not of the form package.module:function. For a file my_models.py in the working "
            "directory with a function build, write my_models:build."
        )
    with working_directory_importable():
        try:
            found: object = importlib.import_module(module_name)
        except Exception as error:  # whatever the module's own code raises
            raise MassmoverError(
                f"The module {module_name} cannot be imported ({type(error).__name__}: {error}). "
                f"It is looked for in {Path.cwd()} and among the installed packages."
            ) from error
        for part in function_name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise MassmoverError(
                f"The module {module_name} has no function {function_name}. Define one that returns the model."
            )
        try:
            model: object = found()
        except Exception as error:  # whatever the function's own code raises
            raise MassmoverError(
                f"{address} failed when called without arguments ({type(error).__name__}: {error})."
            ) from error
    if isinstance(model, nn.Module):
        return model
    if not callable(model):
        raise MassmoverError(
            f"{address} must return a classifier, an nn.Module or a function from images to logits; "
            f"it returned {type(model).__name__}."
        )
    return FunctionModel(model)


def is_address(name: str) -> bool:
    """Whether a name has the form `package.module:function`."""
    module_name, _, function_name = name.partition(":")
    return all(part.isidentifier() for part in [*module_name.split("."), *function_name.split(".")])


@contextmanager
def working_directory_importable() -> Iterator[None]:
    """Let modules in the working directory be found, first, for a while."""
    place = str(Path.cwd())
    importlib.invalidate_caches()
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:  # the imported code may have changed the path itself
            sys.path.remove(place)


def moved(model: nn.Module, *, device: torch.device | str | None) -> nn.Module:
    """Return the model on a device; None leaves it where it is."""
    if device is None:
        return model
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        reason = str(error).splitlines()[0]
        raise MassmoverError(f"The device {str(device)!r} cannot be used ({reason}). Use cpu.") from error
