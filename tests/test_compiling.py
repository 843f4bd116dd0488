"""Compiling is told once, stands outside every figure, and needs no place to write to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from massmover import compiling
from massmover.compiling import COMPILER, kernel, working_seconds

HOMELESS = """
from numba.core import caching
caching.CacheImpl._locator_classes = []  # what a read-only install without a home directory comes to
from massmover.transport.kernels import plan, sinkhorn
print(round(float(sinkhorn.wright_omega(1.0)), 6))
"""


def test_without_a_place_for_its_cache_the_package_runs() -> None:
    done = subprocess.run([sys.executable, "-c", HOMELESS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1.0"  # omega + log(omega) = 1


def test_a_compilation_is_told_once() -> None:
    told: list[str] = []
    before, COMPILER.tell = COMPILER.seconds, lambda: told.append("compiling")

    def twice(number):  # type: ignore[no-untyped-def]
        return 2 * number

    fast = kernel()(twice)
    assert fast(3) == 6
    first = COMPILER.seconds
    assert first > before and told == ["compiling"]
    assert fast(4) == 8 and COMPILER.seconds == first  # compiled already
    assert fast(4.0) == 8.0 and COMPILER.seconds > first  # for another type
    assert told == ["compiling"] and COMPILER.tell is None


def test_the_clock_stands_still_while_kernels_compile_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    compiler = compiling.Compiler()
    monkeypatch.setattr(compiling, "COMPILER", compiler)
    monkeypatch.setattr("massmover.compiling.time.perf_counter", lambda: now[0])
    started = working_seconds()
    for passed, happens in ((1, compiler.began), (2, compiler.began), (4, compiler.ended), (8, compiler.ended)):
        now[0] += passed
        happens()
    now[0] += 16
    assert compiler.seconds == 2 + 4 + 8
    assert working_seconds() - started == 1 + 16


def test_nothing_is_told_where_nothing_is_compiled() -> None:
    told: list[str] = []
    fast = kernel()(lambda number: number + 1)
    assert fast(1) == 2
    COMPILER.tell = lambda: told.append("compiling")
    try:
        assert fast(5) == 6
    finally:
        COMPILER.tell = None
    assert told == []
