"""Kernels that Numba compiles when they are first called: where they are kept, what it took, and who is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Compiler:
    """Hears of every compilation. Numba compiles under a lock of its own, so that one thread at a time comes here."""

    def __init__(self) -> None:
        """Nothing was compiled yet, and nobody is told."""
        self.seconds = 0.0  # spent compiling, in this process
        self.tell: Callable[[], None] | None = None  # called when the first compilation begins
        self._depth, self._began = 0, 0.0  # a kernel compiles the kernels that it calls

    def began(self) -> None:
        """A compilation begins; one that only loads what was kept does not come here."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()

    def ended(self) -> None:
        """It ended, well or not."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


COMPILER = Compiler()


def working_seconds() -> float:
    """A clock that stands still while kernels are compiled, which happens once on a machine."""
    return time.perf_counter() - COMPILER.seconds


def kernel(**options: Any) -> Callable[[F], Any]:
    """`numba.njit` that keeps what it compiled for the next process, where there is a place to keep it.

    Numba writes beside the source, below the home directory, or where NUMBA_CACHE_DIR says. A package that was
    installed read-only, for a user without a home, has none of these, and is compiled anew in every process.
    """
    from numba import njit

    _listen()

    def compiled(function: F) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError as problem:
            if "cannot cache" not in str(problem):
                raise
            return njit(**options)(function)

    return compiled


def part(**options: Any) -> Callable[[F], Any]:
    """A function that kernels of the same file call, and nobody else: it is kept with them, and Python cannot call it.

    What Python would need to call it, and a copy on disk, take about a third of the time to compile a small function.
    """
    from numba import njit

    unwrapped: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def compiled(function: F) -> Any:
        return njit(**unwrapped, **options)(function)

    return compiled


_listening: list[object] = []  # the one listener, once there is one


def _listen() -> None:
    """Let Numba say when it compiles."""
    if _listening:
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            COMPILER.began()

        def on_end(self, event: Any) -> None:
            COMPILER.ended()

    _listening.append(Listener())
    event.register("numba:compile", _listening[0])  # type: ignore[no-untyped-call]
