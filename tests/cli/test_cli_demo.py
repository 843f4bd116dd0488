from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from commandline import massmover


def test_the_demo_attacks_judges_and_reports_twice_in_the_same_folder(tmp_path: Path) -> None:
    for _ in range(2):
        done = massmover("demo", "--out", "demo", "--count", "10", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "radius x pixels" in done.stdout and "demo/report.html" in done.stdout
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    accuracies = [point["accuracy"] for point in summary["accuracy"]]
    assert accuracies == sorted(accuracies, reverse=True) and accuracies[-1] < 0.8
    assert summary["violations"] == 0 and len(np.load(tmp_path / "demo" / "examples.npz")["index"]) > 0


def test_the_demo_overwrites_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "manifest.json").write_text('{"command": "massmover evaluate"}')
    done = massmover("demo", "--out", "precious", cwd=tmp_path)
    assert done.returncode == 2 and "--out precious is not empty" in done.stderr
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["manifest.json"]
