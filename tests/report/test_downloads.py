"""The numbers inside a page are those of the run."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path

from test_page import finished_run

from massmover.report import load_run, load_runs
from massmover.report.downloads import Download, downloads


def contents(file: Download) -> str:
    return base64.b64decode(file.address.split(",")[1]).decode()


def test_tables_and_json_hold_the_same_numbers(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run"))
    files = {file.name: contents(file) for file in downloads([run])}
    assert set(files) == {"accuracy.csv", "classes.csv", "images.csv", "report.json"}
    lines = list(csv.DictReader(io.StringIO(files["accuracy.csv"])))
    assert [(float(line["radius_pixels"]), float(line["accuracy"])) for line in lines] == run.curve()
    assert all(float(line["low_95"]) <= float(line["accuracy"]) <= float(line["high_95"]) for line in lines)
    images = list(csv.DictReader(io.StringIO(files["images.csv"])))
    assert [line["smallest_radius_pixels"] for line in images] == ["0.0", "10.0", "50.0", ""]
    assert [line["answer"] for line in images] == ["8", "8", "8", "3"]
    whole = json.loads(files["report.json"])
    assert whole["runs"][0]["settings"] == run.settings.as_json()
    assert [line["accuracy"] for line in whole["accuracy"]] == [0.75, 0.5, 0.25]
    assert len(whole["classes"]) == 4 * 3 == len(list(csv.DictReader(io.StringIO(files["classes.csv"]))))


def test_lines_of_several_runs_say_whose_they_are(tmp_path: Path) -> None:
    runs = load_runs([finished_run(tmp_path / name) for name in ("a", "b")])
    lines = list(csv.DictReader(io.StringIO(contents(downloads(runs)[0]))))
    assert [line["run"] for line in lines] == ["a"] * 3 + ["b"] * 3
