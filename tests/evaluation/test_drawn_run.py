"""Evaluations of models that answer by chance: the same records whenever they are resumed, and checks that say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from making import settings as settings_for
from test_sanity import standard, subject_of
from torch import Tensor, nn

from finished import settings_of
from massmover.evaluation import run as running
from massmover.evaluation import sanity
from massmover.evaluation.batch import evaluate_batch
from massmover.evaluation.run import Destination, run
from massmover.evaluation.settings import Settings
from massmover.evaluation.store import RunFolder
from massmover.evaluation.subject import load_subject
from massmover.types import Classifier, MassmoverError

BUILDER = """
from torch import nn
from massmover.models import load_model

def build():
    network = load_model("mnist-standard")
    model = nn.Sequential(nn.Dropout(0.3), network).eval()
    model[0].train()
    return model
"""


@pytest.fixture
def dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A run on a model whose dropout was left on."""
    (tmp_path / "leaky_models.py").write_text(BUILDER)
    monkeypatch.chdir(tmp_path)
    chosen = settings_of(count=4, radii=(0.05, 0.2))
    return replace(chosen, model="leaky_models:build", steps=6, draws=4, batch_size=2)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The records without the time they took."""
    found = [json.loads(line) for line in RunFolder(folder).records.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def test_a_run_that_was_interrupted_has_the_same_records(
    dropout: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(load_subject(dropout), dropout, Destination(whole))
    seen: list[range] = []

    def once(subject: Any, settings: Any, batch: range, **rest: Any) -> Any:
        seen.append(batch)
        if len(seen) == 2:
            raise MassmoverError("stopped here")
        return evaluate_batch(subject, settings, batch, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(running, "evaluate_batch", once)
        with pytest.raises(MassmoverError, match="stopped here"):
            run(load_subject(dropout), dropout, Destination(parts))
    assert len(lines(parts)) == 4
    torch.rand(7)  # what others draw in between changes nothing
    run(load_subject(dropout), dropout, Destination(parts, resume=True))
    assert lines(whole) == lines(parts)
    assert any(line["success"] for line in lines(whole))


def test_dropout_that_was_left_on_is_on_in_the_judge(dropout: Settings) -> None:
    images = torch.rand(2, 1, 28, 28)
    drawn, other = load_subject(dropout), load_subject(replace(dropout, seed=1))
    assert torch.equal(drawn.logits(images), drawn.logits(images))
    assert not torch.equal(drawn.logits(images), other.logits(images))
    steady = load_subject(replace(dropout, draws=None))
    assert torch.equal(steady.logits(images), load_subject(replace(dropout, draws=None, seed=1)).logits(images))


def test_the_claim_of_the_attack_is_the_verdict_of_the_run(dropout: Settings, tmp_path: Path) -> None:
    run(load_subject(dropout), dropout, Destination(tmp_path / "run"))
    for line in lines(tmp_path / "run"):
        if line["carried_from"] is None:
            assert line["attack_success"] == (line["prediction_after"] != line["label"])


def test_the_smallest_radius_is_judged_too(dropout: Settings, tmp_path: Path) -> None:
    chosen = replace(dropout, smallest=True, attack="ascent", radii=(1.0,), count=2)
    summary = run(load_subject(chosen), chosen, Destination(tmp_path / "run"))
    assert all(line["success"] and 0 < line["radius"] < 1 for line in lines(tmp_path / "run"))
    assert summary["violations"] == 0


def test_a_certificate_of_a_random_model_is_refused() -> None:
    with pytest.raises(MassmoverError, match="--certify proves nothing about a model that answers by chance"):
        settings_for(certify=True, draws=3)


def noisy(sigma: float) -> Callable[[], Classifier]:
    def build() -> Classifier:
        model = standard()
        return lambda images: model(images + sigma * torch.randn_like(images))

    return build


def batch_statistics() -> Classifier:
    hidden = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(784, 10)).train()
    with torch.no_grad():
        hidden[2].weight.mul_(20)  # type: ignore[operator]
    return lambda images: hidden(images) + 0.01 * torch.randn(len(images), 10)


def probed(model: Classifier, *, draws: int | None) -> dict[str, sanity.Check]:
    subject = replace(subject_of(model), draws=draws)
    return {check.name: check for check in sanity.probe(subject, settings_for(draws=draws))}


def test_a_model_that_answers_by_chance_is_told_of_the_option() -> None:
    check = probed(noisy(0.1)(), draws=None)["steady answers"]
    assert not check.passed and check.seen.endswith("average it with --draws 20")


def test_the_mean_over_draws_passes_every_check() -> None:
    assert [check.name for check in probed(noisy(0.1)(), draws=5).values() if not check.passed] == []


def test_too_few_draws_are_named() -> None:
    check = probed(noisy(1.5)(), draws=1)["steady answers"]
    assert not check.passed and check.seen.endswith("are answered differently by other draws: --draws 1 is too few")


def test_batch_statistics_are_named_also_where_the_model_is_random() -> None:
    assert not probed(batch_statistics(), draws=5)["evaluation mode"].passed


def test_probabilities_are_named_also_where_the_model_is_random() -> None:
    model = noisy(0.1)()

    def softmaxed(images: Tensor) -> Tensor:
        return model(images).softmax(dim=1)

    assert not probed(softmaxed, draws=3)["logits"].passed
