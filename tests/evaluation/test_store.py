from __future__ import annotations

import json
import math
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from making import broken, record, settings

from massmover.evaluation.store import (
    RunFolder,
    append_records,
    check_new,
    check_resumable,
    check_room,
    in_order,
    line_of,
    merge_records,
    read_records,
)
from massmover.files import replace_file
from massmover.types import MassmoverError


def test_what_is_appended_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    written = [record(0), broken(1, 0.2, carried_from=0.1, eight_bit=True), record(2, violation="too far")]
    append_records(path, written[:1])
    append_records(path, written[1:])
    assert read_records(path) == written


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_records(path) == [record(0)]


@pytest.mark.parametrize(
    "damage", [b"nonsense\n", b"{}\n", b'{"index": "x"}\n', b"[1]\n", b"\xff\xfe\n", b"null\n", b"\n"]
)
def test_damage_in_the_middle_is_an_error_with_the_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [record(0)])
    path.write_bytes(path.read_bytes() + damage + line_of(record(1)).encode())
    with pytest.raises(MassmoverError, match=r"records\.jsonl is damaged: line 2.*--out"):
        read_records(path)


def test_a_number_of_the_wrong_kind_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line_of(record(0)).replace('"label": 3', '"label": "3"'))
    with pytest.raises(MassmoverError, match="line 1"):
        read_records(path)


def test_an_infinite_distance_is_written_as_json_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [record(0, distance=math.inf)])
    assert read_records(path)[0].distance is None


def test_order_is_by_image_then_radius_and_the_last_written_wins() -> None:
    late = record(1, 0.1, steps=9)
    found = in_order([record(1, 0.2), record(0, 0.2), record(1, 0.1), late, record(0, 0.1)])
    assert found == [record(0, 0.1), record(0, 0.2), late, record(1, 0.2)]


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def manifest(**changes: object) -> dict[str, object]:
    return {"settings": settings(**changes).as_json(), "data": {"checksum": "d"}, "weights": {"checksum": "w"}}


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(MassmoverError, match=r"--out .* is not empty: add --resume"):
        check_new(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    RunFolder(tmp_path).manifest.write_text(json.dumps(manifest()))
    assert check_resumable(tmp_path, json.loads(json.dumps(manifest()))).path == tmp_path
    with pytest.raises(MassmoverError, match="--seed: was 0, is 7"):
        check_resumable(tmp_path, manifest(seed=7))
    with pytest.raises(MassmoverError, match="contents of --data"):
        check_resumable(tmp_path, {**manifest(), "data": {"checksum": "other"}})


def test_a_folder_that_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(MassmoverError, match="--resume"):
        check_resumable(tmp_path, manifest())


def test_a_full_disk_is_found_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1_000_000))
    check_room(tmp_path, bytes_needed=1_000_000)
    with pytest.raises(MassmoverError, match=r"1 MB free and the run may need 2 MB.*--save-examples"):
        check_room(tmp_path, bytes_needed=2_000_000)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MassmoverError, match=r"--out .* cannot be written to"):
        check_room(tmp_path / "file" / "run", bytes_needed=10)


def test_records_of_all_processes_are_merged_and_half_a_batch_is_dropped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.parts.mkdir()
    append_records(run.records, [record(2, 0.1), record(2, 0.2), record(3, 0.1), record(3, 0.2)])
    append_records(run.rank_records(0), [record(0, 0.1), record(0, 0.2), record(1, 0.1), record(1, 0.2)])
    append_records(run.rank_records(1), [record(4, 0.1), record(4, 0.2), record(5, 0.1)])
    kept = merge_records(run, batches=[range(2), range(2, 4), range(4, 6)], per_image=2)
    assert [(one.index, one.radius) for one in kept] == [(index, radius) for index in range(4) for radius in (0.1, 0.2)]
    assert read_records(run.records) == kept
    assert list(run.parts.iterdir()) == []
