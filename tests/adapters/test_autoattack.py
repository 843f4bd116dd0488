"""The shape of AutoAttack, on a real model."""

from __future__ import annotations

import pytest
import torch
from victim import Victim, victim, violations

import massmover
from massmover import PlanAscent, WassersteinBall
from massmover.adapters.autoattack import WassersteinAutoAttack
from massmover.types import MassmoverError

SMALL = 0.1  # some digits break here, some stand


@pytest.fixture(scope="module")
def digits() -> Victim:
    return victim(12)


@pytest.mark.usefixtures("backend")
def test_perturb_returns_originals_where_the_attack_failed(digits: Victim) -> None:
    found = WassersteinAutoAttack(digits.model, ball=WassersteinBall(SMALL), method="ascent").perturb(
        digits.images, digits.labels
    )
    won = digits.answers(found) != digits.labels
    assert won.any() and not won.all()
    assert violations(digits, found, radius=SMALL) == 0
    assert torch.equal(found[~won], digits.images[~won])
    own = massmover.attack(digits.model, digits.images, digits.labels, radius=SMALL, method="ascent")
    assert torch.equal(won, own.success)


def test_the_standard_evaluation(digits: Victim) -> None:
    attack = WassersteinAutoAttack(digits.model, ball=WassersteinBall(0.3))
    found, answers = attack.run_standard_evaluation(digits.images, digits.labels, bs=5, return_labels=True)
    assert violations(digits, found, radius=0.3) == 0
    assert torch.equal(answers, digits.answers(found))
    assert (answers == digits.labels).float().mean() < 0.1


def test_the_answer_is_images_alone_unless_asked(digits: Victim) -> None:
    attack = WassersteinAutoAttack(digits.model, ball=WassersteinBall(0.0), method="ascent")
    assert torch.equal(attack.run_standard_evaluation(digits.images[:2], digits.labels[:2]), digits.images[:2])


def test_a_model_that_answers_by_chance_is_averaged(digits: Victim) -> None:
    def noisy(images: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = digits.model(images + 0.1 * torch.randn_like(images))
        return answer

    images, labels, before = digits.images[:4], digits.labels[:4], torch.get_rng_state()
    attack = WassersteinAutoAttack(noisy, ball=WassersteinBall(0.2), method=PlanAscent(steps=10), draws=3)
    found, answers = attack.run_standard_evaluation(images, labels, return_labels=True)
    own = massmover.attack(noisy, images, labels, radius=0.2, method=PlanAscent(steps=10), draws=3)
    assert torch.equal(before, torch.get_rng_state())
    assert own.success.any()
    assert torch.equal(found, torch.where(own.success.view(-1, 1, 1, 1), own.images, images))
    assert torch.equal(answers[own.success] != labels[own.success], own.success[own.success])


def test_a_batch_holds_an_image(digits: Victim) -> None:
    with pytest.raises(MassmoverError, match="bs is 0"):
        WassersteinAutoAttack(digits.model, ball=WassersteinBall(0.1)).run_standard_evaluation(
            digits.images, digits.labels, bs=0
        )
