"""Model cards say what the evaluation's own summary says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from finished import finished_run
from massmover.adapters.robustbench import model_cards, write_model_cards
from massmover.types import MassmoverError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the bundled model on ten bundled digits."""
    return finished_run(tmp_path_factory.mktemp("runs") / "standard", count=10, radii=(0.0, 0.1, 0.2))


def test_a_card_for_each_radius(folder: Path) -> None:
    cards = model_cards(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert [card["eps"] for card in cards] == ["0", "0.1", "0.2"]
    assert [card["eps_pixels"] for card in cards] == ["0", "78.4", "156.8"]
    for card, point in zip(cards, summary["accuracy"], strict=True):
        assert card["wasserstein_acc"] == f"{100 * point['accuracy']:.2f}"
        assert card["clean_acc"] == "100.00"
        assert card["violations"] == 0
        assert (card["name"], card["dataset"], card["images"]) == ("mnist-standard", "mnist-sample", 10)
    assert float(cards[2]["wasserstein_acc"]) < 50 < float(cards[0]["wasserstein_acc"])


def test_failed_checks_make_a_card_unreliable(folder: Path, tmp_path: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    for passed in (True, False):
        summary["checks"][0]["passed"] = passed
        others = all(check["passed"] for check in summary["checks"][1:])
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        (tmp_path / "manifest.json").write_text((folder / "manifest.json").read_text())
        assert {card["unreliable"] for card in model_cards(tmp_path)} == {not (passed and others)}


def test_the_file_holds_the_cards(folder: Path, tmp_path: Path) -> None:
    path = write_model_cards(folder, tmp_path / "cards.json")
    assert json.loads(path.read_text()) == model_cards(folder)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MassmoverError, match="holds no summary"):
        model_cards(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(MassmoverError, match="is damaged"):
        model_cards(tmp_path)
