from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commandline import massmover

from finished import finished_run


def pair(folder: Path, *, name: str = "pair.npz", **more: object) -> None:
    """One image whose bright pixel moved by one: distance 1 exactly; and one that stayed."""
    original = np.zeros((2, 1, 4, 4), np.float32)
    original[:, 0, 1, 1] = 1
    adversarial = original.copy()
    adversarial[0] = np.roll(original[0], 1, axis=2)
    np.savez(folder / name, **{"original": original, "adversarial": adversarial, **more})  # type: ignore[arg-type]


def test_inside_and_outside(tmp_path: Path) -> None:
    pair(tmp_path)
    inside = massmover("verify", "pair.npz", "--radius", "1", cwd=tmp_path)
    assert inside.returncode == 0 and "2 images, 0 outside" in inside.stdout
    outside = massmover("verify", "pair.npz", "--radius", "0.5", cwd=tmp_path)
    assert outside.returncode == 1 and "2 images, 1 outside" in outside.stdout
    assert "distance 1 over radius 0.5" in outside.stdout


def test_a_change_of_mass_and_a_radius_in_the_file(tmp_path: Path) -> None:
    brighter = np.zeros((2, 1, 4, 4), np.float32)
    brighter[:, 0, 1, 1] = 0.9
    pair(tmp_path, adversarial=brighter, radius=np.array([2.0, 2.0]))
    done = massmover("verify", "pair.npz", cwd=tmp_path)
    assert done.returncode == 1 and "mass changed" in done.stdout


def test_proofs_are_checked_and_the_rest_is_measured(tmp_path: Path) -> None:
    """A file of `evaluate` is proved; an image that was touched since is not, and is measured."""
    run = finished_run(tmp_path / "run", count=3, radii=(0.2,))
    arrays = dict(np.load(run / "examples.npz"))
    count = len(arrays["original"])
    assert count > 1
    done = massmover("verify", "run/examples.npz", cwd=tmp_path)
    assert done.returncode == 0 and f"{count} images, 0 outside; {count} proved, 0 measured" in done.stdout
    measured = massmover("verify", "run/examples.npz", "--exact", cwd=tmp_path)
    assert measured.returncode == 0 and f"{count} proved, {count} measured; largest distance" in measured.stdout
    other = massmover("verify", "run/examples.npz", "--ground", "manhattan", cwd=tmp_path)
    assert f"0 proved, {count} measured" in other.stdout  # the proofs speak of another metric
    arrays["adversarial"][0] = np.roll(arrays["adversarial"][0], 9, axis=2)
    np.savez(tmp_path / "touched.npz", **arrays)
    touched = massmover("verify", "touched.npz", cwd=tmp_path)
    assert touched.returncode == 1 and f"{count} images, 1 outside; {count - 1} proved, 1 measured" in touched.stdout


def test_examples_of_the_version_before_proofs_are_measured(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", count=3, radii=(0.2,))
    columns = ("index", "radius", "label", "prediction", "original", "adversarial", "moves")  # all that it wrote
    arrays = {name: array for name, array in np.load(run / "examples.npz").items() if name in columns}
    np.savez(run / "examples.npz", **arrays)
    count = len(arrays["original"])
    assert count > 1 and len(arrays) == len(columns)
    done = massmover("verify", "run/examples.npz", cwd=tmp_path)
    assert done.returncode == 0 and f"{count} images, 0 outside; 0 proved, {count} measured" in done.stdout


BAD = {
    "missing": (["nowhere.npz", "--radius", "1"], "nowhere.npz is no file"),
    "garbage": (["garbage.npz", "--radius", "1"], "numpy.savez"),
    "no array": (["half.npz", "--radius", "1"], "adversarial"),
    "shapes": (["shapes.npz", "--radius", "1"], "same shape"),
    "flat": (["flat.npz", "--radius", "1"], "(images, channels, rows, columns)"),
    "range": (["range.npz", "--radius", "1"], "[0, 1]"),
    "nan": (["nan.npz", "--radius", "1"], "NaN"),
    "no radius": (["pair.npz"], "--radius"),
    "negative": (["pair.npz", "--radius", "-1"], "--radius"),
    "not a number": (["pair.npz", "--radius", "nan"], "--radius"),
    "both": (["pair.npz", "--radius", "1", "--radius-pixels", "1"], "not both"),
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    pair(folder)
    (folder / "garbage.npz").write_bytes(b"garbage")
    image = np.zeros((2, 1, 4, 4), np.float32)
    np.savez(folder / "half.npz", original=image)
    np.savez(folder / "shapes.npz", original=image, adversarial=image[:1])
    np.savez(folder / "flat.npz", original=image[0, 0], adversarial=image[0, 0])
    np.savez(folder / "range.npz", original=image + 9, adversarial=image)
    np.savez(folder / "nan.npz", original=image, adversarial=image + np.nan)
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(shelf: Path, case: str) -> None:
    words, expected = BAD[case]
    done = massmover("verify", *words, cwd=shelf)
    assert done.returncode == 2, done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and expected in lines[0], done.stderr
