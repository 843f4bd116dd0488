from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from datafiles import Bytes, python2_pickle
from PIL import Image

from massmover.data import DataError, cifar

COUNT = 3  # images in each batch
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


def photos(seed: int) -> tuple[Bytes, list[int]]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, size=(COUNT, 3, 32, 32), dtype=np.uint8), random.integers(0, 10, size=COUNT).tolist()


def write_binary(folder: Path, batches: dict[str, tuple[Bytes, list[int]]]) -> None:
    for name, (images, labels) in batches.items():
        records = (bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True))
        (folder / f"{name}.bin").write_bytes(b"".join(records))


def write_pickles(folder: Path, batches: dict[str, tuple[Bytes, list[int]]]) -> None:
    for name, (images, labels) in batches.items():
        content = {"batch_label": "a batch", "labels": labels, "data": images.reshape(-1, 3072), "filenames": ["a.png"]}
        (folder / name).write_bytes(python2_pickle(content))


def write_strips(folder: Path, batches: dict[str, tuple[Bytes, list[int]]]) -> None:
    for name, (images, _) in batches.items():
        rows = images.transpose(0, 2, 3, 1).reshape(-1, 1024, 3)
        Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
    every = [label for _, labels in batches.values() for label in labels]
    (folder / ("test_lables.json" if "test_batch" in batches else "train_lables.json")).write_text(json.dumps(every))


Writer = Callable[[Path, dict[str, tuple[Bytes, list[int]]]], None]


@pytest.mark.parametrize("writer", [write_binary, write_pickles, write_strips])
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_form_gives_the_same_images(tmp_path: Path, split: str, writer: Writer) -> None:
    batches = {name: photos(seed) for seed, name in enumerate(TRAIN if split == "train" else ["test_batch"])}
    writer(tmp_path, batches)
    assert cifar.present(tmp_path, split)
    assert not cifar.present(tmp_path, {"train": "test", "test": "train"}[split])
    given = cifar.read(tmp_path, split=split, name="photos")
    assert np.array_equal(given.images.numpy(), np.concatenate([images for images, _ in batches.values()]))
    assert given.labels.tolist() == [label for _, labels in batches.values() for label in labels]
    assert (given.classes, given.images.is_contiguous()) == (10, True)


@pytest.mark.parametrize(("inner", "writer"), [("bin", write_binary), ("py", write_pickles)])
def test_the_folder_of_the_official_archive_is_found(tmp_path: Path, inner: str, writer: Writer) -> None:
    (tmp_path / f"cifar-10-batches-{inner}").mkdir()
    writer(tmp_path / f"cifar-10-batches-{inner}", {"test_batch": photos(0)})
    assert len(cifar.read(tmp_path, split="test", name="photos")) == COUNT


def test_a_missing_batch_means_the_split_is_absent(tmp_path: Path) -> None:
    write_binary(tmp_path, {name: photos(0) for name in TRAIN[:4]})
    assert not cifar.present(tmp_path, "train")
    with pytest.raises(DataError, match=r"does not hold data_batch_1, .*data_batch_5"):
        cifar.read(tmp_path, split="train", name="photos")


def test_strips_without_labels_are_absent(tmp_path: Path) -> None:
    write_strips(tmp_path, {"test_batch": photos(0)})
    (tmp_path / "test_lables.json").unlink()
    assert not cifar.present(tmp_path, "test")


@pytest.mark.parametrize("content", [b"", b"\0" * 3072, b"\0" * 3074])
def test_a_binary_batch_of_wrong_length_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"test_batch\.bin has \d+ bytes"):
        cifar.read(tmp_path, split="test", name="photos")


@pytest.mark.parametrize("labels", ["[1, 2]", "[1, 2, 3, 4]", "[1, 2", "{}", "[1, 2, 3.5]", "[]", "[true, 1, 2]"])
def test_strips_with_wrong_labels_are_refused(tmp_path: Path, labels: str) -> None:
    write_strips(tmp_path, {"test_batch": photos(0)})
    (tmp_path / "test_lables.json").write_text(labels)
    with pytest.raises(DataError, match=r"test_lables\.json"):
        cifar.read(tmp_path, split="test", name="photos")


@pytest.mark.parametrize(("mode", "size"), [("RGB", (1000, 3)), ("L", (1024, 3))])
def test_strips_of_another_kind_are_refused(tmp_path: Path, mode: str, size: tuple[int, int]) -> None:
    write_strips(tmp_path, {"test_batch": photos(0)})
    Image.new(mode, size).save(tmp_path / "test_batch.png")
    with pytest.raises(DataError, match=r"test_batch\.png is .* need 1024, RGB"):
        cifar.read(tmp_path, split="test", name="photos")


def test_a_truncated_strip_is_refused(tmp_path: Path) -> None:
    write_strips(tmp_path, {"test_batch": photos(0)})
    path = tmp_path / "test_batch.png"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"test_batch\.png cannot be read"):
        cifar.read(tmp_path, split="test", name="photos")


class Malicious:
    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trap),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    content = {"data": Malicious(tmp_path / "trap"), "labels": [1]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(DataError, match=r"asks to load \w+\.mkdir"):
        cifar.read(tmp_path, split="test", name="photos")
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "content",
    [
        [1, 2, 3],
        {"data": [1], "labels": [1]},
        {"data": np.zeros((2, 3072), np.uint8)},
        {"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1, "2"]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        {"data": np.zeros((2, 3072), np.float64), "labels": [1, 2]},
        {"data": np.array([None, None]), "labels": [1, 2]},
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(DataError):
        cifar.read(tmp_path, split="test", name="photos")


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    write_pickles(tmp_path, {"test_batch": photos(0)})
    path = tmp_path / "test_batch"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be read as a pickle"):
        cifar.read_pickle(path)
