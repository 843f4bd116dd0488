"""The page of what is no evaluation: every number of the record is on it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from massmover.report import Figure, Table, study_page, write_study
from massmover.report.pictures import png
from massmover.report.study import tables_of

CURVES: list[dict[str, Any]] = [
    {"name": "ours", "radii_pixels": [10.0, 5.0], "accuracy": [40.0, 60.0], "paper": [90.0, 100.0], "seconds": 3.5},
    {"name": "plain", "radii_pixels": [5.0, 20.0], "accuracy": [70.0, 12.5], "paper": None, "seconds": 1.25},
]


def test_lists_beside_radii_become_columns() -> None:
    (table,) = tables_of({"curves": CURVES, "count": 4})
    assert table.title == "curves, at radius × pixels"
    assert list(table.head) == ["name", "percent", "5", "10", "20", "seconds"]
    assert table.rows == [
        ["ours", "accuracy", "60", "40", "", "3.5"],
        ["ours", "paper", "100", "90", "", ""],
        ["plain", "accuracy", "70", "", "12.5", "1.25"],
    ]


def test_names_with_values_and_deeper_ones() -> None:
    record = {
        "dimming": {"factor": 30.0, "wrong_at": {"3": 0.5, "10": 5.0}},
        "printed": {"l2": {"blur 3": 3.2}, "wasserstein": {"blur 3": 0.3}},
        "models": [{"model": "a", "hu": CURVES[1], "auto": CURVES[1]}],
    }
    tables = {table.title: table for table in tables_of(record)}
    assert tables["dimming"].rows == [["factor", "30"]]
    assert tables["dimming: wrong at"].rows == [["3", "0.5"], ["10", "5"]]
    assert tables["printed"] == Table("printed", ["", "blur 3"], [["l2", "3.2"], ["wasserstein", "0.3"]])
    models = tables["models, at radius × pixels"]
    assert [row[:2] for row in models.rows] == [["a", "hu"], ["a", "auto"]]


def test_the_page_holds_tables_figures_command_and_record(tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    picture.write_bytes(base64.b64decode(png(np.zeros((4, 4), np.uint8)).split(",")[1]))
    record = {"model": "<lenet>", "command": "massmover train --out x", "curves": CURVES, "wrong_at": {30: 33.5}}
    figures = [picture, tmp_path / "absent.png"]
    text = write_study(tmp_path / "page.html", title="A study", record=record, figures=figures).read_text()
    assert "<h1>A study</h1>" in text and text.count('class="study-figure"') == 1
    assert "&lt;lenet&gt;" in text and "<lenet>" not in text and "massmover train --out x" in text
    assert "http://" not in text and "https://" not in text
    link = re.search(r'download="study.json" href="data:[^,]+,([^"]+)"', text)
    assert link is not None and json.loads(base64.b64decode(link[1])) == {**record, "wrong_at": {"30": 33.5}}
    assert '<th scope="row">30</th><td>33.5</td>' in text


def test_a_page_from_tables_of_ones_own() -> None:
    tables = [Table("epochs", ["epoch", "loss"], [["1", "0.5"]])]
    text = study_page("Training", tables=tables, figures=[Figure("curve", "data:,")], settings=[("seed", "0")])
    assert "<td>0.5</td>" in text and "seed" in text and "study.json" not in text
