from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from commandline import evaluation, massmover, workshop

from finished import finished_run

# What the version before there were proofs wrote, and nothing else.
FORMER_COLUMNS = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")
FORMER_RECORD = (
    *("index", "label", "radius", "radius_pixels", "prediction_before", "prediction_after", "target", "success"),
    *("attack_success", "carried_from", "violation", "cost", "distance", "mass_drift", "range", "steps", "seconds"),
    *("trusted", "eight_bit", "margin_before", "margin"),
)
FORMER_SETTINGS = (
    *("model", "weights", "data", "split", "start", "count", "device", "radii", "attack", "smallest", "window"),
    *("ground", "normalisation", "power", "targeted", "eight_bit", "seed", "batch_size", "backend", "save_examples"),
)
FORMER_SUMMARY = (
    *("images", "clean_accuracy", "accuracy", "violations", "seconds_per_image", "area_under_curve"),
    *("checks", "examples", "radius", "radius_pixels", "successes", "carried", "attack_successes"),
)


def only(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def as_written_before_proofs(run: Path) -> int:
    """Take from a run's files what the former version did not know; how many examples it holds."""
    arrays = only(dict(np.load(run / "examples.npz")), FORMER_COLUMNS)
    np.savez(run / "examples.npz", **arrays)
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    (run / "records.jsonl").write_text("".join(json.dumps(only(one, FORMER_RECORD)) + "\n" for one in records))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["settings"] = only(manifest["settings"], FORMER_SETTINGS)
    (run / "manifest.json").write_text(json.dumps(manifest))
    summary = only(json.loads((run / "summary.json").read_text()), FORMER_SUMMARY)
    summary["accuracy"] = [only(point, FORMER_SUMMARY) for point in summary["accuracy"]]
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "report.html").unlink(missing_ok=True)
    return len(arrays["original"])


def test_files_of_the_version_before_proofs_are_read(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", count=4, radii=(0.05, 0.2))
    whole = json.loads((run / "manifest.json").read_text())["settings"]
    count = as_written_before_proofs(run)
    assert count > 1
    assert len(json.loads((run / "manifest.json").read_text())["settings"]) < len(whole)  # something was taken away
    measured = massmover("verify", "run/examples.npz", cwd=tmp_path)
    assert measured.returncode == 0, measured.stderr
    assert f"{count} images, 0 outside; 0 proved, {count} measured" in measured.stdout
    page = massmover("report", "run", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert (run / "report.html").stat().st_size > 10_000


def test_pages_and_figures_of_one_run_and_of_two(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    for name, radius in (("one", "0.1"), ("two", "0.4")):
        assert massmover(*evaluation(name, "--radius", radius), cwd=tmp_path).returncode == 0
    (tmp_path / "one" / "report.html").unlink()
    done = massmover("report", "one", "--figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one" / "report.html").exists()
    assert {path.suffix for path in (tmp_path / "one" / "figures").iterdir()} == {".png", ".pdf"}
    both = massmover("report", "one", "two", "--out", "both/page.html", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert "2 runs side by side" in (tmp_path / "both" / "page.html").read_text()


def test_names_of_classes_and_the_papers_curves_on_request(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    assert massmover(*evaluation("one", "--radius", "0.4"), cwd=tmp_path).returncode == 0
    (tmp_path / "names.txt").write_text("ant\nbee\ncow\n")
    done = massmover("report", "one", "--class-names", "names.txt", "--figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '<th scope="row">bee</th>' in (tmp_path / "one" / "report.html").read_text()
    for words, expected in (
        (("--paper",), "--paper: the paper has curves for mnist and cifar10"),
        (("--class-names", "absent.txt"), "--class-names absent.txt cannot be read"),
    ):
        refused = massmover("report", "one", *words, cwd=tmp_path)
        assert refused.returncode == 2 and expected in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for word, expected in (("nowhere", "is no folder"), ("empty", "is no folder of a run")):
        done = massmover("report", word, cwd=tmp_path)
        assert done.returncode == 2 and expected in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert list((tmp_path / "empty").iterdir()) == []
