from __future__ import annotations

import json
from pathlib import Path

from commandline import massmover


def test_certify_writes_its_numbers_and_evaluate_shows_both_halves(tmp_path: Path) -> None:
    done = massmover("certify", "--count", "10", "--radius-pixels", "20,200", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "certified" in done.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["images"] == 10
    assert [point["radius_pixels"] for point in summary["certified"]] == [20, 200]
    again = massmover("certify", "--count", "10", "--out", "out", cwd=tmp_path)
    assert again.returncode == 2 and "not empty" in again.stderr
    words = ("--model", "mnist-certified", "--count", "4", "--attack", "ascent", "--radius-pixels", "50", "--certify")
    both = massmover("evaluate", *words, "--out", "both", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert "certified" in both.stdout


def test_what_cannot_be_certified_is_refused_in_one_line(tmp_path: Path) -> None:
    done = massmover(
        "certify", "--method", "potentials", "--model", "mnist-standard", "--count", "2", "--out", "out", cwd=tmp_path
    )
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "out").exists()
