"""Standings: the numbers of the runs, intervals, and tests of chance that agree with SciPy's."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest
from test_page import certified_run, finished_run

from massmover.evaluation.store import Record, RunFolder, read_records, write_records
from massmover.evaluation.summary import summarise
from massmover.report.runs import load_run, load_runs
from massmover.report.standings import chosen_radii, duels, holm, mcnemar, standings_page, write_standings
from massmover.types import MassmoverError


def stronger_run(folder: Path, *, images: int = 4) -> Path:
    """The run of `finished_run` by a model that nothing breaks, but for its clean mistake; images are copied."""
    path = finished_run(folder, count=images)
    run = RunFolder(path)
    copies = many([standing(line) for line in read_records(run.records)], images)
    return rewritten(path, copies)


def standing(line: Record) -> Record:
    return line if line.clean_mistake else replace(line, success=False, prediction_after=line.label, carried_from=None)


def many(lines: list[Record], images: int) -> list[Record]:
    return [replace(line, index=line.index + shift) for shift in range(0, images, 4) for line in lines]


def rewritten(path: Path, lines: list[Record]) -> Path:
    run = RunFolder(path)
    write_records(run.records, lines)
    summary = summarise(lines, load_run(path).settings, numbers_per_image=784)
    run.write_json(run.summary, {**summary, "checks": []})
    return path


@pytest.mark.parametrize("seed", range(20))
def test_mcnemar_is_the_binomial_test(seed: int) -> None:
    draw = random.Random(seed)
    one, other = draw.randrange(40), draw.randrange(40)
    wanted = binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar(one, other) == pytest.approx(wanted, rel=1e-12)
    assert mcnemar(other, one) == mcnemar(one, other)


def test_holm_on_a_textbook_case() -> None:
    """Four p-values: the smallest times four, the next times three, never less than one before it, at most 1."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


def test_a_duel_counts_the_images_on_which_only_one_stands(tmp_path: Path) -> None:
    weak = rewritten(path := finished_run(tmp_path / "weak", count=40), many(read_records(RunFolder(path).records), 40))
    runs = load_runs([weak, stronger_run(tmp_path / "strong", images=40)])
    found = duels(runs, chosen_radii(runs, None))
    # Of every four images one breaks at 10, another at 50; the mistake is shared, the last stands for both.
    assert [(duel.only_first, duel.only_second) for duel in found] == [(0, 10), (0, 20)]
    assert [duel.decided for duel in found] == [True, True] and found[0].better == "strong"
    assert found[0].adjusted == pytest.approx(mcnemar(0, 10)) and found[1].adjusted == pytest.approx(2 * mcnemar(0, 20))
    page = standings_page(runs, links=["weak/report.html", None], radii=[10.0, 50.0])
    assert page.index("strong</th>") < page.index("weak</a>")  # the better one first
    assert 'href="weak/report.html"' in page and "75.0" in page and "do not all mean the same" not in page


def test_four_images_prove_nothing_and_say_so(tmp_path: Path) -> None:
    runs = load_runs([finished_run(tmp_path / "one"), stronger_run(tmp_path / "two")])
    assert not any(duel.decided for duel in duels(runs, [10.0, 50.0]))
    assert ">chance<" in standings_page(runs, links=[None, None], radii=[10.0, 50.0])


def test_other_images_are_told_and_not_compared(tmp_path: Path) -> None:
    other = finished_run(tmp_path / "two", manifest={"data": {"checksum": "e" * 64, "shape": [1, 28, 28]}})
    runs = load_runs([finished_run(tmp_path / "one"), other])
    assert duels(runs, [10.0, 50.0]) == []
    page = standings_page(runs, links=[None, None], radii=[10.0, 50.0])
    assert "do not all mean the same" in page and "the images differ" in page


def test_what_is_proved_stands_beside_what_is_left(tmp_path: Path) -> None:
    place = write_standings([certified_run(tmp_path / "run")], tmp_path / "table.html")
    text = place.read_text(encoding="utf-8")
    assert "proved 25.0" in text and "a proof a lower one" in text
    assert "To make a row again" in text


def test_radii_that_no_run_has_are_refused(tmp_path: Path) -> None:
    runs = load_runs([finished_run(tmp_path / "one")])
    with pytest.raises(MassmoverError, match="no run has it; there are 10, 50"):
        chosen_radii(runs, [20.0])
    assert chosen_radii(runs, [50.0]) == [50.0]
