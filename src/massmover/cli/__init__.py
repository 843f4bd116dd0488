"""The command line. It prints; nothing below it does."""

from __future__ import annotations

import typer

from massmover.cli import data, demo, evaluate, natural, report, reproduce, selftest, train, verify

app = typer.Typer(
    name="massmover",
    help="Measure and improve how image classifiers stand up to an adversary that moves pixel mass.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command("train")(train.train_command)
app.command("evaluate")(evaluate.evaluate)
app.command("verify")(verify.verify)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.command("natural")(natural.natural)
app.command("reproduce")(reproduce.reproduce)
app.command("selftest")(selftest.selftest)
