"""The Triton kernels: their numbers in the interpreter, and machine code for GPUs that need not be there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from massmover.ball import Balls
from massmover.geometry import Window
from massmover.transport.potential import Pull
from massmover.types import MassmoverError

triton = pytest.importorskip("triton")
HERE = Path(__file__).parent
TARGETS = [("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)]


def test_the_numbers_in_the_interpreter() -> None:
    """Triton decides at its import whether it interprets, so the tests of numbers get a process of their own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, str(HERE / "triton_interpreted.py")],
        capture_output=True,
        text=True,
        env={**environment, "TRITON_INTERPRET": "1"},
        cwd=HERE.parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def type_of(value: Any) -> Any:
    """What Triton calls the type of an argument."""
    if isinstance(value, tuple):
        return type(value)(*map(type_of, value))
    if isinstance(value, int):
        return "i32"
    return {torch.float32: "*fp32", torch.float64: "*fp64", torch.int32: "*i32"}[value.dtype]


def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, tuple[Any, ...], dict[str, int]]]:
    """Every kernel with the arguments that the launcher gives it: images without content are enough for that."""
    kernels = pytest.importorskip("massmover.transport.kernels.triton")
    calls = {}

    def note(kernel: Any, grid: tuple[int, ...], *values: Any, **sizes: int) -> None:
        calls[kernel.fn.__name__] = kernel, values, sizes

    monkeypatch.setattr(kernels, "_launch", note)
    images = torch.empty(2, 3, 32, 32, device="meta")
    per_image = torch.empty(2, dtype=torch.float64, device="meta")
    weights = torch.empty(2, 3, dtype=torch.float64, device="meta")
    balls = Balls(images, per_image, weights, Window(rows=2, columns=2), "triton")
    kernels.move_mass_triton(Pull(images), balls)
    return calls


@pytest.mark.skipif(bool(os.environ.get("TRITON_INTERPRET")), reason="the interpreter compiles nothing")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target[1]))
def test_kernels_compile(target: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For NVIDIA's and AMD's processors, without any of them."""
    target_of = importlib.import_module("triton.backends.compiler").GPUTarget
    source_of = triton.compiler.ASTSource
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    calls = launched(monkeypatch)
    assert len(calls) == 6
    for name, (kernel, values, sizes) in calls.items():
        names = kernel.arg_names
        signature = dict(zip(names, map(type_of, values), strict=False)) | dict.fromkeys(sizes, "constexpr")
        source = source_of(kernel, signature, constexprs={(names.index(size),): sizes[size] for size in sizes})
        options = {"num_warps": 4, "enable_fp_fusion": False}
        built = triton.compile(source, target=target_of(*target), options=options)
        binary = built.asm["cubin" if target[0] == "cuda" else "hsaco"]
        assert len(binary) > 1000, name


@pytest.mark.skipif(bool(os.environ.get("TRITON_INTERPRET")), reason="the interpreter takes any device")
def test_images_on_the_cpu_are_refused() -> None:
    kernels = pytest.importorskip("massmover.transport.kernels.triton")
    images = torch.zeros(1, 1, 2, 2)
    balls = Balls(images, torch.zeros(1), torch.zeros(1, 1), Window(rows=1, columns=1), "triton")
    with pytest.raises(MassmoverError, match="TRITON_INTERPRET=1"):
        kernels.move_mass_triton(Pull(images), balls)
