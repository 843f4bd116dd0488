from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from dense import cost_matrix
from massmover.transport import exact
from massmover.transport.exact import Array, distance_bounds, exact_distance
from massmover.types import MassmoverError
from scenes import grounds, random_images, seeds


def linear_programme(x: np.ndarray, z: np.ndarray, costs: np.ndarray) -> float:
    """Transport between two vectors of equal mass, by SciPy's simplex on the full matrix."""
    n = len(x)
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    found = linprog(costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([x, z]), method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("move", [(0, 1), (1, 0), (0, -1), (-1, 0)])
def test_a_one_pixel_shift_costs_exactly_one(move: tuple[int, int], digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    images = digits[0][:20].double()
    images[..., 0, :] = images[..., -1, :] = images[..., :, 0] = images[..., :, -1] = 0  # a free border
    shifted = torch.roll(images, move, dims=(2, 3))
    assert exact_distance(images, shifted).tolist() == pytest.approx([1.0] * 20, rel=1e-12)
    assert exact_distance(images, shifted, power=2.0).tolist() == pytest.approx([1.0] * 20, rel=1e-12)


def test_a_diagonal_shift_costs_its_ground_distance() -> None:
    images = torch.zeros(1, 1, 6, 7)
    images[0, 0, 2:4, 2:5] = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    shifted = torch.roll(images, (1, 1), dims=(2, 3))
    for ground, cost in (("euclidean", 2**0.5), ("manhattan", 2.0), ("chebyshev", 1.0)):
        assert exact_distance(images, shifted, ground=ground).item() == pytest.approx(cost)  # type: ignore[arg-type]


@given(seed=seeds, ground=grounds, power=st.sampled_from([0.5, 1.0, 2.0]))
def test_equals_the_linear_programme(seed: int, ground: Any, power: float) -> None:
    pair = random_images(seed, batch=2, channels=1, height=3, width=4).numpy()
    x, z = pair[0].ravel() + 0.01, pair[1].ravel() + 0.01
    z = z * x.sum() / z.sum()
    reference = linear_programme(x, z, cost_matrix(3, 4, ground=ground, power=power)) / x.sum()
    found = exact_distance(x.reshape(1, 1, 3, 4), z.reshape(1, 1, 3, 4), ground=ground, power=power, threads=1)
    assert found.item() == pytest.approx(reference, rel=1e-9, abs=1e-12)


@given(seed=seeds, power=st.sampled_from([1.0, 2.0]))
def test_the_sparse_path_finds_the_same_optimum(seed: int, power: float) -> None:
    pair = random_images(seed, batch=2, channels=2, height=12, width=9) + 1e-3
    dense = distance_bounds(pair[:1], pair[1:], power=power, threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "DENSE_ARCS", 0)
        sparse = distance_bounds(pair[:1], pair[1:], power=power, threads=1)
    assert sparse.exact.all()
    assert sparse.upper.tolist() == pytest.approx(dense.upper.tolist(), rel=1e-9)
    assert sparse.lower.tolist() == pytest.approx(dense.upper.tolist(), rel=1e-9)


@given(seed=seeds, ground=grounds, power=st.sampled_from([0.5, 1.0, 2.0]), scale=st.sampled_from([0.1, 3.0, 100.0]))
def test_pricing_by_tiles_misses_no_pair(seed: int, ground: Any, power: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    sources, targets = np.argwhere(generator.random((30, 21)) < 0.2), np.argwhere(generator.random((19, 40)) < 0.2)
    u, v = generator.normal(0, scale, len(sources)), generator.normal(-1, scale, len(targets))
    arcs, deficit = exact._profitable_arcs(u, v, sources, targets, ground=ground, power=power)
    order = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[ground]
    costs = np.linalg.norm(sources[:, None] - targets[None], ord=order, axis=-1) ** power
    reduced = costs - u[:, None] - v[None]
    assert deficit == pytest.approx(np.maximum(-reduced.min(axis=1), 0), abs=1e-12)
    assert (reduced.ravel()[arcs] < 0).all()
    short = reduced.min(axis=1) < -1e-9
    best = np.flatnonzero(short) * len(targets) + reduced.argmin(axis=1)[short]
    assert set(best.tolist()) <= set(arcs.tolist())


@pytest.mark.parametrize("edge", [1, 2, 8, 32])
def test_a_curve_passes_every_pixel_once_from_neighbour_to_neighbour(edge: int) -> None:
    pixels = np.argwhere(np.ones((edge, edge)))
    places = exact._along_curve(pixels, edge - 1)
    assert sorted(places) == list(range(edge * edge))
    assert (np.abs(np.diff(pixels[np.argsort(places)], axis=0)).sum(axis=1) == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_arcs_along_curves_carry_all_the_mass_and_not_far(seed: int) -> None:
    """What has no place nearby, a few pixels strewn over the image: in the order of rows it would go 3 times as far."""
    draws = np.random.default_rng(seed)
    chosen = draws.permutation(60 * 50)[:400]
    sources, targets = (np.stack(np.divmod(np.sort(part), 50), axis=1) for part in (chosen[:200], chosen[200:]))
    a, b = draws.dirichlet(np.ones(200)), draws.dirichlet(np.ones(200))
    apart = exact._ground_cost(sources[:, None], targets[None], ground="euclidean", power=1.0)
    allowed = np.full(apart.size, 1e6)
    arcs = exact._corner_arcs(a, b, sources, targets)
    allowed[arcs] = apart.flat[arcs]
    along, best = (exact._simplex(a, b, costs).cost for costs in (allowed.reshape(apart.shape), apart))
    assert best <= along < 2 * best


def test_a_limit_that_is_hit_gives_bounds_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_images(1, batch=2, channels=1, height=16, width=16) + 1e-3
    truth = exact_distance(pair[:1], pair[1:]).item()
    monkeypatch.setattr(exact, "DENSE_ARCS", 0)
    monkeypatch.setattr(exact, "SHORT_MOVES", 1)
    monkeypatch.setattr(exact, "ROUNDS", 1)
    bounds = distance_bounds(pair[:1], pair[1:])
    assert not bounds.exact.any()
    assert bounds.lower[0] <= truth <= bounds.upper[0]
    with pytest.raises(MassmoverError, match="lies between"):
        exact_distance(pair[:1], pair[1:])


@given(seed=seeds, share=st.sampled_from([0.3, 0.97, 0.9999, 1.0001, 1.03, 3.0]), channels=st.sampled_from([1, 2]))
def test_a_radius_stops_the_search_at_the_verdict_of_the_optimum(seed: int, share: float, channels: int) -> None:
    pair = random_images(seed, batch=2, channels=channels, height=11, width=9) + 1e-3
    truth = exact_distance(pair[:1], pair[1:], threads=1).item()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "DENSE_ARCS", 0)
        bounds = distance_bounds(pair[:1], pair[1:], threads=1, radius=share * truth)
    assert bounds.lower[0] <= truth * (1 + 1e-9)
    assert bounds.upper[0] >= truth * (1 - 1e-9)
    assert (bounds.upper[0] <= share * truth) == (share > 1)
    assert (bounds.lower[0] > share * truth) == (share < 1)


@pytest.mark.parametrize(("share", "most"), [(2.0, 1), (0.1, 1), (1.0, 10)])
def test_a_radius_far_from_the_distance_takes_one_solution(
    share: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = random_images(3, batch=2, channels=1, height=16, width=16) + 1e-3
    truth, simplex = exact_distance(pair[:1], pair[1:]).item(), exact._simplex
    calls: list[None] = []

    def counted(*arguments: Any) -> Any:
        calls.append(None)
        return simplex(*arguments)

    monkeypatch.setattr(exact, "DENSE_ARCS", 0)
    monkeypatch.setattr(exact, "_simplex", counted)
    distance_bounds(pair[:1], pair[1:], radius=share * truth, threads=1)
    assert 1 <= len(calls) <= most
    distance_bounds(pair[:1], pair[1:], threads=1)
    assert len(calls) >= 3  # the optimum itself takes more than one


def specked(seed: int) -> tuple[Array, Array]:
    """An image with a few heavy moves, and a speck of change in every pixel, as rounding makes it."""
    generator = np.random.default_rng(seed)
    before = generator.uniform(0.4, 0.6, (1, 1, 20, 20))
    specks = generator.normal(0, 1e-6, before.shape)
    after = before + specks - specks.mean()
    for _ in range(5):
        (y, x), (dy, dx) = generator.integers(4, 16, 2), generator.integers(-3, 4, 2)
        after[0, 0, y, x] -= 0.05
        after[0, 0, y + dy, x + dx] += 0.05
    return before, after


def specked_problem(seed: int) -> tuple[tuple[Array, Array, Any, Any], float]:
    """What travels between the two, as the sparse path takes it, and how much mass that is."""
    before, after = (image[0, 0] for image in specked(seed))
    more, less = np.clip(before - after, 0, None), np.clip(after - before, 0, None)
    masses = more[more > 0] / more.sum(), less[less > 0] / less.sum()
    return (*masses, np.argwhere(more > 0), np.argwhere(less > 0)), float(more.sum())


@pytest.mark.parametrize("ground", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_heavy_pixels_bound_the_distance_from_below_and_closely(ground: Any, power: float) -> None:
    for seed in range(6):
        problem, mass = specked_problem(seed)
        bound = exact._heavy_bound(*problem, ground=ground, power=power) * mass
        before, after = specked(seed)
        truth = exact_distance(before, after, ground=ground, power=power).item() * before.sum()
        assert 0.99 * truth <= bound <= truth * (1 + 1e-12)


def test_heavy_pixels_say_nothing_where_they_are_many_or_the_cost_is_no_metric() -> None:
    problem, _ = specked_problem(0)
    assert exact._heavy_bound(*problem, ground="euclidean", power=2.0) == 0.0
    even = (np.full_like(problem[0], 1 / len(problem[0])), np.full_like(problem[1], 1 / len(problem[1])))
    assert exact._heavy_bound(*even, *problem[2:], ground="euclidean", power=1.0) == 0.0


def test_heavy_pixels_settle_what_is_outside_before_any_pair_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = specked(1)
    truth = exact_distance(before, after).item()
    monkeypatch.setattr(exact, "DENSE_ARCS", 0)
    bounds = distance_bounds(before, after)
    assert bounds.exact.all() and bounds.upper[0] == pytest.approx(truth, rel=1e-9)

    def priced(*_: Any, **__: Any) -> Any:
        raise AssertionError("pairs were priced")

    monkeypatch.setattr(exact, "_profitable_arcs", priced)
    found = distance_bounds(before, after, radius=0.9 * truth)
    assert 0.9 * truth < found.lower[0] <= truth


def test_specks_far_from_their_targets_do_not_take_hundreds_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few pixels feed a thousand far ones: with eight arcs a round each they came nowhere in sixty rounds."""
    before, after = torch.zeros(2, 1, 1, 48, 60, dtype=torch.float64)
    before[..., :4, :2], after[..., :, 30:] = 1e-6, 8e-6 / (48 * 30)
    before[..., 40, 5], after[..., 40, 6] = 1.0, 1.0
    truth = exact_distance(before, after).item()
    rounds, price = [], exact._profitable_arcs

    def counted(*given: Any, **named: Any) -> Any:
        rounds.append(1)
        return price(*given, **named)

    monkeypatch.setattr(exact, "DENSE_ARCS", 0)
    monkeypatch.setattr(exact, "_profitable_arcs", counted)
    found = distance_bounds(before, after)
    assert found.exact.all() and found.upper[0] == pytest.approx(truth, rel=1e-9)
    assert len(rounds) < 15


def test_each_image_has_its_radius_and_no_other_shape_is_taken() -> None:
    pair = random_images(5, batch=4, channels=1, height=5, width=5) + 0.01
    x, z = pair[:2], pair[2:]
    assert np.array_equal(distance_bounds(x, z, radius=[0.0, 9.0]).upper, distance_bounds(x, z).upper)
    with pytest.raises(MassmoverError, match=r"radius has shape \(3,\)"):
        distance_bounds(x, z, radius=[1.0, 2.0, 3.0])


@given(seed=seeds)
def test_is_a_metric_for_equal_masses(seed: int) -> None:
    triple = random_images(seed, batch=3, channels=1, height=4, width=5) + 0.01
    triple = triple / triple.sum(dim=(1, 2, 3), keepdim=True)
    a, b, c = triple[:1], triple[1:2], triple[2:]
    there = exact_distance(a, b, threads=1).item()
    assert there == pytest.approx(exact_distance(b, a, threads=1).item(), abs=1e-12)
    assert there <= exact_distance(a, c, threads=1).item() + exact_distance(c, b, threads=1).item() + 1e-12
    assert exact_distance(a, a, threads=1).item() == 0


def test_channels_are_weighted_by_the_normalisation() -> None:
    x = torch.zeros(1, 2, 3, 3)
    x[0, 0, 0, 0], x[0, 1, 0, 0] = 0.25, 0.75
    z = torch.zeros(1, 2, 3, 3)
    z[0, 0, 0, 2], z[0, 1, 0, 1] = 0.25, 0.75
    assert exact_distance(x, z).item() == pytest.approx(0.25 * 2 + 0.75 * 1)
    assert exact_distance(x, z, normalisation="channel").item() == pytest.approx(2 + 1)


def test_black_to_bright_is_infinitely_far() -> None:
    black, bright = torch.zeros(1, 1, 3, 3), torch.full((1, 1, 3, 3), 0.5)
    assert exact_distance(black, bright).item() == float("inf")
    assert exact_distance(bright, black).item() == float("inf")
    assert exact_distance(black, black).item() == 0


def test_a_batch_equals_its_members_in_any_order() -> None:
    pair = random_images(4, batch=8, channels=2, height=6, width=5) + 0.01
    x, z = pair[:4], pair[4:]
    together = exact_distance(x, z)
    alone = torch.cat([exact_distance(x[i : i + 1], z[i : i + 1], threads=1) for i in range(4)])
    assert torch.equal(together, alone)


def test_bad_input_is_refused() -> None:
    good = torch.rand(1, 1, 3, 3)
    with pytest.raises(MassmoverError, match="same shape"):
        exact_distance(good, torch.rand(1, 1, 3, 4))
    with pytest.raises(MassmoverError, match="NaN"):
        exact_distance(good, good * torch.nan)
    with pytest.raises(MassmoverError, match="ground"):
        exact_distance(good, good.flip(-1), ground="taxi")  # type: ignore[arg-type]
    with pytest.raises(MassmoverError, match="images, channels"):
        exact_distance(good[0], good[0])


@pytest.mark.slow
def test_a_photograph_is_solved_exactly() -> None:
    """One 224 x 224 channel with all mass moved locally: 25,000 by 25,000 pixels, solved to the optimum."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 1, 224, 224, generator=generator, dtype=torch.float64)
    flow = 0.1 * image * torch.rand(image.shape, generator=generator, dtype=torch.float64)
    flow[..., -1] = 0
    moved = image - flow + torch.roll(flow, 1, dims=-1)
    found = distance_bounds(image, moved)
    assert found.exact.all()
    assert found.upper[0] <= (flow.sum() / image.sum()).item()


def test_negative_pixels_have_no_distance() -> None:
    images = torch.rand(1, 1, 4, 4)
    with pytest.raises(MassmoverError, match=r"z has pixels down to -0.5"):
        exact_distance(images, images.masked_fill(images == images.max(), -0.5))
    with pytest.raises(MassmoverError, match=r"power is 1000000000.0: .* up to 32"):
        exact_distance(images, images, power=1e9)
