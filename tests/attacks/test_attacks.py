from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import massmover
from linear import Linear, best_gain, least_radius
from massmover import (
    METHODS,
    Ensemble,
    FrankWolfe,
    MassmoverError,
    PlanAscent,
    WassersteinBall,
    attack,
    exact_distance,
    smallest_radius,
    verify,
)
from massmover.attacks.ascent import random_potential
from massmover.attacks.base import Attack
from massmover.attacks.losses import margin_of
from massmover.data import load
from massmover.models import load_model
from massmover.types import Normalisation
from scenes import random_images

QUICK: dict[str, Any] = {
    "ascent": PlanAscent(steps=30),
    "frank-wolfe": FrankWolfe(steps=20),
    "auto": Ensemble(steps=10, restarts=1),
}
quick = pytest.mark.parametrize("method", QUICK.values(), ids=QUICK.keys())


@pytest.fixture(scope="module")
def classifier() -> nn.Module:
    return load_model("mnist-standard")


def small_network(channels: int, *, seed: int = 0, classes: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, classes)
    )


def labels_of(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(images)
    return logits.argmax(dim=1)


def linear_scenes() -> dict[str, Tensor]:
    """Images of a size for SciPy: with room everywhere, a third of the pixels full, any brightness, black and white."""
    uniform = torch.rand(4, 1, 9, 8, generator=torch.Generator().manual_seed(5))
    mixed = random_images(7, batch=6, channels=1, height=9, width=8, dtype=torch.float32)
    return {
        "dim": 0.4 * uniform,
        "a third full": mixed[mixed.sum(dim=(1, 2, 3)) > 0],
        "uniform": uniform,
        "black and white": (uniform < 0.4).float(),
    }


def shares_of_the_optimum(method: Any, images: Tensor, slope: Tensor, ball: WassersteinBall) -> Tensor:
    """What the attack gains on a linear classifier, as a share of what the linear programme gains."""
    model = Linear(slope, offset=-1e3)  # far out of reach, so that the attack climbs to the end
    moved = attack(model, images, torch.zeros(len(images), dtype=torch.int64), ball=ball, method=method).images
    window = ball.moves(images)
    best = torch.tensor([best_gain(image, slope, window, float(ball.radius)) for image in images])
    gain: Tensor = ((moved - images).double() * slope.double()).sum(dim=(1, 2, 3))
    return gain / best


@pytest.mark.usefixtures("backend")
class TestLinearClassifier:
    """For a linear classifier the best attack is a linear programme."""

    slope = torch.randn(1, 1, 9, 8, generator=torch.Generator().manual_seed(3))

    @pytest.mark.parametrize("radius", [0.01, 0.1, 0.5])
    @pytest.mark.parametrize("scene", linear_scenes())
    def test_ascent_reaches_the_optimum(self, scene: str, radius: float) -> None:
        shares = shares_of_the_optimum(PlanAscent(), linear_scenes()[scene], self.slope, WassersteinBall(radius))
        assert shares.max() <= 1 + 1e-6
        assert shares.min() >= 0.99

    @pytest.mark.parametrize("radius", [0.01, 0.1])
    def test_frank_wolfe_reaches_the_optimum_where_there_is_room(self, radius: float) -> None:
        shares = shares_of_the_optimum(FrankWolfe(), linear_scenes()["dim"], self.slope, WassersteinBall(radius))
        assert shares.max() <= 1 + 1e-6
        assert shares.min() >= 0.99

    @pytest.mark.parametrize(
        ("backend", "radius_pixels"),
        [("numba", 10), ("numba", 50), ("numba", 200), ("torch", 50)],
        indirect=["backend"],
    )
    def test_ascent_reaches_the_optimum_on_digits(self, radius_pixels: float) -> None:
        """The classifier is a ridge regression that tells the digits below 5 from the others."""
        sample = load("mnist-sample")
        pixels, sign = sample.images_as_float().flatten(1).double(), 2.0 * (sample.labels > 4) - 1
        ridge = torch.linalg.solve(pixels.T @ pixels + 5 * torch.eye(784), pixels.T @ sign.double())
        images = sample.subset(0, 6).images_as_float()
        ball = WassersteinBall.from_pixels(radius_pixels, images)
        shares = shares_of_the_optimum(PlanAscent(), images, ridge.view(1, 1, 28, 28).float(), ball)
        assert shares.max() <= 1 + 1e-6
        assert shares.min() >= 0.99

    @pytest.mark.parametrize("window", [5, None])
    def test_where_most_pixels_are_full_it_comes_close(self, window: int | None) -> None:
        """Two thirds are full and mass has to be handed on: a hundred steps do not quite get there."""
        images = (3 * torch.rand(4, 1, 9, 8, generator=torch.Generator().manual_seed(2))).clamp_max(1)
        shares = shares_of_the_optimum(PlanAscent(), images, self.slope, WassersteinBall(0.5, window=window))
        assert shares.max() <= 1 + 1e-6
        assert shares.min() >= 0.93

    @pytest.mark.parametrize(
        ("backend", "scene", "gap"),
        [*itertools.product(["numba"], linear_scenes(), [0.5, 10.0]), ("torch", "uniform", 0.5)],
        indirect=["backend"],
    )
    def test_the_smallest_radius_is_found(self, scene: str, gap: float, backend: str) -> None:
        images = linear_scenes()[scene]
        images = images if backend == "numba" else images[:1]
        offset = -float((images * self.slope).sum(dim=(1, 2, 3)).max()) - gap
        model = Linear(self.slope, offset=offset)
        found = smallest_radius(
            model, images, torch.zeros(len(images), dtype=torch.int64), ball=WassersteinBall(3.0), rounds=14
        )
        window = WassersteinBall(1.0).moves(images)
        assert found.success.all()
        for index in range(len(images)):
            truth = least_radius(images[index], self.slope, offset, window)
            assert truth * (1 - 1e-6) <= found.radius[index].item() <= 1.02 * truth


@pytest.mark.usefixtures("backend")
class TestEveryMethod:
    @quick
    @pytest.mark.parametrize("radius_pixels", [0, 1, 20, 200, 2000])
    def test_every_image_is_inside_and_proven(
        self, method: Any, radius_pixels: float, classifier: nn.Module, digits: tuple[Tensor, Tensor], backend: str
    ) -> None:
        count = 12 if backend == "numba" else 5
        images, labels = digits[0][:count].clone(), digits[1][:count]
        images[0] = 0  # black
        images[1] = 1  # saturated
        images[2] = (images[2] > 0.3).float()
        ball = WassersteinBall.from_pixels(radius_pixels, images)
        result = attack(classifier, images, labels, ball=ball, method=method)
        verdicts = verify(images, result.images, ball.radius, threads=1)
        assert verdicts.violations == 0, [verdicts.reason(i) for i in range(count)]
        assert verdicts.mass_drift.max() < 1e-6
        assert result.trusted.all()
        assert result.backend == backend
        right = labels_of(classifier, images) == labels
        assert right.sum() >= 2
        assert (result.steps > 0).equal(right)  # a clean mistake needs no step, every other image does
        assert result.images.min() >= 0
        assert result.images.max() <= 1
        assert (verdicts.distance <= result.cost * (1 + 1e-9) + 1e-12).all()
        assert torch.equal(result.success, labels_of(classifier, result.images) != labels)
        assert torch.equal(result.images[:2], images[:2])  # neither black nor full images can change

    @quick
    @pytest.mark.parametrize("shape", [(3, 5, 7, 4), (1, 1, 1, 6), (2, 3, 9, 9), (2, 1, 1, 1)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
    def test_any_shape_and_dtype(self, method: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        batch, channels, height, width = shape
        images = random_images(1, batch=batch, channels=channels, height=height, width=width, dtype=dtype)
        model = small_network(channels).to(dtype)
        normalisation: Normalisation
        for normalisation in ("image", "channel"):
            ball = WassersteinBall(0.2, window=3, normalisation=normalisation)
            result = attack(model, images, labels_of(model, images), ball=ball, method=method)
            assert result.images.dtype == dtype
            assert result.steps.min() > 0
            verdicts = verify(images, result.images, 0.2, normalisation=normalisation, threads=1)
            assert verdicts.violations == 0

    @quick
    def test_whole_image_windows_on_small_images(self, method: Any) -> None:
        images = random_images(9, batch=3, channels=2, height=5, width=6, dtype=torch.float32)
        model = small_network(2)
        ball = WassersteinBall(0.5, window=None, power=2.0)
        result = attack(model, images, labels_of(model, images), ball=ball, method=method)
        assert verify(images, result.images, 0.5, power=2.0, threads=1).violations == 0
        assert result.trusted.all()
        assert result.steps.min() > 0

    @quick
    def test_a_clean_mistake_costs_nothing(
        self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]
    ) -> None:
        images, labels = digits[0][:4], (digits[1][:4] + 1) % 10
        result = attack(classifier, images, labels, ball=WassersteinBall(0.1), method=method)
        assert result.success.all()
        assert torch.equal(result.images, images)
        assert result.cost.max() == 0
        assert result.steps.max() == 0
        assert result.radius.tolist() == [0.1] * 4

    @quick
    def test_the_order_and_the_batch_do_not_matter(
        self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor], backend: str
    ) -> None:
        count = 10 if backend == "numba" else 2
        half = count // 2
        images, labels = digits[0][:count], digits[1][:count]
        ball = WassersteinBall.from_pixels(60, images)
        together = attack(classifier, images, labels, ball=ball, seed=5, method=method)
        backwards = attack(classifier, images.flip(0), labels.flip(0), ball=ball, seed=5, method=method)
        halves = [
            attack(classifier, images[part], labels[part], ball=ball, seed=5, method=method)
            for part in (slice(0, half), slice(half, count))
        ]
        assert together.steps.max() > 0
        assert torch.equal(together.success, backwards.success.flip(0))
        assert torch.equal(together.success, torch.cat([part.success for part in halves]))
        torch.testing.assert_close(together.images, backwards.images.flip(0), rtol=0, atol=1e-3)

    @quick
    def test_nothing_of_the_callers_is_changed(self, method: Any, digits: tuple[Tensor, Tensor]) -> None:
        model = load_model("mnist-standard").train()
        images, labels = digits[0][:4], digits[1][:4]
        before = images.clone(), labels.clone(), [parameter.clone() for parameter in model.parameters()]
        attack(model, images, labels, ball=WassersteinBall(0.05), method=method)
        assert torch.equal(images, before[0])
        assert torch.equal(labels, before[1])
        assert all(torch.equal(new, old) for new, old in zip(model.parameters(), before[2], strict=True))
        assert model.training
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())

    @quick
    def test_targets_are_reached(self, method: Any, classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:8], digits[1][:8]
        targets = (labels + 1) % 10
        result = attack(classifier, images, labels, ball=WassersteinBall(1.0), targets=targets, method=method)
        answers = labels_of(classifier, result.images)
        assert torch.equal(result.success, answers == targets)
        assert result.steps.min() > 0 and result.success.any()

    @quick
    def test_a_zero_gradient_is_no_catastrophe(self, method: Any) -> None:
        images = random_images(2, batch=3, channels=1, height=6, width=6, dtype=torch.float32)
        constant = lambda x: torch.stack([x.sum(dim=(1, 2, 3)) * 0 + 1, x.sum(dim=(1, 2, 3)) * 0], dim=1)  # noqa: E731
        result = attack(constant, images, torch.zeros(3, dtype=torch.int64), ball=WassersteinBall(0.1), method=method)
        assert not result.success.any()
        assert result.steps.min() > 0
        assert torch.isfinite(result.images).all()

    @quick
    def test_an_empty_batch_stays_empty(self, method: Any) -> None:
        images = torch.zeros(0, 1, 6, 6)
        result = attack(
            small_network(1), images, torch.zeros(0, dtype=torch.int64), ball=WassersteinBall(0.1), method=method
        )
        assert len(result) == 0


@pytest.mark.usefixtures("backend")
def test_every_image_may_have_a_radius_of_its_own(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:4], digits[1][:4]
    radius = torch.tensor([0.0, 0.02, 0.1, 0.3], dtype=torch.float64)
    result = attack(classifier, images, labels, radius=radius, method="ascent")
    assert torch.equal(result.radius, radius)
    assert verify(images, result.images, radius).violations == 0
    assert torch.equal(result.images[0], images[0])
    alone = attack(classifier, images[3:], labels[3:], radius=0.3, method="ascent")
    assert bool(alone.success) and bool(result.success[3])
    torch.testing.assert_close(alone.images[0], result.images[3], rtol=0, atol=1e-3)


def test_both_backends_break_the_same_digits(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("numba")
    images, labels = digits[0][:12], digits[1][:12]
    ball = WassersteinBall.from_pixels(60, images)
    found = [
        attack(classifier, images, labels, ball=ball, method=PlanAscent(steps=20), backend=backend)
        for backend in ("numba", "torch")
    ]
    assert [result.backend for result in found] == ["numba", "torch"]
    assert torch.equal(found[0].success, found[1].success)
    assert 0 < found[0].success.sum() < 12
    torch.testing.assert_close(found[0].images, found[1].images, rtol=0, atol=0.02)


def test_more_budget_breaks_more(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits
    broken = [
        int(attack(classifier, images[:40], labels[:40], radius=r / 784, method="ascent").success.sum())
        for r in (0, 50, 300)
    ]
    assert broken[0] <= broken[1] <= broken[2]
    assert broken[2] >= 35


class Remembering(nn.Module):
    """A linear classifier in float64 that remembers the scores of all images it was asked for a gradient of."""

    def __init__(self, slope: Tensor, offset: float) -> None:
        super().__init__()
        self.slope, self.offset = nn.Parameter(slope.double()), offset
        self.scores: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        score = (images.double() * self.slope).sum(dim=(1, 2, 3)) + self.offset
        if images.requires_grad:
            self.scores += score.tolist()
        return torch.stack([torch.zeros_like(score), score], dim=1)


@pytest.mark.usefixtures("backend")
def test_what_a_proof_undoes_is_won_by_more() -> None:
    """Rounding is paid from the budget, so that a proved image falls short of the one that the search saw."""
    image, label, radius = linear_scenes()["dim"][:1], torch.zeros(1, dtype=torch.int64), 1e-4
    slope = torch.randn(1, 1, 9, 8, generator=torch.Generator().manual_seed(3))
    patient = Remembering(slope, offset=-1e3)  # out of reach, so that it is seen how the search climbs
    attack(patient, image, label, radius=radius, method=PlanAscent(steps=30))
    height, step = patient.scores, 5
    assert max(height[:step]) < height[step] < max(height)  # there is more to be had
    hair = 1e-6 * (height[step] - height[0])
    barely = Remembering(slope, offset=-1e3 - height[step] + hair)
    found = attack(barely, image, label, radius=radius, method=PlanAscent(steps=30))
    assert 0 < barely.scores[step] < 2 * hair
    assert found.success.all() and found.trusted.all()
    assert float(barely(found.images).detach()[0, 1]) > hair
    assert int(found.steps) > 2 * (step + 1)  # of both searches


def test_the_ensemble_wins_wherever_ascent_does(classifier: nn.Module, digits: tuple[Tensor, Tensor]) -> None:
    images, labels = digits[0][:20], digits[1][:20]
    ball = WassersteinBall.from_pixels(60, images)
    alone = attack(classifier, images, labels, ball=ball, method=PlanAscent(steps=15))
    ensemble = attack(classifier, images, labels, ball=ball, method=Ensemble(steps=15, restarts=0))
    assert (ensemble.success | ~alone.success).all()


class Counting(nn.Module):
    """How many gradients a classifier was asked for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.gradients = model, 0

    def forward(self, images: Tensor) -> Tensor:
        self.gradients += len(images) if images.requires_grad else 0
        answer: Tensor = self.model(images)
        return answer


class TestGivingUp:
    images = linear_scenes()["dim"]
    slope = torch.randn(1, 1, 9, 8, generator=torch.Generator().manual_seed(3))
    labels = torch.zeros(4, dtype=torch.int64)

    def asked(self, method: Any, *, gap: float, slope: Tensor | None = None) -> tuple[int, Tensor]:
        """Gradients asked for, and who was broken, when the margin on the originals is a gap, in best gains."""
        ball = WassersteinBall(0.1)
        best = max(best_gain(image, self.slope, ball.moves(self.images), 0.1) for image in self.images)
        scores = (self.images * self.slope).sum(dim=(1, 2, 3))
        steep = self.slope if slope is None else slope
        model = Counting(Linear(steep, offset=-float(scores.max()) - gap * best))
        found = attack(model, self.images, self.labels, ball=ball, method=method)
        return model.gradients, found.success

    def test_an_image_that_lags_is_left_and_one_that_does_not_is_not(self) -> None:
        patient, keen = PlanAscent(steps=50), PlanAscent(steps=50, gives_up=True)
        assert self.asked(patient, gap=3.0)[0] == 4 * 50
        assert self.asked(keen, gap=3.0)[0] <= 4 * 11  # from the tenth step on more than 0.6 of the margin is left
        assert torch.equal(self.asked(keen, gap=0.3)[1], self.asked(patient, gap=0.3)[1])

    def test_an_image_without_a_gradient_is_not_given_up(self) -> None:
        flat = torch.zeros_like(self.slope)
        assert self.asked(PlanAscent(steps=50, gives_up=True), gap=1.0, slope=flat)[0] == 4 * 50

    def test_the_ensemble_spends_little_on_the_hopeless(self) -> None:
        """Two attacks look at each; then none does, for all of them say the same."""
        assert self.asked(Ensemble(steps=50), gap=3.0)[0] <= 2 * 4 * 11
        assert self.asked(Ensemble(steps=40), gap=3.0)[0] >= 4 * 40 * 6  # too short to say who is hopeless
        assert self.asked(Ensemble(steps=50), gap=0.05)[1].any()


def test_the_examples_of_the_ensemble_cost_no_more_than_they_are_far(
    classifier: nn.Module, digits: tuple[Tensor, Tensor]
) -> None:
    """Plans of early successes are soft: those of an ascent cost up to a third more than the distance."""
    images, labels, ball = digits[0][:12], digits[1][:12], WassersteinBall(0.4)
    methods: dict[str, Attack] = {"ascent": PlanAscent(steps=15), "auto": Ensemble(steps=15, restarts=0)}
    found = {name: attack(classifier, images, labels, ball=ball, method=method) for name, method in methods.items()}
    share = {
        name: float((exact_distance(images, result.images) / result.cost)[result.success].mean())
        for name, result in found.items()
    }
    assert share["auto"] >= 0.99 > share["ascent"]
    assert found["auto"].trusted.all()


def test_restarts_depend_on_the_image_and_the_seed_alone() -> None:
    images = random_images(4, batch=3, channels=1, height=4, width=4, dtype=torch.float32)
    together = random_potential(images, seed=1)
    assert torch.equal(together[1:2], random_potential(images[1:2], seed=1))
    assert not torch.equal(together, random_potential(images, seed=2))


@pytest.mark.usefixtures("backend")
class TestSmallestRadius:
    def test_examples_are_proven_at_their_own_radius(
        self, classifier: nn.Module, digits: tuple[Tensor, Tensor], backend: str
    ) -> None:
        count = 12 if backend == "numba" else 4
        images, labels = digits[0][:count], digits[1][:count].clone()
        labels[0] = (labels[0] + 1) % 10  # a clean mistake
        found = smallest_radius(classifier, images, labels, rounds=4)
        won = found.success
        assert won.sum() >= count - 2
        assert found.backend == backend
        assert found.radius[0] == 0
        assert found.steps[1:].min() > 0
        assert verify(images[won], found.images[won], found.radius[won]).violations == 0
        assert (labels_of(classifier, found.images)[won] != labels[won]).all()
        assert torch.isinf(found.radius[~won]).all()

    def test_another_class_than_the_likeliest_may_be_closer(
        self, classifier: nn.Module, digits: tuple[Tensor, Tensor], backend: str
    ) -> None:
        chosen = [0, 23, 34, 50] if backend == "numba" else [34]
        images, labels = digits[0][chosen], digits[1][chosen]
        near, nearest = (smallest_radius(classifier, images, labels, rounds=rounds) for rounds in (3, None))
        assert (nearest.radius <= near.radius * (1 + 1e-6)).all()
        assert (nearest.radius[-1:] < 0.85 * near.radius[-1:]).all()
        assert (nearest.lower <= nearest.radius).all()
        assert verify(images, nearest.images, nearest.radius).violations == 0

    def test_one_run_gives_the_whole_curve(
        self, classifier: nn.Module, digits: tuple[Tensor, Tensor], backend: str
    ) -> None:
        count = 10 if backend == "numba" else 3
        found = smallest_radius(classifier, digits[0][:count], digits[1][:count], rounds=3)
        curve = found.curve()
        assert (curve.radius[1:] >= curve.radius[:-1]).all()
        finite = torch.isfinite(curve.radius)
        for radius, accuracy in zip(curve.radius[finite].tolist(), curve.accuracy[finite].tolist(), strict=True):
            assert found.accuracy_at(radius) == pytest.approx(accuracy)
        steps = torch.linspace(0, 1, 20001, dtype=torch.float64)
        area = torch.tensor([found.accuracy_at(r) for r in steps.tolist()]).double().mean().item()
        assert found.area(1.0) == pytest.approx(area, abs=1e-3)

    def test_it_gives_up_at_the_radius_of_the_ball(self) -> None:
        """A ball with a radius for each image, smaller than what would break the second."""
        images = linear_scenes()["dim"][:2]
        slope = torch.arange(8.0).expand(1, 9, 8).contiguous()
        scores = (images * slope).sum(dim=(1, 2, 3))
        model = Linear(slope, offset=-float(scores.max()) - 0.5)
        free = smallest_radius(model, images, torch.zeros(2, dtype=torch.int64))
        assert free.success.all()
        limit = torch.stack([2 * free.radius[0], 0.5 * free.radius[1]])
        found = smallest_radius(model, images, torch.zeros(2, dtype=torch.int64), ball=WassersteinBall(limit))
        assert found.success.tolist() == [True, False]
        assert found.lower[1].item() == pytest.approx(limit[1].item())

    @pytest.mark.parametrize("method", ["frank-wolfe", "sinkhorn"])
    def test_any_method_will_do(self, method: str) -> None:
        images = linear_scenes()["dim"][:1]
        slope = torch.arange(8.0).expand(1, 9, 8).contiguous()
        offset = -float((images * slope).sum()) - 0.5
        found = smallest_radius(
            Linear(slope, offset=offset), images, torch.zeros(1, dtype=torch.int64), method=method, rounds=6
        )
        truth = least_radius(images[0], slope, offset, WassersteinBall(1.0).moves(images))
        assert truth * (1 - 1e-6) <= found.radius.item() <= 1.25 * truth

    def test_an_unbreakable_image_has_no_radius(self) -> None:
        images = random_images(2, batch=2, channels=1, height=5, width=5, dtype=torch.float32)
        model = Linear(torch.zeros(1, 1, 5, 5), offset=-1.0)
        found = smallest_radius(model, images, torch.zeros(2, dtype=torch.int64), rounds=3)
        assert found.steps.min() > 0
        assert torch.isinf(found.radius).all()
        assert torch.equal(found.images, images)


class TestBadInput:
    def test_unknown_method(self) -> None:
        with pytest.raises(MassmoverError, match="unknown method"):
            attack(small_network(1), torch.rand(1, 1, 4, 4), torch.zeros(1).long(), radius=0.1, method="magic")
        with pytest.raises(MassmoverError, match="unknown method"):
            smallest_radius(small_network(1), torch.rand(1, 1, 4, 4), torch.zeros(1).long(), method="magic")
        with pytest.raises(MassmoverError, match="give a name, or an attack such as"):
            attack(small_network(1), torch.rand(1, 1, 4, 4), torch.zeros(1).long(), radius=0.1, method=3)  # type: ignore[arg-type]

    def test_a_ball_or_a_radius_and_not_both(self) -> None:
        given = small_network(1), torch.rand(1, 1, 4, 4), torch.zeros(1).long()
        with pytest.raises(MassmoverError, match="one of the two"):
            attack(*given)
        with pytest.raises(MassmoverError, match="one of the two"):
            attack(*given, radius=0.1, ball=WassersteinBall(0.1))

    def test_images_labels_and_radius_are_checked(self) -> None:
        model, labels = small_network(1), torch.zeros(1, dtype=torch.int64)
        with pytest.raises(MassmoverError, match="0-255"):
            attack(model, 255 * torch.ones(1, 1, 4, 4), labels, radius=0.1)
        with pytest.raises(MassmoverError, match="Labels"):
            attack(model, torch.rand(1, 1, 4, 4), torch.zeros(2).long(), radius=0.1)
        with pytest.raises(MassmoverError, match="radius"):
            attack(model, torch.rand(1, 1, 4, 4), labels, radius=float("nan"))
        with pytest.raises(MassmoverError, match="below 4"):
            attack(model, torch.rand(1, 1, 4, 4), labels + 7, radius=0.1)


def test_gradients_are_found_where_the_caller_switched_them_off(digits: tuple[Tensor, Tensor]) -> None:
    model = small_network(1, classes=10)
    labels = labels_of(model, digits[0][:2])
    with torch.no_grad():
        result = attack(model, digits[0][:2], labels, radius=0.01, method="ascent")
    assert result.steps.min() > 0
    assert result.trusted.all()


def test_a_model_without_gradients_is_refused(digits: tuple[Tensor, Tensor]) -> None:
    inner = small_network(1, classes=10)
    labels = labels_of(inner, digits[0][:2])
    for method in ("ascent", "sinkhorn"):
        with pytest.raises(MassmoverError, match="differentiable"):
            attack(lambda images: inner(images.detach()).detach(), digits[0][:2], labels, radius=0.01, method=method)


def test_a_target_must_lead_all_classes_before_its_attack_stops() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    truth, target = torch.tensor([0]), torch.tensor([1])
    assert margin_of(logits, truth, targets=target).item() == -1.0  # above the truth, but a third class leads
    assert margin_of(logits, truth, targets=torch.tensor([2])).item() == 1.0
    assert margin_of(logits, truth).item() == 2.0


def test_a_target_that_is_the_label_is_refused() -> None:
    labels = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(MassmoverError, match="own label"):
        attack(small_network(1), torch.rand(1, 1, 4, 4), labels, radius=0.1, targets=labels)


def test_any_wrong_answer_counts_in_the_ensemble(digits: tuple[Tensor, Tensor]) -> None:
    """What a targeted run of the ensemble finds is a success whichever wrong class it led to."""
    model = load_model("mnist-standard")
    result = attack(
        model, digits[0][:20], digits[1][:20], ball=WassersteinBall(0.15), method=Ensemble(steps=8, restarts=0)
    )
    assert torch.equal(result.success, labels_of(model, result.images) != digits[1][:20])


def test_every_method_of_the_table_can_be_called() -> None:
    assert set(METHODS) >= {"auto", "ascent", "frank-wolfe", "sinkhorn", "wong"}
    assert massmover.attack is attack


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_device_follows_the_input(digits: tuple[Tensor, Tensor]) -> None:
    model = load_model("mnist-standard").cuda()
    result = attack(model, digits[0][:8].cuda(), digits[1][:8].cuda(), radius=0.1, method="ascent")
    assert result.images.is_cuda
    assert verify(digits[0][:8], result.images, 0.1).violations == 0
