from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from making import record, settings

from massmover.evaluation import store as records
from massmover.evaluation.store import RunFolder, check_new, check_resumable, check_room, merge_records
from massmover.types import MassmoverError


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
    records.append(run.records, [record(2, 0.1), record(2, 0.2), record(3, 0.1), record(3, 0.2)])
    records.append(run.rank_records(0), [record(0, 0.1), record(0, 0.2), record(1, 0.1), record(1, 0.2)])
    records.append(run.rank_records(1), [record(4, 0.1), record(4, 0.2), record(5, 0.1)])
    kept = merge_records(run, batches=[range(2), range(2, 4), range(4, 6)], per_image=2)
    assert [(one.index, one.radius) for one in kept] == [(index, radius) for index in range(4) for radius in (0.1, 0.2)]
    assert records.read(run.records) == kept
    assert list(run.parts.iterdir()) == []
