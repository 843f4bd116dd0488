"""Several runs on one page: names, colours, settings, and what makes them incomparable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_page import finished_run

from massmover.report import load_runs
from massmover.report.comparison import by_radius, side_by_side, warnings
from massmover.report.page import page, settings_of
from massmover.report.palette import colours, style
from massmover.report.runs import distinct


def test_names_differ() -> None:
    folders = [Path(name) for name in ("/a/x/run", "/a/y/run", "/a/y/other", "/a/y/other", "/run")]
    assert distinct(folders) == ["x/run", "y/run", "other", "other (2)", "/run"]


def test_colours_do_not_repeat() -> None:
    chosen = colours(60)
    assert len({colour.light for colour in chosen}) == len({colour.dark for colour in chosen}) == 60
    assert all(len(shade) == 7 and shade.startswith("#") for colour in chosen for shade in colour)
    assert ".s59{--c:" in style(60) and "prefers-color-scheme: dark" in style(60)


def test_equal_runs_are_like_for_like(tmp_path: Path) -> None:
    runs = load_runs([finished_run(tmp_path / "a"), finished_run(tmp_path / "b", seed=3)])
    assert warnings(runs) == []
    text = page(runs)
    assert "not like for like" not in text and "What differs: 1 setting" in text
    lines = side_by_side([settings_of(run) for run in runs])
    assert lines[0] == ("--seed", ("0", "3")) and not any(line.differs for line in lines[1:])


@pytest.mark.parametrize(
    ("changes", "manifest", "said"),
    [
        ({"data": "fashion-mnist"}, {}, "the data differ: mnist-sample (a); fashion-mnist (b)"),
        (
            {"start": 4},
            {"data": {"checksum": "e" * 64, "shape": [1, 28, 28]}},
            "the images differ: test images 0 to 3, sha256 dddddddd (a); test images 4 to 7, sha256 eeeeeeee (b)",
        ),
        ({}, {"data": {"checksum": "d" * 64, "shape": [1, 32, 32]}}, "the sizes of the images differ"),
        ({"attack": "auto"}, {}, "the attacks differ: ascent (a); auto (b)"),
        ({"window": 7}, {}, "the window differs: 5 (a); 7 (b)"),
        ({"normalisation": "channel"}, {}, "the normalisation differs: image (a); channel (b)"),
        ({"power": 2.0}, {}, "the power differs: 1.0 (a); 2.0 (b)"),
        ({"targeted": True}, {}, "the targeted differs: False (a); True (b)"),
    ],
)
def test_what_makes_runs_incomparable_is_said(
    tmp_path: Path, changes: dict[str, Any], manifest: dict[str, Any], said: str
) -> None:
    second = finished_run(tmp_path / "b", manifest=manifest, **changes)
    runs = load_runs([finished_run(tmp_path / "a"), second])
    assert any(warning.startswith(said) for warning in warnings(runs)), warnings(runs)
    assert "These runs are not like for like" in page(runs)


def test_accuracies_stand_side_by_side(tmp_path: Path) -> None:
    runs = load_runs([finished_run(tmp_path / "a"), finished_run(tmp_path / "b")])
    table = by_radius(runs)
    assert [radius for radius, _ in table] == [0, 10, 50]
    assert [[cell and cell.accuracy for cell in cells] for _, cells in table] == [[0.75] * 2, [0.5] * 2, [0.25] * 2]
