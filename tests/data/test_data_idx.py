from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from datafiles import digits, idx_bytes, write_idx_split

from massmover.data import DataError, idx

IMAGE_FILE = "t10k-images-idx3-ubyte"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("separator", ["-", "."])
@pytest.mark.parametrize("split", ["train", "test"])
def test_official_names_are_read(tmp_path: Path, split: str, separator: str, compressed: bool) -> None:
    images, labels = write_idx_split(tmp_path, split=split, separator=separator, compressed=compressed)
    assert idx.present(tmp_path, split)
    assert not idx.present(tmp_path, {"train": "test", "test": "train"}[split])
    given = idx.read(tmp_path, split=split, name="digits")
    assert np.array_equal(given.images.numpy()[:, 0], images)
    assert given.images.shape == (6, 1, 5, 4)
    assert np.array_equal(given.labels.numpy(), labels)
    assert (given.name, given.classes) == ("digits", 10)


def test_a_compressed_file_may_have_lost_its_ending(tmp_path: Path) -> None:
    write_idx_split(tmp_path)
    path = tmp_path / IMAGE_FILE
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(idx.read(tmp_path, split="test", name="digits")) == 6


def _broken(content: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "half a header": content[:10],
        "truncated": content[:-1],
        "too long": content + b"\0",
        "labels in place of images": idx_bytes(digits(6)[1]),
        "floats": content[:2] + b"\x0d" + content[3:],
        "absurd shape": content[:4] + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1) + content[16:],
        "truncated gzip": gzip.compress(content)[:-12],
        "damaged gzip": gzip.compress(content)[:20] + b"\xff" * 20 + gzip.compress(content)[40:],
        "not gzip": b"\x1f\x8b and then nothing of the kind",
        "truncated inside gzip": gzip.compress(content[:-1]),
    }


@pytest.mark.parametrize("damage", list(_broken(b"")))
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: str) -> None:
    write_idx_split(tmp_path)
    path = tmp_path / IMAGE_FILE
    path.write_bytes(_broken(path.read_bytes())[damage])
    with pytest.raises(DataError, match=IMAGE_FILE):
        idx.read(tmp_path, split="test", name="digits")


def test_a_wrong_magic_number_is_shown(tmp_path: Path) -> None:
    path = tmp_path / IMAGE_FILE
    path.write_bytes(b"\x89PNG and so on, long enough")
    with pytest.raises(DataError, match=r"starts with 89 50 4e 47; .* starts with 00 00 08 03"):
        idx.read_file(path, dimensions=3)


def test_counts_must_agree(tmp_path: Path) -> None:
    write_idx_split(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(digits(5)[1]))
    with pytest.raises(DataError, match="6 images but 5 labels"):
        idx.read(tmp_path, split="test", name="digits")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_idx_split(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert not idx.present(tmp_path, "test")
    with pytest.raises(DataError, match="holds no t10k-labels-idx1-ubyte"):
        idx.read(tmp_path, split="test", name="digits")
