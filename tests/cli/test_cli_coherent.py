"""Scatter and width on the command line: attacked, kept with proofs, and checked again from the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import massmover, workshop

SCATTER, WIDTH = 0.2, 3
EVALUATE = ["evaluate", "--model", "tiny:build", "--data", "images.npz", "--radius", "0.3", "--attack", "ascent"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = workshop(tmp_path_factory.mktemp("coherent"))
    words = ["--scatter", str(SCATTER), "--width", str(WIDTH), "--out", "run"]
    done = massmover(*EVALUATE, *words, cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_the_folder_says_what_was_bounded_and_every_example_is_proved(finished: Path) -> None:
    settings = json.loads((finished / "run" / "manifest.json").read_text())["settings"]
    assert (settings["scatter"], settings["width"]) == (SCATTER, WIDTH)
    arrays = dict(np.load(finished / "run" / "examples.npz"))
    assert float(arrays["proof_scatter"]) == SCATTER and int(arrays["proof_width"]) == WIDTH
    moved = np.abs(arrays["adversarial"] - arrays["original"]).max(axis=(1, 2, 3)) > 0
    assert moved.sum() >= 2  # beside the clean mistake
    done = massmover("verify", "run/examples.npz", cwd=finished)
    count = len(moved)
    assert done.returncode == 0, done.stdout
    assert f"{count} images, 0 outside; {count} proved, 0 measured" in done.stdout
    assert f"scatter at most {SCATTER:g}: proved of {count}, not of 0" in done.stdout


def test_a_plan_that_scatters_more_than_its_file_claims_is_refuted(finished: Path) -> None:
    arrays = dict(np.load(finished / "run" / "examples.npz"))
    np.savez(finished / "bold.npz", **{**arrays, "proof_scatter": np.float64(0.001)})
    done = massmover("verify", "bold.npz", cwd=finished)
    assert done.returncode == 1 and "0 outside" in done.stdout  # by exact transport nothing is wrong
    assert "no proof of its scatter (scatter: mass strays" in done.stdout
    asked = massmover("verify", "run/examples.npz", "--scatter", "0.001", "--width", "3", cwd=finished)
    assert asked.returncode == 1 and "scatter at most 0.001" in asked.stdout
    looser = massmover("verify", "run/examples.npz", "--scatter", "0.5", "--width", "3", cwd=finished)
    assert looser.returncode == 0, looser.stdout


def test_a_file_without_proofs_proves_no_scatter(finished: Path) -> None:
    arrays = dict(np.load(finished / "run" / "examples.npz"))
    np.savez(finished / "bare.npz", **{name: arrays[name] for name in ("original", "adversarial", "radius")})
    assert massmover("verify", "bare.npz", cwd=finished).returncode == 0
    done = massmover("verify", "bare.npz", "--scatter", "0.2", cwd=finished)
    assert done.returncode == 1 and "no proof of its scatter" in done.stdout


def test_another_bound_does_not_resume_a_run(finished: Path) -> None:
    done = massmover(*EVALUATE, "--scatter", "0.3", "--width", "3", "--out", "run", "--resume", cwd=finished)
    assert done.returncode == 2 and "scatter" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--width", "3"], "--scatter is not given"),
        (["--scatter", "-1"], "--scatter is -1"),
        (["--scatter", "nan"], "--scatter is nan"),
        (["--scatter", "0.1", "--width", "0"], "--width"),
        (["--scatter", "0.1", "--attack", "sinkhorn"], "sinkhorn lets mass scatter: use auto or ascent"),
        (["--scatter", "0.1", "--eight-bit"], "--eight-bit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = massmover(*EVALUATE, *words, "--out", "run", cwd=workshop(tmp_path))
    assert done.returncode == 2 and said in " ".join(done.stderr.split())
    assert not (tmp_path / "run").exists()
