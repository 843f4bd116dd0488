from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from massmover.data import DataError, folders, load

GREY = np.arange(20, dtype=np.uint8).reshape(4, 5)
COLOUR = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


def save(path: Path, pixels: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def test_classes_and_files_come_in_alphabetical_order(tmp_path: Path) -> None:
    save(tmp_path / "zebra" / "b.png", GREY + 1)
    save(tmp_path / "zebra" / "a.bmp", GREY)
    save(tmp_path / "ant" / "c.PNG", GREY + 2)
    (tmp_path / "ant" / "notes.txt").write_text("not a picture")
    (tmp_path / ".hidden").mkdir()
    given = load(tmp_path)
    assert given.labels.tolist() == [0, 1, 1]
    assert np.array_equal(given.images.numpy()[:, 0], np.stack([GREY + 2, GREY, GREY + 1]))
    assert (given.name, given.classes, given.class_names) == (tmp_path.name, 2, ("ant", "zebra"))
    assert given.subset(1).class_names == ("ant", "zebra")


def test_files_are_sorted_however_the_disk_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        save(tmp_path / "one" / f"{number}.png", GREY + number)
    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listing(folder), reverse=True)))
    assert load(tmp_path).images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_colour_pictures_have_three_channels(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", COLOUR)
    assert np.array_equal(load(tmp_path).images.numpy()[0], COLOUR.transpose(2, 0, 1))


def test_one_colour_picture_makes_all_three_channels(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    save(tmp_path / "two" / "b.png", COLOUR)
    save(tmp_path / "two" / "c.png", GREY)
    given = load(tmp_path).images.numpy()
    assert np.array_equal(given[0], np.stack([GREY] * 3))
    assert np.array_equal(given[1], COLOUR.transpose(2, 0, 1))


def test_jpeg_is_read(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.jpg", np.full((8, 8), 200, dtype=np.uint8))
    assert set(load(tmp_path).images.flatten().tolist()) == {200}


def test_palettes_and_transparency_become_rgb(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    Image.fromarray(COLOUR).convert("RGBA").save(tmp_path / "one" / "a.png")
    Image.new("P", (5, 4)).save(tmp_path / "one" / "b.png")
    assert load(tmp_path).images.shape == (2, 3, 4, 5)


def test_splits_are_followed(tmp_path: Path) -> None:
    save(tmp_path / "train" / "one" / "a.png", GREY)
    with pytest.raises(DataError, match="has no 'test'"):
        load(tmp_path)
    save(tmp_path / "test" / "one" / "a.png", GREY + 1)
    assert load(tmp_path, split="train").images[0, 0, 0, 0] == 0
    assert load(tmp_path, split="test").images[0, 0, 0, 0] == 1


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no sub-folders"):
        load(tmp_path)


def test_an_empty_class_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    (tmp_path / "two").mkdir()
    with pytest.raises(DataError, match="two holds no"):
        load(tmp_path)


def test_different_sizes_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    save(tmp_path / "one" / "b.png", GREY[:3])
    with pytest.raises(DataError, match=r"b\.png is 5x3 pixels but .*a\.png is 5x4"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"nothing like a picture"])
def test_a_broken_picture_is_named(tmp_path: Path, content: bytes) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    (tmp_path / "one" / "b.png").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.png cannot be read"):
        load(tmp_path)


def test_a_truncated_picture_is_named(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8))
    path = tmp_path / "one" / "a.png"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        load(tmp_path)


def test_sixteen_bit_pictures_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "one" / "a.png", GREY.astype(np.uint16) * 1000)
    with pytest.raises(DataError, match="8 bits a channel"):
        load(tmp_path)


def test_pictures_of_absurd_size_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 15)  # fewer than 20: Pillow warns; below 10 it raises
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        load(tmp_path)


def test_without_pillow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "one" / "a.png", GREY)
    real = builtins.__import__

    def without_pillow(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(DataError, match=r"pip install 'massmover\[data\]'"):
        folders.read(tmp_path, split="test", name="pictures")
