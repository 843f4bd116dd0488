"""Whole models in one file: TorchScript, and programs written by `torch.export`."""

from __future__ import annotations

import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from massmover.classifier import cause, logits_of
from massmover.types import Images, Logits, MassmoverError


class BatchSizes(NamedTuple):
    """How many images a program takes at once."""

    least: int
    most: int | None  # None: any number


class ExportedModel(nn.Module):
    """A program written by `torch.export`, given only batches of the sizes it was exported for.

    Larger batches are split, smaller ones filled up with black images whose scores are
    dropped.  Training mode was decided when the program was exported and cannot be changed.
    """

    def __init__(self, program: nn.Module, *, sizes: BatchSizes) -> None:
        """Keep the program and the batch sizes it takes."""
        super().__init__()
        self.program = program
        self.sizes = sizes

    def train(self, mode: bool = True) -> ExportedModel:
        """Set the flags and nothing else: the program itself refuses to change its mode."""
        for module in self.modules():
            module.training = mode
        return self

    def forward(self, images: Images) -> Logits:
        """Classify the images in as many batches as it takes."""
        parts = torch.split(images, self.sizes.most or max(len(images), 1))
        return torch.cat([self._filled_up(part) for part in parts])

    def _filled_up(self, images: Images) -> Logits:
        missing = max(self.sizes.least - len(images), 0)
        black = images.new_zeros(missing, *images.shape[1:])
        return logits_of(self.program, torch.cat([images, black]))[: len(images)]


def model_from_file(path: Path) -> nn.Module:
    """Return the model a file holds; the name's ending says which kind of file it is."""
    suffix = path.suffix.lower()
    if suffix in REFUSED:
        raise MassmoverError(f"{path} cannot be loaded as a model. {REFUSED[suffix]}")
    if not path.is_file():
        raise MassmoverError(f"There is no model file {path.absolute()}. Check the path.")
    if not zipfile.is_zipfile(path):
        raise MassmoverError(f"{path} is damaged or no model file: {KINDS[suffix].name} files are zip archives.")
    try:
        return KINDS[suffix].read(path)
    except MassmoverError:
        raise
    except Exception as error:  # torch raises RuntimeError, KeyError and others of its own
        raise MassmoverError(
            f"{path} cannot be read as a {KINDS[suffix].name} file ({cause(error)}). {KINDS[suffix].advice}"
        ) from error


def read_torchscript(path: Path) -> nn.Module:
    """Return the module of a TorchScript file, on the CPU."""
    with warnings.catch_warnings():  # torch advises against writing such files; reading one is what was asked for
        warnings.simplefilter("ignore", DeprecationWarning)
        model: nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    return model


def read_exported(path: Path) -> nn.Module:
    """Return the program of a `torch.export` file as a module that takes any number of images."""
    exported = torch.export.load(path)
    sizes = batch_sizes(exported)
    return ExportedModel(exported.module(), sizes=sizes)


def batch_sizes(exported: Any) -> BatchSizes:
    """Return how many images an exported program takes at once, from the first axis of its only input."""
    names = exported.graph_signature.user_inputs
    if len(names) != 1:
        raise MassmoverError(
            f"The program takes {len(names)} inputs; a classifier takes images only. Export such a one."
        )
    node = next(node for node in exported.graph.nodes if node.name == names[0])
    shape = node.meta["val"].shape  # integers, and symbols where an axis is free
    if len(shape) != 4:
        raise MassmoverError(f"The program takes an input with {len(shape)} axes; images are (B, C, H, W).")
    if isinstance(shape[0], int):
        return BatchSizes(least=shape[0], most=shape[0])
    limits = exported.range_constraints.get(shape[0].node.expr)
    if limits is None:  # an expression of other sizes: only the program itself knows
        return BatchSizes(least=0, most=None)
    bounded = bool(limits.upper < sys.maxsize)
    return BatchSizes(least=int(limits.lower), most=int(limits.upper) if bounded else None)


class Kind(NamedTuple):
    """A kind of model file."""

    name: str
    read: Callable[[Path], nn.Module]
    advice: str  # for a file that cannot be read


WEIGHTS = (
    "It most likely holds weights without a network: pass it as weights= (--weights on the command line) and name an "
    "architecture."
)
PICKLE = (
    "It is most likely a pickle, which can run code when opened. Save the model with torch.export.save (.pt2), or its "
    "weights as .safetensors."
)
SCRIPT = Kind(
    "TorchScript",
    read_torchscript,
    "If it holds weights only, pass it as weights= (--weights) and name an architecture; if it holds a pickled module, "
    "load it in a function of your own and pass package.module:function.",
)
EXPORTED = Kind("torch.export", read_exported, "Write it again with torch.export.save.")
KINDS: Mapping[str, Kind] = {".pt": SCRIPT, ".ts": SCRIPT, ".pt2": EXPORTED}
REFUSED: Mapping[str, str] = {
    ".onnx": "ONNX is not read here. Convert it to PyTorch with a tool of your choice inside a function, and pass "
    "package.module:function.",
    ".safetensors": "It holds weights without a network: pass it as weights= (--weights on the command line) and name "
    "an architecture.",
    **dict.fromkeys((".pth", ".bin", ".ckpt", ".tar"), WEIGHTS),
    **dict.fromkeys((".pkl", ".pickle"), PICKLE),
}
FILE_SUFFIXES = frozenset({*KINDS, *REFUSED})
