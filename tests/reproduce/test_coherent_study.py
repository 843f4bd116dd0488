"""Networks trained against nothing, scattered and coherent transport: the study in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from massmover import MassmoverError, WassersteinBall, exact_distance
from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import Problem
from massmover.cli import app
from massmover.data import load
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model, load_weights
from massmover.models.architectures import lenet
from massmover.reproduce import coherent as studied
from massmover.reproduce.coherent import (
    COHERENT,
    NAMES,
    NOTHING,
    SCATTERED,
    Outcome,
    chosen,
    lesson_of,
    name_of,
    pupils,
    under_attack,
)
from massmover.reproduce.curves import Subject
from massmover.reproduce.figures import FAMILIES, amounts_of

SMALL = {"scattered 0.20": WassersteinBall(0.2), "coherent 1": WassersteinBall(1.0, window=5, scatter=0.05, width=9)}


@pytest.fixture
def subject(digits: tuple[Tensor, Tensor]) -> Subject:
    images, labels = digits
    return Subject(load_model("mnist-standard"), images[:6], labels[:6], "mnist", "mnist-standard", 100)


def test_every_network_learns_as_long_without_moved_digits() -> None:
    recipes = {pupil.name: pupil.recipe for pupil in pupils(epochs=3)}
    assert list(recipes) == [NOTHING, SCATTERED, *map(name_of, COHERENT)]
    assert {(recipe.epochs, recipe.shift, recipe.mirror, recipe.held_out) for recipe in recipes.values()} == {
        (3, 0, False, 0.0)
    }
    assert recipes[NOTHING].adversary is None
    scattered = recipes[SCATTERED].adversary
    assert scattered is not None and scattered.scatter is None
    for adversary in COHERENT:
        assert recipes[name_of(adversary)].adversary == adversary and adversary.scatter is not None
        assert adversary.window is not None and adversary.window // 2 >= adversary.radius  # it can go as far


def test_held_out_images_are_none_that_networks_learn_from(subject: Subject) -> None:
    training = load("mnist-sample").subset(0, 60)
    lesson = lesson_of(training, subject, train_count=None)
    assert len(lesson.training) == 55 and len(lesson.held_out.images) == 5
    assert torch.equal(lesson.held_out.images, training.images_as_float(55, 60))
    assert torch.equal(lesson.training.images, training.images[:55])
    assert len(lesson_of(training, subject, train_count=7).training) == 7
    for wrong in (0, 56):
        with pytest.raises(MassmoverError, match=f"--train-count is {wrong}: use a number from 1 to 55"):
            lesson_of(training, subject, train_count=wrong)


@pytest.mark.parametrize("ball", SMALL.values(), ids=SMALL)
def test_accuracy_under_attack_is_what_stands_of_all_images(subject: Subject, ball: WassersteinBall) -> None:
    percent, refused = under_attack(subject.model, subject, ball)
    found = PlanAscent().run(subject.model, Problem(ball.around(subject.images), subject.labels))
    with torch.no_grad():
        wrong = subject.model(found.images).argmax(dim=1) != subject.labels
        before = subject.model(subject.images).argmax(dim=1) != subject.labels
    assert not before.any() and int(wrong.sum()) > 0  # an attack had to be made, and won
    assert percent == pytest.approx(100 * (1 - float(wrong.double().mean()))) and refused == 0
    assert exact_distance(subject.images, found.images).max() <= float(ball.radius) * (1 + 1e-6)


def test_a_success_without_proof_does_not_count(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    ball = SMALL["scattered 0.20"]
    before, _ = under_attack(subject.model, subject, ball)
    make = proving_moves

    def heavier(*arguments: Any) -> Any:
        moves = make(*arguments)
        moves.mass[:1] += np.int64(1) << moves.unit  # a pixel sends what it does not have
        return moves

    monkeypatch.setattr(studied, "proving_moves", heavier)
    percent, refused = under_attack(subject.model, subject, ball)
    assert before < 100 and percent == 100 and refused == round((100 - before) / 100 * len(subject.images))


def outcome(model: str, held_out: float) -> Outcome:
    return Outcome(model, {"clean": 99.0, "rotate 20°": held_out}, {"clean": 0.0}, {}, 0, 1.0)


def test_settings_are_chosen_by_held_out_images_among_the_coherent_ones() -> None:
    rows = [outcome(NOTHING, 99), outcome(SCATTERED, 98), outcome("one", 80), outcome("two", 90)]
    assert chosen(rows) == "two" and rows[2].score == 89.5


def test_every_condition_has_a_panel_of_the_figure() -> None:
    row = {name: float(place) for place, name in enumerate((*NAMES, *studied.ATTACKS))}
    points = {family: amounts_of(row, family) for family in FAMILIES}
    assert sum(len(part) - 1 for part in points.values()) == len(row) - 1  # each starts with the clean accuracy
    assert points["rotate"] == [(0, 0), (5, 4), (10, 5), (20, 6)] and points["blur"][0] == (1, 0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studied, "ATTACKS", SMALL)
    monkeypatch.setattr("massmover.cli.coherent_study.ATTACKS", SMALL)
    monkeypatch.setattr(studied, "COHERENT", COHERENT[:1])


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a file of digits, of which every tenth is for the test."""
    sample = load("mnist-sample").subset(0, 100)
    np.savez(tmp_path / "mnist-few.npz", images=sample.images.numpy(), labels=sample.labels.numpy())
    monkeypatch.chdir(tmp_path)


def run(out: Path, *more: str) -> Any:
    words = ["reproduce", "coherent", "--data", "mnist-few.npz", "--count", "3", "--train-count", "60", "--epochs", "1"]
    return CliRunner().invoke(app, [*words, "--out", str(out), *more])


@pytest.mark.usefixtures("small", "few")
def test_the_command_trains_measures_keeps_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path)
    assert first.exit_code == 0, first.output
    assert "trained for 1 epoch on 60 images" in " ".join(first.output.split())
    record = json.loads((tmp_path / "coherent.json").read_text(encoding="utf-8"))
    models = [NOTHING, SCATTERED, name_of(COHERENT[0])]
    assert record["chosen"] == models[2] and record["train_count"] == 60 and record["count"] == 3
    assert set(record["percent_right"]) == {*NAMES, *SMALL}
    assert record["percent_right"]["translate 20 %"]["standard, printed"] == 48.3
    assert all(set(models) <= set(row) for row in record["percent_right"].values())
    assert (tmp_path / "coherent.png").stat().st_size > 1000 and (tmp_path / "coherent.html").exists()
    weights = sorted((tmp_path / "models").glob("*/lenet.safetensors"))
    assert len(weights) == 3
    for path in weights:
        load_weights(lenet(), path)

    # What was trained and measured is not done again.
    monkeypatch.setattr(studied, "measured", lambda *_, **__: pytest.fail("measured again"))
    monkeypatch.setattr("massmover.training.loop.loss_of", lambda *_: pytest.fail("trained again"))
    (tmp_path / "coherent.json").unlink()
    second = run(tmp_path)
    assert second.exit_code == 0, second.output
    again = json.loads((tmp_path / "coherent.json").read_text(encoding="utf-8"))
    assert again["percent_right"] == record["percent_right"]
    # Other settings do not go on with these networks.
    third = run(tmp_path, "--epochs", "2")
    assert third.exit_code == 2 and "other settings (epochs: was 1, is 2)" in " ".join(third.output.split())


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["coherent", "--model", "lenet", "--out", "x"], "trains its own networks"),
        (["coherent"], "give a folder with --out"),
        (["coherent", "--data", "mnist-few.npz", "--count", "0", "--out", "x"], "--count is 0"),
        (["coherent", "--data", "mnist-few.npz", "--train-count", "99", "--out", "x"], "from 1 to 83"),
        (["dimming", "--epochs", "2"], "trains nothing"),
    ],
)
def test_what_cannot_be_done_is_refused(words: list[str], reason: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", *words])
    assert result.exit_code == 2 and reason in " ".join(result.output.split())
