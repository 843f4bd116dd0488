from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from bars import bars
from torch import Tensor, nn

from massmover.models import lenet
from massmover.training import Adversary, Recipe, accuracy, train
from massmover.training.batches import random_mirror, random_shift
from massmover.training.loop import one_cycle
from massmover.types import MassmoverError

QUICK = Recipe(epochs=3, batch_size=16, averaging=0.9)


def test_training_learns() -> None:
    images, labels = bars()
    trained = train(lenet, images, labels, recipe=QUICK)
    assert accuracy(trained.model, images, labels) == 1.0
    assert trained.losses[-1] < trained.losses[0]
    assert len(trained.losses) == 3
    assert trained.seconds > 0


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_the_same_seed_gives_the_same_weights(averaging: float) -> None:
    images, labels = bars()
    recipe = dataclasses.replace(QUICK, averaging=averaging)
    first = train(lenet, images, labels, recipe=recipe, seed=3).model.state_dict()
    torch.rand(5)  # the global generator has no say
    second = train(lenet, images, labels, recipe=recipe, seed=3).model.state_dict()
    other = train(lenet, images, labels, recipe=recipe, seed=4).model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_training_leaves_its_surroundings_alone() -> None:
    images, labels = bars()
    copies = images.clone(), labels.clone()
    state = torch.get_rng_state()
    train(lenet, images, labels, recipe=dataclasses.replace(QUICK, epochs=1))
    assert torch.equal(images, copies[0])
    assert torch.equal(labels, copies[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_training_is_silent_and_reports_each_step(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, int, int, float]] = []
    images, labels = bars(40)
    train(lenet, images, labels, recipe=QUICK, progress=lambda *news: heard.append(news))
    assert [news[:3] for news in heard] == [(step // 3, step + 1, 9) for step in range(9)]
    assert all(news[3] > 0 for news in heard)
    assert capfd.readouterr() == ("", "")


def test_the_trained_model_is_in_eval_mode_with_averaged_statistics() -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 4, stride=4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(196, 2))

    images, labels = bars()
    model = train(network, images, labels, recipe=QUICK).model
    assert not any(module.training for module in model.modules())
    assert int(model.state_dict()["1.num_batches_tracked"]) == 18
    assert accuracy(model, images, labels) == 1.0


def test_floats_train_like_bytes() -> None:
    images, labels = bars()
    bytes_ = train(lenet, images, labels, recipe=QUICK).model.state_dict()
    floats = train(lenet, images.float() / 255, labels, recipe=QUICK).model.state_dict()
    assert all(torch.equal(bytes_[name], floats[name]) for name in bytes_)


def test_a_loss_that_explodes_is_told() -> None:
    def hopeless() -> nn.Module:
        model = lenet()
        nn.init.constant_(model.get_parameter("7.bias"), torch.nan)
        return model

    with pytest.raises(
        MassmoverError,
        match=r"became nan: lower peak_rate, 0.004. Training stopped at step 1 of 18 \(epoch 1\); no epoch",
    ):
        train(hopeless, *bars(), recipe=QUICK)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(2, dtype=torch.long), r"\(N, C, H, W\)"),
        (torch.zeros(0, 1, 28, 28), torch.zeros(0, dtype=torch.long), "non-empty"),
        (torch.full((2, 1, 28, 28), 255.0), torch.zeros(2, dtype=torch.long), "from 255 to 255"),
        (torch.zeros(2, 1, 28, 28), torch.zeros(3, dtype=torch.long), r"got \(3,\)"),
        (torch.zeros(2, 1, 28, 28), torch.zeros(2), "Labels must be integers"),
    ],
)
def test_data_that_does_not_fit_is_refused(images: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(MassmoverError, match=message):
        train(lenet, images, labels)


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"shift": -1},
        {"peak_rate": 0.0},
        {"peak_rate": float("nan")},
        {"weight_decay": -1.0},
        {"warm_up": 0.0},
        {"label_smoothing": 1.0},
        {"averaging": 1.0},
        {"held_out": 1.0},
        {"optimiser": "lbfgs"},
        {"clean_share": 2.0},
        {"trades": -1.0},
        {"forgiving": 0.5},
        {"forgiving": -0.1, "adversary": Adversary()},
        {"forgiving": 0.5, "trades": 1.0, "adversary": Adversary()},
    ],
)
def test_recipes_that_cannot_train_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(MassmoverError):
        Recipe(**settings)


def test_the_rate_rises_to_its_peak_and_falls() -> None:
    rates = [one_cycle(step / 100, peak=1.0, warm_up=0.2) for step in range(101)]
    assert rates[0] == pytest.approx(1 / 25)
    assert max(rates) == rates[20] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(1e-4)
    assert rates[:21] == sorted(rates[:21])
    assert rates[20:] == sorted(rates[20:], reverse=True)


def test_shifts_move_whole_images_by_at_most_the_largest() -> None:
    images = torch.zeros(400, 2, 9, 9, dtype=torch.uint8)
    images[:, 0, 4, 4] = 200
    images[:, 1, 4, 5] = 100
    shifted = random_shift(images, largest=2, draws=torch.Generator().manual_seed(0))
    places = shifted[:, 0].flatten(1).argmax(dim=1)
    rows, columns = places // 9 - 4, places % 9 - 4
    assert set(rows.tolist()) == set(columns.tolist()) == {-2, -1, 0, 1, 2}
    assert torch.equal(shifted[:, 1].flatten(1).argmax(dim=1), places + 1)  # both channels move together
    assert torch.equal(shifted.sum(dim=(1, 2, 3)), images.sum(dim=(1, 2, 3)))


def test_what_enters_is_black_and_no_shift_is_the_identity() -> None:
    images = torch.ones(50, 1, 5, 5)
    draws = torch.Generator().manual_seed(0)
    assert torch.equal(random_shift(images, largest=0, draws=draws), images)
    assert set(random_shift(images, largest=1, draws=draws).sum(dim=(1, 2, 3)).tolist()) == {16, 20, 25}


def test_accuracy_counts_across_batches_and_restores_the_mode() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        model.get_parameter("1.weight").copy_(torch.tensor([[-1.0], [1.0]]))
        model.get_parameter("1.bias").copy_(torch.tensor([0.5, -0.5]))
    images = torch.tensor([0, 0, 255, 255, 255], dtype=torch.uint8).reshape(5, 1, 1, 1)
    assert accuracy(model, images, torch.tensor([0, 1, 1, 1, 1]), batch_size=2) == pytest.approx(0.8)
    assert model.training


def test_half_of_the_images_are_mirrored() -> None:
    images = torch.arange(12, dtype=torch.uint8).reshape(1, 1, 3, 4).repeat(100, 1, 1, 1)
    mirrored, turned = random_mirror(images, draws=torch.Generator().manual_seed(0))
    assert turned.tolist() == [torch.equal(image, images[0].flip(2)) for image in mirrored]
    assert 30 < int(turned.sum()) < 70
    assert torch.equal(mirrored[~turned], images[~turned])
