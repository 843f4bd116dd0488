"""One self-contained page: no network, good on a phone and in the dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from massmover.evaluation.settings import option_name
from massmover.evaluation.summary import Goal
from massmover.files import replace_file
from massmover.report import charts, comparison, downloads, gallery, palette
from massmover.report.intervals import percent, wilson
from massmover.report.runs import ClassRow, Run, load_runs

HERE = Path(__file__).parent
MOST_CLASSES = 20  # a larger confusion table would not be legible
MOST_CHIPS = 12  # more classes than this are chosen from a list
CLOSEST = 10  # survivors that are shown
MOST_ROWS = 60  # images whose interval between proof and attack is drawn


class Confusion(NamedTuple):
    """One table: how labels were answered at one radius."""

    name: str
    classes: list[str]
    rows: list[tuple[str, list[ConfusionCell]]]  # by label
    cut: str  # what is left out, empty if nothing


class ConfusionCell(NamedTuple):
    """How many images of a label got one answer."""

    answer: str
    images: int
    share: float  # of the label's images


def write_page(folders: Sequence[Path], path: Path, *, paper: bool = False, class_names: tuple[str, ...] = ()) -> Path:
    """Write the report of one or more runs, whole or not at all.

    `paper` shows the paper's curves beside any model; `class_names` take the place of those the runs know.
    """
    replace_file(path, page(load_runs(folders, names=class_names), paper=paper).encode())
    return path


def environment() -> Environment:
    """The templates of this folder, with the style and script that every page holds inside."""
    found = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters["number"] = charts.number
    found.filters["percent"] = percent
    found.globals["wilson"] = wilson
    found.globals["style"] = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    found.globals["script"] = Markup((HERE / "page.js").read_text(encoding="utf-8"))
    return found


def page(runs: Sequence[Run], *, paper: bool = False) -> str:
    """The page as HTML."""
    shown = gallery.cards(runs)
    curves = charts.paper_curves(runs, asked=paper)
    labels = sorted({(card.label, card.name) for card in shown})
    settings = [settings_of(run) for run in runs]
    several = len(runs) > 1
    return (
        environment()
        .get_template("page.html")
        .render(
            runs=runs,
            single=not several,
            first=runs[0],
            colours=Markup(palette.style(len(runs))),
            accuracy_wide=charts.accuracy_chart(runs, width=860, height=400, paper=curves),
            accuracy_narrow=charts.accuracy_chart(runs, width=350, height=320, paper=curves),
            brackets=[_bracket(run) for run in runs if "contradictions" in run.summary],
            paper=curves,
            breaking=[_breaking(run, goal) for run in runs for goal in run.goals],
            stood=charts.STOOD,
            targeted=any(run.settings.targeted for run in runs),
            classes=[worst_classes(run) for run in runs],
            confusions=[table for run in runs for table in confusions(run, several=several)],
            cards=shown,
            available=gallery.available(runs),
            labels=labels,
            many_labels=len(labels) > MOST_CHIPS,
            radii=sorted({card.radius * card.scale for card in shown}),
            settings=settings,
            side_by_side=comparison.side_by_side(settings) if several else [],
            by_radius=comparison.by_radius(runs),
            warnings=comparison.warnings(runs) if several else [],
            downloads=downloads.downloads(runs),
            closest=CLOSEST,
            trouble=[(run.name, check) for run in runs for check in run.summary["checks"] if not check["passed"]],
        )
    )


def _bracket(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "wide": charts.bracket_chart(run, width=860, height=320),
        "narrow": charts.bracket_chart(run, width=350, height=280),
        "rows": min(MOST_ROWS, run.images),
        "wide_rows": charts.between_chart(run, width=860, rows=MOST_ROWS),
        "narrow_rows": charts.between_chart(run, width=350, rows=MOST_ROWS),
    }


def _breaking(run: Run, goal: Goal) -> dict[str, Any]:
    return {
        "name": run.name,
        "goal": charts.GOALS[goal] if len(run.goals) > 1 else "",
        "wide": charts.breaking_chart(run, goal, width=860, height=260),
        "narrow": charts.breaking_chart(run, goal, width=350, height=240),
    }


def confusions(run: Run, *, several: bool) -> list[Confusion]:
    """A table per radius; for a search of smallest radii one table over all images.

    A targeted run has each of them twice, targets reached first: the page opens with the last one.
    """
    radii: list[float | None] = [None] if run.settings.smallest else list(run.settings.radii)
    tables = []
    for goal in reversed(run.goals):
        for radius in radii:
            name = "smallest radius" if radius is None else f"radius × pixels {charts.number(radius * run.scale)}"
            name += f", {charts.GOALS[goal]}" if len(run.goals) > 1 else ""
            tables.append(confusion(run, run.confusion(radius, goal), name=f"{run.name}, {name}" if several else name))
    return tables


def confusion(run: Run, counts: Counter[tuple[int, int]], *, name: str) -> Confusion:
    """Labels against answers; of many classes the most frequent, and the rest together as "other"."""
    met: Counter[int] = Counter()
    for (label, answer), count in counts.items():
        met[label] += count
        met[answer] += count
    kept = sorted(sorted(met, key=lambda label: (-met[label], label))[:MOST_CLASSES])
    places: list[int | None] = [*kept, None] if len(met) > len(kept) else [*kept]
    gathered: Counter[tuple[int | None, int | None]] = Counter()
    for (label, answer), count in counts.items():
        gathered[label if label in kept else None, answer if answer in kept else None] += count
    names = ["other" if label is None else run.class_name(label) for label in places]
    rows = []
    for place, title in zip(places, names, strict=True):
        total = sum(gathered[place, other] for other in places)
        cells = [
            ConfusionCell(to, gathered[place, other], gathered[place, other] / max(total, 1))
            for other, to in zip(places, names, strict=True)
        ]
        rows.append((title, cells))
    cut = f"The {len(kept)} most frequent of {len(met)} classes that occur; the rest together is other."
    return Confusion(name, names, rows, cut if None in places else "")


def worst_classes(run: Run) -> tuple[list[ClassRow], str]:
    """The classes to show and what that leaves out: all, or of many those that the attack hurt most."""
    rows = run.by_class()
    if len(rows) <= MOST_CLASSES:
        return rows, ""
    hurt = sorted(rows, key=lambda row: (row.right[-1] / row.images, -row.images, row.label))
    return hurt[
        :MOST_CLASSES
    ], f"{MOST_CLASSES} of {len(rows)} classes, the least accurate first; all are in classes.csv."


def settings_of(run: Run) -> list[tuple[str, str]]:
    """Settings and origins in reading order."""
    plain = run.settings.as_json()
    plain["radii"] = ", ".join(f"{radius:.6g}" for radius in run.settings.radii)
    plain["save_examples"] = "all" if plain["save_examples"] is None else plain["save_examples"]
    plain["window"] = "all" if plain["window"] is None else plain["window"]
    listed = [
        (option_name(name), str(value)) for name, value in plain.items() if value is not None and value is not False
    ]
    manifest = run.manifest
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return [
        *listed,
        ("data sha256", str(manifest["data"]["checksum"])),
        ("weights sha256", str(manifest["weights"]["checksum"])),
        ("versions", versions),
        ("started", str(manifest["started"])),
    ]
