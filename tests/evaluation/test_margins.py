"""How far scores stayed from success, in the records of a run; and what it calls its classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from finished import finished_run, settings_of
from massmover.data import ImageSet, load
from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.run import class_names_of
from massmover.evaluation.store import RunFolder, read_json, read_records, write_records
from massmover.evaluation.subject import Subject, load_subject
from massmover.models import load_model


def lead(scores: torch.Tensor, label: int) -> float:
    """The score of a class minus the best other one, the slow way."""
    return float(scores[label]) - max(float(score) for place, score in enumerate(scores) if place != label)


def test_margins_are_those_of_the_saved_images(tmp_path: Path) -> None:
    folder = RunFolder(finished_run(tmp_path / "run", count=6, radii=(20 / 784, 200 / 784)))
    model, images = load_model("mnist-standard"), load("mnist-sample").subset(0, 6)
    found = {(record.index, record.radius): record for record in read_records(folder.records)}
    with torch.no_grad():
        clean = model(images.images_as_float())
        for record in found.values():
            assert record.margin_before == pytest.approx(lead(clean[record.index], record.label), abs=1e-4)
            assert record.success or (record.margin is not None and record.margin > 0)
        with np.load(folder.examples) as saved:
            assert len(saved["index"])
            for row, key in enumerate(zip(saved["index"].tolist(), saved["radius"].tolist(), strict=True)):
                scores = model(torch.from_numpy(saved["adversarial"][row : row + 1]))[0]
                if found[key].carried_from is None:
                    assert found[key].margin == pytest.approx(lead(scores, found[key].label), abs=1e-4)
                    assert lead(scores, found[key].label) <= 0


def test_with_a_target_the_margin_is_what_the_target_lacks() -> None:
    targeted = replace(settings_of(count=2, radii=(1 / 784,)), targeted=True)
    subject = load_subject(targeted)
    found, _ = evaluate_batch(subject, targeted, range(2))
    scores = subject.logits(subject.pixels(range(2)))
    for record in found:
        assert record.target is not None and record.margin_before is not None
        assert record.margin_before == pytest.approx(-lead(scores[record.index], record.target), abs=1e-4)


def test_an_infinite_margin_is_written_as_nothing(tmp_path: Path) -> None:
    from making import record

    write_records(tmp_path / "lines", [record(margin=float("inf"), margin_before=1.5)])
    (line,) = read_records(tmp_path / "lines")
    assert line.margin is None and line.margin_before == 1.5


def subject_with(model: nn.Module, class_names: tuple[str, ...]) -> Subject:
    images = ImageSet("three", torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.arange(3), 3, class_names)
    return Subject(model=model, images=images, start=0, device=torch.device("cpu"))


def test_the_model_and_then_the_data_set_name_the_classes(tmp_path: Path) -> None:
    plain, named = nn.Flatten(), nn.Flatten()
    named.config = type("Config", (), {"id2label": {0: "cat", 2: "dog"}})()
    assert class_names_of(subject_with(plain, ())) == ()
    assert class_names_of(subject_with(plain, ("a", "b", "c"))) == ("a", "b", "c")
    assert class_names_of(subject_with(named, ("a", "b", "c"))) == ("cat", "1", "dog")
    folder = RunFolder(finished_run(tmp_path / "run", count=1, radii=(1 / 784,)))
    assert read_json(folder.manifest)["class_names"] == []
