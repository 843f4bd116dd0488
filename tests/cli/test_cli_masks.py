"""A mask from a file: the evaluation keeps it, the judge asks for it, and a run is not continued under another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commandline import massmover


def evaluate(out: Path, mask: Path, *more: str) -> tuple[int, str]:
    asked = ["evaluate", "--count", "6", "--radius", "0.2", "--attack", "ascent", "--steps", "20", "--out", str(out)]
    done = massmover(*asked, "--mask", str(mask), *more, cwd=out.parent)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def mask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lower half of the digits is frozen."""
    file = tmp_path_factory.mktemp("masks") / "mask.npy"
    free = np.ones((28, 28), dtype=bool)
    free[14:] = False
    np.save(file, free)
    return file


def test_an_evaluation_keeps_frozen_pixels(mask: Path, tmp_path: Path) -> None:
    code, output = evaluate(tmp_path / "run", mask)
    assert code == 0, output
    with np.load(tmp_path / "run" / "examples.npz") as file:
        assert len(file["original"]) > 0
        assert np.array_equal(file["original"][:, :, 14:], file["adversarial"][:, :, 14:])
        assert not np.array_equal(file["original"][:, :, :14], file["adversarial"][:, :, :14])
    examples = str(tmp_path / "run" / "examples.npz")
    judged = massmover("verify", examples, "--mask", str(mask), "--exact", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    assert ", 0 outside" in judged.stdout
    other = tmp_path / "other.npy"
    np.save(other, ~np.load(mask))
    refused = massmover("verify", examples, "--mask", str(other), cwd=tmp_path)
    assert refused.returncode == 1 and "frozen" in refused.stdout
    code, output = evaluate(tmp_path / "run", other, "--resume")
    assert code == 2 and "mask" in output


def test_a_mask_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    for name, values, words in (
        ("small.npy", np.ones((3, 3), dtype=bool), "(28, 28)"),
        ("none.npy", np.zeros((28, 28), dtype=bool), "no pixel"),
        ("many.npy", np.ones((5, 1, 28, 28), dtype=bool), "5 masks"),
    ):
        np.save(tmp_path / name, values)
        code, output = evaluate(tmp_path / "run", tmp_path / name)
        assert code == 2 and words in " ".join(output.split()), output
    code, output = evaluate(tmp_path / "run", tmp_path / "missing.npy")
    assert code == 2 and "no such file" in " ".join(output.split())
    assert not (tmp_path / "run").exists()
