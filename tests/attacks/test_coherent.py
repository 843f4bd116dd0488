"""Attacks in balls that bound scatter: known answers, a linear programme, brute force, what holds of every result."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coherent_programmes import coherent_bound, coherent_optimum
from linear import Linear, best_gain
from massmover import (
    Ensemble,
    FrankWolfe,
    MassmoverError,
    PlanAscent,
    SinkhornAttack,
    WassersteinBall,
    attack,
    smallest_radius,
    verify,
)
from massmover.attacks.base import AttackResult
from massmover.attacks.coherent import CoherentAscent
from massmover.attacks.low_pass import low_passed
from massmover.evaluation.proof import Claim, check
from massmover.evaluation.proof_maker import proving_moves
from massmover.models import load_model
from scenes import random_images

QUICK: dict[str, Any] = {"ascent": PlanAscent(steps=12), "auto": Ensemble(steps=5, restarts=0, runners_up=2)}
quick = pytest.mark.parametrize("method", QUICK.values(), ids=QUICK.keys())


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    return load_model("mnist-standard")


def answers(model: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(images)
    return logits.argmax(dim=1)


def assert_inside(images: Tensor, found: AttackResult, ball: WassersteinBall, *, mask: Tensor | None = None) -> None:
    """By the certificate, by exact transport, and by the proof checker, each on its own."""
    radius = float(ball.radius)
    assert found.trusted.all()
    judged = verify(images, found.images, radius, power=ball.power, normalisation=ball.normalisation, mask=mask)
    assert judged.violations == 0
    assert ball.coherence is not None
    claim = Claim(radius, ball.window, ball.ground, ball.power, ball.normalisation, 1e-9, *ball.coherence)
    for row in range(len(images)):
        free = None if mask is None else mask.expand(images.shape)[row].numpy()
        moves = proving_moves(found.plan, images, row)
        verdict = check(images[row].numpy(), found.images[row].numpy(), moves, claim, free=free)
        assert verdict.proved, verdict.reason
        assert verdict.scatter == pytest.approx(float(found.certificate.scatter[row]), abs=1e-5)


def means_of(found: AttackResult) -> Tensor:
    """The mean displacement of each pixel's mass, (B, C, 2, H, W); NaN where there is none."""
    offsets = torch.tensor(found.plan.window.offsets, dtype=torch.float64)
    return torch.einsum("bckhw,ka->bcahw", found.plan.flows, offsets) / found.plan.rows().unsqueeze(2)


def framed(seed: int = 0, *, size: int = 10, batch: int = 1, border: int = 2, level: float = 0.6) -> Tensor:
    """Images whose mass keeps clear of the border, so that they can be shifted by as many pixels."""
    images = torch.zeros(batch, 1, size, size)
    inner = size - 2 * border
    drawn = torch.rand(batch, 1, inner, inner, generator=torch.Generator().manual_seed(seed))
    images[..., border:-border, border:-border] = level * drawn
    return images


class Matches(nn.Module):
    """Class 1 wins where an image comes closer to a pattern than `distance`; class 0 elsewhere."""

    def __init__(self, pattern: Tensor, distance: float) -> None:
        super().__init__()
        self.pattern, self.distance = pattern, distance

    def forward(self, images: Tensor) -> Tensor:
        apart = (images - self.pattern.to(images)).square().sum(dim=(1, 2, 3)).sqrt()
        return torch.stack([torch.zeros_like(apart), self.distance - apart], dim=1)


@pytest.mark.usefixtures("backend")
class TestKnownAnswers:
    @pytest.mark.parametrize("shift", [(1, 0), (-2, 1), (2, 2)])
    @pytest.mark.parametrize("scatter", [0.0, 0.05])
    def test_a_shift_that_wins_is_found(self, shift: tuple[int, int], scatter: float) -> None:
        x = framed(3)
        goal = torch.roll(x, shift, dims=(2, 3))
        model, label = Matches(goal, distance=0.05), torch.zeros(1, dtype=torch.int64)
        assert answers(model, x).equal(label)
        ball = WassersteinBall(1.001 * math.hypot(*shift), scatter=scatter)
        found = attack(model, x, label, ball=ball, method="ascent")
        assert found.success.all()
        assert_inside(x, found, ball)
        held = x[0, 0] > 0
        for axis in range(2):
            mean = means_of(found)[0, 0, axis][held]
            assert (mean - shift[axis]).abs().max() < 0.2 if scatter else (mean - shift[axis]).abs().max() < 0.02

    def test_a_shift_by_a_fraction_is_found(self) -> None:
        x = framed(4)
        goal = 0.3 * x + 0.7 * torch.roll(x, 1, dims=3)
        model, label = Matches(goal, distance=0.03), torch.zeros(1, dtype=torch.int64)
        ball = WassersteinBall(0.75, scatter=0.0)
        found = attack(model, x, label, ball=ball, method="ascent")
        assert found.success.all() and found.steps.min() > 0
        assert_inside(x, found, ball)
        assert means_of(found)[0, 0, 1][x[0, 0] > 0].sub(0.7).abs().max() < 0.05

    def test_a_field_that_bends_turns_what_one_vector_cannot(self) -> None:
        x = framed(5, size=14, border=3)
        at = torch.arange(14.0) - 6.5
        grid = torch.stack([0.15 * at.repeat(14), -0.15 * at.repeat_interleave(14)]).view(2, 14, 14)
        pattern = torch.zeros_like(x)
        for y, u in itertools.product(range(3, 11), range(3, 11)):
            down, right = (y + float(grid[0, y, u]), u + float(grid[1, y, u]))
            for v, w in itertools.product(
                (math.floor(down), math.floor(down) + 1), (math.floor(right), math.floor(right) + 1)
            ):
                pattern[0, 0, v, w] += x[0, 0, y, u] * (1 - abs(down - v)) * (1 - abs(right - w))
        model, label = Matches(pattern, distance=0.35), torch.zeros(1, dtype=torch.int64)
        assert answers(model, x).equal(label)
        bends, stiff = (WassersteinBall(1.0, scatter=0.02, width=width) for width in (13, None))
        turned = attack(model, x, label, ball=bends, method="ascent")
        assert turned.success.all()
        assert_inside(x, turned, bends)
        assert not attack(model, x, label, ball=stiff, method="ascent").success.any()

    @quick
    def test_infinite_scatter_is_the_plain_ball_bit_for_bit(
        self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        images, labels = digits[0][:4], digits[1][:4]
        plain, free = (
            attack(classifier, images, labels, ball=ball, method=method, seed=3)
            for ball in (WassersteinBall(0.05), WassersteinBall(0.05, scatter=math.inf, width=9))
        )
        assert plain.steps.max() > 0
        for one, other in zip(
            (plain.images, plain.plan.flows, *plain.certificate),
            (free.images, free.plan.flows, *free.certificate),
            strict=True,
        ):
            assert torch.equal(one, other)

    def test_a_bound_that_no_plan_reaches_changes_no_image(
        self, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        images, labels = digits[0][:4], digits[1][:4]
        plain, loose = (
            attack(classifier, images, labels, ball=ball, method=PlanAscent(steps=12))
            for ball in (WassersteinBall(0.05), WassersteinBall(0.05, scatter=4.01))
        )
        assert plain.steps.max() > 0
        assert torch.equal(plain.images, loose.images)
        assert loose.certificate.scatter.isfinite().all()
        assert not WassersteinBall(0.05, scatter=4.01).around(images).coherent
        assert WassersteinBall(0.05, scatter=3.99).around(images).coherent  # torn along a diagonal it would be too much


def shifted(images: Tensor, move: tuple[int, int]) -> Tensor:
    """Images moved by whole pixels; their mass keeps clear of the border."""
    return torch.roll(images, move, dims=(2, 3))


@pytest.mark.usefixtures("backend")
def test_without_scatter_nothing_but_translations_are_found_and_no_whole_one_is_missed(
    classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    """One vector and no scatter: brute force over all whole shifts breaks no digit that the attack does not."""
    right = answers(classifier, digits[0]) == digits[1]
    clear = (digits[0][..., :2, :].sum(dim=(1, 2, 3)) + digits[0][..., -2:, :].sum(dim=(1, 2, 3))) == 0
    clear &= (digits[0][..., :2].sum(dim=(1, 2, 3)) + digits[0][..., -2:].sum(dim=(1, 2, 3))) == 0
    chosen = torch.nonzero(right & clear).flatten()[:30]
    images, labels = digits[0][chosen], digits[1][chosen]
    ball = WassersteinBall(2 * math.sqrt(2), scatter=0.0)
    brute = torch.stack(
        [
            answers(classifier, shifted(images, (down, right))) != labels
            for down in range(-2, 3)
            for right in range(-2, 3)
        ]
    )
    found = attack(classifier, images, labels, ball=ball, method=PlanAscent(steps=20))
    assert 0 < brute.any(dim=0).sum() < len(images)
    assert (found.success | ~brute.any(dim=0)).all()
    assert_inside(images, found, ball)
    means = means_of(found)
    for row in range(len(images)):
        moved = means[row, 0, :, images[row, 0] > 0]
        vector = moved.mean(dim=1)
        assert (moved - vector.unsqueeze(1)).abs().max() < 1e-4  # every pixel goes the same way
        spread = (torch.tensor(ball.moves(images).offsets) - vector).abs().amax(dim=1)
        assert found.plan.flows[row, 0, spread > 1 + 1e-4].sum() < 1e-6  # and only to the pixels around it


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("radius", "scatter"), [(0.3, 0.1), (0.3, 0.3), (0.8, 0.05)])
def test_a_linear_classifier_is_climbed_to_the_linear_programme(radius: float, scatter: float) -> None:
    """On images of one row, where a pixel's mean leaves no choice of how it splits, the attack gains at least 95 %.

    Of the best programme over the two cells around no move; the attack's vector is its own.
    """
    images = torch.zeros(3, 1, 1, 40)
    images[..., 2:-2] = 0.6 * torch.rand(3, 1, 1, 36, generator=torch.Generator().manual_seed(2))
    slope = torch.randn(1, 1, 1, 40, generator=torch.Generator().manual_seed(8))
    ball = WassersteinBall(radius, window=3, scatter=scatter)
    model, labels = Linear(slope, offset=-1e3), torch.zeros(3, dtype=torch.int64)
    found = attack(model, images, labels, ball=ball, method=PlanAscent(steps=100))
    assert_inside(images, found, ball)
    gains = ((found.images - images).double() * slope.double()).sum(dim=(1, 2, 3))
    for image, gain in zip(images, gains.tolist(), strict=True):
        optimum = max(coherent_optimum(image, slope, ball, cell) for cell in [(0, -1), (0, 0)])
        assert gain >= 0.95 * optimum
        assert gain <= best_gain(image, slope, ball.moves(image), radius) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("smoothed", "radius", "scatter", "elsewhere"),
    [
        (False, 0.3, 0.1, (0.076, 0.081)),
        (False, 0.8, 0.05, (0.0, 0.0)),
        (False, 0.5, 0.02, (0.0, 0.0)),
        (True, 0.3, 0.1, (-0.031, 0.25)),
        (True, 0.8, 0.05, (0.0, 0.75)),
        (True, 0.5, 0.02, (0.0, 0.5)),
    ],
)
def test_in_two_dimensions_most_of_an_upper_bound_is_gained(
    smoothed: bool, radius: float, scatter: float, elsewhere: tuple[float, float]
) -> None:
    """The bound is a linear programme for a fixed vector: the attack's own, and the best of a grid of others."""
    image = framed(2, size=9, border=1)
    slope = torch.randn(1, 1, 9, 9, generator=torch.Generator().manual_seed(10))
    slope = nn.functional.avg_pool2d(slope, 3, 1, 1) if smoothed else slope
    ball = WassersteinBall(radius, window=3, scatter=scatter)
    model, label = Linear(slope, offset=-1e3), torch.zeros(1, dtype=torch.int64)
    found = attack(model, image, label, ball=ball, method=PlanAscent(steps=100))
    assert_inside(image, found, ball)
    gain = float(((found.images - image).double() * slope.double()).sum())
    own = (means_of(found).nan_to_num() * image.double().unsqueeze(2)).sum(dim=(0, 1, 3, 4)) / image.double().sum()
    bounds = [coherent_bound(image[0], slope, ball, vector) for vector in ((float(own[0]), float(own[1])), elsewhere)]
    assert gain <= bounds[0] * (1 + 1e-6)
    assert gain >= 0.87 * max(bounds)  # 0.90 to 0.99 are reached


@pytest.mark.usefixtures("backend")
class TestEveryMethod:
    @quick
    @pytest.mark.parametrize(("scatter", "width"), [(0.0, None), (0.05, None), (0.05, 9), (0.4, 4)])
    def test_every_digit_is_inside_and_proven(
        self, method: Any, scatter: float, width: int | None, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        images, labels = digits[0][:5].clone(), digits[1][:5]
        images[0], images[1] = 0, 1  # black, and full
        images[4] = (images[4] > 0.1).float()  # saturated: whatever crowds it has to give way
        ball = WassersteinBall(0.7, scatter=scatter, width=width)
        found = attack(classifier, images, labels, ball=ball, method=method)
        assert_inside(images, found, ball)
        assert torch.equal(found.success, answers(classifier, found.images) != labels)
        assert torch.equal(found.images[:2], images[:2])
        assert (answers(classifier, images[2:]) == labels[2:]).any() and found.steps.max() > 0

    @quick
    @pytest.mark.parametrize("shape", [(3, 3, 7, 4), (1, 1, 5, 9), (1, 1, 1, 6), (2, 1, 1, 1)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
    def test_any_shape_and_dtype(self, method: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        batch, channels, height, width = shape
        images = random_images(1, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 4)).to(dtype)
        for ball in (
            WassersteinBall(0.3, window=3, scatter=0.1, width=3, normalisation="channel"),
            WassersteinBall(0.3, window=None, scatter=0.05, power=2.0),
        ):
            found = attack(model, images, answers(model, images), ball=ball, method=method)
            assert found.images.dtype == dtype
            assert ((found.steps > 0) | found.success).all()  # a look alone may win
            assert_inside(images, found, ball)

    @quick
    def test_radius_zero_moves_nothing(self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:2], digits[1][:2]
        found = attack(classifier, images, labels, ball=WassersteinBall(0.0, scatter=0.1, width=9), method=method)
        assert torch.equal(found.images, images) and found.steps.min() > 0

    @quick
    @pytest.mark.parametrize("shape", [(3, 1, 8, 8), (1, 3, 6, 9)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
    def test_masks_hold_and_the_search_sees_them(self, method: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(4)
        images = (0.5 * torch.rand(shape, generator=generator)).to(dtype)
        mask = torch.ones(shape[2:], dtype=torch.bool)
        mask[:, :3] = False
        slope = torch.randn(1, *shape[1:], generator=generator).to(dtype)
        model = Linear(slope, offset=-float((images * slope).sum(dim=(1, 2, 3)).max()) - 0.3)
        labels = torch.zeros(len(images), dtype=torch.int64)
        assert answers(model, images).equal(labels)
        ball = WassersteinBall(0.4, scatter=0.3, width=4)
        found = attack(model, images, labels, ball=ball, method=method, mask=mask)
        assert torch.equal(found.images[..., :3], images[..., :3])
        assert not torch.equal(found.images, images)
        assert_inside(images, found, ball, mask=mask)

    @quick
    def test_targets_are_reached(self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:6], digits[1][:6]
        with torch.no_grad():
            targets = classifier(images).scatter(1, labels[:, None], -torch.inf).argmax(dim=1)
        ball = WassersteinBall(2.0, scatter=0.4, width=6)
        found = attack(classifier, images, labels, ball=ball, targets=targets, method=method)
        assert torch.equal(found.success, answers(classifier, found.images) == targets)
        assert found.success.any()
        assert_inside(images, found, ball)

    @quick
    def test_the_callers_model_and_images_are_left_alone(self, method: Any, digits: tuple[Tensor, Tensor]) -> None:
        model, images = load_model("mnist-standard").train(), digits[0][:2].clone()
        attack(model, images, digits[1][:2], ball=WassersteinBall(0.2, scatter=0.1), method=method)
        assert model.training and torch.equal(images, digits[0][:2])
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())

    @quick
    def test_a_mistake_an_empty_batch_and_a_flat_classifier(
        self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        ball = WassersteinBall(0.5, scatter=0.1, width=9)
        wrong = attack(classifier, digits[0][:2], (digits[1][:2] + 1) % 10, ball=ball, method=method)
        assert wrong.success.all() and torch.equal(wrong.images, digits[0][:2]) and wrong.steps.max() == 0
        assert len(attack(classifier, digits[0][:0], digits[1][:0], ball=ball, method=method)) == 0

        def flat(pixels: Tensor) -> Tensor:
            nothing = 0 * pixels.sum(dim=(1, 2, 3))
            return torch.stack([nothing + 1, nothing], dim=1)

        still = attack(flat, digits[0][:2], torch.zeros(2, dtype=torch.int64), ball=ball, method=method)
        assert not still.success.any() and still.images.isfinite().all() and still.steps.min() > 0

    def test_one_radius_an_image_and_the_same_answers_alone(
        self, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        images, labels = digits[0][:3], digits[1][:3]
        radius = torch.tensor([0.0, 0.3, 0.9], dtype=torch.float64)
        found = attack(classifier, images, labels, ball=WassersteinBall(radius, scatter=0.1, width=9), method="ascent")
        assert verify(images, found.images, radius).violations == 0 and found.trusted.all()
        assert torch.equal(found.images[0], images[0])
        ball = WassersteinBall(0.9, scatter=0.1, width=9)
        # Few steps: after a hundred the last digits, which depend on the size of a batch, decide who just falls.
        batch, alone = (
            attack(classifier, part, labels[: len(part)], ball=ball, method="ascent", steps=5)
            for part in (images, images[:1])
        )
        assert (alone.images - images[:1]).abs().max() > 0.1 and alone.steps.min() > 0
        torch.testing.assert_close(batch.images[:1], alone.images, rtol=0, atol=1e-4)

    def test_the_smallest_radius_is_inside_and_wins(self, classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:3], digits[1][:3]
        ball = WassersteinBall(3.0, scatter=0.3, width=6)
        found = smallest_radius(classifier, images, labels, ball=ball, method=PlanAscent(steps=12), rounds=5)
        assert found.success.any()
        assert torch.equal(answers(classifier, found.images) != labels, found.success)
        for row in torch.nonzero(found.success).flatten().tolist():
            claim = Claim(float(found.radius[row]), tolerance=1e-9, scatter=0.3, width=6)
            moves = proving_moves(found.plan, images, row)
            verdict = check(images[row].numpy(), found.images[row].numpy(), moves, claim)
            assert verdict.proved, verdict.reason


def test_further_starts_break_no_fewer_digits(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:12], digits[1][:12]
    ball = WassersteinBall(1.0, scatter=0.05, width=9)
    few, many = (
        attack(classifier, images, labels, ball=ball, method=CoherentAscent(steps=10, starts=starts))
        for starts in (1, 4)
    )
    assert (many.success | ~few.success).all()
    assert many.steps.sum() > few.steps.sum()


def test_both_backends_break_the_same_digits(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("numba")
    images, labels = digits[0][:8], digits[1][:8]
    ball = WassersteinBall(1.2, scatter=0.1, width=9)
    found = [
        attack(classifier, images, labels, ball=ball, method=PlanAscent(steps=10), backend=backend)
        for backend in ("numba", "torch")
    ]
    assert torch.equal(found[0].success, found[1].success)
    assert 0 < found[0].success.sum() < 8


@pytest.mark.parametrize("method", [FrankWolfe(steps=2), SinkhornAttack(steps=2)], ids=["frank-wolfe", "sinkhorn"])
def test_attacks_that_let_mass_scatter_are_refused(
    method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    with pytest.raises(MassmoverError, match=r"lets mass scatter.*use auto or ascent"):
        attack(classifier, digits[0][:1], digits[1][:1], ball=WassersteinBall(0.1, scatter=0.1), method=method)


def test_a_low_pass_keeps_constants_and_agrees_with_a_dense_filter() -> None:
    flat = torch.full((1, 2, 5, 9), 0.7, dtype=torch.float64)
    torch.testing.assert_close(low_passed(flat, 2.0), flat)
    assert low_passed(flat, 0.0) is flat
    image = torch.randn(1, 1, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    places = [(y, x) for y in range(6) for x in range(7)]
    wanted = torch.zeros(42, dtype=torch.float64)
    for number, (y, x) in enumerate(places):
        weights = torch.tensor(
            [
                math.exp(-((y - v) ** 2 + (x - u) ** 2) / (2 * 0.8**2)) * (max(abs(y - v), abs(x - u)) <= 4)
                for v, u in places
            ]
        )
        wanted[number] = (weights.double() * image.flatten()).sum() / weights.double().sum()
    torch.testing.assert_close(low_passed(image, 0.8).flatten(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", [PlanAscent(steps=15), SinkhornAttack(steps=15)], ids=["ascent", "sinkhorn"])
def test_low_pass_steps_stay_inside_and_change_the_way(
    method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels, ball = digits[0][:4], digits[1][:4], WassersteinBall(0.1)
    plain, smooth = (
        attack(classifier, images, labels, ball=ball, method=replace(method, low_pass=deviation))
        for deviation in (0, 1.5)
    )
    assert smooth.steps.max() > 0 and smooth.trusted.all()
    assert verify(images, smooth.images, 0.1).violations == 0
    assert not torch.equal(plain.images, smooth.images)


@pytest.mark.parametrize("deviation", [-1.0, math.nan, math.inf, "wide", True])
def test_a_filter_that_cannot_be_is_refused(deviation: Any) -> None:
    for kind in (PlanAscent, SinkhornAttack, CoherentAscent):
        with pytest.raises(MassmoverError, match="low_pass is"):
            kind(low_pass=deviation)
