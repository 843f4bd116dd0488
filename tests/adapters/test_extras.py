"""A missing library is named together with the extra that brings it, and the core never asks for one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from massmover.adapters.extras import MissingExtraError, needed
from massmover.types import MassmoverError

# A library that is not there: an entry of None makes an import fail as if it were not installed.
HIDDEN = """
import sys
sys.modules[{library!r}] = None
import massmover
try:
    import massmover.adapters.{adapter}
except massmover.MassmoverError as error:
    print(isinstance(error, ImportError), error)
"""


@pytest.mark.parametrize(
    ("adapter", "library"), [("foolbox", "foolbox"), ("art", "art"), ("torchattacks", "torchattacks")]
)
def test_a_missing_library_names_its_extra(adapter: str, library: str) -> None:
    code = HIDDEN.format(library=library, adapter=adapter)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"True massmover.adapters.{adapter} needs {library}, which is not installed")
    assert done.stdout.strip().endswith(f"pip install 'massmover[{adapter}]'")


def test_a_broken_library_says_why(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brokenlibrary.py").write_text("raise RuntimeError('operator nms does not exist')")  # type: ignore
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="does not import .RuntimeError: operator nms does not exist"):
        needed("brokenlibrary", extra="torchattacks")
    assert issubclass(MissingExtraError, MassmoverError)


def test_the_core_imports_no_extra() -> None:
    code = "import massmover, sys; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extras = {"foolbox", "eagerpy", "art", "sklearn", "torchattacks", "pandas", "matplotlib", "safetensors", "PIL"}
    assert not extras & set(done.stdout.split())
