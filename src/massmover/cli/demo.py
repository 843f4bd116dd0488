"""`massmover demo`: the main job on what ships inside the package."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from massmover.cli.evaluate import perform
from massmover.cli.screen import console, refuses_clearly
from massmover.types import MassmoverError

if TYPE_CHECKING:
    from massmover.evaluation.store import RunFolder

RADII_PIXELS = (10.0, 20.0, 50.0, 100.0, 200.0)
IMAGES = 100
ATTACK = "ascent"  # strong and quick; `massmover evaluate` takes the ensemble, which is stronger and slower


@refuses_clearly
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results/demo"),
    count: Annotated[int, typer.Option(help="How many of the 1,000 bundled digits.")] = IMAGES,
) -> None:
    """Attack the bundled classifier on bundled digits, judge every example, write a report."""
    if count < 1:
        raise MassmoverError(f"--count is {count}: give 1 or more")
    import torch

    from massmover.evaluation.run import Destination
    from massmover.evaluation.settings import Settings
    from massmover.evaluation.store import RunFolder
    from massmover.evaluation.subject import load_subject

    console.print(f"Attacking the bundled classifier on {count} bundled digits; this takes well under a minute.")
    torch.set_num_threads(1)  # small networks are fastest on one, and a busy machine stalls several
    settings = Settings(attack=ATTACK, radii=(0.0,), count=count, device="cpu", batch_size=10, save_examples=None)
    subject = load_subject(settings)
    radii = tuple(radius / subject.numbers_per_image for radius in RADII_PIXELS)
    settings = replace(settings, count=len(subject.images), radii=radii)
    clear_earlier(RunFolder(out))
    summary = perform(subject, settings, Destination(out, command=["massmover", *sys.argv[1:]]))
    console.print(f"Open {escape(str(out / 'report.html'))} in a browser.")
    if summary["violations"]:
        raise typer.Exit(1)


def clear_earlier(folder: RunFolder) -> None:
    """Remove the files of an earlier demo, so that `make demo` can be said twice; nothing else is touched."""
    from massmover.evaluation.store import read_json

    if not folder.manifest.exists() or not str(read_json(folder.manifest).get("command")).startswith("massmover demo"):
        return
    for path in (folder.records, folder.summary, folder.examples, folder.report, *folder.parts.glob("*")):
        path.unlink(missing_ok=True)
    if folder.parts.is_dir():
        folder.parts.rmdir()
    folder.manifest.unlink()  # last, so that a demo killed here is still known as one
