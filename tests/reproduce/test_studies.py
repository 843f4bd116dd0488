"""Natural perturbations, distances and defences beside the paper's."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from massmover import paper
from massmover.attacks.ascent import PlanAscent
from massmover.attacks.base import AttackResult, Problem
from massmover.cli import app, studies
from massmover.models import load_model
from massmover.reproduce import defence as defences
from massmover.reproduce.curves import Contender, Subject, fixed_curve, lineup, short_name
from massmover.reproduce.defence import Printed, defence, printed_for
from massmover.reproduce.natural import ACCURACY, CLEAN, DISTANCE, L2, NAMES, WASSERSTEIN, distance, natural
from massmover.types import Classifier


@pytest.fixture(scope="module")
def subject(digits: tuple[Tensor, Tensor]) -> Subject:
    images, labels = digits
    return Subject(load_model("mnist-standard"), images[:10], labels[:10], "mnist", "mnist-standard", 100)


class Linear(nn.Module):
    """Class 1 if the right half of an image is brighter by a bias."""

    def forward(self, images: Tensor) -> Tensor:
        half = images.shape[-1] // 2
        left, right = (part.sum(dim=(1, 2, 3)) for part in (images[..., :half], images[..., half:]))
        return torch.stack([left, right], dim=1)


def test_the_papers_tables_have_a_number_for_every_perturbation() -> None:
    for table, names in ((ACCURACY, (CLEAN, *NAMES)), (DISTANCE, NAMES)):
        assert set(table) == {"mnist", "cifar10"}
        assert all(tuple(row) == names for rows in table.values() for row in rows.values())
    assert tuple(ACCURACY["mnist"]["standard"].values()) == (98.9, 97.8, 85.8, 48.3, 98.5, 97.7, 91.9, 98.6, 93.1, 62.4)
    assert ACCURACY["mnist"]["robust"]["blur 7"] == 58.4
    assert DISTANCE["cifar10"][WASSERSTEIN]["translate 5 %"] == 1.0


def test_the_printed_distances_come_out(digits: tuple[Tensor, Tensor]) -> None:
    """The choices the paper does not state are those that give its numbers."""
    images, labels = (part[:40] for part in digits)
    found = distance(Subject(nn.Flatten(), images, labels, "mnist", "any", 40))
    assert found.l2_units is None
    for effect in found.effects:
        assert effect.wasserstein is not None and effect.measured == 40
        assert effect.wasserstein == pytest.approx(DISTANCE["mnist"][WASSERSTEIN][effect.name], rel=0.15, abs=0.1)
        assert effect.l2 == pytest.approx(DISTANCE["mnist"][L2][effect.name], rel=0.12)


def test_photographs_are_measured_in_the_papers_unit() -> None:
    images = torch.rand(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    colours = Subject(nn.Flatten(), images, torch.zeros(2).long(), "cifar10", "any", 2)
    scaled, plain = distance(colours), distance(replace(colours, data="other"))
    assert scaled.l2_units is not None and plain.l2_units is None
    assert plain.effects[-1].l2 > 0
    for ours, theirs in zip(scaled.effects, plain.effects, strict=True):
        assert ours.l2 == pytest.approx(5 * theirs.l2, rel=0.02)  # units of about a fifth
        assert ours.wasserstein == theirs.wasserstein


def test_accuracies_count_every_image_once(subject: Subject) -> None:
    told: list[tuple[str, int, int]] = []
    (row,) = natural([subject], progress=lambda *news: told.append(news))
    assert tuple(row.accuracy) == (CLEAN, *NAMES)
    assert row.accuracy[CLEAN] == pytest.approx(subject.clean_accuracy())
    assert row.accuracy["blur 7"] < row.accuracy["blur 3"]
    assert told[-1] == ("mnist-standard", 90, 90)


def test_the_lineup_has_everybody_once(subject: Subject) -> None:
    asked = replace(subject, model_name="lenet (mine.safetensors)")
    assert [one.model_name for one in lineup(subject, robust="nobody")] == ["mnist-standard"]
    assert [one.model_name for one in lineup(asked, robust="nobody")] == ["mnist-standard", "lenet (mine.safetensors)"]
    colours = replace(asked, images=torch.zeros(1, 3, 32, 32))
    assert lineup(colours) == (colours,)


def test_the_robust_model_comes_last_once_it_is_bundled(subject: Subject) -> None:
    asked = replace(subject, model_name="lenet (mine.safetensors)")
    # mnist-standard in the place of the robust model, and nobody in its own
    found = lineup(asked, standard="nobody", robust="mnist-standard")
    assert [one.model_name for one in found] == ["lenet (mine.safetensors)", "mnist-standard"]
    own = lineup(subject, standard="nobody", robust="mnist-standard")
    assert [one.model_name for one in own] == ["mnist-standard"]


def test_short_names_are_the_names_of_weights() -> None:
    assert short_name("lenet (mine-v1.2.safetensors)") == "mine-v1.2"
    assert short_name("mnist-standard") == "mnist-standard"


def test_printed_curves_are_the_papers() -> None:
    wong, own = printed_for("mnist")
    assert wong == Printed("Wong-trained", paper.ATTACK_RADII, (100, 90, 85, 68, 39, 8, 1, 1))
    assert own == Printed("paper-trained", (100, 200, 400, 800, 1600), (81, 67, 41, 14, 1))
    assert printed_for("fashion-mnist") == ()


class Scripted:
    """An attack that wins on the images it is told to, at the radii it is told to, by plan ascent or by cheating."""

    def __init__(self, *, cheating: bool = False) -> None:
        self.seen: list[int] = []
        self.cheating = cheating

    def run(self, model: Classifier, problem: Problem, *, seed: int = 0) -> AttackResult:
        self.seen.append(len(problem))
        honest = PlanAscent(steps=20).run(model, problem, seed=seed)
        if not self.cheating:
            return honest
        far = torch.flip(problem.images, dims=(3,))
        return replace(honest, images=far, success=torch.ones_like(honest.success))


def halves() -> Subject:
    """Points one, two and three pixels left of the middle, and one image that is wrong from the start."""
    images = torch.zeros(4, 1, 4, 10)
    for row, column in enumerate([4, 3, 2, 7]):
        images[row, 0, 1, column] = 1.0
    return Subject(Linear(), images, torch.zeros(4).long(), "other", "linear", 4)


def test_images_fall_at_the_distance_of_the_boundary_and_stay_down() -> None:
    attack, told = Scripted(), list[tuple[str, int, int]]()
    # Half the mass, over the middle: 0.5, 1 and (out of reach of a 5x5 window) never.
    curve = fixed_curve(
        Contender("linear", attack),
        halves(),
        radii_pixels=(48, 4, 24),
        carry=True,
        progress=lambda *news: told.append(news),
    )
    assert curve.radii_pixels == (4, 24, 48)  # radius 0.1, 0.6 and 1.2
    assert curve.accuracy == (75, 50, 25)
    assert attack.seen == [4, 3, 2]  # the fallen are not attacked again
    assert (curve.outside, curve.unbroken) == (0, 1)
    assert told[-1] == ("linear", 3, 3)


def test_what_the_judge_does_not_accept_does_not_count() -> None:
    curve = fixed_curve(Contender("linear", Scripted(cheating=True)), halves(), radii_pixels=(4,), carry=True)
    assert curve.accuracy == (100,)
    assert curve.outside == 4


def test_auto_is_at_least_as_strong_as_the_papers_attack(subject: Subject) -> None:
    few = replace(subject, images=subject.images[:4], labels=subject.labels[:4])
    (found,) = defence([few], radii_pixels=(50, 200))
    assert found.clean_accuracy == 100
    assert all(ours <= theirs for ours, theirs in zip(found.auto.accuracy, found.hu.accuracy, strict=True))
    assert found.auto.outside == found.hu.outside == 0
    assert found.hu.protocol == "ramp"


@pytest.mark.parametrize("name", ["natural", "distance", "defence"])
def test_the_command_prints_and_keeps_everything(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "defence", lambda subjects, progress: defence(subjects, radii_pixels=(100, 1600)))
    words = ["reproduce", name, "--data", "mnist-sample", "--count", "3", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "printed" in result.output and "mnist-standard" in result.output
    assert (tmp_path / f"{name}.png").stat().st_size > 1000
    record: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert record["name"] == name and record["count"] == 3
    if name == "natural":
        assert record["rows"][0]["accuracy"][CLEAN] == 100 and record["printed"]["robust"]["rotate 5°"] == 91.0
    if name == "distance":
        assert [effect["measured"] for effect in record["distance"]["effects"]] == [3] * 9
    if name == "defence":
        assert record["models"][0]["auto"]["accuracy"][-1] == 0
        assert record["printed"][1]["accuracy"] == [81, 67, 41, 14, 1]


def test_defence_puts_own_weights_beside_the_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from massmover.models import save_weights

    weights = save_weights(load_model("mnist-standard"), tmp_path / "mine.safetensors")
    monkeypatch.setattr(studies, "defence", lambda subjects, progress: defence(subjects, radii_pixels=(1600,)))
    words = ["reproduce", "defence", "--data", "mnist-sample", "--count", "1", "--weights", os.fspath(weights)]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "defence.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in record["models"]][:2] == ["mnist-standard", "lenet (mine.safetensors)"]
    assert "mine, auto" in result.output


def test_default_radii_hold_every_radius_of_the_goal() -> None:
    assert set(paper.STEP_RADII) <= set(defences.RADII)
