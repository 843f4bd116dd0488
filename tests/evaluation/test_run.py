"""A whole evaluation in one process, whoever moves the mass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from finished import finished_run, settings_of
from massmover.evaluation.run import Destination, run
from massmover.evaluation.settings import Choice, settings_from_json
from massmover.evaluation.store import RunFolder, read_records
from massmover.evaluation.subject import fitting_batch_size, load_subject, training_time
from massmover.types import Backend


@pytest.mark.usefixtures("backend")
def test_every_record_is_proven_and_some_digits_break(tmp_path: Path) -> None:
    records = read_records(RunFolder(finished_run(tmp_path / "run", count=4, radii=(0.05, 0.3))).records)
    assert len(records) == 8
    assert all(one.prediction_before == one.label and one.violation is None and one.trusted for one in records)
    assert all(one.steps > 0 for one in records if one.carried_from is None)
    assert any(one.success for one in records)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_settings_say_who_moved_the_mass(backend: Backend, tmp_path: Path) -> None:
    if backend == "numba":
        pytest.importorskip("numba")
    settings = replace(settings_of(count=1, radii=(0.1,)), backend=backend)
    run(load_subject(settings), settings, Destination(tmp_path / "run"))
    kept = json.loads(RunFolder(tmp_path / "run").manifest.read_text())["settings"]
    assert settings_from_json(kept) == settings
    assert kept["backend"] == backend


def test_auto_keeps_its_first_records_early() -> None:
    settings = settings_of(count=200, radii=(0.1,))
    subject = load_subject(settings)
    assert fitting_batch_size(subject, settings, processes=1) == 100
    assert fitting_batch_size(subject, replace(settings, attack="auto"), processes=1) == 50


def test_records_do_not_depend_on_the_size_of_a_batch(tmp_path: Path) -> None:
    """But for the last digits, since a network adds up in another order."""
    found = []
    for size in (1, 3):
        settings = replace(settings_of(count=3, radii=(0.12,)), attack="auto", steps=2, restarts=0, batch_size=size)
        run(load_subject(settings), settings, Destination(tmp_path / str(size)))
        lines = read_records(RunFolder(tmp_path / str(size)).records)
        found.append(sorted(lines, key=lambda line: (line.index, line.radius)))
    assert all(line.steps > 0 for line in found[0])
    for one, other in zip(*found, strict=True):
        assert (one.index, one.success, one.prediction_after, one.steps) == (
            *(other.index, other.success, other.prediction_after, other.steps),
        )
        assert one.cost == pytest.approx(other.cost, rel=1e-4)


def test_training_time_is_on_a_bundled_models_card_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "seconds" in (training_time(Choice(model="mnist-robust-97")) or "")
    monkeypatch.setattr("massmover.evaluation.subject.files", lambda _package: tmp_path)
    assert training_time(Choice(model="mnist-robust-97")) is None


def test_training_time_of_a_pupil_is_also_that_of_its_teachers(tmp_path: Path) -> None:
    for part, seconds in (("near", 10.0), (".", 32.0)):
        (tmp_path / part).mkdir(exist_ok=True)
        (tmp_path / part / "history.jsonl").write_text(f'{{"seconds": {seconds}}}\n')
    assert training_time(Choice(model="mlp", weights=str(tmp_path / "mlp.safetensors"))) == "42 seconds"
    near = str(tmp_path / "near" / "potentials.safetensors")
    assert training_time(Choice(model="potentials", weights=near)) == "10 seconds"
    (tmp_path / "history.jsonl").unlink()
    assert training_time(Choice(model="mlp", weights=str(tmp_path / "mlp.safetensors"))) is None
