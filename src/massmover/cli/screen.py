"""What every command shares: one console, progress bars, and errors in one line without a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from massmover.types import MassmoverError

P = ParamSpec("P")
R = TypeVar("R")

console = Console(soft_wrap=True)
errors = Console(stderr=True, soft_wrap=True)


def refuses_clearly(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command end with one clear line and exit code 2 when what it was given cannot be used."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except MassmoverError as problem:
            errors.print(f"[bold red]massmover:[/] {escape(str(problem))}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            errors.print("[bold]massmover:[/] interrupted")
            raise typer.Exit(130) from None

    return wrapped


def progress_bar() -> Progress:
    """A bar with what is done, the rate and the time left; silent when the output is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        disable=not sys.stderr.isatty(),
    )
