from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datafiles import write_idx_split

from massmover.data import DataError, load, sample
from massmover.data.datasets import BUNDLED

FIRST_LABELS = [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_the_bundled_sample_is_what_its_card_says() -> None:
    given = load("mnist-sample")
    assert tuple(given.images.shape) == (1000, 1, 28, 28)
    assert given.images.dtype == torch.uint8
    assert given.labels[:10].tolist() == FIRST_LABELS
    histogram = given.labels.bincount(minlength=10).tolist()
    assert sum(histogram) == 1000
    card = (BUNDLED / "mnist-sample.md").read_text(encoding="utf-8")
    assert ", ".join(map(str, histogram)) in card
    assert given.checksum() in card


def test_the_sample_has_no_training_images() -> None:
    with pytest.raises(DataError, match="test images only"):
        load("mnist-sample", split="train")


def test_making_it_takes_the_first_images_and_is_repeatable(tmp_path: Path) -> None:
    images, labels = write_idx_split(tmp_path / "mnist", count=6)
    checksum = sample.make(folder=tmp_path, destination=tmp_path, count=4)
    first = (tmp_path / "mnist-sample.npz").read_bytes()
    given = load(tmp_path / "mnist-sample.npz")
    assert np.array_equal(given.images.numpy()[:, 0], images[:4])
    assert np.array_equal(given.labels.numpy(), labels[:4])
    assert (given.classes, given.checksum()) == (10, checksum)
    sample.make(folder=tmp_path, destination=tmp_path, count=4)
    assert (tmp_path / "mnist-sample.npz").read_bytes() == first


@pytest.mark.slow
def test_the_sample_equals_the_first_test_images_of_mnist() -> None:
    try:
        whole = load("mnist")
    except DataError as error:
        pytest.skip(str(error))
    assert whole.subset(0, 1000).checksum() == load("mnist-sample").checksum()
