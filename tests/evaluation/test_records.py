from __future__ import annotations

import math
from pathlib import Path

import pytest
from making import broken, record

from massmover.evaluation import store as records
from massmover.types import MassmoverError


def test_what_is_appended_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    written = [record(0), broken(1, 0.2, carried_from=0.1, eight_bit=True), record(2, violation="too far")]
    records.append(path, written[:1])
    records.append(path, written[1:])
    assert records.read(path) == written


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-cut])
    assert records.read(path) == [record(0)]


@pytest.mark.parametrize(
    "damage", [b"nonsense\n", b"{}\n", b'{"index": "x"}\n', b"[1]\n", b"\xff\xfe\n", b"null\n", b"\n"]
)
def test_damage_in_the_middle_is_an_error_with_the_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [record(0)])
    path.write_bytes(path.read_bytes() + damage + records.line_of(record(1)).encode())
    with pytest.raises(MassmoverError, match=r"records\.jsonl is damaged: line 2.*--out"):
        records.read(path)


def test_a_number_of_the_wrong_kind_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(records.line_of(record(0)).replace('"label": 3', '"label": "3"'))
    with pytest.raises(MassmoverError, match="line 1"):
        records.read(path)


def test_an_infinite_distance_is_written_as_json_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, [record(0, distance=math.inf)])
    assert records.read(path)[0].distance is None


def test_order_is_by_image_then_radius_and_the_last_written_wins() -> None:
    late = record(1, 0.1, steps=9)
    found = records.in_order([record(1, 0.2), record(0, 0.2), record(1, 0.1), late, record(0, 0.1)])
    assert found == [record(0, 0.1), record(0, 0.2), late, record(1, 0.2)]


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    records.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]
