"""Both halves of the truth in one run: what is proved is never broken, and a contradiction is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from making import broken, record, settings

from finished import settings_of
from massmover.ball import WassersteinBall
from massmover.certificates import CertifiedResult
from massmover.evaluation import batch
from massmover.evaluation.certify import certify_images, keep, summary_of
from massmover.evaluation.run import Destination, run
from massmover.evaluation.store import read_records
from massmover.evaluation.subject import load_subject
from massmover.evaluation.summary import summarise
from massmover.report import write_page

RADII = tuple(pixels / 784 for pixels in (20, 100, 400))


def test_certified_accuracy_of_the_bundled_network(tmp_path: Path) -> None:
    chosen = settings_of(count=30, radii=RADII, model="mnist-certified")
    subject, told = load_subject(chosen), list[tuple[int, int]]()
    found = certify_images(subject, chosen, progress=lambda done, total: told.append((done, total)))
    summary = summary_of(found, chosen, numbers_per_image=784)
    shares = [point["accuracy"] for point in summary["certified"]]
    assert summary["clean_accuracy"] >= shares[0] >= shares[1] >= shares[2]
    assert shares[0] > 0.8
    assert shares[1] == sum(image.radius >= 100 / 784 and image.label == image.prediction for image in found) / 30
    assert told == [(30, 30)]
    keep(found, summary, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["images"] == 30
    assert len((tmp_path / "out" / "certified.jsonl").read_text().splitlines()) == 30


def test_a_run_with_certificates_is_a_bracket(tmp_path: Path) -> None:
    chosen = replace(settings_of(count=12, radii=RADII, model="mnist-certified"), certify=True)
    summary = run(load_subject(chosen), chosen, Destination(tmp_path / "run"))
    assert summary["contradictions"] == []
    for point in summary["accuracy"]:
        assert point["certified"] <= point["accuracy"]
    assert summary["accuracy"][0]["certified"] > 0.5
    assert summary["accuracy"][-1]["successes"] > 3  # the attack had something to break
    assert all(line.certified is not None for line in read_records(tmp_path / "run" / "records.jsonl"))
    page = write_page([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "Proved and broken" in page and "No image is both proved and broken" in page
    assert page.count('Z" class="layer unknown"') == 2  # the band, wide and narrow


def test_a_certificate_that_lies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody claims that nothing can be broken within ten pixels: every broken image says otherwise."""

    def boasting(
        model: object, images: torch.Tensor, labels: torch.Tensor, *, ball: WassersteinBall
    ) -> CertifiedResult:
        return CertifiedResult(torch.full((len(images),), 10.0, dtype=torch.float64), "boasting", ball)

    monkeypatch.setattr(batch, "certified_radius", boasting)
    chosen = replace(settings_of(count=4, radii=(0.3,)), certify=True)
    summary = run(load_subject(chosen), chosen, Destination(tmp_path / "run"))
    lines = read_records(tmp_path / "run" / "records.jsonl")
    assert summary["contradictions"] == [line.index for line in lines if line.success] != []
    assert "One of the two halves is wrong" in write_page([tmp_path / "run"], tmp_path / "page.html").read_text()


def test_what_contradicts_what() -> None:
    assert broken(0, 0.1, certified=0.2).contradicted
    assert not broken(0, 0.2, certified=0.1).contradicted
    assert broken(0, 0.5, carried_from=0.1, certified=0.2).contradicted
    assert not broken(0, 0.1, certified=None).contradicted
    assert not broken(0, 0.1, certified=0.2, prediction_before=8).contradicted  # a clean mistake has no certificate
    assert not record(0, 0.1, certified=0.2).contradicted
    chosen = replace(settings(), radii=(0.1,), certify=True)
    found = summarise([broken(0, 0.1, certified=0.2), record(1, 0.1, certified=0.3)], chosen, numbers_per_image=1)
    assert found["contradictions"] == [0]
    assert found["accuracy"][0]["certified"] == 1.0
