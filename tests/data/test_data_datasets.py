from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datafiles import write_idx_split

from massmover.data import NAMES, DataError, datasets, load


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASSMOVER_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "DEBIAN_FASHION", tmp_path / "debian")
    return tmp_path / "cache"


def test_a_name_is_looked_up_in_the_cache(cache: Path) -> None:
    images, _ = write_idx_split(cache / "mnist", split="train")
    given = load("mnist", split="train")
    assert np.array_equal(given.images.numpy()[:, 0], images)
    assert given.name == "mnist-train"


def test_the_given_folder_wins_over_the_variable(cache: Path, tmp_path: Path) -> None:
    write_idx_split(cache / "mnist", seed=0)
    images, _ = write_idx_split(tmp_path / "other" / "mnist", seed=1)
    assert np.array_equal(load("mnist", folder=tmp_path / "other").images.numpy()[:, 0], images)


def test_official_files_may_lie_in_the_given_folder_itself(cache: Path, tmp_path: Path) -> None:
    images, _ = write_idx_split(tmp_path / "official", compressed=True)
    assert np.array_equal(load("mnist", folder=str(tmp_path / "official")).images.numpy()[:, 0], images)


def test_files_loose_in_the_cache_belong_to_no_name(cache: Path) -> None:
    write_idx_split(cache)
    with pytest.raises(DataError, match="is not in"):
        load("mnist")


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_an_absent_set_names_both_remedies(cache: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"massmover\.data\.fetch\('{name}'\), or put the .*official") as caught:
        load(name)
    assert str(cache / name) in str(caught.value)


def test_one_split_alone_does_not_pass_for_the_other(cache: Path) -> None:
    write_idx_split(cache / "mnist", split="train")
    with pytest.raises(DataError, match=r"mnist \(test\) is not in"):
        load("mnist")


def test_fashion_comes_from_the_cache_then_from_debian(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"apt-get install dataset-fashion-mnist.*official IDX files"):
        load("fashion-mnist")
    debian, _ = write_idx_split(tmp_path / "debian", seed=1, compressed=True)
    assert np.array_equal(load("fashion-mnist").images.numpy()[:, 0], debian)
    cached, _ = write_idx_split(cache / "fashion-mnist", seed=2)
    assert np.array_equal(load("fashion-mnist").images.numpy()[:, 0], cached)


def test_a_folder_of_official_files_is_known_by_its_path(cache: Path, tmp_path: Path) -> None:
    write_idx_split(tmp_path / "raw")
    assert load(tmp_path / "raw").name == "raw-test"


def test_a_path_is_never_a_name(cache: Path) -> None:
    write_idx_split(cache / "mnist")
    with pytest.raises(DataError, match="does not exist"):
        load(Path("mnist"))


def test_unknown_names_and_paths_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=", ".join(NAMES)):
        load("imagenet")
    (tmp_path / "table.csv").touch()
    with pytest.raises(DataError, match=r"is no \.npz file and no folder"):
        load(tmp_path / "table.csv")


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(DataError, match="need 'train' or 'test'"):
        load("mnist-sample", split="valid")
