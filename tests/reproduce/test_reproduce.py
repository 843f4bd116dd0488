from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from massmover import paper
from massmover.attacks.pgd import SinkhornAttack
from massmover.cli import app
from massmover.models import load_model
from massmover.reproduce.curves import Contender, Subject, accuracy_at, fixed_curve, ramp_curve, ramp_for, suited
from massmover.reproduce.pitfalls import clamping, dimming
from massmover.reproduce.tables import ablation


@pytest.fixture(scope="module")
def subject(digits: tuple[Tensor, Tensor]) -> Subject:
    images, labels = digits
    return Subject(
        model=load_model("mnist-standard"),
        images=images[:16],
        labels=labels[:16],
        data="mnist",
        model_name="mnist-standard",
        available=100,
    )


def test_the_papers_numbers_have_one_entry_per_radius() -> None:
    for rows in paper.ATTACK.values():
        assert all(len(row) == len(paper.ATTACK_RADII) for row in rows.values())
    for table in paper.STEP_SIZE.values():
        assert set(table) == set(paper.STEP_SIZES)
        assert all(len(row) == len(paper.STEP_RADII) for row in table.values())


def test_accuracy_is_the_share_not_broken_within_the_radius() -> None:
    breaking = torch.tensor([0.0, 0.01, 0.02, torch.inf])
    assert accuracy_at(breaking, 0.005) == 75
    assert accuracy_at(breaking, 0.02) == 25


def test_rows_fall_and_keep_their_order(subject: Subject) -> None:
    rows = ablation(subject)
    assert [row.paper for row in rows] == list(paper.ATTACK["mnist"].values())
    for row in rows:
        assert row.outside == 0
        assert list(row.accuracy) == sorted(row.accuracy, reverse=True)
    weak, signs, full = (sum(row.accuracy) for row in rows)
    assert weak > signs > full
    means = [row.mean_radius for row in rows]
    assert means == sorted(means, key=lambda mean: -(mean or 0))


def test_a_fixed_radius_is_at_least_as_strong_as_the_ramp_here(subject: Subject) -> None:
    attack = SinkhornAttack(steps=30)
    told: list[tuple[str, int, int]] = []
    ramp = ramp_curve(Contender("a", attack), subject, radii_pixels=(20, 100))
    fixed = fixed_curve(
        Contender("b", attack), subject, radii_pixels=(20, 100), progress=lambda *news: told.append(news)
    )
    assert sum(fixed.accuracy) <= sum(ramp.accuracy)
    assert fixed.outside == 0
    assert told == [("b", 1, 2), ("b", 2, 2)]


def test_photographs_get_finer_ramps_and_colder_projections(subject: Subject) -> None:
    large = Subject(subject.model, torch.zeros(1, 3, 32, 32), torch.zeros(1).long(), "cifar10", "any", 1)
    assert ramp_for(subject, 1000).radii()[0] == 0.01
    assert ramp_for(subject, 1000).limit >= 1000 / 784
    assert ramp_for(large, 1000).radii()[0] == 0.001
    assert suited(SinkhornAttack(), large).projection.temperature < SinkhornAttack().projection.temperature


def test_three_channels_share_the_budget() -> None:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))
    images = torch.rand(4, 3, 8, 8, generator=generator)
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
    colours = Subject(model, images, labels, "cifar10", "linear", 4)
    row = ramp_curve(Contender("a", SinkhornAttack()), colours, radii_pixels=(20,))
    assert row.outside == 0


def test_dimming_counts_what_the_model_gets_wrong(subject: Subject) -> None:
    found = dimming(subject)
    with torch.no_grad():
        wrong = load_model("mnist-standard")(subject.images / 30).argmax(dim=1) != subject.labels
    assert found.wrong_after == pytest.approx(100 * wrong.float().mean().item())
    assert found.wrong_at[30] == found.wrong_after >= found.wrong_before


def test_clamping_leaves_the_ball(subject: Subject) -> None:
    found = clamping(subject)
    assert found.broken > 0
    assert 0 < found.outside <= found.broken
    assert found.worst_over > 1
    assert found.mean_mass_lost > 0


@pytest.mark.parametrize("name", ["ablation", "dimming", "clamping", "runtime"])
def test_the_command_prints_and_keeps_what_it_measured(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["reproduce", name, "--data", "mnist-sample", "--count", "3", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert "mnist-standard" in result.output
    record = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert record["count"] == 3
    page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
    assert "printed and measured" in page and "study.json" in page and "https://" not in page
    assert page.count('class="study-figure"') == (name in ("ablation", "runtime"))
    if name in ("ablation", "runtime"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert "printed" in result.output


def test_the_command_falls_back_to_the_bundled_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASSMOVER_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["reproduce", "dimming", "--count", "5"])
    assert result.exit_code == 0, result.output
    assert "mnist-sample" in result.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["everything"], "attack-table"), (["dimming", "--count", "0", "--data", "mnist-sample"], "--count")],
)
def test_the_command_refuses_clearly(arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert word in result.output
