"""The shape of AutoAttack, on a real model."""

from __future__ import annotations

import pytest
import torch
from victim import Victim, victim, violations

import massmover
from massmover import WassersteinBall
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


def test_a_batch_holds_an_image(digits: Victim) -> None:
    with pytest.raises(MassmoverError, match="bs is 0"):
        WassersteinAutoAttack(digits.model, ball=WassersteinBall(0.1)).run_standard_evaluation(
            digits.images, digits.labels, bs=0
        )
