"""A missing library is named together with the extra that brings it, and the core never asks for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from massmover.adapters.mover import MissingExtraError, needed
from massmover.types import MassmoverError

# An entry of None makes an import fail as if the library were not installed.
WITHOUT_EXTRAS = """
import importlib, sys
for library in (
    "PIL art eagerpy foolbox jinja2 markupsafe matplotlib numba pandas rich safetensors sklearn torchattacks typer"
).split():
    sys.modules[library] = None
import massmover, torch
images, labels = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
result = massmover.attack(lambda images: images.flatten(1), images, labels, radius=0.5)
print(massmover.verify(images, result.images, radius=0.5).violations)
for adapter in ("foolbox", "art", "torchattacks"):
    try:
        importlib.import_module(f"massmover.adapters.{adapter}")
    except massmover.MassmoverError as error:
        print(isinstance(error, ImportError), error)
for call in (result.show, result.to_dataframe):
    try:
        call()
    except massmover.MassmoverError as error:
        print(error)
"""


def test_without_any_extra_the_core_works_and_the_rest_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    violations, *adapters, figure, frame = done.stdout.splitlines()
    assert violations == "0"
    assert len(adapters) == 3
    for line, name in zip(adapters, ("foolbox", "art", "torchattacks"), strict=True):
        assert line.startswith(f"True massmover.adapters.{name} needs {name}, which is not installed")
        assert line.endswith(f"pip install 'massmover[{name}]'")
    assert "need matplotlib, which is not installed" in figure
    assert "needs pandas, which is not installed" in frame


def test_a_broken_library_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brokenlibrary.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match=r"does not import \(RuntimeError: operator nms does not exist\)"):
        needed("brokenlibrary", extra="torchattacks")
    assert issubclass(MissingExtraError, MassmoverError)
