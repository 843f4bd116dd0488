"""The progress bar of every command, with a line below it for what is being done just now."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Staged(Progress):
    """Bars whose tasks may have a `stage`: a line of its own, cut where the screen ends, so that no bar gives way."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, and the stages below them."""
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields.get("stage"):
                yield Text(task.fields["stage"], style="dim", no_wrap=True, overflow="ellipsis")


def staged_bar(screen: Console, *, time_left: bool) -> Staged:
    """A bar with what is done and a note; with `time_left` also the time it took and the time left."""
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")]
    clocks = [TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left")] if time_left else []
    return Staged(*columns, *clocks, console=screen, disable=not sys.stderr.isatty())
