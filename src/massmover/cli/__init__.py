"""The command line. It prints; nothing below it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from massmover import __version__
from massmover.cli import certify, data, demo, evaluate, natural, report, reproduce, selftest, standings, train, verify
from massmover.cli.screen import console, end, errors
from massmover.interruption import INTERRUPTED
from massmover.types import StoppedError

UNREAD = 141  # what a shell reports of a program whose reader has gone: 128 + SIGPIPE


class OneLine(TyperGroup):
    """Commands that answer a wrong word as everything else here: in one line, with exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and leave Python with its exit code."""
        work = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return work()
        try:
            code = work()
        except typer.Abort:
            end("interrupted", back=True)
            sys.exit(INTERRUPTED)
        except (StoppedError, SystemExit) as problem:  # the page of --help, or a line: nobody reads on, as in | head
            if isinstance(problem.__context__, BrokenPipeError):
                sys.exit(UNREAD)
            raise
        except Exception as problem:  # Typer's errors share a base class whose place depends on its version
            if not hasattr(problem, "format_message"):
                raise
            words = " ".join(str(problem.format_message()).split())
            errors.print(f"[bold red]massmover:[/] {escape(words)} (--help lists what there is)", highlight=False)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="massmover",
    cls=OneLine,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    """Say the version and leave."""
    if asked:
        console.print(f"massmover {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def massmover(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    """Measure and improve how image classifiers stand up to an adversary that moves pixel mass."""


app.add_typer(data.app, name="data")
app.command("train")(train.train_command)
app.command("evaluate")(evaluate.evaluate)
app.command("certify")(certify.certify)
app.command("verify")(verify.verify)
app.command("report")(report.report)
app.command("standings")(standings.standings)
app.command("demo")(demo.demo)
app.command("natural")(natural.natural)
app.command("reproduce")(reproduce.reproduce)
app.command("selftest")(selftest.selftest)
