from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commandline import command, environment, evaluation, fresh, lines_of, massmover, summary_of, workshop

from massmover import exact_distance

OPTIONS = (
    *("model", "weights", "mean", "std", "data", "split", "start", "count", "attack", "radius", "radius-pixels"),
    *("smallest", "window", "normalisation", "power", "targeted", "seed", "batch-size", "device", "save-examples"),
    *("out", "resume", "eight-bit", "steps", "restarts", "strict"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = workshop(tmp_path_factory.mktemp("finished"))
    done = massmover(*evaluation("run", "--save-examples", "all"), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout and "run/report.html" in done.stdout
    return folder


def test_the_folder_holds_what_was_promised(finished: Path) -> None:
    names = {path.name for path in (finished / "run").iterdir()}
    assert names == {"manifest.json", "records.jsonl", "summary.json", "examples.npz", "report.html"}
    manifest = json.loads((finished / "run" / "manifest.json").read_text())
    assert manifest["settings"]["radii"] == [0.1, 0.4] and manifest["settings"]["count"] == 12
    assert manifest["command"].startswith("massmover evaluate --out run")
    assert len(manifest["data"]["checksum"]) == len(manifest["weights"]["checksum"]) == 64
    assert {"massmover", "torch", "numpy", "POT", "python"} == set(manifest["versions"])


def test_one_record_per_image_and_radius_with_every_field(finished: Path) -> None:
    lines = lines_of(finished / "run")
    assert [(line["index"], line["radius"]) for line in lines] == [(i, r) for i in range(12) for r in (0.1, 0.4)]
    needed = {"label", "prediction_before", "prediction_after", "success", "cost", "distance", "mass_drift", "range"}
    assert needed | {"steps", "trusted", "violation", "carried_from", "radius_pixels"} <= set(lines[0])
    assert all(line["distance"] <= line["radius"] * (1 + 1e-6) for line in lines if line["success"])
    assert all(line["trusted"] for line in lines)
    mistake = [line for line in lines if line["index"] == 0]
    assert all(line["success"] and line["cost"] == 0 for line in mistake)


def test_the_summary_counts_the_records(finished: Path) -> None:
    summary, lines = summary_of(finished / "run"), lines_of(finished / "run")
    assert summary["clean_accuracy"] == pytest.approx(11 / 12)
    for point in summary["accuracy"]:
        wins = sum(line["success"] for line in lines if line["radius"] == point["radius"])
        assert point["successes"] == wins - 1 > 0 and point["clean_mistakes"] == 1
        assert point["accuracy"] == pytest.approx(1 - wins / 12)
        assert point["violations"] == 0 and point["radius_pixels"] == pytest.approx(36 * point["radius"])
    assert summary["accuracy"][1]["accuracy"] <= summary["accuracy"][0]["accuracy"]


def test_examples_are_the_successes_and_lie_in_their_balls(finished: Path) -> None:
    saved = np.load(finished / "run" / "examples.npz")
    wins = [(line["index"], line["radius"]) for line in lines_of(finished / "run") if line["success"]]
    assert list(zip(saved["index"].tolist(), saved["radius"].tolist(), strict=True)) == wins
    distance = exact_distance(saved["original"], saved["adversarial"]).numpy()
    assert (distance <= saved["radius"] * (1 + 1e-6) + 1e-12).all()


def test_a_used_folder_is_refused_and_nothing_in_it_changes(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in (finished / "run").iterdir()}
    done = massmover(*evaluation("run"), cwd=finished)
    assert done.returncode == 2 and "--out run is not empty: add --resume" in done.stderr
    assert {path.name: path.read_bytes() for path in (finished / "run").iterdir()} == before


def test_a_resume_with_other_settings_shows_the_difference(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in (finished / "run").iterdir()}
    done = massmover(*evaluation("run", "--resume", "--save-examples", "all", "--power", "2"), cwd=finished)
    assert done.returncode == 2 and "--power: was 1.0, is 2.0" in done.stderr
    assert {path.name: path.read_bytes() for path in (finished / "run").iterdir()} == before


def test_resuming_a_finished_run_changes_no_result(finished: Path) -> None:
    before, examples = summary_of(finished / "run"), dict(np.load(finished / "run" / "examples.npz"))
    done = massmover(*evaluation("run", "--resume", "--save-examples", "all"), cwd=finished)
    assert done.returncode == 0, done.stderr
    assert summary_of(finished / "run") == before
    for name, array in np.load(finished / "run" / "examples.npz").items():
        assert (array == examples[name]).all()


def test_two_processes_give_the_summary_of_one(finished: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "massmover"]
    words += evaluation("two", "--save-examples", "all")
    done = subprocess.run(words, cwd=finished, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report:") == 1
    assert summary_of(finished / "two") == summary_of(finished / "run")
    assert lines_of(finished / "two") == lines_of(finished / "run")
    one, two = (np.load(finished / name / "examples.npz") for name in ("run", "two"))
    assert all((one[name] == two[name]).all() for name in one.files)
    assert not (finished / "two" / "parts").exists()


def test_a_cheating_attack_is_recorded_and_never_counted(tmp_path: Path) -> None:
    workshop(tmp_path)
    done = massmover(*evaluation("run", "--save-examples", "all", model="tiny:cheating"), cwd=tmp_path)
    assert done.returncode == 1
    lines, summary = lines_of(tmp_path / "run"), summary_of(tmp_path / "run")
    caught = [line for line in lines if line["violation"]]
    assert caught and not any(line["success"] for line in caught)
    assert all("over radius" in line["violation"] for line in caught)
    assert summary["violations"] == len(caught) == sum(point["violations"] for point in summary["accuracy"])
    assert "broke the rules" in done.stderr
    assert len(np.load(tmp_path / "run" / "examples.npz")["index"]) == sum(line["success"] for line in lines)


def test_a_check_that_fails_is_told(tmp_path: Path) -> None:
    workshop(tmp_path, count=4)
    done = massmover(*evaluation("run", model="tiny:softmax"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "do not trust this evaluation yet: logits" in done.stderr and "docs/checks.md#logits" in done.stderr
    assert "Do not trust this evaluation yet" in (tmp_path / "run" / "report.html").read_text()


def test_eight_bit_images_are_exact_inside_and_counted(tmp_path: Path) -> None:
    workshop(tmp_path)
    words = evaluation("run", "--eight-bit", "--save-examples", "all")
    done = massmover(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts, saved = summary_of(tmp_path / "run")["eight_bit"], np.load(tmp_path / "run" / "examples.npz")
    assert f"{counts['survive']} of {counts['successes']} successes survive" in done.stdout
    assert 0 < counts["survive"] == len(saved["index"]) <= counts["successes"]
    levels = saved["adversarial"].astype(np.float64) * 255
    assert np.abs(levels - levels.round()).max() < 1e-4
    assert (levels.round().sum((1, 2, 3)) == (saved["original"].astype(np.float64) * 255).round().sum((1, 2, 3))).all()
    judged = massmover("verify", "run/examples.npz", cwd=tmp_path)
    assert judged.returncode == 0, judged.stdout


def test_targets_are_reached_and_the_number_saved_is_kept(tmp_path: Path) -> None:
    workshop(tmp_path)
    words = evaluation(
        "run", "--targeted", "--save-examples", "3", "--start", "2", "--count", "7", "--radius-pixels", "14"
    )
    done = massmover(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path / "run")
    assert [line["index"] for line in lines] == list(range(2, 9))
    assert all(line["target"] != line["label"] for line in lines)
    assert any(line["success"] for line in lines)
    assert all(line["prediction_after"] == line["target"] for line in lines if line["success"])
    assert "targets reached" in done.stdout and "clean mistakes" in done.stdout and "successes" not in done.stdout
    point = summary_of(tmp_path / "run")["accuracy"][-1]
    right = sum(line["prediction_after"] == line["label"] == line["prediction_before"] for line in lines)
    assert point["accuracy"] <= right / 7 + 1e-9
    assert "targets reached" in (tmp_path / "run" / "report.html").read_text()
    assert len(np.load(tmp_path / "run" / "examples.npz")["index"]) == min(3, sum(line["success"] for line in lines))


def test_the_smallest_radius_of_each_image_is_found_and_judged(tmp_path: Path) -> None:
    workshop(tmp_path, count=6)
    done = massmover(*evaluation("run", "--smallest", "--save-examples", "all"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines, summary = lines_of(tmp_path / "run"), summary_of(tmp_path / "run")
    assert [line["index"] for line in lines] == list(range(6))
    assert lines[0]["radius"] == 0 and lines[0]["success"]
    assert all(line["distance"] <= line["radius"] * (1 + 1e-6) + 1e-12 for line in lines if line["success"])
    for point in summary["accuracy"]:
        wins = sum(line["success"] and line["radius"] <= point["radius"] for line in lines)
        assert point["successes"] == wins - 1 and point["accuracy"] == pytest.approx(1 - wins / 6)
    assert sum(line["success"] for line in lines) > 3
    moved = sum(line["success"] and line["radius"] > 0 for line in lines)  # a clean mistake shows nothing
    assert len(np.load(tmp_path / "run" / "examples.npz")["index"]) == moved


@pytest.mark.parametrize("attack", ["auto", "ascent", "frank-wolfe", "sinkhorn", "wong"])
def test_every_attack_records_a_clean_mistake_at_every_radius(tmp_path: Path, attack: str) -> None:
    workshop(tmp_path, count=3)  # image 0 is one
    done = massmover(*evaluation("run", "--attack", attack), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = lines_of(tmp_path / "run")
    assert [(line["index"], line["radius"]) for line in lines] == [(i, r) for i in range(3) for r in (0.1, 0.4)]
    assert all(line["success"] for line in lines if line["index"] == 0)


def test_help_can_be_read(tmp_path: Path) -> None:
    done = fresh("evaluate", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert [option for option in OPTIONS if f"--{option}" not in done.stdout] == []


def test_a_screen_that_knows_only_ascii_is_no_reason_to_fail(tmp_path: Path) -> None:
    workshop(tmp_path)
    surroundings = {**environment(), "PYTHONIOENCODING": "ascii"}
    words = command(*evaluation("f\u00fcnf", "--count", "2"))
    done = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert r"f\xfcnf" in done.stdout and (tmp_path / "f\u00fcnf" / "report.html").exists()
