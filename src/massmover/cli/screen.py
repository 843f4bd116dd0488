"""What every command shares: one console, progress bars, and errors in one line without a traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from massmover.compiling import COMPILER
from massmover.ranks import ToldElsewhereError
from massmover.types import MassmoverError

P = ParamSpec("P")
R = TypeVar("R")

console = Console(soft_wrap=True)
errors = Console(stderr=True, soft_wrap=True)


def refuses_clearly(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command end with one clear line and exit code 2 when what it was given cannot be used."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        COMPILER.tell = compiling if not speaker() else None
        try:
            return command(*args, **kwargs)
        except ToldElsewhereError:
            raise typer.Exit(2) from None
        except MassmoverError as problem:
            errors.print(
                f"[bold red]massmover:[/] {speaker()}{escape(' '.join(str(problem).split()))}", highlight=False
            )
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            errors.print("[bold]massmover:[/] interrupted")
            raise typer.Exit(130) from None

    return wrapped


def say(*notes: str) -> None:
    """A line each about what was done unasked, such as dropping a prefix of weights."""
    for note in notes:
        errors.print(f"[bold]massmover:[/] {escape(note)}", highlight=False)


def compiling() -> None:
    """Say why nothing seems to happen when kernels are needed for the first time on a machine."""
    say("compiling kernels, once; this takes a while, and the next run starts at once")


def speaker() -> str:
    """Which of several processes speaks; nothing for the first."""
    rank = os.environ.get("RANK", "0")
    return "" if rank == "0" else f"(process {rank}) "


def progress_bar(*, time_left: bool = True) -> Progress:
    """A bar with what is done, a note and the time left; silent when the output is not a terminal.

    Rich needs two steps before it names the time left; a caller with few long steps says it in the note instead.
    """
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")]
    clocks = [TimeElapsedColumn(), TimeRemainingColumn()] if time_left else []
    return Progress(
        *columns,
        *clocks,
        console=errors,
        disable=not sys.stderr.isatty(),
    )
