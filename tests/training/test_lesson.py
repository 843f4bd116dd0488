"""Training with a teacher: what a lesson costs, and that a run goes on with the same teacher or not at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from bars import bars
from torch import nn

from massmover.models import PotentialNetwork, lenet
from massmover.training import Adversary, Recipe, Teachers, train
from massmover.training.lesson import Lesson, loss_of, same_teacher, told_by
from massmover.training.state import Epoch
from massmover.types import MassmoverError

TAUGHT = Recipe(
    epochs=3,
    batch_size=32,
    shift=0,
    averaging=0.9,
    clean_share=0.25,
    taught=0.8,
    adversary=Adversary(steps=1, growth=0.0, remember=True),
)


def professor(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


@pytest.mark.parametrize("clean_share", [0.0, 0.25])
def test_a_taught_loss_is_what_it_says(clean_share: float) -> None:
    torch.manual_seed(0)
    model = lenet().eval()
    clean, moved, labels = torch.rand(3, 1, 28, 28), torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 3])
    told = 3 * torch.randn(3, 10)
    plain, hard = (3 * nn.functional.cross_entropy(model(x), labels) for x in (clean, moved))
    wanted, given = told.softmax(1), model(moved).softmax(1)
    apart = (wanted * (wanted / given).log()).sum()
    recipe = dataclasses.replace(TAUGHT, clean_share=clean_share)
    loss = loss_of(recipe, model, Lesson(clean, moved, labels, told), share=1)
    by_hand = clean_share * plain + (1 - clean_share) * (0.2 * hard + 0.8 * apart)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)
    agreed = loss_of(
        dataclasses.replace(recipe, taught=1.0), model, Lesson(clean, moved, labels, model(moved)), share=1
    )
    assert agreed.item() == pytest.approx(clean_share * plain.item(), abs=1e-5)


def test_a_network_comes_to_answer_like_its_teacher() -> None:
    images, labels = bars(64)
    teacher = professor(1)
    distance = []
    for taught in (0.0, 1.0):
        recipe = dataclasses.replace(TAUGHT, taught=taught, clean_share=0.0, epochs=20, peak_rate=0.02)
        model = train(lenet, images, labels, recipe=recipe, teacher=teacher if taught else None).model
        pixels = images.float() / 255
        answers, wanted = told_by(model, pixels).softmax(1), told_by(teacher, pixels).softmax(1)
        distance.append(float((answers - wanted).abs().sum(1).mean()))
    assert distance[1] < 0.5 * distance[0], distance


def test_a_teacher_is_left_as_it_was() -> None:
    teacher = professor(1).train()
    before = [parameter.clone() for parameter in teacher.parameters()]
    train(lenet, *bars(40), recipe=dataclasses.replace(TAUGHT, epochs=1), teacher=teacher)
    assert teacher.training and all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))


def test_teachers_add_up_and_pixels_of_potentials_count_double() -> None:
    torch.manual_seed(0)
    free, potentials = professor(1), PotentialNetwork((1, 28, 28), groups=2, members=2).frozen()
    images = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(Teachers([potentials, free])(images), free(images) + 2 * potentials(images))
    torch.testing.assert_close(Teachers([potentials], pixel=5.0)(images), 5 * potentials(images))


def test_a_taught_run_resumes_to_the_bit_with_its_own_teacher_alone(tmp_path: Path) -> None:
    images, labels = bars(64)
    whole = train(lenet, images, labels, recipe=TAUGHT, teacher=professor(1)).model.state_dict()
    other = train(lenet, images, labels, recipe=TAUGHT, teacher=professor(2)).model.state_dict()
    assert any(not torch.equal(whole[name], other[name]) for name in whole)

    def kill(line: Epoch) -> None:
        if line.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(lenet, images, labels, recipe=TAUGHT, teacher=professor(1), folder=tmp_path, ended=kill)
    with pytest.raises(MassmoverError, match="taught by another teacher"):
        train(lenet, images, labels, recipe=TAUGHT, teacher=professor(2), folder=tmp_path)
    resumed = train(lenet, images, labels, recipe=TAUGHT, teacher=professor(1), folder=tmp_path).model.state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_teacher_with_nothing_to_teach_and_a_lesson_without_teacher_are_refused() -> None:
    with pytest.raises(MassmoverError, match=r"taught is 0.8 and no teacher was given: pass teacher="):
        train(lenet, *bars(8), recipe=TAUGHT)
    with pytest.raises(MassmoverError, match=r"taught is 0.0 and a teacher was given"):
        train(lenet, *bars(8), recipe=dataclasses.replace(TAUGHT, taught=0.0), teacher=professor(1))
    for settings in ({"taught": 1.5}, {"adversary": None}, {"trades": 1.0}):
        with pytest.raises(MassmoverError, match="taught is"):
            dataclasses.replace(TAUGHT, **settings)


def test_teachers_are_told_apart_by_their_answers() -> None:
    answers = torch.tensor([[1.0, 2.0]])
    assert same_teacher(None, None) and same_teacher(answers, answers + 1e-5)
    assert not same_teacher(answers, answers + 0.1)
    assert not same_teacher(answers, None) and not same_teacher(None, answers)
    assert not same_teacher(answers, answers[:, :1])
