from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commandline import workshop
from typer.testing import CliRunner

from massmover.cli import app


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(workshop(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    yield tmp_path


def natural(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["natural", "--model", "tiny:build", "--data", "images.npz", *words])
    return result.exit_code, " ".join(result.output.split())


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "natural.json").read_text(encoding="utf-8"))
    return found


def test_any_model_and_images_get_a_table_numbers_and_a_plot(shop: Path) -> None:
    code, output = natural("--out", "results", "--distances", "5")
    assert code == 0, output
    assert "12 images" in output and "translate 20 %" in output and "over 5 images" in output
    record = record_of(shop / "results")
    assert record["clean_accuracy"] == pytest.approx(100 * 11 / 12)  # the workshop has one mistake
    assert len(record["effects"]) == 9
    assert {effect["measured"] for effect in record["effects"]} == {5}
    assert (shop / "results" / "natural.png").stat().st_size > 1000
    page = (shop / "results" / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">translate 20 %</th>' in page and page.count('class="study-figure"') == 1


def test_nothing_done_changes_nothing(shop: Path) -> None:
    code, output = natural("--out", "results", "--translate", "0", "--rotate", "0", "--blur", "1")
    assert code == 0, output
    record = record_of(shop / "results")
    for effect in record["effects"]:
        assert (effect["l2"], effect["wasserstein"], effect["mass_change"]) == (0, 0, 0)
        assert effect["accuracy"] == pytest.approx(record["clean_accuracy"])


def test_amounts_and_images_can_be_chosen(shop: Path) -> None:
    more = ["--translate", "none", "--rotate", "-90,90,90", "--blur", "3", "--sigma", "0.5", "--start", "2"]
    code, output = natural("--out", "results", "--count", "4", "--interpolation", "bilinear", *more)
    assert code == 0, output
    record = record_of(shop / "results")
    assert [effect["name"] for effect in record["effects"]] == ["rotate -90°", "rotate 90°", "blur 3"]
    assert (record["count"], record["sigma"], record["interpolation"]) == (4, 0.5, "bilinear")


def test_directions_and_interpolations_reach_the_perturbations(shop: Path) -> None:
    more = ["--translate", "10", "--rotate", "20", "--blur", "none", "--distances", "0"]  # 10 % of 6 is 0.6 pixels
    for folder, way in (("a", "nearest"), ("b", "bilinear")):
        assert natural("--out", folder, "--direction", "fixed", "--interpolation", way, *more)[0] == 0
    assert natural("--out", "c", *more)[0] == 0
    sharp, smooth, random = ([effect["l2"] for effect in record_of(shop / name)["effects"]] for name in "abc")
    assert all(ours > theirs for ours, theirs in zip(sharp, smooth, strict=True))
    assert random[0] != sharp[0] and random[1] == sharp[1]


def test_elastic_deformation_is_asked_for(shop: Path) -> None:
    assert natural("--out", "a", "--translate", "none", "--rotate", "none", "--blur", "3", "--elastic", "0,2")[0] == 0
    blur, none, bent = record_of(shop / "a")["effects"]
    assert [effect["name"] for effect in (blur, none, bent)] == ["blur 3", "elastic 0", "elastic 2"]
    assert none["l2"] < 1e-3 < bent["l2"]


def test_the_same_seed_gives_the_same_numbers(shop: Path) -> None:
    more = ["--translate", "40", "--rotate", "none", "--blur", "none"]
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert natural("--out", folder, "--seed", seed, *more)[0] == 0
    first, again, other = (record_of(shop / folder)["effects"] for folder in ("a", "b", "c"))
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--translate", "5,x"], ["--translate", "numbers"]),
        (["--translate", "120"], ["--translate", "from 0 to 100"]),
        (["--rotate", "nan"], ["--rotate", "NaN"]),
        (["--blur", "4"], ["--blur", "odd"]),
        (["--blur", "2.5"], ["--blur", "odd"]),
        (["--elastic", "-1"], ["--elastic", "from 0"]),
        (["--sigma", "0"], ["--sigma", "positive"]),
        (["--sigma", "inf"], ["--sigma", "positive"]),
        (["--direction", "up"], ["--direction", "random or fixed"]),
        (["--interpolation", "cubic"], ["--interpolation", "nearest or bilinear"]),
        (["--distances", "-1"], ["--distances", "0 or more"]),
        (["--seed", "-1"], ["--seed", "0 or more"]),
        (["--count", "0"], ["--count", "1 or more"]),
        (["--translate", "none", "--rotate", "none", "--blur", "none"], ["--rotate", "all none"]),
        (["--data", "nowhere.npz"], ["--data", "does not exist"]),
        (["--model", "tiny:two_classes"], ["--data", "below 2"]),
        (["--out", "tiny.py"], ["--out", "choose another"]),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(shop: Path, words: list[str], said: list[str]) -> None:
    code, output = natural("--out", "results", *words)
    assert code == 2, output
    assert all(word in output for word in said), output
    assert not (shop / "results" / "natural.json").exists()


def test_a_missing_kornia_is_named_before_any_work(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name="kornia")

    monkeypatch.setattr(importlib, "import_module", absent)
    code, output = natural("--out", "results")
    assert code == 2
    assert "massmover[natural]" in output
    assert not (shop / "results").exists()
