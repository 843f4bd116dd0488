"""The movement of an example: moves read from proofs, their field, and the bytes that the page flies."""

from __future__ import annotations

import base64
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from test_page import finished_run

from massmover import MassmoverError
from massmover.evaluation.proof import Claim, Moves
from massmover.evaluation.proof_file import proof_arrays
from massmover.evaluation.store import RunFolder
from massmover.report import load_run
from massmover.report.flow import MOST_FLYING, all_moves, drawn, factor_of, field_of, packed, small
from massmover.report.page import page

SHAPE = (1, 28, 28)
NONE = np.zeros((0, 6), np.float32)


def proof_of(moves: list[tuple[int, int, int, int, int, float]], *, shape: tuple[int, ...], unit: int = 40) -> Moves:
    """A proof that holds these moves: channel, from row and column, to row and column, mass."""
    source = [np.ravel_multi_index(move[:3], shape) for move in moves]
    steps = [(move[3] - move[1], move[4] - move[2]) for move in moves]
    mass = [round(move[5] * 2**unit) for move in moves]
    return Moves(np.array(source, np.int32), np.array(steps, np.int16), np.array(mass, np.int64), unit)


def shifted(original: np.ndarray[Any, Any], down: int, right: int) -> Moves:
    """The proof that all mass of an image moves by one vector."""
    places = np.argwhere(original > 0).tolist()
    return proof_of([(c, y, x, y + down, x + right, float(original[c, y, x])) for c, y, x in places], shape=SHAPE)


def digit(seed: int = 0) -> np.ndarray[Any, Any]:
    image = np.zeros(SHAPE, np.float32)
    image[0, 8:20, 9:18] = np.random.default_rng(seed).uniform(0.2, 0.9, (12, 9))
    return image


def test_moves_come_from_the_proof_and_from_the_few_that_old_files_have() -> None:
    listed = [(0, 3, 4, 4, 5, 0.25), (2, 5, 0, 5, 2, 0.5)]
    moves = all_moves(proof_of(listed, shape=(3, 9, 7)), NONE, shape=(3, 9, 7))
    assert moves.tolist() == [list(listed[1]), list(listed[0])]  # the heaviest first
    few = np.zeros((60, 6), np.float32)
    few[0] = listed[0]
    assert all_moves(None, few, shape=(3, 9, 7)).tolist() == [list(listed[0])]


@pytest.mark.parametrize("source, step", [(784, (0, 0)), (-1, (0, 0)), (0, (-1, 0)), (27, (0, 1)), (783, (1, 0))])
def test_a_move_that_leaves_its_image_is_refused(source: int, step: tuple[int, int]) -> None:
    damaged = Moves(np.array([source], np.int32), np.array([step], np.int16), np.array([1 << 40]), 40)
    with pytest.raises(MassmoverError, match="a move leaves its image"):
        all_moves(damaged, NONE, shape=SHAPE)


def test_half_of_a_pixel_that_goes_two_pixels_moves_one_on_average() -> None:
    image = np.zeros(SHAPE, np.float32)
    image[0, 10, 10] = 0.5
    field = field_of(image, all_moves(proof_of([(0, 10, 10, 10, 12, 0.25)], shape=SHAPE), NONE, shape=SHAPE))
    assert field.place.tolist() == [[10, 10]] and field.step.tolist() == [[0, 1]] and field.cell == 2


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 40, 33)])
def test_the_field_is_what_a_sum_pixel_by_pixel_gives(shape: tuple[int, int, int]) -> None:
    random = np.random.default_rng(5)
    image = random.uniform(0.5, 1, shape).astype(np.float32)
    starts = zip(
        *(random.integers(low, high, 200).tolist() for low, high in ((0, shape[0]), (3, 25), (3, 25))), strict=True
    )
    steps = random.integers(-2, 3, (200, 2)).tolist()
    listed = [(c, y, x, y + down, x + right, 0.01) for (c, y, x), (down, right) in zip(starts, steps, strict=True)]
    field = field_of(image, all_moves(proof_of(listed, shape=shape), NONE, shape=shape))
    carried: dict[tuple[int, int], list[float]] = {}
    for _, y, x, to_y, to_x, mass in listed:
        down, right = carried.get((y, x), (0.0, 0.0))
        carried[y, x] = [down + mass * (to_y - y), right + mass * (to_x - x)]
    best: dict[tuple[int, int], float] = {}
    for (y, x), moved in carried.items():
        cell = (y // field.cell, x // field.cell)
        best[cell] = max(best.get(cell, 0.0), math.hypot(*moved))
    kept = {(y // field.cell, x // field.cell): (y, x) for y, x in field.place.tolist()}
    assert len(kept) == len(field.place) and set(kept) == {cell for cell, size in best.items() if size > 1e-9}
    for (y, x), step in zip(field.place.tolist(), field.step.tolist(), strict=True):
        held = float(image[:, y, x].astype(float).sum())
        assert step == pytest.approx([value / held for value in carried[y, x]], abs=1e-9)
        assert np.hypot(*step) * held == pytest.approx(best[y // field.cell, x // field.cell])


def classes(drawing: str) -> set[str]:
    return set(re.findall(r'class="arrow (d\d+)"', drawing))


def test_mass_that_moves_together_has_one_colour_and_scattered_mass_many() -> None:
    image = digit()
    together = field_of(image, all_moves(shifted(image, 0, 3), NONE, shape=SHAPE))
    assert np.allclose(together.step, [0, 3]) and factor_of(together) == 1
    assert classes(drawn(image, together, title="t")) == {"d0"}  # to the right
    random = np.random.default_rng(0)
    listed = [
        (0, y, x, y + int(random.integers(-2, 3)), x + int(random.integers(-2, 3)), float(image[0, y, x]))
        for _, y, x in np.argwhere(image > 0).tolist()
    ]
    scattered = field_of(image, all_moves(proof_of(listed, shape=SHAPE), NONE, shape=SHAPE))
    assert len(classes(drawn(image, scattered, title="t"))) > 5
    down = field_of(image, all_moves(shifted(image, 2, 0), NONE, shape=SHAPE))
    assert classes(drawn(image, down, title="t")) == {"d3"}  # a quarter of a turn from the right, clockwise


def test_short_movements_are_drawn_longer_and_nothing_is_no_arrow() -> None:
    image = np.ones((3, 224, 224), np.float32) / 2
    listed = [(0, y, y, y, y + 1, 0.5) for y in range(10, 200, 20)]
    field = field_of(image, all_moves(proof_of(listed, shape=image.shape), NONE, shape=image.shape))
    assert field.cell == 16 and np.allclose(field.step, [0, 1 / 3]) and factor_of(field) == 20
    assert len(re.findall("M", drawn(image, field, title="t").split("<path")[1])) == len(listed)
    still = field_of(image, NONE.astype(float))
    assert len(still.place) == 0 and factor_of(still) == 1 and "<path" not in drawn(image, still, title="t")


def unpacked(text: str, shape: tuple[int, ...]) -> list[list[float]]:
    """What a reader of the documented bytes makes of them."""
    raw = base64.b64decode(text)
    found = []
    for at in range(0, len(raw), 6):
        source = int.from_bytes(raw[at : at + 3], "little")
        down, right = (int.from_bytes(raw[at + part : at + part + 1], "big", signed=True) for part in (3, 4))
        channel, y, x = (int(value) for value in np.unravel_index(source, shape))
        found.append([channel, y, x, y + down, x + right, raw[at + 5] / 255])
    return found


def test_packed_moves_say_what_they_were() -> None:
    shape = (3, 224, 224)
    listed = [(2, 223, 223, 123, 200, 0.8), (0, 0, 1, 2, 0, 0.2), (1, 100, 5, 99, 9, 1.0)]
    moves = all_moves(proof_of(listed, shape=shape), NONE, shape=shape)
    assert np.array(unpacked(packed(moves, shape=shape), shape)) == pytest.approx(moves, abs=0.5 / 255)


def test_what_is_too_light_too_far_or_too_much_does_not_fly() -> None:
    shape = (1, 300, 300)
    listed = [(0, 0, 0, 0, 200, 0.9), (0, 5, 5, 5, 6, 0.001), (0, 9, 9, 9, 8, 0.5)]
    moves = all_moves(proof_of(listed, shape=shape), NONE, shape=shape)
    assert [move[:5] for move in unpacked(packed(moves, shape=shape), shape)] == [[0, 9, 9, 9, 8]]
    many = [(0, y, x, y, x + 1, 0.1 + 0.0001 * y) for y in range(100) for x in range(20)]
    flying = unpacked(packed(all_moves(proof_of(many, shape=shape), NONE, shape=shape), shape=shape), shape)
    assert len(flying) == MOST_FLYING and min(move[1] for move in flying) >= 100 - MOST_FLYING / 20  # the heaviest


def test_an_image_is_made_smaller_by_means() -> None:
    image = np.random.default_rng(0).random((3, 224, 200))
    assert small(image).shape == (3, 112, 100) and np.allclose(
        small(image)[:, 0, 0], image[:, :2, :2].mean(axis=(1, 2))
    )
    assert small(image, most=300).shape == image.shape and small(np.ones((1, 225, 3))).shape == (1, 75, 1)


def with_proofs(folder: Path) -> Path:
    """A finished run whose examples carry proofs: besides the move that all files have, one at another place."""
    path = RunFolder(finished_run(folder)).examples
    arrays = dict(np.load(path))
    count = len(arrays["index"])
    proof = proof_of([(0, 3, 4, 4, 5, 0.5), (0, 10, 10, 10, 11, 0.25)], shape=SHAPE)
    everything: dict[str, Any] = {**arrays, **proof_arrays([proof] * count, Claim(1.0))}
    np.savez(path, **everything)
    return folder


def test_a_page_flies_all_moves_of_a_proof_and_those_it_has_without_one(tmp_path: Path) -> None:
    for make, count in ((finished_run, 1), (with_proofs, 2)):
        text = page([load_run(make(tmp_path / make.__name__))])
        flying = re.findall(r'data-moves="([^"]*)"', text)
        assert len(flying) == 3 and all(len(unpacked(moves, SHAPE)) == count for moves in flying)
        fields = re.findall(r'aria-label="Which way the mass of image \d+ moved".*?</svg>', text, re.DOTALL)
        assert len(fields) == 3 and all("arrow d" in field for field in fields)


def test_proofs_that_do_not_fit_their_examples_are_refused(tmp_path: Path) -> None:
    path = RunFolder(with_proofs(tmp_path / "run")).examples
    arrays = dict(np.load(path))
    one = proof_arrays([proof_of([(0, 3, 4, 4, 5, 0.5)], shape=SHAPE)], Claim(1.0))
    np.savez(path, **{**arrays, **one})
    with pytest.raises(MassmoverError, match="1 proofs for"):
        load_run(tmp_path / "run")
    np.savez(path, **{**arrays, "proof_version": np.int64(9)})
    with pytest.raises(MassmoverError, match="version 9"):
        load_run(tmp_path / "run")
