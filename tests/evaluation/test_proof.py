from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from massmover import WassersteinBall, exact_distance
from massmover.evaluation.proof import Claim, Moves, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.transport.plan import Plan
from massmover.transport.repair import Repaired, repair
from massmover.types import MassmoverError
from scenes import dtypes, grounds, random_images, seeds, windows

UNIT = 40
Case = tuple[np.ndarray, np.ndarray, Moves, Claim]


def moves_of(*rows: tuple[int, int, int, float], unit: int = UNIT) -> Moves:
    """Moves written as source, rows down, columns to the right, mass."""
    table = np.array([row[:3] for row in rows], dtype=np.int64).reshape(-1, 3)
    mass = np.array([round(row[3] * 2**unit) for row in rows], dtype=np.int64)
    return Moves(source=table[:, 0], step=table[:, 1:], mass=mass, unit=unit)


def repaired(images: torch.Tensor, ball: WassersteinBall, *, seed: int) -> Repaired:
    """A feasible plan that moves mass at random, with the image it makes."""
    window = ball.moves(images)
    generator = torch.Generator().manual_seed(seed)
    shape = (*images.shape[:2], len(window.offsets), *images.shape[2:])
    flows = torch.rand(shape, generator=generator, dtype=torch.float64) ** 4
    return repair(Plan(window, flows), ball.around(images))


def claim_of(ball: WassersteinBall) -> Claim:
    return Claim(float(ball.radius), ball.window, ball.ground, ball.power, ball.normalisation)


# Known answers


def test_half_a_pixel_moves_to_its_neighbour() -> None:
    x, z = np.array([[[0.5, 0.0], [0.5, 0.0]]]), np.array([[[0.25, 0.25], [0.5, 0.0]]])
    half = moves_of((0, 0, 1, 0.25))
    assert check(x, z, half, Claim(0.25))[:3] == ("proved", "", math.nextafter(0.25, 1))
    short = check(x, z, half, Claim(math.nextafter(0.25, 0)))
    assert short.status == "refuted"
    assert "cost" in short.reason
    assert check(x, z, half, Claim(0.25, normalisation="channel", power=2.0, ground="chebyshev", window=3)).proved
    assert check(x, z, half, Claim(math.nextafter(0.25, 0), tolerance=1e-9)).proved


def test_a_diagonal_costs_the_root_of_two() -> None:
    x, z = np.zeros((1, 2, 2), np.float32), np.zeros((1, 2, 2), np.float32)
    x[0, 0, 0] = z[0, 1, 1] = 1
    diagonal = moves_of((0, 1, 1, 1.0))
    for ground, power, least in (
        ("euclidean", 1.0, math.sqrt(2)),
        ("euclidean", 3.0, 2 * math.sqrt(2)),
        ("manhattan", 1.0, 2),
        ("manhattan", 0.5, math.sqrt(2)),
        ("chebyshev", 1.0, 1),
    ):
        found = check(x, z, diagonal, Claim(least * (1 + 1e-12), ground=ground, power=power))  # type: ignore[arg-type]
        assert found.proved
        assert found.bound == pytest.approx(least, rel=1e-14)
        less = check(x, z, diagonal, Claim(least * (1 - 1e-12), ground=ground, power=power))  # type: ignore[arg-type]
        assert less.status == "refuted"


def test_normalisations_weigh_channels() -> None:
    x, z = np.zeros((2, 1, 3)), np.zeros((2, 1, 3))
    x[0, 0, 0], x[1, 0, 0] = 0.25, 0.75
    z[0, 0, 2], z[1, 0, 1] = 0.25, 0.75
    both = moves_of((0, 0, 2, 0.25), (3, 0, 1, 0.75))
    assert check(x, z, both, Claim(1.25)).proved
    assert check(x, z, both, Claim(1.24)).status == "refuted"
    assert check(x, z, both, Claim(3, normalisation="channel")).proved
    assert check(x, z, both, Claim(2.99, normalisation="channel")).status == "refuted"


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3])
def test_nothing_moved_is_proved_at_radius_0(value: float) -> None:
    for dtype in (np.float32, np.float64):
        x = np.full((3, 4, 5), value, dtype)
        assert check(x, x, moves_of(), Claim(0))[:3] == ("proved", "", 0.0)


def test_rounding_that_does_not_fit_is_not_proved() -> None:
    x = np.array([[[0.5, 0.0, 0.5]]])
    z = np.array([[[0.25, 0.25 + 2.0**-30, 0.5 - 2.0**-30]]])
    tight = check(x, z, moves_of((0, 0, 1, 0.25)), Claim(0.25))
    assert tight.status == "not proved"
    assert tight.bound == pytest.approx(0.25 + 2.0**-30, rel=1e-12)
    assert check(x, z, moves_of((0, 0, 1, 0.25)), Claim(0.25 + 2.0**-29)).proved


def test_mass_carried_the_longest_way_is_charged_for_other_powers() -> None:
    x = np.array([[[0.5, 0.0, 0.5]]])
    z = np.array([[[0.25, 0.25 + 2.0**-30, 0.5 - 2.0**-30]]])
    found = check(x, z, moves_of((0, 0, 1, 0.25)), Claim(1.0, power=2.0))
    assert found.bound == pytest.approx(0.25 + 4 * 2.0**-30, rel=1e-12)


# An independent reference: the same sums in fractions, pixel by pixel


def reference(x: np.ndarray, z: np.ndarray, moves: Moves, claim: Claim) -> Fraction:
    """The bound that moves prove, by loops over fractions; roots to 40 digits."""
    total = Fraction()
    masses = [sum(map(Fraction, channel.ravel().tolist()), Fraction()) for channel in x]
    for channel, (before, after) in enumerate(zip(x, z, strict=True)):
        height, width = before.shape
        planned = {(r, c): Fraction(float(before[r, c])) for r in range(height) for c in range(width)}
        cost = Fraction()
        for source, (down, across), mass in zip(moves.source, moves.step, moves.mass, strict=True):
            if source // before.size != channel:
                continue
            r, c = divmod(int(source) % before.size, width)
            share = Fraction(int(mass), 2**moves.unit)
            planned[r, c] -= share
            planned[r + int(down), c + int(across)] += share
            with localcontext() as context:
                context.prec = 40
                cost += share * Fraction(Decimal(int(down) ** 2 + int(across) ** 2) ** Decimal(claim.power / 2))
        scale = masses[channel] / sum(map(Fraction, after.ravel().tolist()), Fraction())
        error = {place: Fraction(float(after[place])) * scale - value for place, value in planned.items()}
        if claim.power <= 1:
            down_last = Fraction()
            for r in range(height):
                along = Fraction()
                for c in range(width):
                    along += error[r, c]
                    cost += abs(along) if c < width - 1 else 0
                down_last += along
                cost += abs(down_last) if r < height - 1 else 0
        else:
            cost += (
                sum((abs(value) for value in error.values()), Fraction()) / 2 * ((height - 1) ** 2 + (width - 1) ** 2)
            )
        total += cost / (sum(masses) if claim.normalisation == "image" else masses[channel])
    return total


@given(
    seed=seeds,
    dtype=dtypes,
    power=st.sampled_from([0.5, 1.0, 2.0]),
    normalisation=st.sampled_from(["image", "channel"]),
    unit=st.sampled_from([36, 50, 60]),
)
def test_equals_the_sums_in_fractions(
    seed: int, dtype: torch.dtype, power: float, normalisation: Any, unit: int
) -> None:
    generator = np.random.default_rng(seed)
    x: Any = generator.uniform(0.2, 0.8, (2, 3, 4)).astype(np.float32 if dtype == torch.float32 else np.float64)
    source = generator.integers(0, x.size, 12)
    row, column = source // 4 % 3, source % 4
    step = np.stack([generator.integers(0, 3, 12) - row, generator.integers(0, 4, 12) - column], axis=1)
    moves = Moves(source, step, (generator.uniform(0, 0.015, 12) * 2**unit).astype(np.int64), unit)
    mass, target = moves.mass / 2**unit, source + 4 * step[:, 0] + step[:, 1]
    change = np.bincount(target, mass, x.size) - np.bincount(source, mass, x.size)
    z = (x + change.reshape(x.shape)).astype(x.dtype)
    claim = Claim(9.0, window=None, power=power, normalisation=normalisation)
    found = check(x, z, moves, claim)
    truth = reference(x, z, moves, claim)
    assert found.proved, found.reason
    assert truth * (1 - Fraction(1, 10**30)) <= Fraction(found.bound) <= truth * (1 + Fraction(1, 10**11))


# Properties


@given(
    seed=seeds,
    ground=grounds,
    window=windows,
    dtype=dtypes,
    power=st.sampled_from([0.5, 1.0, 2.0]),
    normalisation=st.sampled_from(["image", "channel"]),
    radius=st.sampled_from([0.0, 1e-4, 0.1, 2.0]),
)
def test_repaired_plans_are_proved_and_exact_transport_agrees(
    seed: int, ground: Any, window: int | None, dtype: torch.dtype, power: float, normalisation: Any, radius: float
) -> None:
    images = random_images(seed, batch=2, channels=2, height=6, width=5, dtype=dtype)
    ball = WassersteinBall(radius, window=window, ground=ground, power=power, normalisation=normalisation)
    found = repaired(images, ball, seed=seed)
    distance = exact_distance(images, found.images, ground=ground, power=power, normalisation=normalisation, threads=1)
    for row in range(2):
        moves = proving_moves(found.plan, images, row)
        verdict = check(images[row].numpy(), found.images[row].numpy(), moves, claim_of(ball))
        assert verdict.proved, verdict.reason
        assert distance[row] <= verdict.bound + 1e-12


@given(seed=seeds)
def test_a_pixel_that_sends_everything_is_proved(seed: int) -> None:
    """Rounding masses to units would make such rows too heavy; the maker cuts them."""
    images = random_images(seed, batch=1, channels=1, height=4, width=4)
    ball = WassersteinBall(5.0, window=3)
    window = ball.moves(images)
    flows = torch.rand(1, 1, len(window.offsets), 4, 4, generator=torch.Generator().manual_seed(seed)).double()
    flows[:, :, 0] = 0
    found = repair(Plan(window, flows), ball.around(images))
    moves = proving_moves(found.plan, images, 0)
    verdict = check(images[0].numpy(), found.images[0].numpy(), moves, claim_of(ball))
    assert verdict.proved, verdict.reason


def test_digits_of_an_attack_are_proved(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    from massmover import attack
    from massmover.models import load_model

    images, labels = digits[0][:8], digits[1][:8]
    for power in (1.0, 2.0):
        ball = WassersteinBall(0.1, power=power)
        found = attack(load_model("mnist-standard"), images, labels, ball=ball, method="ascent")
        assert found.success.any()
        for row in range(8):
            moves = proving_moves(found.plan, images, row)
            verdict = check(images[row].numpy(), found.images[row].numpy(), moves, Claim(0.1, power=power))
            assert verdict.proved, verdict.reason
            assert verdict.bound == pytest.approx(float(found.cost[row]), rel=1e-6)


# Every planted error is refuted


@pytest.fixture
def good() -> Case:
    images = random_images(3, batch=1, channels=3, height=7, width=6, dtype=torch.float32) * 0.5 + 0.25
    ball = WassersteinBall(0.2)
    found = repaired(images, ball, seed=0)
    return images[0].numpy(), found.images[0].numpy(), proving_moves(found.plan, images, 0), claim_of(ball)


def with_mass(case: Case, number: int, change: Callable[[int], Any]) -> Case:
    x, z, moves, claim = case
    mass = moves.mass.copy()
    mass[number] = change(int(mass[number]))
    return x, z, moves._replace(mass=mass), claim


def with_float_mass(case: Case, value: float) -> Case:
    x, z, moves, claim = case
    mass = moves.mass / 2**moves.unit
    mass[3] = value
    return x, z, moves._replace(mass=mass), claim


def with_step(case: Case, step: tuple[int, int], *, source: int | None = None) -> Case:
    x, z, moves, claim = case
    steps, sources = moves.step.copy(), moves.source.copy()
    steps[0] = step
    sources[0] = moves.source[0] if source is None else source
    return x, z, moves._replace(step=steps, source=sources), claim


def with_pixel(case: Case, which: int, change: Callable[[float], float]) -> Case:
    images = [case[0].copy(), case[1].copy()]
    images[which][1, 3, 2] = change(float(images[which][1, 3, 2]))
    return images[0], images[1], case[2], case[3]


def row_too_heavy(case: Case) -> Case:
    """All that leaves one pixel, and a thousand-millionth more, in its first move."""
    x, _, moves, _ = case
    first = moves.source[0]
    others = moves.mass[moves.source == first].sum() - moves.mass[0]
    held = int(np.floor(np.ldexp(float(x.flat[first]), moves.unit)))
    return with_mass(case, 0, lambda _: held - others + round(1e-9 * 2**moves.unit))


def cost_over(case: Case) -> Case:
    x, z, moves, claim = case
    cost = float((moves.mass * np.hypot(*moves.step.T)).sum()) / 2**moves.unit / float(x.astype(float).sum())
    return x, z, moves, Claim(cost / (1 + 1e-9), claim.window)


def moved_to_another_channel(case: Case) -> Case:
    """The same moves, one of them begun in another channel."""
    x, z, moves, claim = case
    heaviest, sources = int(moves.mass.argmax()), moves.source.copy()
    sources[heaviest] = (sources[heaviest] + x[0].size) % x.size
    return x, z, moves._replace(source=sources), claim


PLANTED: dict[str, tuple[Callable[[Case], Case], str]] = {
    "negative flow": (lambda case: with_mass(case, 5, lambda mass: -mass), "move 5 carries -"),
    "flow above 1": (lambda case: with_mass(case, 5, lambda _: 2**61), "move 5 carries"),
    "sum that overflows": (lambda case: (*case[:2], moves_of(*[(0, 0, 1, 1.0)] * 99, unit=60), case[3]), "row"),
    "NaN flow": (lambda case: with_float_mass(case, math.nan), "whole numbers"),
    "infinite flow": (lambda case: with_float_mass(case, math.inf), "whole numbers"),
    "outside the window": (lambda case: with_step(case, (3, 0), source=0), "window"),
    "outside the window to the left": (lambda case: with_step(case, (0, -3), source=5), "window"),
    "over the upper edge": (lambda case: with_step(case, (-1, 0), source=42), "leaves the image"),
    "over the right edge": (lambda case: with_step(case, (0, 1), source=5), "leaves the image"),
    "over the lower edge": (lambda case: with_step(case, (1, 0), source=41), "leaves the image"),
    "from no pixel": (lambda case: with_step(case, (0, 1), source=126), "does not have"),
    "from a negative pixel": (lambda case: with_step(case, (0, 1), source=-1), "does not have"),
    "in another channel": (moved_to_another_channel, "row|column"),
    "row 1e-9 too heavy": (row_too_heavy, "row"),
    "row too light": (lambda case: with_mass(case, int(case[2].mass.argmax()), lambda mass: mass // 2), "column"),
    "cost 1e-9 over": (cost_over, "cost"),
    "channels swapped": (lambda case: (case[0], case[1][[1, 0, 2]], case[2], case[3]), "column"),
    "another original": (lambda case: (case[0][[1, 0, 2]], case[1], case[2], case[3]), "row|column"),
    "pixel of the image": (lambda case: with_pixel(case, 1, lambda value: value + 1e-6), "column: channel 1, row 3"),
    "pixel of the original": (lambda case: with_pixel(case, 0, lambda value: value + 1e-6), "column: channel 1, row 3"),
    "pixel above 1": (lambda case: with_pixel(case, 1, lambda _: 1 + 2**-23), "outside"),
    "pixel below 0": (lambda case: with_pixel(case, 1, lambda _: -1e-30), "outside"),
    "NaN pixel": (lambda case: with_pixel(case, 1, lambda _: math.nan), "outside"),
    "infinite original": (lambda case: with_pixel(case, 0, lambda _: math.inf), "outside"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_error_is_refuted(planted: str, good: Case) -> None:
    assert check(*good).proved
    plant, word = PLANTED[planted]
    found = check(*plant(good))
    assert found.status == "refuted"
    assert any(part in found.reason for part in word.split("|")), found.reason
    assert found.bound == math.inf


def test_light_from_nowhere_is_refuted() -> None:
    black, grey = np.zeros((1, 2, 2), np.float32), np.full((1, 2, 2), 2.0**-25, np.float32)
    assert "black in the original" in check(black, grey, moves_of(), Claim(1)).reason
    assert "black in the image" in check(grey, black, moves_of(), Claim(1)).reason
    brighter = np.full((1, 2, 2), 2.0**-10, np.float32)
    assert "changes its mass" in check(brighter, brighter + grey, moves_of(), Claim(1)).reason


def test_what_is_no_proof_at_all_is_an_error(good: Case) -> None:
    x, z, moves, claim = good
    for wrong, word in (
        ((x[0], z, moves, claim), "channels, rows, columns"),
        ((x, z[:2], moves, claim), "same shape"),
        ((x.astype(np.uint8), z, moves, claim), "float32"),
        ((x, z, moves._replace(mass=moves.mass[1:]), claim), "are needed"),
        ((x, z, moves._replace(unit=61), claim), "units"),
    ):
        with pytest.raises(MassmoverError, match=word):
            check(*wrong)
    for fields in ({"radius": -1}, {"window": 4}, {"power": 0}, {"ground": "taxi"}, {"normalisation": "none"}):
        with pytest.raises(MassmoverError, match=next(iter(fields))):
            Claim(**({"radius": 1.0} | fields))
