"""A page for what is no run of `evaluate`: a reproduced table, natural perturbations, a training."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from massmover.files import replace_file
from massmover.report.downloads import Download, file_inside
from massmover.report.page import environment

SPREAD = "radii_pixels"  # the list that heads the other lists of a row


class Table(NamedTuple):
    """A table of a study: what stands above the columns, and rows of as many cells."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Figure(NamedTuple):
    """A picture of a study, as an address of data."""

    title: str
    address: str


def write_study(
    path: Path, *, title: str, record: Mapping[str, Any], figures: Sequence[Path] = (), command: str | None = None
) -> Path:
    """Write the page of a study from what it keeps as JSON and the pictures it drew; whole or not at all."""
    record = json.loads(
        json.dumps(record, default=str)
    )  # as the file beside the page: lists for tuples, names for keys
    shown = [figure(place) for place in figures if place.exists()]
    tables, settings = tables_of(record), settings_of(record)
    command = command or record.get("command")
    page = study_page(title, tables=tables, figures=shown, settings=settings, command=command, record=record)
    replace_file(path, page.encode())
    return path


def study_page(
    title: str,
    *,
    tables: Sequence[Table],
    figures: Sequence[Figure],
    settings: Sequence[tuple[str, str]],
    command: str | None = None,
    record: Mapping[str, Any] | None = None,
) -> str:
    """The page as HTML: figures, tables, how it was made, and the record to download."""
    files: list[Download] = []
    if record is not None:
        text = json.dumps(record, indent=1, default=str)
        files.append(file_inside("study.json", "every number above", text, kind="application/json"))
    shown = {"title": title, "tables": tables, "figures": figures, "settings": settings, "command": command}
    return environment().get_template("study.html").render(**shown, downloads=files, colours=Markup())


def figure(path: Path) -> Figure:
    """A PNG file as it is held by the page."""
    return Figure(words(path.stem), "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode())


def settings_of(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The single values of a record."""
    return [
        (words(name), cell(value))
        for name, value in record.items()
        if value is not None and is_single(value) and name != "command"  # which is shown by itself
    ]


def tables_of(record: Mapping[str, Any]) -> list[Table]:
    """The values of a record that are more than one: rows of the same kind, or names with values."""
    found: list[Table] = []
    for name, value in record.items():
        if is_single(value) or not value:
            continue
        if isinstance(value, Mapping):
            found.extend(from_mapping(words(name), value))
        elif all(isinstance(row, Mapping) for row in value):
            found.append(from_rows(words(name), [dict(row) for row in value]))
        else:
            found.append(Table(words(name), (), [[cell(entry) for entry in value]]))
    return found


def from_mapping(title: str, value: Mapping[str, Any]) -> list[Table]:
    """Names with values as two columns; names with names and values as a table of both; what is deeper after it."""
    if all(isinstance(row, Mapping) and all(map(is_single, row.values())) for row in value.values()):
        columns = list(dict.fromkeys(column for row in value.values() for column in row))
        rows = [[words(name), *(cell(row.get(column)) for column in columns)] for name, row in value.items()]
        return [Table(title, ["", *map(words, columns)], rows)]
    single = [[words(name), cell(entry)] for name, entry in value.items() if is_single(entry)]
    first = [Table(title, (), single)] if single else []
    deeper = tables_of({name: entry for name, entry in value.items() if not is_single(entry)})
    return [*first, *(table._replace(title=f"{title}: {table.title}") for table in deeper)]


def from_rows(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of the same kind; lists beside a list of radii get a column a radius, a line each."""
    flat = [line for row in rows for line in spread(row)]
    named = dict.fromkeys(name for line in flat for name in line)
    filled = [name for name in named if any(cell(line.get(name)) for line in flat)]
    radii = sorted((name for name in filled if is_number(name)), key=float)
    texts = [name for name in filled if name not in radii and any(isinstance(line.get(name), str) for line in flat)]
    columns = [*texts, *radii, *(name for name in filled if name not in (*texts, *radii))]
    cells = [[cell(line.get(name)) for name in columns] for line in flat]
    return Table(f"{title}, at radius × pixels" if radii else title, [words(name) for name in columns], cells)


def spread(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row whose lists are as long as its list of radii, as one line for each such list; others as they are."""
    nested = {name: value for name, value in row.items() if isinstance(value, Mapping)}
    plain = {name: value for name, value in row.items() if is_single(value)}
    for name, value in nested.items():
        if SPREAD in value:
            return [line for key in nested for line in spread({**plain, "attack": key, **nested[key]})]
        plain |= {f"{name} {key}": entry for key, entry in value.items() if is_single(entry)}
    radii = row.get(SPREAD)
    if not isinstance(radii, (list, tuple)):
        return [plain]
    lists = {
        name: value
        for name, value in row.items()
        if name != SPREAD and isinstance(value, (list, tuple)) and len(value) == len(radii)
    }
    lines = []
    for number, (name, values) in enumerate(lists.items()):
        # What belongs to the whole row stands once, in its first line; its name in every line.
        whose = {key: value for key, value in plain.items() if isinstance(value, str)} if number else plain
        by_radius = {f"{radius:g}": value for radius, value in zip(radii, values, strict=True)}
        lines.append({**whose, "percent": words(name), **by_radius})
    return lines


def is_single(value: object) -> bool:
    """Whether something fits one cell."""
    return value is None or isinstance(value, (str, int, float))


def is_number(name: str) -> bool:
    """Whether the name of a column is a radius."""
    return name.replace(".", "", 1).isdecimal()


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return str(value)


def words(name: str) -> str:
    """A name as people write it."""
    return name.replace("_", " ").replace("-", " ")
