"""A missing library is named together with the extra that brings it, and the core never asks for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from massmover.adapters.mover import MissingExtraError, needed
from massmover.backend import CHOICE
from massmover.types import MassmoverError

# An entry of None makes an import fail as if the library were not installed.
WITHOUT_EXTRAS = """
import importlib, sys, warnings
for library in LIBRARIES.split():
    sys.modules[library] = None
import massmover, torch
images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
model = lambda images: images.flatten(1)
labels = model(images).argmax(dim=1)  # right before the attack, so that the attack has to move something
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    results = [massmover.attack(model, images, labels, radius=0.5, method=method) for method in ("ascent", "auto")]
print([str(warning.message).partition(",")[0] for warning in told])
for result in results:
    assert result.backend == ("torch" if "numba" in LIBRARIES else "numba")
    assert result.steps.min() > 0 and result.success.any() and result.trusted.all()
    assert torch.equal(model(result.images).argmax(dim=1) != labels, result.success)
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
EXTRAS = "PIL art eagerpy foolbox jinja2 markupsafe matplotlib pandas rich sklearn torchattacks typer"


@pytest.mark.parametrize("core", ["", "numba", "numba safetensors"], ids=["nothing", "numba", "numba and safetensors"])
def test_without_any_extra_the_core_works_and_the_rest_says_what_is_missing(core: str) -> None:
    """Also without libraries that the core itself brings, as on systems that have none of them."""
    if not core:
        pytest.importorskip("numba")
    program = f"LIBRARIES = {f'{EXTRAS} {core}'!r}\n{WITHOUT_EXTRAS}"
    environment = {name: value for name, value in os.environ.items() if name != CHOICE}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    warned, violations, *adapters, figure, frame = done.stdout.splitlines()
    assert warned == ("['Numba is not installed']" if core else "[]")  # once, for two attacks
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
