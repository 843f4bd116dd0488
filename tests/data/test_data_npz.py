from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from massmover.data import DataError, load

IMAGES = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
LABELS = np.array([2, 0])


def save(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    given = load(save(tmp_path, images=IMAGES.transpose(0, 3, 1, 2), labels=LABELS))
    assert np.array_equal(given.images.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert given.images.numpy().dtype == np.uint8
    assert (given.name, given.labels.tolist(), given.classes) == ("mine", [2, 0], 3)


def test_classes_may_have_names(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cow"])
    assert load(save(tmp_path, images=IMAGES, labels=LABELS, class_names=names)).class_names == ("ant", "bee", "cow")
    assert load(save(tmp_path, images=IMAGES, labels=LABELS)).class_names == ()
    with pytest.raises(DataError, match=r"class_names is int64 \(2,\); need one string for each class"):
        load(save(tmp_path, images=IMAGES, labels=LABELS, class_names=LABELS))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_float32(tmp_path: Path, dtype: type) -> None:
    images: np.ndarray[Any, Any] = (IMAGES / 255).astype(dtype)
    given = load(save(tmp_path, images=images, labels=LABELS))
    assert np.array_equal(given.images.numpy(), images.astype(np.float32).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 6, 5), (2, 1, 6, 5)),
        ((2, 3, 5), (2, 1, 3, 5)),
        ((2, 3, 6, 5), (2, 3, 6, 5)),
        ((2, 1, 6, 5), (2, 1, 6, 5)),
        ((2, 6, 5, 3), (2, 3, 6, 5)),
        ((2, 6, 5, 1), (2, 1, 6, 5)),
        ((2, 3, 5, 3), (2, 3, 5, 3)),  # could be both: channels first
    ],
)
def test_channels_are_found(tmp_path: Path, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    given = load(save(tmp_path, images=np.zeros(shape, np.uint8), labels=LABELS))
    assert tuple(given.images.shape) == wanted


def test_classes_may_be_told(tmp_path: Path) -> None:
    assert load(save(tmp_path, images=IMAGES, labels=LABELS, classes=10)).classes == 10


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_labels_of_any_whole_type_are_taken(tmp_path: Path, dtype: type) -> None:
    assert load(save(tmp_path, images=IMAGES, labels=LABELS.astype(dtype))).labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"images": IMAGES}, "has no array labels \\(it has: images\\)"),
        ({"x": IMAGES, "y": LABELS}, "has no array images and labels \\(it has: x, y\\)"),
        ({}, "it has: none"),
        ({"images": IMAGES / 1.0, "labels": LABELS}, "Divide 0..255 by 255"),
        ({"images": IMAGES / 255 - 0.5, "labels": LABELS}, "numbers in \\[0, 1\\]"),
        ({"images": np.full((2, 4, 4), np.nan), "labels": LABELS}, "nan"),
        ({"images": np.full((2, 4, 4), np.inf), "labels": LABELS}, "inf"),
        ({"images": IMAGES.astype(np.int64), "labels": LABELS}, "images are int64"),
        ({"images": IMAGES, "labels": LABELS[:1]}, "2 images but 1 labels"),
        ({"images": IMAGES, "labels": LABELS / 1.0}, "labels are float64"),
        ({"images": IMAGES, "labels": LABELS[:, None]}, "labels are int64 \\(2, 1\\)"),
        ({"images": IMAGES, "labels": -LABELS}, "run from -2"),
        ({"images": IMAGES, "labels": LABELS, "classes": 2}, "must be 0..1"),
        ({"images": IMAGES, "labels": LABELS, "classes": np.array([2, 3])}, "classes is int64 \\(2,\\)"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "holds no images"),
        ({"images": np.zeros((2, 4, 5, 4), np.uint8), "labels": LABELS}, "with C 1 or 3"),
        ({"images": np.zeros((2, 4), np.uint8), "labels": LABELS}, "with C 1 or 3"),
        ({"images": np.array([None, None]), "labels": LABELS}, "cannot be read"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load(save(tmp_path, **arrays))


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, images=IMAGES, labels=LABELS)
    whole = path.read_bytes()
    for content in (b"", b"nonsense", whole[: len(whole) // 2], whole[:100] + b"\xff" * 50 + whole[150:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot be read as an \.npz file"):
            load(path)
    with path.open("wb") as stream:
        np.save(stream, IMAGES)
    with pytest.raises(DataError, match="single array"):
        load(path)
