from __future__ import annotations

import pytest
from making import broken, record, settings

from massmover.evaluation.store import Record
from massmover.evaluation.summary import area, smallest_radii, summarise


def four_images() -> list[Record]:
    """One clean mistake, one broken at 0.1, one at 0.2, one that stands."""
    mistake = {"prediction_before": 8, "prediction_after": 8, "cost": 0.0, "distance": 0.0}
    return [
        broken(0, 0.1, **mistake),
        broken(0, 0.2, **mistake),
        broken(1, 0.1),
        broken(1, 0.2, carried_from=0.1, attack_success=False),
        record(2, 0.1, violation="distance 0.3 over radius 0.1", attack_success=True),
        broken(2, 0.2),
        record(3, 0.1),
        record(3, 0.2),
    ]


def test_known_answer() -> None:
    summary = summarise(four_images(), settings(), numbers_per_image=100)
    assert summary["clean_accuracy"] == 0.75
    assert [point["accuracy"] for point in summary["accuracy"]] == [0.5, 0.25]
    assert [point["successes"] for point in summary["accuracy"]] == [1, 2]
    assert [point["clean_mistakes"] for point in summary["accuracy"]] == [1, 1]
    assert [point["violations"] for point in summary["accuracy"]] == [1, 0]
    assert [point["carried"] for point in summary["accuracy"]] == [0, 1]
    assert [point["radius_pixels"] for point in summary["accuracy"]] == [10, 20]
    assert summary["violations"] == 1
    assert summary["seconds_per_image"] == 1.0
    assert summary["area_under_curve"] == pytest.approx(0.1 * (0.75 + 0.5) / 2 + 0.1 * (0.5 + 0.25) / 2)


def test_the_area_is_the_mean_breaking_radius_of_a_step() -> None:
    assert area([(0, 1), (0.5, 1), (0.5, 0), (1, 0)]) == 0.5


def test_smallest_radii_of_a_grid() -> None:
    assert smallest_radii(four_images()) == {0: 0.0, 1: 0.1, 2: 0.2, 3: None}


def test_a_search_of_smallest_radii_gives_the_curve_at_any_radius() -> None:
    found = [broken(0, 0.05), broken(1, 0.15), record(2, 0.2), broken(3, 0.0, prediction_before=8)]
    summary = summarise(found, settings(smallest=True), numbers_per_image=100)
    assert [point["accuracy"] for point in summary["accuracy"]] == [0.5, 0.25]
    assert [point["successes"] for point in summary["accuracy"]] == [1, 2]
    assert summary["median_smallest_radius"] == 0.05


def test_a_targeted_run_never_calls_a_clean_mistake_accurate() -> None:
    found = [record(0, 0.1, prediction_before=8, target=5), record(1, 0.1, target=5)]
    summary = summarise(found, settings(targeted=True, radii=(0.1,)), numbers_per_image=100)
    assert summary["accuracy"][0] == {**summary["accuracy"][0], "accuracy": 0.5, "successes": 0}


def test_a_targeted_run_counts_targets_reached_apart_from_what_is_still_right() -> None:
    """One reaches its target, one strays to a third class, one strays unproven, one stands, one was there before."""
    aimed = {"target": 5}
    found = [
        broken(0, 0.1, prediction_after=5, proved=True, **aimed),
        record(1, 0.1, prediction_after=8, proved=True, **aimed),
        record(2, 0.1, prediction_after=8, proved=False, violation="proof: overspent", **aimed),
        record(3, 0.1, **aimed),
        broken(4, 0.1, prediction_before=5, prediction_after=5, proved=True, **aimed),
    ]
    summary = summarise(found, settings(targeted=True, radii=(0.1,), count=5), numbers_per_image=100)
    point = summary["accuracy"][0]
    assert summary["targeted"] and point["accuracy"] == pytest.approx(2 / 5)
    assert (point["successes"], point["clean_mistakes"], point["violations"]) == (1, 1, 1)


def test_what_strayed_at_a_radius_is_wrong_at_every_larger_one() -> None:
    strayed = record(0, 0.1, prediction_after=8, proved=True, target=5)
    summary = summarise([strayed, record(0, 0.2, target=5)], settings(targeted=True), numbers_per_image=100)
    assert [point["accuracy"] for point in summary["accuracy"]] == [0, 0]


def test_eight_bit_survivors_are_counted() -> None:
    found = [broken(0, 0.1, eight_bit=True), broken(1, 0.1, eight_bit=False), record(2, 0.1)]
    summary = summarise(found, settings(eight_bit=True, radii=(0.1,)), numbers_per_image=100)
    assert summary["eight_bit"] == {"successes": 2, "survive": 1}


def test_large_images_are_measured_as_a_random_sample_whose_size_is_told() -> None:
    chosen = settings(count=4)
    assert "sample" not in summarise(four_images(), chosen, numbers_per_image=100)
    drawn = [n for n in range(4) if chosen.measures(n, numbers_per_image=150_528)]
    sample = summarise(four_images(), chosen, numbers_per_image=150_528)["sample"]
    assert sample == {"images": len(drawn), "share": 0.1, "seed": chosen.seed}


def test_the_sample_depends_on_seed_and_number_alone() -> None:
    large = {"numbers_per_image": 150_528}
    first, other, longer = settings(), settings(seed=1), settings(count=100_000)
    drawn = [n for n in range(3000) if first.measures(n, **large)]
    assert 240 < len(drawn) < 360
    assert drawn == [n for n in range(3000) if longer.measures(n, **large)]
    assert drawn != [n for n in range(3000) if other.measures(n, **large)]
    assert len({number % 10 for number in drawn}) == 10  # no pattern
    assert all(first.measures(n, numbers_per_image=784) for n in range(20))
