"""`massmover selftest`: do all backends agree on this machine's device?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from massmover.cli.screen import console, errors, refuses_clearly
from massmover.types import MassmoverError


@refuses_clearly
def selftest(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    count: Annotated[int, typer.Option(help="How many of the 1,000 bundled digits.")] = 64,
    steps: Annotated[int, typer.Option(help="Steps of the attack.")] = 30,
) -> None:
    """Run every backend that works here on the same digits, and hold the results against each other.

    Exit code 1 means that a backend differs from the float64 arithmetic, from itself, or left a ball.
    """
    if count < 1 or steps < 1:
        raise MassmoverError(f"--count is {count} and --steps {steps}: give 1 or more of both")
    from massmover.evaluation.selftest import compare_backends
    from massmover.evaluation.subject import resolve_device

    place = resolve_device(device)
    console.print(f"{count} digits on {place}; kernels may have to be compiled first.")
    checks = compare_backends(place, count=count, steps=steps)
    table = Table(title=f"plan ascent, {steps} steps, radius x pixels 50")
    for heading in ("backend", "largest difference", "same again", "broken", "outside", "step / gradient", ""):
        table.add_column(heading, justify="right")
    for check in checks:
        table.add_row(
            check.backend,
            f"{check.largest_difference:.1e}",
            "yes" if check.repeats else "no",
            str(check.broken),
            str(check.violations),
            f"{check.step_over_gradient:.2f}",
            "passed" if check.passed else "FAILED",
        )
    console.print(table)
    if not all(check.passed for check in checks):
        errors.print("[bold red]a backend failed:[/] use another one with --backend, and please report this table")
        raise typer.Exit(1)
