"""Bad input of every kind: one clear line that names the option, exit code 2, no traceback, nothing damaged."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commandline import command, environment, evaluation, massmover, workshop


def images_file(folder: Path, name: str, **changes: object) -> None:
    arrays: dict[str, object] = {"images": np.full((4, 1, 6, 6), 0.5, np.float32), "labels": np.zeros(4, np.int64)}
    np.savez(folder / name, **{**arrays, **changes})  # type: ignore[arg-type]


def spoiled(folder: Path) -> None:
    nan = np.full((4, 1, 6, 6), 0.5, np.float32)
    nan[2, 0, 1, 1] = np.nan
    images_file(folder, "nan.npz", images=nan)
    images_file(folder, "empty.npz", images=np.zeros((0, 1, 6, 6), np.float32), labels=np.zeros(0, np.int64))
    images_file(folder, "label.npz", labels=np.array([0, 1, 2, 12]))
    images_file(folder, "size.npz", images=np.full((4, 1, 7, 5), 0.5, np.float32))
    images_file(folder, "float.npz", images=np.full((4, 1, 6, 6), 0.3137, np.float32), classes=3)
    (folder / "garbage.npz").write_bytes(b"garbage")
    (folder / "file").write_text("")


CASES: dict[str, tuple[list[str], list[str]]] = {
    "missing data": (["--data", "nowhere.npz"], ["--data", "does not exist"]),
    "garbage data": (["--data", "garbage.npz"], ["--data", "numpy.savez"]),
    "NaN image": (["--data", "nan.npz"], ["--data", "nan"]),
    "empty data": (["--data", "empty.npz"], ["--data", "empty"]),
    "label outside": (["--data", "label.npz"], ["--data", "12"]),
    "wrong shape": (["--data", "size.npz"], ["--model", "--data size.npz", "(B, 1, 7, 5)", "Give images of the size"]),
    "unknown model": (["--model", "resnet9000"], ["--model", "mnist-standard"]),
    "model that fails": (["--model", "tiny:broken"], ["--model", "no such checkpoint"]),
    "missing module": (["--model", "nowhere:build"], ["--model", "nowhere"]),
    "missing weights": (["--model", "lenet", "--weights", "no.safetensors"], ["--weights", "no.safetensors"]),
    "negative radius": (["--radius", "0.1,-1"], ["--radius", "0 or larger"]),
    "NaN radius": (["--radius", "nan"], ["--radius", "NaN"]),
    "radius of words": (["--radius-pixels", "ten"], ["--radius-pixels", "10,20,50"]),
    "two kinds of radii": (["--radius", "1", "--smallest"], ["--radius-pixels", "--smallest"]),
    "unknown attack": (["--attack", "magic"], ["--attack", "ascent"]),
    "unknown backend": (["--backend", "abacus"], ["--backend", "torch"]),
    "unknown ground": (["--ground", "marble"], ["--ground", "manhattan"]),
    "even window": (["--window", "4"], ["--window", "odd"]),
    "power of a billion": (["--power", "1e9"], ["--power", "up to 32"]),
    "power zero": (["--power", "0"], ["--power", "positive"]),
    "normalisation": (["--normalisation", "none"], ["--normalisation", "channel"]),
    "start outside": (["--start", "40"], ["--start", "0 to 11"]),
    "count zero": (["--count", "0"], ["--count", "1 or more"]),
    "unknown device": (["--device", "abacus"], ["--device", "cpu"]),
    "save-examples": (["--save-examples", "some"], ["--save-examples", "all"]),
    "std alone": (["--std", "0.5"], ["std"]),
    "out below a file": (["--out", "file/run"], ["--out", "choose another folder"]),
    "no 8-bit images": (["--data", "float.npz", "--eight-bit"], ["--eight-bit", "8-bit"]),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = workshop(tmp_path_factory.mktemp("refusals"))
    spoiled(folder)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_one_clear_line(bench: Path, case: str) -> None:
    changes, expected = CASES[case]
    out = f"run-{case.replace(' ', '-')}"
    done = massmover(*evaluation(out, *changes), cwd=bench)  # of an option given twice the last one counts
    assert_refused(done, expected)
    assert not (bench / out / "records.jsonl").exists()


def assert_refused(done: subprocess.CompletedProcess[str], expected: list[str]) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("massmover: "), done.stderr
    assert all(word in lines[0] for word in expected), lines[0]


def damage_records(run: Path) -> None:
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(["damage\n", *lines[1:]]))


def damage_manifest(run: Path) -> None:
    (run / "manifest.json").write_text("{")


def damage_examples(run: Path) -> None:
    (run / "examples.npz").write_bytes(b"damage")


@pytest.mark.parametrize("damage", [damage_records, damage_manifest, damage_examples])
def test_a_damaged_run_is_refused_and_not_damaged_further(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    workshop(tmp_path, count=2)
    words = evaluation("run", "--radius", "0.4")
    assert massmover(*words, cwd=tmp_path).returncode == 0
    damage(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert_refused(massmover(*words, "--resume", cwd=tmp_path), ["damaged", "--out"])
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert after == before
    assert_refused(massmover("report", "run", cwd=tmp_path), ["damaged"])


def test_a_disk_that_takes_no_more_is_found_before_the_first_batch(tmp_path: Path) -> None:
    workshop(tmp_path, count=12)
    words = " ".join(command(*evaluation("run", "--batch-size", "12", "--save-examples", "all")))
    limited = ["bash", "-c", f"ulimit -f 64; exec {words}"]  # no file may grow past 64 KiB
    done = subprocess.run(limited, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert_refused(done, ["--out run", "choose another folder"])
    assert not (tmp_path / "run" / "records.jsonl").exists()
