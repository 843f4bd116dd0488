"""Models that answer by chance: the mean over draws, its gradient, its seeds, and attacks on it."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from linear import Linear, least_radius
from massmover import METHODS, PlanAscent, WassersteinBall, attack, smallest_radius
from massmover.attacks.losses import gradient_of
from massmover.classifier import DECIDING, Drawn, borrowed, deciding, lead, mean_scores
from massmover.models import load_model
from massmover.types import Classifier, MassmoverError


class Coin(nn.Module):
    """One of two classifiers at every call: the second with a given probability."""

    def __init__(self, first: nn.Module, second: nn.Module, *, chance: float) -> None:
        super().__init__()
        self.first, self.second, self.chance = first, second, chance

    def forward(self, images: Tensor) -> Tensor:
        chosen = self.second if float(torch.rand(())) < self.chance else self.first
        answer: Tensor = chosen(images)
        return answer


def scene() -> tuple[Tensor, Tensor]:
    """Four images with room in every pixel, and a slope."""
    generator = torch.Generator().manual_seed(5)
    return 0.4 * torch.rand(4, 1, 9, 8, generator=generator), torch.randn(1, 1, 9, 8, generator=generator)


def drawn_scores(seed: int, *, draws: int, classes: int) -> Tensor:
    return 3 * torch.randn(draws, 5, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestMean:
    @given(seed=st.integers(0, 10**6), draws=st.integers(1, 7), classes=st.integers(1, 5))
    def test_its_softmax_is_the_mean_of_the_draws(self, seed: int, draws: int, classes: int) -> None:
        scores = drawn_scores(seed, draws=draws, classes=classes)
        torch.testing.assert_close(mean_scores(scores).softmax(dim=1), scores.softmax(dim=2).mean(dim=0))

    @given(seed=st.integers(0, 10**6), draws=st.integers(1, 30))
    def test_equal_draws_give_themselves_to_the_last_bit(self, seed: int, draws: int) -> None:
        scores = drawn_scores(seed, draws=1, classes=4).float()
        assert torch.equal(mean_scores(scores.repeat(draws, 1, 1)), scores[0])

    def test_the_order_of_the_draws_does_not_change_the_odds(self) -> None:
        scores = drawn_scores(0, draws=6, classes=3)
        one, other = (mean_scores(order).log_softmax(dim=1) for order in (scores, scores.flip(0)))
        torch.testing.assert_close(one, other)

    def test_certain_draws_that_disagree_overflow_nowhere(self) -> None:
        scores = torch.tensor([[[-900.0, 0.0]], [[0.0, -900.0]], [[0.0, -900.0]]])
        torch.testing.assert_close(mean_scores(scores).softmax(dim=1), torch.tensor([[2 / 3, 1 / 3]]))

    def test_its_gradient_is_the_mean_of_the_gradients_of_the_probabilities(self) -> None:
        """The chain rule by hand: d log p = dp / p, with p and dp averaged over the draws one by one."""
        images, slope = scene()
        models = [Linear(slope * weight, offset=offset) for weight, offset in ((1.0, 0.3), (-2.0, 0.1), (0.5, -1.0))]
        variable = images.double().requires_grad_(True)
        scores = mean_scores(torch.stack([model(variable) for model in models])).log_softmax(dim=1)
        (found,) = torch.autograd.grad(scores[:, 1].sum(), variable)
        probability, rise = torch.zeros(4, dtype=torch.float64), torch.zeros_like(variable)
        for model in models:
            own = model(variable).softmax(dim=1)[:, 1]
            rise += torch.autograd.grad(own.sum(), variable)[0] / 3
            probability += own.detach() / 3
        torch.testing.assert_close(found, rise / probability.view(-1, 1, 1, 1))


class TestLead:
    def test_known_values(self) -> None:
        assert [lead(1), lead(2), lead(4)] == [0.0, math.inf, math.inf]
        assert lead(16) == pytest.approx(math.log(3))  # a mean of 3 : 1, that is a lead of 1/2 = 2 / sqrt(16)

    def test_a_coin_seldom_leads_by_as_much(self) -> None:
        """Two standard errors: at most one fair coin in twenty or so, whatever the number of tosses."""
        generator = torch.Generator().manual_seed(0)
        for draws in (20, 100):
            heads = (torch.rand(20_000, draws, generator=generator) < 0.5).double().mean(dim=1)
            assert float((torch.logit(heads).abs() > lead(draws)).double().mean()) < 0.06


def noisy(model: Classifier, sigma: float = 0.3) -> Classifier:
    return lambda images: model(images + sigma * torch.randn_like(images))


class TestSeeds:
    @pytest.mark.parametrize("source", ["torch", "numpy", "python"])
    def test_the_generators_are_given_back_and_followed(self, source: str) -> None:
        draw: dict[str, Any] = {
            "torch": lambda: float(torch.rand(())),
            "numpy": lambda: float(np.random.rand()),
            "python": random.random,
        }

        def model(images: Tensor) -> Tensor:
            answer: Tensor = images.flatten(1) * draw[source]()
            return answer

        def answers(seed: int) -> list[Tensor]:
            drawn = Drawn(model, draws=3, seed=seed)
            return [drawn(images), drawn(images)]

        images = torch.rand(2, 1, 2, 2)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
        first, again, other = answers(1), answers(1), answers(2)
        after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
        assert torch.equal(before[0], after[0]) and before[1:] == after[1:]
        assert all(torch.equal(one, same) for one, same in zip(first, again, strict=True))
        assert not torch.equal(first[0], other[0])
        assert not torch.equal(first[0], first[1])  # every call of a search sees draws of its own

    def test_a_judge_decides_by_the_same_draws_which_no_search_sees(self) -> None:
        images, model = torch.rand(2, 1, 2, 2), noisy(lambda images: images.flatten(1))
        judge, search = Drawn(model, draws=2, seed=0, judge=True), Drawn(model, draws=2, seed=0)
        assert torch.equal(judge(images), judge(images))
        assert not any(torch.equal(judge(images), search(images)) for _ in range(3))

    def test_generators_are_given_back_after_an_error_too(self) -> None:
        def failing(images: Tensor) -> Tensor:
            assert float(torch.rand(())) + random.random() + np.random.rand() > 0
            raise RuntimeError("halfway")

        images, before = torch.rand(1, 1, 2, 2), (torch.get_rng_state(), random.getstate())
        with pytest.raises(RuntimeError, match="halfway"):
            Drawn(failing, draws=2, seed=0)(images)
        assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()

    def test_how_often_the_model_is_asked(self) -> None:
        calls: list[int] = []

        def counted(images: Tensor) -> Tensor:
            calls.append(len(images))
            return images.flatten(1)

        images = torch.rand(3, 1, 2, 2)
        for draws, expected in ((1, 1), (4, 4 * DECIDING)):
            calls.clear()
            Drawn(counted, draws=draws, seed=0)(images)
            assert len(calls) == expected == deciding(draws)
            calls.clear()
            Drawn(counted, draws=draws, seed=0)(images.clone().requires_grad_(True))
            assert len(calls) == draws

    @pytest.mark.parametrize("draws", [0, -3, True, 2.0, "5"])
    def test_a_number_of_draws_that_is_none_is_refused(self, draws: Any) -> None:
        images, slope = scene()
        with pytest.raises(MassmoverError, match=r"draws is .*give a whole number, 1 or more, or leave it out"):
            attack(Linear(slope, 0.0), images, torch.zeros(4).long(), radius=0.1, draws=draws)


class TestBorrowing:
    def model(self) -> nn.Sequential:
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
        model.eval()[2].train()
        return model

    def test_dropout_that_was_left_on_stays_on_and_comes_back_so(self) -> None:
        model = self.model()
        with borrowed(Drawn(model, draws=2, seed=0)):
            assert model[2].training and not model[1].training
            assert not any(parameter.requires_grad for parameter in model.parameters())
        assert model[2].training and all(parameter.requires_grad for parameter in model.parameters())
        with borrowed(model):
            assert not model[2].training

    def test_batch_statistics_do_not_change(self) -> None:
        model = self.model().train()
        before, drawn = model[1].running_mean.clone(), Drawn(model, draws=2, seed=0)  # type: ignore[operator]
        with borrowed(drawn):
            drawn(torch.rand(5, 1, 2, 2))
        assert torch.equal(model[1].running_mean, before)  # type: ignore[arg-type]
        assert model[1].training

    def test_two_borrowers_of_one_model_give_it_back_as_it_was(self) -> None:
        model = self.model()
        first, second = borrowed(model), borrowed(Drawn(model, draws=2, seed=0))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert model[2].training and all(parameter.requires_grad for parameter in model.parameters())


class TestExpectation:
    def test_symmetric_noise_of_the_scores_leaves_the_decision_where_it_is(self) -> None:
        """Their difference is as likely to rise as to fall: its mean probability is above 1/2 where it is above 0."""
        images, slope = scene()
        steady = Linear(slope, offset=-0.5)
        drawn = Drawn(lambda batch: steady(batch) + 0.5 * torch.randn(len(batch), 2), draws=60, seed=0)
        with torch.no_grad():
            sure = (steady(images)[:, 1]).abs() > 0.2
            assert sure.any()
            assert torch.equal(drawn(images).argmax(dim=1)[sure], steady(images).argmax(dim=1)[sure])

    def test_the_gradient_of_a_mixture_is_the_one_in_closed_form(self) -> None:
        """q s(a) + (1 - q) s(b) for the logistic s of two linear scores, at a share q of heads known from the seed."""
        images, slope = scene()
        images = images.double()
        up, down = Linear(slope.double(), 0.2), Linear(-0.5 * slope.double(), 0.1)
        drawn = Drawn(Coin(up, down, chance=0.3), draws=400, seed=3)
        logits, found = gradient_of(drawn, images, torch.zeros(4).long(), name="cross-entropy")
        a, b = (model(images)[:, 1].detach() for model in (up, down))
        mean = logits.softmax(dim=1)[:, 1]
        share = ((mean - b.sigmoid()) / (a.sigmoid() - b.sigmoid()))[0]  # of the first classifier among the 400 draws
        assert float(share) == pytest.approx(0.7, abs=0.07)
        p = share * a.sigmoid() + (1 - share) * b.sigmoid()
        torch.testing.assert_close(mean, p)
        weight = share * a.sigmoid() * (1 - a.sigmoid()) - 0.5 * (1 - share) * b.sigmoid() * (1 - b.sigmoid())
        expected = (weight / (p * (1 - p))).view(-1, 1, 1, 1) * slope.double()  # of the log odds
        torch.testing.assert_close(found, expected)


def same(one: Any, other: Any) -> bool:
    names = ("images", "success", "radius", "steps")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names) and torch.equal(
        one.plan.flows, other.plan.flows
    )


class TestAttacks:
    @pytest.mark.parametrize("method", METHODS)
    def test_one_draw_of_a_model_without_randomness_is_the_model(
        self, digits: tuple[Tensor, Tensor], method: str
    ) -> None:
        images, labels = digits[0][:3], digits[1][:3]
        model = load_model("mnist-standard")
        one, none = (
            attack(model, images, labels, radius=0.12, method=method, steps=5, draws=draws) for draws in (1, None)
        )
        assert same(one, none)

    def test_one_draw_gives_the_same_smallest_radius(self, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:3], digits[1][:3]
        model, method = load_model("mnist-standard"), PlanAscent(steps=5)
        one, none = (smallest_radius(model, images, labels, method=method, rounds=3, draws=n) for n in (1, None))
        assert same(one, none) and torch.equal(one.lower, none.lower)

    def test_an_attack_is_repeatable_and_gives_the_generators_back(self, digits: tuple[Tensor, Tensor]) -> None:
        images, labels = digits[0][:4], digits[1][:4]
        model = noisy(load_model("mnist-standard"))
        before = torch.get_rng_state()
        first, second = (
            attack(model, images, labels, radius=0.2, method="ascent", steps=8, draws=3, seed=1) for _ in range(2)
        )
        assert same(first, second)
        assert torch.equal(before, torch.get_rng_state())

    def test_success_is_decided_by_draws_that_the_search_did_not_see(self, digits: tuple[Tensor, Tensor]) -> None:
        """A model that answers wrongly for as long as a search asks: whatever it claims, the judge does not."""
        images, labels = digits[0][:3], digits[1][:3]
        steady = load_model("mnist-standard")
        judge = _state_of_the_judge()
        asked: list[bool] = []  # by the judge

        def model(batch: Tensor) -> Tensor:
            asked.append(torch.equal(torch.get_rng_state(), judge))
            scores: Tensor = steady(batch)
            return scores if asked[-1] else scores.roll(1, dims=1)

        found = attack(model, images, labels, radius=0.01, method="ascent", steps=2, draws=2)
        assert not found.success.any()
        assert asked[-20:] == [True] * 20 and not any(asked[:-20])

    def test_the_smallest_radius_of_a_mixture_is_that_of_its_mean(self) -> None:
        """Symmetric noise of linear scores: the mean turns where the linear score does, a linear programme away."""
        images, slope = scene()
        offset = -float((images * slope).sum(dim=(1, 2, 3)).max()) - 1.0
        steady = Linear(slope, offset)

        def model(batch: Tensor) -> Tensor:
            answer: Tensor = steady(batch) + torch.randn(len(batch), 2)
            return answer

        found = smallest_radius(
            model,
            images,
            torch.zeros(4).long(),
            ball=WassersteinBall(3.0),
            rounds=10,
            draws=50,
            method=PlanAscent(steps=40),
        )
        assert found.success.all()
        window = WassersteinBall(1.0).moves(images)
        for index in range(4):
            truth = least_radius(images[index], slope, offset, window)
            assert 0.9 * truth <= found.radius[index].item() <= 1.5 * truth


def _state_of_the_judge() -> Tensor:
    """The state of torch's generator when a judge with seed 0 begins."""
    states: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        states.append(torch.get_rng_state())
        return images.flatten(1)

    Drawn(model, draws=2, seed=0, judge=True)(torch.zeros(1, 1, 2, 2))
    return states[0]
