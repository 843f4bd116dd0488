from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import Tensor

from massmover import WassersteinBall
from massmover.certificates import FlowSmoothing, smoothed_radius
from massmover.certificates.smoothing import least_share, noisy_copies, published_radius, tight_radius
from massmover.types import MassmoverError

STEPS = WassersteinBall(0.1, ground="manhattan")


@pytest.mark.parametrize(("wins", "samples"), [(1, 1), (5, 9), (60, 100), (990, 1000), (1000, 1000), (5100, 10_000)])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_the_least_share_is_clopper_and_pearsons(wins: int, samples: int, confidence: float) -> None:
    exact = beta.ppf(1 - confidence, wins, samples - wins + 1)
    assert least_share(wins, samples, confidence=confidence) == pytest.approx(exact, abs=1e-9)
    assert least_share(0, samples, confidence=confidence) == 0
    with pytest.raises(MassmoverError, match="there must be from 0 to"):
        least_share(samples + 1, samples, confidence=confidence)


def test_the_tight_bound_is_never_below_the_published_one() -> None:
    shares = np.linspace(0.4, 0.9999, 200)
    assert all(tight_radius(p, scale=0.3) >= published_radius(p, scale=0.3) for p in shares)
    assert tight_radius(0.5, scale=1) == published_radius(0.5, scale=1) == 0
    assert tight_radius(1 - 0.5 * math.exp(-2), scale=0.05) == pytest.approx(0.1)


def threshold(images: Tensor) -> Tensor:
    """The first of two classes wins where the left of two pixels holds more than 60 % of the mass."""
    left = images[:, 0, 0, 0] / images.sum(dim=(1, 2, 3)) - 0.6
    return torch.stack([left, -left], dim=1)


def test_one_edge_has_a_known_answer() -> None:
    # A tenth of the mass must cross the edge: with Laplace noise the bound is tight, so nearly that is certified.
    image, label = torch.tensor([[[[0.7, 0.3]]]]), torch.tensor([0])
    settings = FlowSmoothing(scale=0.05, samples=20_000, batch=5000)
    found = smoothed_radius(threshold, image, label, ball=STEPS, smoothing=settings)
    assert 0.09 < float(found.radius) < 0.1
    assert float(found.evidence["published"]) < float(found.radius)
    on = {"euclidean": math.sqrt(2), "chebyshev": 2.0}
    for ground, longer in on.items():
        ball = WassersteinBall(0.1, ground=ground)  # type: ignore[arg-type]
        other = smoothed_radius(threshold, image, label, ball=ball, smoothing=settings)
        assert float(other.radius) == pytest.approx(float(found.radius) / longer)
    wrong = smoothed_radius(threshold, image, torch.tensor([1]), ball=STEPS, smoothing=settings)
    assert float(wrong.radius) == 0 and int(wrong.evidence["answer"]) == 0


def test_it_abstains_when_the_votes_are_even() -> None:
    image = torch.tensor([[[[0.6, 0.4]]]], dtype=torch.float64)
    found = smoothed_radius(threshold, image, torch.tensor([0]), ball=STEPS, smoothing=FlowSmoothing(samples=200))
    assert float(found.radius) == 0 and int(found.evidence["answer"]) == -1


def test_noise_moves_mass_and_makes_none() -> None:
    image = torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    copies = noisy_copies(image, 2000, scale=0.01, draws=torch.Generator().manual_seed(1))
    torch.testing.assert_close(copies.sum(dim=(2, 3)), image.sum(dim=(1, 2)).expand(2000, 3))
    # A pixel inside has four edges, each with a variance of 2 scale^2, in shares of the mass.
    spread = float(copies[:, 1, 3, 2].std()) / float(image.sum())
    assert spread == pytest.approx(0.01 * math.sqrt(8), rel=0.1)


def test_images_have_draws_of_their_own() -> None:
    images = torch.tensor([[[[0.7, 0.3]]], [[[0.65, 0.35]]], [[[0.0, 0.0]]]])
    labels = torch.tensor([0, 0, 1])

    def certain(pictures: Tensor) -> Tensor:
        return torch.nan_to_num(threshold(pictures), nan=0.0) + torch.tensor([0.0, 1e-9])

    settings = FlowSmoothing(scale=0.05, samples=300, seed=4)
    together = smoothed_radius(certain, images, labels, ball=STEPS, smoothing=settings)
    last = smoothed_radius(certain, images[1:], labels[1:], ball=STEPS, smoothing=settings, first=1)
    assert torch.equal(together.radius[1:], last.radius)
    assert float(together.radius[2]) == math.inf


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(MassmoverError, match=r"smoothing cannot certify power 0\.5"):
        smoothed_radius(threshold, torch.rand(1, 1, 1, 2), torch.tensor([0]), ball=WassersteinBall(0.1, power=0.5))
    with pytest.raises(MassmoverError, match="scale > 0 and a confidence"):
        FlowSmoothing(scale=0)
    with pytest.raises(MassmoverError, match="guesses, samples and batch >= 1"):
        FlowSmoothing(samples=0)
