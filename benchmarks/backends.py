"""Every backend: launches and waits a step beside the model's own, and processor time of an attack over Numba's."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.counting import HIDDEN, Counts, count
from massmover import WassersteinBall
from massmover.attacks import FrankWolfe, PlanAscent, SinkhornAttack
from massmover.attacks.base import Problem
from massmover.backend import installed
from massmover.classifier import borrowed
from massmover.data import load
from massmover.models import load_model
from massmover.types import Backend

DIGITS = 64
SHORT, LONG = 11, 21  # the difference of two attacks is what ten steps cost, with the one look that belongs to them
ENDLESS: dict[Any, dict[str, float]] = {PlanAscent: {"confidence": math.inf}}  # nobody finishes early
TINY_RADIUS = 0.5 / 784  # at which no digit falls, so that all steps are taken by all


def backends() -> tuple[Backend, ...]:
    """Those that run here; Triton's kernels only in its interpreter, with TRITON_INTERPRET=1."""
    there: tuple[Backend, ...] = ("numba", "torch") if installed("numba") else ("torch",)
    return (*there, "triton") if os.environ.get("TRITON_INTERPRET") == "1" and installed("triton") else there


def step_counts(
    method: Any, backend: Backend, images: Tensor, *, model: nn.Module, window: int = 5
) -> tuple[float, float]:
    """Launches and waits of one step beside those of the model's own forward and backward pass.

    A kernel of Triton is one launch; what the interpreter does inside it does not count.
    """
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
    problem = Problem(WassersteinBall(TINY_RADIUS, window=window).around(images, backend=backend), labels)
    with borrowed(model), kernels_counted(backend) as kernels:

        def steps(number: int) -> Counts:
            kernels.clear()
            found = count(lambda: method(steps=number, **ENDLESS.get(method, {})).search(model, problem))
            return Counts(found.launches + len(kernels), found.waits)

        steps(1)  # compiles what has to be compiled
        own = count(lambda: problem.slope(model, images, loss="cross-entropy"))
        extra = steps(LONG).minus(steps(SHORT))
    launches, waits = extra.per(LONG - SHORT)
    return launches - own.launches, waits - own.waits


@contextmanager
def kernels_counted(backend: Backend) -> Iterator[list[str]]:
    """Replace the launch of Triton kernels by one that counts, and hides the interpreter's own operations."""
    seen: list[str] = []
    if backend != "triton":
        yield seen
        return
    from massmover.transport.kernels import triton as kernels

    launch = kernels._launch

    def counted(kernel: Any, *values: Any, **sizes: Any) -> None:
        seen.append(kernel.fn.__name__)
        with torch.autograd.profiler.record_function(HIDDEN):
            launch(kernel, *values, **sizes)

    kernels._launch = counted
    try:
        yield seen
    finally:
        kernels._launch = launch


def processor_seconds(method: Any, backend: Backend, images: Tensor, labels: Tensor) -> float:
    """Of one attack that all images withstand, warm."""
    model = load_model("mnist-standard")
    problem = Problem(WassersteinBall(TINY_RADIUS).around(images, backend=backend), labels)
    method(steps=2).run(model, problem)
    begin = time.process_time()
    method(steps=LONG).run(model, problem)
    return time.process_time() - begin


def main() -> None:
    """Print the table."""
    digits = load("mnist-sample").subset(0, DIGITS)
    images, labels = digits.images_as_float(), digits.labels
    for method in (PlanAscent, FrankWolfe, SinkhornAttack):
        seconds: dict[Backend, float] = {}
        for backend in backends():
            if backend == "triton" and method is not PlanAscent:
                continue  # only plan ascent has Triton kernels; the others run the torch path there
            launches, waits = step_counts(method, backend, images, model=load_model("mnist-standard"))
            line = f"{method.__name__} on {backend}: {launches:.0f} launches and {waits:.2f} waits a step"
            if backend != "triton":
                seconds[backend] = processor_seconds(method, backend, images, labels)
                line += f", {seconds[backend] / seconds[backends()[0]]:.1f} times the processor time of {backends()[0]}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
