"""One self-contained page: no network, good on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from massmover.evaluation.settings import option_name
from massmover.files import replace_file
from massmover.report import charts, gallery
from massmover.report.loading import Run, load_run

HERE = Path(__file__).parent
MOST_CLASSES = 20  # a larger confusion table would not be legible


class Confusion(NamedTuple):
    """One table: how labels were answered at one radius."""

    name: str
    classes: list[int]
    rows: list[tuple[int, list[tuple[int, int, float]]]]  # label; (answer, count, share of the label's images)


def write_page(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of one or more runs, whole or not at all."""
    replace_file(path, page([load_run(folder) for folder in folders]).encode())
    return path


def page(runs: Sequence[Run]) -> str:
    """The page as HTML."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = charts.number
    shown = gallery.cards(runs)
    return environment.get_template("page.html").render(
        runs=runs,
        single=len(runs) == 1,
        first=runs[0],
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        accuracy_wide=charts.accuracy_chart(runs, width=860, height=400),
        accuracy_narrow=charts.accuracy_chart(runs, width=350, height=320),
        paper=charts.paper_curves(runs),
        breaking=[_breaking(run) for run in runs],
        confusions=[table for run in runs for table in confusions(run, several=len(runs) > 1)],
        cards=shown,
        available=gallery.available(runs),
        labels=sorted({card.label for card in shown}),
        radii=sorted({card.radius for card in shown}),
        settings=[(run.name, settings_of(run)) for run in runs],
        trouble=[(run.name, check) for run in runs for check in run.summary["checks"] if not check["passed"]],
    )


def _breaking(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "wide": charts.breaking_chart(run, width=860, height=260),
        "narrow": charts.breaking_chart(run, width=350, height=240),
    }


def confusions(run: Run, *, several: bool) -> list[Confusion]:
    """A table per radius; for a search of smallest radii one table over all images."""
    classes = run.classes[:MOST_CLASSES]
    radii: list[float | None] = [None] if run.settings.smallest else list(run.settings.radii)
    tables = []
    for radius in radii:
        counts = run.confusion(radius)
        rows = []
        for label in classes:
            total = sum(count for (truth, _), count in counts.items() if truth == label)
            rows.append((label, [(to, counts[label, to], counts[label, to] / max(total, 1)) for to in classes]))
        name = "smallest radius" if radius is None else f"radius {charts.number(radius * run.scale)}"
        tables.append(Confusion(f"{run.name}, {name}" if several else name, classes, rows))
    return tables


def settings_of(run: Run) -> list[tuple[str, str]]:
    """Settings and origins in reading order."""
    plain = run.settings.as_json()
    plain["radii"] = ", ".join(f"{radius:.6g}" for radius in run.settings.radii)
    plain["save_examples"] = "all" if plain["save_examples"] is None else plain["save_examples"]
    plain["window"] = "all" if plain["window"] is None else plain["window"]
    listed = [(option_name(name), str(value)) for name, value in plain.items() if value not in (None, False)]
    manifest = run.manifest
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return [
        *listed,
        ("data sha256", str(manifest["data"]["checksum"])),
        ("weights sha256", str(manifest["weights"]["checksum"])),
        ("versions", versions),
        ("started", str(manifest["started"])),
    ]
