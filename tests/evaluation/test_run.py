"""A whole evaluation in one process, whoever moves the mass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from finished import finished_run, settings_of
from massmover.evaluation.run import Destination, run
from massmover.evaluation.settings import settings_from_json
from massmover.evaluation.store import RunFolder, read_records
from massmover.evaluation.subject import load_subject
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
