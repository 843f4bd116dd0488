from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import greedy, scattered
from torch import Tensor, nn

from linear import best_gain, least_radius
from massmover import WassersteinBall
from massmover.certificates import certified_radius
from massmover.certificates import linear as module
from massmover.certificates.linear import Sources, exact_minimum, quick_minimum
from massmover.models import Normalised
from scenes import grounds, random_images, seeds

WHOLE = WassersteinBall(0.1, window=None)


@pytest.fixture(params=["numba", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to run the inner loops."""
    if request.param == "torch":
        found = importlib.util.find_spec

        def without_numba(name: str) -> ModuleSpec | None:
            return None if name == "numba" else found(name)

        monkeypatch.setattr(module, "find_spec", without_numba)
    return str(request.param)


def dark(seed: int, *, channels: int = 1, count: int = 2) -> Tensor:
    """Images so dark that the pixel box never binds, with black pixels among them."""
    return 0.01 * random_images(seed, batch=count, channels=channels, height=5, width=6).clamp_min(1e-3)


def test_the_minimum_over_the_ball_is_that_of_the_linear_programme(backend: str) -> None:
    images, draws = dark(0), torch.Generator().manual_seed(0)
    slopes = torch.randn(2, 3, 1, 5, 6, generator=draws, dtype=torch.float64)
    sources = Sources.of(images, ball=WHOLE)
    for radius in (0.01, 0.3, 9.0):
        radii = torch.full((2,), radius, dtype=torch.float64)
        found = exact_minimum(slopes, sources, radius=radii)
        quick = quick_minimum(slopes, sources, radius=radii)
        assert bool((quick <= found + 1e-6).all())
        for b in range(2):
            for n in range(3):
                gain = best_gain(images[b], -slopes[b, n], WHOLE.moves(images), radius)
                exact = float((slopes[b, n] * images[b]).sum()) - gain
                assert float(found[b, n]) == pytest.approx(exact, abs=1e-6)


def test_the_quick_minimum_is_exact_where_the_best_rate_is_near_and_plenty(backend: str) -> None:
    # All mass but that of two columns may go one column to the left at the rate 1, and nothing is better.
    slope = torch.arange(6, dtype=torch.float64).clamp(max=4).expand(1, 1, 1, 5, 6)
    images = dark(1, count=1)
    radius = torch.tensor([0.1], dtype=torch.float64)
    sources = Sources.of(images, ball=WHOLE)
    torch.testing.assert_close(
        quick_minimum(slope, sources, radius=radius), exact_minimum(slope, sources, radius=radius), rtol=1e-4, atol=0
    )


def test_a_linear_network_has_nearly_the_exact_radius(backend: str) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(30, 2).double()
    for image in 100 * dark(2, count=4) / 3:
        with torch.no_grad():  # a margin so small that mass can undo it
            linear.bias.copy_(-linear.weight @ image.flatten())
            linear.bias[0] += 0.02 * float(image.sum())
        found = certified_radius(nn.Sequential(nn.Flatten(), linear), image[None], torch.tensor([0]), ball=WHOLE)
        slope = (linear.weight[1] - linear.weight[0]).detach().reshape(1, 5, 6)
        exact = least_radius(image, slope, float((linear.bias[1] - linear.bias[0]).detach()), WHOLE.moves(image[None]))
        assert 0.9 * exact <= float(found.radius) <= exact * (1 + 1e-9)


def convolutional(seed: int, channels: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 3, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Dropout()),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.ReLU(),
        nn.Linear(6, 3),
    ).eval()


@given(seed=seeds, channels=st.integers(1, 2), ground=grounds, normalisation=st.sampled_from(["image", "channel"]))
@settings(max_examples=8, deadline=None)
def test_no_plan_within_a_certified_radius_changes_the_answer(
    seed: int, channels: int, ground: str, normalisation: str
) -> None:
    network = convolutional(seed % 1000, channels).double()
    images = random_images(seed, batch=2, channels=channels, height=5, width=6)
    labels = network(images).argmax(dim=1)
    ball = WassersteinBall(0.1, ground=ground, normalisation=normalisation)  # type: ignore[arg-type]
    found = certified_radius(network, images, labels, ball=ball)
    for image, label, radius in zip(images, labels.tolist(), found.radius.tolist(), strict=True):
        if not 0 < radius < torch.inf:
            continue
        point = image.clone().requires_grad_()
        (slope,) = torch.autograd.grad(network(point[None])[0, label], point)
        shown = [scattered(image, ball=ball, radius=radius, seed=draw) for draw in range(3)]
        shown.append(greedy(image, -slope, ball=ball, radius=radius))
        assert all(int(network(z[None]).argmax()) == label for z in shown)


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_the_lines_lie_below_the_function(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    ends = torch.randn(2, 1, 5, generator=draws, dtype=torch.float64).sort(dim=0).values
    rows = torch.randn(1, 4, 5, generator=draws, dtype=torch.float64)
    slopes, constant = module._through_relu(rows, module.Interval(ends[0], ends[1]))
    inputs = ends[0] + (ends[1] - ends[0]) * torch.rand(50, 5, generator=draws, dtype=torch.float64)  # (50, 5)
    below = inputs @ slopes[0].T + constant[0]
    assert bool((below <= inputs.clamp(min=0) @ rows[0].T + 1e-12).all())


def test_bounds_of_every_layer_hold_on_images_of_the_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = convolutional(3, 1).double(), random_images(5, batch=1, channels=1, height=5, width=6)
    layers = module.layers_of(network)
    seen: dict[int, module.Interval] = {}
    through = module._through_relu
    places = iter([1, 3])

    def spy(rows: Tensor, reach: module.Interval) -> tuple[Tensor, Tensor]:
        seen[id(reach)] = reach
        return through(rows, reach)

    monkeypatch.setattr(module, "_through_relu", spy)
    scores = network(images).detach()
    sources, radius = Sources.of(images, ball=WHOLE), torch.tensor([0.2], dtype=torch.float64)
    with torch.no_grad():
        module.worst_margin(layers, sources, scores, scores.argmax(dim=1), radius=radius)
        for reach in list(seen.values())[:2]:
            place = next(places)
            for draw in range(20):
                z = scattered(images[0], ball=WHOLE, radius=0.2, seed=draw)
                inside = module.sequence(layers[:place])(z[None])
                assert bool((inside >= reach.lower - 1e-9).all()) and bool((inside <= reach.upper + 1e-9).all())
                assert bool((reach.upper > reach.lower).any())


def test_a_normalising_wrapper_is_seen_through() -> None:
    network, images = convolutional(1, 2), random_images(1, batch=2, channels=2, height=5, width=6, dtype=torch.float32)
    wrapped = Normalised(network, mean=[0.2, 0.4], std=[0.5, 0.25])
    labels = wrapped(images).argmax(dim=1)
    layers = module.layers_of(wrapped)
    torch.testing.assert_close(module.sequence(layers)(images.double()).float(), wrapped(images), atol=1e-5, rtol=0)
    assert bool((certified_radius(wrapped, images, labels, ball=WHOLE).radius > 0).any())


def test_wrong_answers_and_black_images() -> None:
    network, black = convolutional(1, 1).double(), torch.zeros(2, 1, 5, 6, dtype=torch.float64)
    label = int(network(black[:1]).argmax())
    found = certified_radius(network, black, torch.tensor([label, (label + 1) % 3]), ball=WHOLE)
    assert found.radius.tolist() == [torch.inf, 0.0]
    assert certified_radius(network, black[:0], torch.zeros(0, dtype=torch.int64), ball=WHOLE).radius.shape == (0,)
