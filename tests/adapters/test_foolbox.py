"""Foolbox's own entry point, `attack(fmodel, images, labels, epsilons=...)`, on a real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from victim import RADIUS, Victim, victim, violations

import massmover
from massmover.types import MassmoverError

# Foolbox imports scipy.ndimage.filters, which warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*scipy.ndimage.*:DeprecationWarning")


@pytest.fixture(scope="module")
def digits() -> Victim:
    return victim()


@pytest.fixture
def adapter() -> Any:
    return pytest.importorskip("massmover.adapters.foolbox", exc_type=ImportError)


@pytest.fixture
def fb(adapter: Any) -> Any:
    return adapter.foolbox


@pytest.fixture
def fmodel(fb: Any, digits: Victim) -> Any:
    return fb.PyTorchModel(digits.model, bounds=(0, 1), device="cpu")


@pytest.mark.usefixtures("backend")
def test_a_list_of_epsilons(adapter: Any, fmodel: Any, digits: Victim) -> None:
    epsilons = [0.0, 0.02, RADIUS]
    attack = adapter.WassersteinAttack(method="ascent")
    raw, clipped, success = attack(fmodel, digits.images, digits.labels, epsilons=epsilons)
    assert success.shape == (3, len(digits.images))
    assert success.sum(dim=1).tolist() == sorted(success.sum(dim=1).tolist())
    assert not success[0].any() and success[2].any()
    for epsilon, images, within, won in zip(epsilons, raw, clipped, success, strict=True):
        assert violations(digits, within, radius=epsilon) == 0
        assert torch.equal(images, within)  # nothing needed clipping
        assert torch.equal(digits.answers(within) != digits.labels, won)


def test_one_epsilon_and_a_repeated_attack(adapter: Any, fmodel: Any, digits: Victim) -> None:
    attack = adapter.WassersteinAttack(method="ascent").repeat(2)
    _, images, success = attack(fmodel, digits.images, digits.labels, epsilons=RADIUS)
    assert success.shape == digits.labels.shape
    assert violations(digits, images) == 0


@pytest.mark.usefixtures("backend")
def test_foolbox_gives_what_massmover_gives(adapter: Any, fmodel: Any, digits: Victim) -> None:
    _, images, _ = adapter.WassersteinAttack(method="ascent")(fmodel, digits.images, digits.labels, epsilons=RADIUS)
    own = massmover.attack(digits.model, digits.images, digits.labels, radius=RADIUS, method="ascent")
    torch.testing.assert_close(images, own.images)


def test_a_targeted_criterion(fb: Any, adapter: Any, fmodel: Any, digits: Victim) -> None:
    targets = (digits.labels + 1) % 10
    targets[0] = digits.labels[0]  # reached without moving anything
    criterion = fb.criteria.TargetedMisclassification(targets)
    _, images, success = adapter.WassersteinAttack(method="ascent")(fmodel, digits.images, criterion, epsilons=0.5)
    assert violations(digits, images, radius=0.5) == 0
    assert torch.equal(digits.answers(images) == targets, success)
    assert success.sum() >= 3
    assert torch.equal(images[0], digits.images[0])


def test_the_smallest_radius(adapter: Any, fmodel: Any, digits: Victim) -> None:
    few = Victim(digits.model, digits.images[2:5], digits.labels[2:5])
    attack = adapter.SmallestWassersteinAttack()
    raw, clipped, success = attack(fmodel, few.images, few.labels, epsilons=[0.07, RADIUS, None])
    own = massmover.smallest_radius(few.model, few.images, few.labels)
    assert success[2].all() and 0 < success[0].sum() < 3
    assert violations(few, raw[2], radius=own.radius) == 0
    for epsilon, images, won in zip([0.07, RADIUS], clipped, success, strict=False):
        assert violations(few, images, radius=epsilon) == 0
        assert torch.equal(won, attack.distance(few.images, raw[2]) <= epsilon)


def test_the_search_gives_up_at_the_radius_of_the_ball(adapter: Any, fmodel: Any, digits: Victim) -> None:
    few = Victim(digits.model, digits.images[2:5], digits.labels[2:5])
    ball = massmover.WassersteinBall(0.07)
    _, images, success = adapter.SmallestWassersteinAttack(ball=ball)(fmodel, few.images, few.labels, epsilons=None)
    own = massmover.smallest_radius(few.model, few.images, few.labels, ball=ball)
    assert torch.equal(success, own.success)
    assert 0 < success.sum() < 3
    torch.testing.assert_close(images, own.images)


def test_the_distance_is_the_exact_one(adapter: Any) -> None:
    before, after = torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)
    before[:, 0, 1, 1] = 1
    after[0, 0, 1, 3] = 1  # two pixels away
    after[1, 0, 1, 1] = 0.5  # half of the mass is gone
    assert adapter.WassersteinDistance()(before, after).tolist() == [2.0, torch.inf]


def test_clipping_shrinks_towards_the_original(adapter: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    before = torch.rand(6, 1, 9, 9, generator=generator)
    after = before[:, :, torch.randperm(9, generator=generator)]
    distance = adapter.WassersteinDistance()
    far = distance(before, after)
    for epsilon in (0.0, 1e-4, 0.05, 0.3):
        clipped = distance.clip_perturbation(before, after, epsilon)
        assert massmover.verify(before, clipped, epsilon).violations == 0
        # Every image stays on the segment, and goes at least as far as proportion allows.
        share = (clipped - before).abs().sum(dim=(1, 2, 3)) / (after - before).abs().sum(dim=(1, 2, 3))
        torch.testing.assert_close(clipped, before + share.view(-1, 1, 1, 1) * (after - before))
        torch.testing.assert_close(share, (epsilon / far).clamp(max=1), atol=1e-4, rtol=1e-3)
    assert torch.equal(distance.clip_perturbation(before, after, 100.0), after)


def test_clipping_cannot_bring_lost_mass_back(adapter: Any) -> None:
    before = torch.full((1, 1, 4, 4), 0.5)
    clipped = adapter.WassersteinDistance().clip_perturbation(before, before * 0.9, 1.0)
    assert torch.equal(clipped, before)


def test_another_range_of_pixels_is_refused(fb: Any, adapter: Any, digits: Victim) -> None:
    fmodel = fb.PyTorchModel(digits.model, bounds=(0, 255), device="cpu")
    with pytest.raises(MassmoverError, match=r"pixels in \(0, 255\).*transform_bounds"):
        adapter.WassersteinAttack()(fmodel, digits.images * 255, digits.labels, epsilons=[0.1])


def test_an_unknown_criterion_is_refused(fb: Any, adapter: Any, fmodel: Any, digits: Victim) -> None:
    both = fb.criteria.Misclassification(digits.labels) & fb.criteria.Misclassification(digits.labels)
    with pytest.raises(MassmoverError, match="criterion _And is not known"):
        adapter.WassersteinAttack()(fmodel, digits.images, both, epsilons=[0.1])


def test_an_unknown_setting_is_refused(adapter: Any, fmodel: Any, digits: Victim) -> None:
    with pytest.raises(MassmoverError, match="Unknown setting 'steps'"):
        adapter.WassersteinAttack()(fmodel, digits.images, digits.labels, epsilons=[0.1], steps=3)


def test_clipping_brings_back_the_original_where_a_pixel_left_the_range(adapter: Any) -> None:
    before = torch.full((2, 1, 2, 2), 0.5)
    after = before.clone()
    after[0, 0, 0] = torch.tensor([1.2, -0.2])
    after[1, 0, 0] = torch.tensor([0.6, 0.4])
    clipped = adapter.WassersteinDistance().clip_perturbation(before, after, 1.0)
    assert torch.equal(clipped, torch.stack([before[0], after[1]]))
