"""A targeted run: any wrong answer counts against accuracy, the target is another matter; the page shows both."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from making import broken, record
from test_page import finished_run

from massmover.evaluation.store import Record
from massmover.evaluation.summary import smallest_radii, summarise
from massmover.report import charts, downloads
from massmover.report.figures import write_figures
from massmover.report.gallery import cards
from massmover.report.page import confusions, page
from massmover.report.runs import Run, load_run

NEAR, FAR = 10 / 784, 50 / 784


def records() -> list[Record]:
    """Led to its target at once; astray, and led there when farther; astray only; standing; two mistakes."""
    stray = {"proved": True, "distance": 0.01}
    lines = [
        *(broken(0, radius, label=0, prediction_before=0, prediction_after=5, target=5) for radius in (NEAR, FAR)),
        record(1, NEAR, label=1, prediction_before=1, prediction_after=4, target=6, **stray),
        broken(1, FAR, label=1, prediction_before=1, prediction_after=6, target=6),
        record(
            2, NEAR, label=2, prediction_before=2, prediction_after=9, target=7, margin_before=4.0, margin=2.0, **stray
        ),
        record(2, FAR, label=2, prediction_before=2, prediction_after=2, target=7, margin_before=4.0, margin=1.0),
        *(record(3, radius, label=3, target=8, margin_before=4.0, margin=3.0) for radius in (NEAR, FAR)),
        *(record(4, radius, label=4, prediction_before=9, prediction_after=9, target=5) for radius in (NEAR, FAR)),
        *(
            broken(5, radius, label=5, prediction_before=9, prediction_after=9, target=9, cost=0.0)
            for radius in (NEAR, FAR)
        ),
    ]
    return [Record(**{**vars(line), "radius_pixels": line.radius * 784}) for line in lines]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = load_run(finished_run(tmp_path / "run", targeted=True, count=6))
    lines = records()
    summary = summarise(lines, made.settings, numbers_per_image=784) | {"checks": []}
    return replace(made, records=lines, summary=summary, examples=None)


def test_the_bars_agree_with_accuracy_and_with_targets(run: Run) -> None:
    wrong, target = ([bar.images for bar in charts.breaking_bars(run, goal)] for goal in run.goals)
    assert wrong == [2, 3, 0, 1]
    assert target == [1, 1, 1, 3]
    near, far = (round(point["accuracy"] * 6) for point in run.summary["accuracy"])
    assert (near, far) == (6 - sum(wrong[:2]), 6 - sum(wrong[:3])) == (1, 1)
    assert [point["successes"] for point in run.summary["accuracy"]] == [1, 2]  # the last mistake needed no move


def test_smallest_radii_by_goal() -> None:
    assert smallest_radii(records()) == {0: NEAR, 1: NEAR, 2: NEAR, 3: None, 4: 0.0, 5: 0.0}
    assert smallest_radii(records(), "target") == {0: NEAR, 1: FAR, 2: None, 3: None, 4: None, 5: 0.0}


def test_survivors_of_both_kinds(run: Run) -> None:
    assert [found.index for found in run.survivors()] == [3]
    assert [found.index for found in run.survivors("target")] == [2, 3]  # the closest first; 4 has no margin


def test_confusion_of_both_kinds(run: Run) -> None:
    clean = {(3, 3): 1, (4, 9): 1, (5, 9): 1}
    assert run.confusion(NEAR) == {(0, 5): 1, (1, 4): 1, (2, 9): 1, **clean}
    assert run.confusion(FAR) == {
        (0, 5): 1,
        (1, 6): 1,
        (2, 9): 1,
        **clean,
    }
    assert run.confusion(FAR, "target") == {(0, 5): 1, (1, 6): 1, (2, 2): 1, **clean}
    for radius, point in zip((NEAR, FAR), run.summary["accuracy"], strict=True):
        right = sum(count for (label, answer), count in run.confusion(radius).items() if label == answer)
        assert right == round(point["accuracy"] * 6)
    names = [table.name for table in confusions(run, several=False)]
    assert names[0] == "radius × pixels 10, target reached" and names[-1] == "radius × pixels 50, answered wrongly"


def test_the_page_names_both(run: Run) -> None:
    text = page([run])
    for words in ("answered wrongly", "target reached", "never answered wrongly", "target never reached"):
        assert f"<h3>{words}</h3>" in text
    assert "targets reached" in text


def test_a_page_without_targets_names_neither(tmp_path: Path) -> None:
    text = page([load_run(finished_run(tmp_path / "plain"))])
    assert "target reached" not in text and "<h3>answered wrongly" not in text


def test_the_file_of_images_has_both_radii(run: Run) -> None:
    lines = downloads.image_lines([run])
    assert [line["smallest_radius_pixels"] for line in lines] == pytest.approx([10, 10, 10, None, 0, 0])
    assert [line["target_radius_pixels"] for line in lines] == pytest.approx([10, 50, None, None, None, 0])
    assert [line["answer"] for line in lines] == [5, 4, 9, 3, 9, 9]


def test_figures_of_both_kinds(tmp_path: Path) -> None:
    run = load_run(finished_run(tmp_path / "run", targeted=True))
    names = {path.name for path in write_figures([run], tmp_path / "figures")}
    assert {"smallest-radii.png", "smallest-radii-target.png", "confusion.pdf", "confusion-target.pdf"} <= names
    assert cards([run])
