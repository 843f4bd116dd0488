"""What every command shares: one console, progress bars, and errors in one line without a traceback."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from massmover.compiling import COMPILER
from massmover.interruption import INTERRUPTED, way_back
from massmover.ranks import ToldElsewhereError
from massmover.types import MassmoverError, StoppedError

if TYPE_CHECKING:
    from rich.progress import Progress

P = ParamSpec("P")
R = TypeVar("R")


class Screen(Console):
    """A console whose reader may leave: rich would leave with exit code 1, which means something else here."""

    bar: Progress | None = None  # that is drawn on the other stream just now

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print below a bar, not into it: it has shown what there was to wait for, and stands still from then on."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        super().print(*objects, **settings)

    def on_broken_pipe(self) -> None:
        """Write no more, and say so in one line where there is still somebody."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2 if self.stderr else 1)
        os.close(nowhere)
        raise StoppedError("the reader of the output has closed it")


console = Screen(soft_wrap=True)
errors = Screen(stderr=True, soft_wrap=True)


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
            end(str(problem), back=isinstance(problem, StoppedError))
            raise typer.Exit(2) from None
        except OSError as problem:  # such as a full disk behind the output
            end(f"could not write ({problem.strerror or problem})", back=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            end("interrupted", back=True)
            raise typer.Exit(INTERRUPTED) from None

    wrapped.__doc__ = flowing(command.__doc__ or "")
    return wrapped


def flowing(text: str) -> str:
    """A docstring whose paragraphs are one line each, so that a page of help breaks them where its screen ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def end(reason: str, *, back: bool) -> None:
    """Say in one line why a command ends, and how to go `back` to what it has done."""
    way = way_back(sys.argv[1:]) if back else ""
    words = " ".join(f"{reason}; {way}".split()) if way else " ".join(reason.split())
    if back and speaker():
        return  # the first process says it for all
    with contextlib.suppress(OSError, StoppedError):  # nobody may be listening any more
        errors.print(f"[bold red]massmover:[/] {speaker()}{escape(words)}", highlight=False)


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
    from massmover.cli.bar import staged_bar  # not at the top: a refused argument shows no bar

    console.bar = staged_bar(errors, time_left=time_left)
    return console.bar
